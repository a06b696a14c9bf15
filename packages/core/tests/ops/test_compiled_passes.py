"""Where an entry has a compiled pass beside its Python function, both give the same."""

import pytest

import pullback as pb
from pullback.ops import ENTRIES
from pullback.ops.table.primitives import decompositions
from pullback.testing.checks.basic import assert_same_bits
from pullback.testing.runner import CHECKS, iter_samples
from pullback.testing.samples import op_of, tensors_in

BOTH = [entry for entry in ENTRIES.values() if entry.compiled is not None]


def all_arguments(entry, args, kwargs):
    """Return every argument of a call by position."""
    names = [argument.name for argument in entry.arguments]
    positional = sum(not argument.keyword_only for argument in entry.arguments)
    given = list(args)
    if len(given) > positional:
        given[positional - 1 :] = [tuple(given[positional - 1 :])]
    placed = [argument.default for argument in entry.arguments]
    placed[: len(given)] = given
    for name, value in kwargs.items():
        placed[names.index(name)] = value
    return placed


@pytest.mark.parametrize("entry", BOTH, ids=[entry.name for entry in BOTH])
def test_compiled_pass_gives_what_the_python_function_gives(entry):
    if pb.get_default_device().type == "ref" and entry.kernel in decompositions():
        pytest.skip("ref decomposes it")
    function = entry.forward if entry.composite is None else entry.composite
    seen = 0
    for sample in iter_samples(CHECKS["repeatable"], entry):
        one, other = sample.cloned(), sample.cloned()
        quick = tensors_in((op_of(entry)(*one.args, **one.kwargs),))
        slow = tensors_in((function(*all_arguments(entry, other.args, other.kwargs)),))
        assert len(quick) == len(slow)
        for left, right in zip(quick, slow):
            assert_same_bits(left, right, str(sample))
            assert left.stride() == right.stride()
            assert left.device == right.device
        seen += 1
    assert seen or entry.name.startswith("empty")
