"""Operators that users define, beside torch's."""

from collections.abc import Sequence

import pytest

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

NAMES = {"Sequence": Sequence}
SIGNATURES = (
    "x: Tensor, y: float = 1.0) -> Tensor",
    "x: Tensor, xs: list[Tensor], z: int | None = None) -> tuple[Tensor, Tensor]",
    "x: Tensor) -> None",
    "x: Tensor) -> tuple[()]",
    "x: Tensor) -> tuple[Tensor]",
    "x: Tensor, s: str, b: bool, d: lib.dtype, e: lib.device) -> list[Tensor]",
    "x: Sequence[int], y: Tensor | None = None, *, w: str = 'a') -> int",
    "x: int | float | bool) -> Tensor",
    "x) -> Tensor",
    "x: Tensor, *args) -> Tensor",
    "x: Tensor)",
)
SETUP = """
@lib.library.custom_op("parity::cube", mutates_args=())
def cube(x: lib.Tensor, n: int = 3) -> lib.Tensor:
    return x**n

cube.register_fake(lambda x, n=3: lib.empty_like(x))
cube.register_autograd(
    lambda ctx, g: (ctx.n * g * ctx.saved_tensors[0] ** (ctx.n - 1), None),
    setup_context=lambda ctx, inputs, output: (
        ctx.save_for_backward(inputs[0]), setattr(ctx, "n", inputs[1])),
)

packet = lib.ops.parity.cube
x = lib.tensor([1.0, 2.0], requires_grad=True)
"""
EXPRESSIONS = (
    "cube(x).tolist(), cube(x, 2).tolist(), packet(x, n=1).tolist()",
    "lib.autograd.grad(cube(x).sum(), x)[0].tolist()",
    "lib.vmap(cube)(lib.ones(3, 2)).tolist()",
    "tuple(cube(lib.ones(2, 3, device='meta')).shape)",
    "repr(cube), repr(packet), repr(packet.default), str(packet.default), packet.overloads()",
    "str(packet.default._schema), packet.default.name(), packet.default.__name__, packet.__name__",
    "packet.nothing",
    "lib.ops.parity.nothing",
    "cube()",
    "cube(1)",
    "cube(x, 2, 3)",
    "lib.library.define('name', '(Tensor x) -> Tensor')",
    "lib.library.Library('parity', 'OTHER')",
    "lib.library.opcheck(cube, (x.detach(),))",
    "cube(x.detach(), True).tolist(), cube(x.detach(), lib.tensor(2)).tolist()",
    "lib.library.define('parity::one', 'Tensor x -> Tensor')",
    "lib.ops.aten.add(x.detach(), 2).tolist()",
)


def text_of(error):
    return str(error).replace("torch.", "pullback.").split("The valid types")[0]


@pytest.mark.parametrize("mutated", [(), ("x",), "unknown"])
@pytest.mark.parametrize("signature", SIGNATURES)
def test_schemas_as_torch(signature, mutated):
    found = []
    for lib in (pullback, torch):
        names = {**NAMES, "lib": lib, "Tensor": lib.Tensor}
        exec(f"def function({signature}: ...", names)
        try:
            found.append(lib.library.infer_schema(names["function"], mutates_args=mutated))
        except ValueError as error:
            found.append(text_of(error))
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def namespaces():
    made = {}
    for lib in (pullback, torch):
        made[lib] = {"lib": lib}
        exec(SETUP, made[lib])
    return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_operators_as_torch(namespaces, expression):
    found = []
    for names in namespaces.values():
        try:
            found.append(eval(expression, names))
        except Exception as error:
            found.append((type(error).__name__, text_of(error)))
    assert found[0] == found[1]
