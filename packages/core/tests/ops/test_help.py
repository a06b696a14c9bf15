"""What ``help`` and ``inspect.signature`` say of the ops."""

import doctest
import inspect
import pydoc

import pytest

import pullback as pb
from pullback._help.arguments import ARGUMENTS, meaning_of
from pullback._help.ops import examples
from pullback.ops import ENTRIES, ops

PUBLIC = {name: entry for name, entry in ENTRIES.items() if entry.method or entry.function}


@pytest.mark.parametrize(
    ("function", "signature"),
    [
        (pb.add, "(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1, out: "),
        (pb.Tensor.add_, "(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) "),
        (pb.ones(2).flip, "(*dims: int | Sequence[int]) -> Tensor"),
        (pb.nn.functional.softmax, "(input: Tensor, dim: int | None = None, "),
        (pb.linalg.inv, "(A: Tensor, *, out: Tensor | None = None) -> Tensor"),
        (pb.chunk, "(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]"),
    ],
)
def test_signature_says_how_to_call(function, signature):
    assert str(inspect.signature(function)).startswith(signature)


def test_every_argument_of_a_public_op_is_explained():
    missing = [
        f"{name}.{argument.name}"
        for name, entry in PUBLIC.items()
        for argument in entry.arguments
        if meaning_of(name, argument.name, argument.type) is None
    ]
    assert not missing, "say what it means in _help/arguments.py"


def test_no_explanation_is_left_of_what_is_gone():
    used = {
        key
        for name, entry in ENTRIES.items()
        for argument in entry.arguments
        for key in (f"{name}.{argument.name}", f"{argument.name}:{argument.type}", argument.name)
    }
    assert ARGUMENTS.keys() - used - {"input"} == set()


def test_examples_show_what_ops_return():
    runner = doctest.DocTestRunner(verbose=False)
    failed = []
    for name, text in examples().items():
        case = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
        with pb.random.fork_rng(devices=[]):
            runner.run(case, out=failed.append)
    assert not failed, failed[0]
    assert runner.tries > 1000
    assert not examples().keys() - PUBLIC.keys()


def test_public_ops_have_examples():
    """A new op gets one from its samples: run tools/examplegen.py."""
    missing = PUBLIC.keys() - examples().keys()
    warn_or_have_a_better_name = {"chain_matmul", "upsample", "upsample_bilinear"}
    warn_or_have_a_better_name |= {"upsample_nearest", "grid_sampler", "div_rounded", "pin_memory"}
    warn_or_have_a_better_name |= {"cholesky", "qr", "lu", "lu_solve", "range", "triangular_solve"}
    warn_or_have_a_better_name |= {"nuclear_norm", "frobenius_norm", "gather_sparse"}
    warn_or_have_a_better_name |= {"grid_sampler_2d", "grid_sampler_3d"}
    rest = {name for name in missing if not name.startswith("_")} - warn_or_have_a_better_name
    assert not rest, "run tools/examplegen.py"


def test_help_has_signature_arguments_and_example():
    text = pydoc.render_doc(pb.sin, renderer=pydoc.plaintext)
    assert "sin(input: Tensor, *, out: Tensor | None = None) -> Tensor\n" in text
    assert "  input (Tensor): the tensor\n" in text
    assert ">>> pullback.sin(x)\n" in text
    assert "The result is written into the tensor" in pb.Tensor.sin_.__doc__
    assert "keepdim (bool)" in pydoc.render_doc(pb.Tensor, renderer=pydoc.plaintext)


def test_ops_refuse_unknown_attributes():
    with pytest.raises(AttributeError, match="'Op' object has no attribute 'nothing'"):
        ops.add.nothing
