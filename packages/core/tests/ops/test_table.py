"""What every entry of the op table must have."""

import inspect
from functools import partial

import pytest

import pullback as pb
from pullback.ops import ENTRIES, ops
from pullback.ops.table.primitives import PRIMITIVES
from pullback.testing.draw import LAYOUTS
from pullback.testing.reference import find_reference
from pullback.testing.runner import CHECKS, iter_samples
from pullback.testing.samples import DTYPES, accepts, cases_of, op_of, reason_without_cases

EVERY_ENTRY = pytest.mark.parametrize("entry", ENTRIES.values(), ids=list(ENTRIES))


@EVERY_ENTRY
def test_entry_has_one_sentence_of_documentation(entry):
    first, *rest = entry.doc.splitlines()
    assert first.endswith(".")
    assert first[0].isupper() or first.startswith(entry.name)
    assert not rest or rest[0] == ""


@EVERY_ENTRY
def test_entry_has_samples_or_says_why_not(entry):
    reason = reason_without_cases(entry)
    if reason is None:
        assert cases_of(entry)
    else:
        assert len(reason.split()) > 3


@EVERY_ENTRY
def test_skipped_checks_exist_and_have_a_reason(entry):
    for case in cases_of(entry):
        assert set(case.skip) <= {*CHECKS, *LAYOUTS}
        assert all(len(reason.split()) > 2 for reason in case.skip.values())


@EVERY_ENTRY
def test_reference_can_be_found(entry):
    if entry.ref is not None:
        assert callable(find_reference(entry.ref))


@EVERY_ENTRY
def test_entry_without_reference_is_random_or_checked_otherwise(entry):
    # Without a reference the value must be covered elsewhere: by the derivative checks, by tests of
    # random numbers, or because there is nothing to compare.
    if entry.ref is None and cases_of(entry):
        unfilled = all("value" in case.skip for case in cases_of(entry))
        draws = any(argument.name == "generator" for argument in entry.arguments)
        assert unfilled or draws or entry.vjp or entry.composite is not None


@EVERY_ENTRY
def test_every_accepted_dtype_has_a_sample(entry):
    if reason_without_cases(entry) is None:
        check = CHECKS["meta"]
        sampled = {sample.dtype for sample in iter_samples(check, entry)}
        counted = all("meta" in case.skip for case in cases_of(entry))
        assert counted or sampled == {dtype for dtype in DTYPES if accepts(entry, dtype)}


@EVERY_ENTRY
def test_kernel_primitive_exists(entry):
    assert entry.kernel is None or entry.kernel in PRIMITIVES


@EVERY_ENTRY
def test_formulas_name_tensor_arguments(entry):
    tensors = {a.name for a in entry.arguments if a.type.startswith(("Tensor", "Operand"))}
    for targets, formula in entry.vjp.items():
        assert ({targets} if isinstance(targets, str) else set(targets)) <= tensors
        assert {"g", "gs"} & set(inspect.signature(formula).parameters) or not entry.view


@EVERY_ENTRY
def test_op_is_where_its_entry_says(entry):
    op = op_of(entry)
    names = [entry.name, *entry.aliases]
    if entry.inplace is True:
        names += [f"{name}_" for name in names]
    for name in names:
        assert hasattr(ops, name)
        if entry.method:
            method = entry.method if isinstance(entry.method, str) else name
            assert getattr(pb.Tensor, method) is getattr(ops, name)
        public = entry.function if isinstance(entry.function, str) else name
        if getattr(ops, name) is not op and not entry.inplace_function:
            assert not entry.function or not hasattr(pb, name)
            continue
        if entry.function and "" in entry.namespaces:
            assert getattr(pb, public) is getattr(ops, name)
        if entry.function and "functional" in entry.namespaces:
            assert getattr(pb.nn.functional, public) is getattr(ops, name)
        if entry.function and "linalg" in entry.namespaces:
            assert getattr(pb.linalg, public) is getattr(ops, name)
        if entry.function and "special" in entry.namespaces:
            assert getattr(pb.special, public) is getattr(ops, name)
        if entry.function and "fft" in entry.namespaces:
            assert getattr(pb.fft, public) is getattr(ops, name)
    assert op.__doc__.startswith(entry.doc)


@pytest.mark.parametrize(
    "module",
    [pb, pb.nn.functional, pb.linalg, pb.special, pb.fft],
    ids=lambda module: module.__name__,
)
def test_functions_do_not_bind_to_objects_that_have_them(module):
    # As builtin functions: a class may have one as an attribute, such as its activation.
    kinds = (type(pb.sin), type(pb.equal))
    functions = {name: one for name, one in vars(module).items() if isinstance(one, kinds)}
    holder = type("Holder", (), functions)()
    assert functions
    for name, function in functions.items():
        assert getattr(holder, name) is function


def test_functions_of_objects_are_called_without_the_object():
    class Layer(pb.nn.Module):
        activation = pb.tanh
        product = pb.nn.functional.linear
        same = pb.equal

    layer, x = Layer(), pb.ones(1, 2)
    for _ in range(20):  # the interpreter specializes calls that it has seen
        assert layer.activation(x).equal(x.tanh())
        assert layer.product(x, weight=x).item() == 2
        assert layer.same(x, x)
    assert pb.Tensor.tanh is pb.tanh and x.tanh.__self__ is x


class Sub(pb.Tensor):
    pass


@pytest.mark.parametrize("owner", [pb.Tensor, Sub, pb.nn.Parameter], ids=lambda kind: kind.__name__)
def test_methods_are_the_same_objects_whenever_they_are_read(owner):
    for name in filter(partial(hasattr, pb.Tensor), dir(pb.Tensor)):
        space = {"owner": owner}
        exec(f"def read(): return owner.{name}", space)
        once, *others = [space["read"]() for _ in range(50)]  # cached from some read on
        if type(once) in (type(pb.mul), type(pb.Tensor.item), type(pb.Tensor.shape)):
            assert all(other is once for other in others), name


def test_every_primitive_is_that_of_an_entry():
    assert {entry.kernel for entry in ENTRIES.values()} - {None} == set(PRIMITIVES)


def test_two_names_never_share_an_entry():
    seen = [name for entry in ENTRIES.values() for name in (entry.name, *entry.aliases)]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize(
    ("op", "name", "shown"),
    [(pb.softmax, "softmax.top", "softmax"), (pb.dropout_, "dropout.top_", "dropout_")],
)
def test_overload_is_not_part_of_the_shown_name(op, name, shown):
    assert (op.name, op.__name__, repr(op)) == (name, shown, f"<built-in op {shown}>")


def test_an_entry_that_nobody_could_reach_is_refused():
    from pullback.ops.table.schema import op

    with pytest.raises(ValueError, match="'unreachable' is no function, so it has no namespace"):
        op("unreachable(self: Tensor) -> Tensor", namespace="special", function=False)
    assert "unreachable" not in ENTRIES
