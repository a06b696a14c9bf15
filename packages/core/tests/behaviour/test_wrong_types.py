"""An argument of a wrong type is refused by an error that names the op and the argument."""

import warnings

import pytest

import pullback as pb
from pullback.ops import ENTRIES, ops
from pullback.testing.samples import samples_of

# Values that no argument of a type may have; with "?" it may be None.
WRONG = {
    "Tensor": ("x", 1.5, None, [1.0], object()),
    "Operand": ("x", None, [1.0], object()),
    "Tensor[]": ("x", 1.5, None, object(), ["x"], [1.5]),
    "Scalar": ("x", None, [1.0], object()),
    "float": ("x", None, [1.0], 1j, object()),
    "int": ("x", None, [1], 1.5, object()),
    "bool": ("x", 1, 1.5, None, [True], object()),
    "int[]": ("x", 1.5, None, object(), ["x"], [1.5], [0, "x"]),
    "dtype": ("x", 1.5, None, object()),
    "str": (1, 1.5, None, object(), ["x"]),
    "device": (1.5, object(), ["x"]),
    "layout": ("x", 1, object()),
    "memory_format": ("x", 1, object()),
}
# Names of modes that torch compares in Python, so that its message has the value instead.
BY_VALUE = {"reduction", "compute_mode", "mode"}
# torch's message of an element of a list of tensors counts the argument.
COUNTED = "expected Tensor as element 0 in argument"


def first_sample(entry):
    """A call in some dtype that the entry takes."""
    for dtype in (pb.float32, pb.int64, pb.bool, pb.complex64):
        for sample in samples_of(entry, dtype):
            return sample
    return None


PUBLIC = [
    name
    for name, entry in ENTRIES.items()
    if (entry.method or entry.function) and not isinstance(entry.samples, str)
]


def shown_names(entry):
    """The names under which users know an op."""
    shown = entry.function or entry.method
    given = {entry.name, shown if isinstance(shown, str) else entry.name}
    return {name.removeprefix("linalg_").rstrip("_") for name in given}


def is_named(message, entry, argument):
    name = argument.name.rstrip("_")
    name = "input" if name == "self" and "argument 'input'" in message else name  # as torch
    names_op = any(name in message for name in shown_names(entry))
    return (names_op and (name in message or COUNTED in message)) or (
        argument.name in BY_VALUE and argument.type == "str"
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_argument_of_a_wrong_type_is_refused_by_name(name):
    entry = ENTRIES[name]
    sample = first_sample(entry)
    if sample is None:
        pytest.skip("no sample in these dtypes")
    for position, argument in enumerate(entry.arguments):
        if entry.varargs and position == len(entry.arguments) - 1:
            continue  # a spread argument takes the rest, of any number
        kind = argument.type.removesuffix("?")
        for wrong in WRONG.get(kind, ()):
            if wrong is None and kind != argument.type:
                continue
            args, kwargs = list(sample.args), dict(sample.kwargs)
            if position < len(args):
                args[position] = wrong
            else:
                kwargs[argument.name] = wrong
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with pytest.raises((TypeError, ValueError, RuntimeError, IndexError)) as caught:
                    getattr(ops, name)(*args, **kwargs)
            assert is_named(str(caught.value), entry, argument), (wrong, str(caught.value))


X = pb.ones(2, 2)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: X.mm("s"), r"mm\(\): argument 'mat2' \(position 1\) must be Tensor, not str"),
        (lambda: pb.mm(X, "s"), r"mm\(\): argument 'mat2' \(position 2\) must be Tensor, not str"),
        (lambda: pb.mm(X, mat2="s"), r"mm\(\): argument 'mat2' must be Tensor, not str"),
        (lambda: pb.mm(3, X), r"mm\(\): argument 'input' \(position 1\) must be Tensor, not int"),
        (lambda: X.transpose(0, "s"), r"argument 'dim1' \(position 2\) must be int, not str"),
        (lambda: pb.transpose(X, 0, "s"), r"argument 'dim1' \(position 3\) must be int, not str"),
        (lambda: X.exp().mm(3), r"argument 'mat2' \(position 1\) must be Tensor, not int"),
        (lambda: pb.mm(X.exp(), 3), r"argument 'mat2' \(position 2\) must be Tensor, not int"),
    ],
)
def test_positions_of_methods_do_not_count_the_tensor(call, text):
    with pytest.raises(TypeError, match=text):
        call()
