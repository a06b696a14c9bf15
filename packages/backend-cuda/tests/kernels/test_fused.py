"""Compiled programs on a device: elementwise kernels that follow each other are one."""

import shutil
import subprocess

import pytest

import pullback as pb

pytestmark = pytest.mark.usefixtures("cuda", "compile_for_the_cpu")


@pytest.fixture
def launched(monkeypatch):
    """The names of kernels that are loaded while a test runs."""
    from pullback_cuda.fused import executor

    made = []
    write = executor.text_of

    def text_of(group):
        names = [call.operation.name or call.operation.family or "copy" for call in group.calls]
        made.append(names)
        return write(group)

    monkeypatch.setattr(executor, "text_of", text_of)
    return made


def same(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.stride() == other.stride()
        assert str(one.tolist()) == str(other.tolist())


def check(function, *makers):
    """Compare eager and compiled calls on fresh arguments, bit by bit."""
    compiled = pb.compile(function)
    for seed in range(3):
        pb.manual_seed(seed)
        arguments = [make().cuda() for make in makers]
        expected = function(*(one.clone() for one in arguments))
        same(compiled(*arguments), expected)
    return compiled


def test_chain_is_one_kernel(launched):
    def chain(x, y):
        return (pb.tanh(x) * y + pb.exp(-x * x),)

    compiled = check(chain, lambda: pb.randn(1001), lambda: pb.randn(1001))
    assert launched == [
        ["tanh_float", "mul_float", "neg_float", "mul_float", "exp_float", "add_float"]
    ]
    assert compiled.explain().programs[0]["parts"] == [(0, 6)]


@pytest.mark.parametrize(
    "dtype",
    [
        "float16",
        "bfloat16",
        "float64",
        "int32",
        "int64",
        "uint8",
        "complex64",
        "complex128",
        "bool",
    ],
)
def test_dtypes(dtype, launched):
    """Each value is rounded to its dtype, and casts and comparisons stand in between."""
    dtype = getattr(pb, dtype)

    def mixed(x, y):
        if dtype == pb.bool:
            return ((x & y) ^ (x | y), (x == y).float() * 2 - 1)
        z = x * y + x
        return (z * z - y, (z == x).to(dtype) + y, z.to(pb.float32) * 0.3 + 1)

    make = lambda: (pb.randn(7, 5) * 3).to(dtype)  # noqa: E731
    check(mixed, make, make)
    assert launched


def count_of_fma(tmp_path, *calls):
    """Return how many fused multiplications nvcc makes in the kernel of a chain of calls."""
    from pullback_cuda.fused.fusion import Call, FusionGroup, Operand, Operation
    from pullback_cuda.fused.text import text_of
    from pullback_cuda.runtime import nvrtc

    group = FusionGroup(0, (4,))
    for position, (family, name, dtype, inputs) in enumerate(calls):
        numbers = [position, position - 1, *range(100, 100 + inputs - 1)]
        operands = [Operand(k, dtype, 8, False, k, 0, (4,), (1,), False) for k in numbers]
        group.add(Call(Operation(family, name), tuple(operands)))
    group.stored = [group.calls[-1].out]
    source = tmp_path / "chain.cu"
    source.write_text(text_of(group))
    target = tmp_path / "chain.ptx"
    command = ["nvcc", *nvrtc.OPTIONS, "-arch=compute_75", f"-I{nvrtc.PACKAGE}", "-ptx", source]
    subprocess.run([*command, "-o", target], capture_output=True, check=True)
    return target.read_text().count("fma.")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
@pytest.mark.parametrize(
    ("family", "name", "kind", "dtype", "inputs"),
    [
        ("binary", "mul", "float", 8, 2),
        ("binary", "mul", "double", 9, 2),
        ("unary", "square", "float", 8, 1),
    ],
)
def test_product_is_rounded_before_a_sum(tmp_path, family, name, kind, dtype, inputs):
    """As in memory: nvcc fuses no product of one operation with the sum of the next."""
    first = (family, f"{name}_{kind}", dtype, inputs)
    add = ("binary", f"add_{kind}", dtype, 2)
    alone = count_of_fma(tmp_path, first) + count_of_fma(tmp_path, add)
    assert count_of_fma(tmp_path, first, add) == alone


def test_broadcast_operands_and_other_layouts(launched):
    def broadcast(x, row, column):
        y = x * 2 + row
        y = y * column - row
        return (y.exp(), y.T * 2 + 1)

    check(broadcast, lambda: pb.randn(6, 8), lambda: pb.randn(8), lambda: pb.randn(6, 1))
    check(broadcast, lambda: pb.randn(8, 6).T, lambda: pb.randn(16)[::2], lambda: pb.randn(6, 1))
    assert max(map(len, launched)) >= 4


def test_tails_and_unaligned_memory(launched):
    for count in (1, 3, 4, 1023, 1024, 1025, 5000):
        check(lambda x: ((x * 3 + 1).sin() * x,), lambda count=count: pb.randn(count + 1)[1:])
    assert all(len(names) == 4 for names in launched)


def test_choices_and_numbers(launched):
    def choose(x, y):
        flags = (x > 0.5) & (y < 0.5)
        return (pb.where(flags, x * 2, 7.5), x.clamp(-1, 1), pb.where(x < y, y, x).addcmul(x, y))

    check(choose, lambda: pb.randn(33), lambda: pb.randn(33))
    assert launched


def test_writes_in_place(launched):
    """Parameters are written; what is read before a write is what was there."""
    state = pb.zeros(20, device="cuda")

    def step(x):
        before = state * 2
        state.add_(x).mul_(0.5)
        return (before + state, state.exp())

    compiled = pb.compile(step)
    for number in range(4):
        x = pb.full((20,), float(number), device="cuda")
        kept = state.clone()
        found = compiled(x)
        after = (kept + x) * 0.5
        same(found, (kept * 2 + after, after.exp()))
        same((state,), (after,))
    assert launched


def test_shifted_views_are_not_in_one_kernel():
    """An element that another thread writes is not read in the same kernel."""
    memory = pb.zeros(64, device="cuda")

    def shift(x):
        memory[:-1].copy_(x)
        y = memory[1:] * 2 + 1
        memory[1:].add_(y)
        return (memory.clone() + 1, y * y)

    compiled = pb.compile(shift)
    for seed in range(3):
        pb.manual_seed(seed)
        x = pb.randn(63).cuda()
        memory.zero_()
        expected = shift(x)
        memory.zero_()
        same(compiled(x), expected)


def test_gradients_and_training(launched):
    pb.manual_seed(0)
    weights = [pb.randn(8, 8).cuda().requires_grad_() for _ in range(2)]
    start = [one.detach().clone() for one in weights]

    def step(x):
        y = (x @ weights[0]).sigmoid() * 2 - 1
        loss = ((y @ weights[1]).tanh() - x).square().mean()
        grads = pb.autograd.grad(loss, weights)
        with pb.no_grad():
            for one, grad in zip(weights, grads, strict=True):
                one.sub_(grad * 0.1 + one * 0.01)
        return loss.detach()

    inputs = [pb.randn(4, 8).cuda() for _ in range(5)]
    expected = [step(x).item() for x in inputs]
    trained = [one.detach().clone() for one in weights]
    with pb.no_grad():
        for one, before in zip(weights, start, strict=True):
            one.copy_(before)
    compiled = pb.compile(step)
    assert [compiled(x).item() for x in inputs] == expected
    same([one.detach() for one in weights], trained)
    assert launched


def test_large_calls_and_calls_of_many_operands_run_alone(launched):
    def many(*arguments):
        total = arguments[0]
        for one in arguments[1:]:
            total = total + one
        return (total,)

    check(many, *[lambda: pb.randn(9)] * 40)
    assert all(len(names) <= 16 for names in launched) and len(launched) >= 3


def test_errors_of_calls_between(launched):
    def look_up(x, index):
        y = x * 2 + 1
        return (y[index] * 3 + 1,)

    compiled = pb.compile(look_up)
    x, index = pb.randn(5).cuda(), pb.tensor([0, 4]).cuda()
    same(compiled(x, index), look_up(x, index))
    same(compiled(x, index), look_up(x, index))
    with pytest.raises(IndexError):
        compiled(x, pb.tensor([0, 7]).cuda())[0].cpu()
    same(compiled(x, index), look_up(x, index))


def test_all_operations_in_one_text():
    """Families of kernels do not clash: every operation of every class is in one kernel."""
    from pullback_cuda.kernels.elementwise.elementwise import operation_of

    from pullback.ops.table.primitives import PRIMITIVES
    from pullback_cuda.fused.fusion import Call, FusionGroup, Operand, Operation
    from pullback_cuda.fused.text import TYPES, text_of
    from pullback_cuda.runtime import nvrtc

    group = FusionGroup(0, (4,))
    names = set()
    for primitive in PRIMITIVES.values():
        for dtype, stored in enumerate(TYPES):
            found = operation_of(primitive.name, dtype, False)
            if found is None or found[:2] in names:
                continue
            names.add(found[:2])
            out = dtype
            if "bool output" in primitive.doc:
                out = TYPES.index("uint8_t")
            elif "real output" in primitive.doc and "complex" in stored:
                out = TYPES.index("double")
            dtypes = [out] + [dtype] * len(primitive.inputs.split())
            operands = [
                Operand(k, one, 8, False, 9 * len(names) + k, 0, (4,), (1,), False)
                for k, one in enumerate(dtypes)
            ]
            group.add(Call(Operation(*found), tuple(operands)))
    assert len(names) > 200
    group.stored = [call.out for call in group.calls]
    assert nvrtc.compile_text(text_of(group), "fused-all.cu", (8, 0))


def test_without_a_compiler_kernels_run_one_by_one(run_python):
    text = """if True:
        import warnings
        from pullback_cuda.runtime import nvrtc
        def compile_text(text, name, capability):
            raise RuntimeError(nvrtc.NO_COMPILER.format(name=name, reason="a test"))
        nvrtc.compile_text = compile_text
        import pullback as pb
        x = pb.arange(4.0).cuda()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for number in range(3):
                compiled = pb.compile(lambda x: (x * 5 - 2).exp() * number)
                for _ in range(3):
                    assert compiled(x).tolist() == ((x * 5 - 2).exp() * number).tolist()
        print(*(one.message for one in seen), sep="\\n")
    """
    result = run_python(text, PULLBACK_CUDA_FUSE="1")
    assert result.returncode == 0, result.stderr
    (line,) = result.stdout.splitlines()
    assert "kernel by kernel on cuda" in line and "pullback-cuda[nvrtc]" in line


def test_profile_has_the_time_of_a_part():
    profiler = pytest.importorskip("pullback_profiler")
    compiled = pb.compile(lambda x: (x * 2 + 1).exp())
    x = pb.randn(64).cuda()
    compiled(x), compiled(x)
    with profiler.profile(use_device="cuda") as seen:
        compiled(x)
    rows = [one for one in seen.key_averages() if "group(mul, add, exp)" in one.key]
    assert rows and all(row.device_time_total > 0 for row in rows)
