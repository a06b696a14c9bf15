"""Sums of products by labelled dims.

An equation becomes one list of labels per operand. Labels of only one operand, which the
result has not, are summed first; then operands are multiplied two by two, each pair as one batch of
matrix products. A label is a letter, or (``...``, n): the n-th dim from the right of an ellipsis.
"""

from __future__ import annotations

import functools
import itertools
import math
from types import SimpleNamespace
from typing import NamedTuple

from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import NUMBERS, op, ops

references = references_of("linalg")

_ELLIPSIS = "..."
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


# -- the equation ----------------------------------------------------------------------------------


def _read(text, start, where):
    """Return the labels of a part of the equation."""
    labels, position = [], 0
    while position < len(text):
        letter = text[position]
        if letter == ".":
            if _ELLIPSIS in labels:
                raise RuntimeError(
                    f"einsum(): found '.' for {where} for which an ellipsis was already found"
                )
            if text[position : position + 3] != _ELLIPSIS:
                raise RuntimeError(
                    f"einsum(): found '.' for {where} that is not part of any ellipsis"
                )
            labels.append(_ELLIPSIS)
            position += 3
            continue
        if letter != " ":
            if letter not in _LETTERS:
                raise RuntimeError(
                    f"einsum(): invalid subscript given at index {start + position} "
                    f"in the equation string, subscripts must be in [a-zA-Z]"
                )
            labels.append(letter)
        position += 1
    return labels


@functools.lru_cache(maxsize=1024)
def _read_equation(equation, count):
    """Return the labels of each operand, and those of the output if it is given."""
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != count:
        few = "fewer" if count < len(parts) else "more"
        raise RuntimeError(f"einsum(): {few} operands were provided than specified in the equation")
    start, inputs = 0, []
    for number, part in enumerate(parts):
        inputs.append(_read(part, start, f"operand {number}"))
        start += len(part) + 1
    output = _read(right, len(left) + 2, "the output") if arrow else None
    return inputs, output


def _read_sublist(sublist):
    """Turn numbers in [0, 52) and Ellipsis into labels."""
    if not isinstance(sublist, (tuple, list)):
        raise TypeError(f"einsum(): expected a list of subscripts, not {type(sublist).__name__}")
    labels = []
    for item in sublist:
        if item is Ellipsis:
            labels.append(_ELLIPSIS)
        elif isinstance(item, int) and 0 <= item < 52:
            labels.append(_LETTERS[item])
        else:
            raise ValueError(
                f"einsum(): subscript in subscript list is not within the valid range "
                f"[0, 52), got {item!r}"
            )
    return labels


def _arguments(equation, operands):
    """Return operands, their labels and the output's, from either way to call einsum."""
    if hasattr(equation, "data_ptr"):
        rest = list(operands) if isinstance(operands, tuple) else [operands]
        given = [equation, *rest]
        output = _read_sublist(given.pop()) if len(given) % 2 else None
        return given[::2], [_read_sublist(labels) for labels in given[1::2]], output
    if not isinstance(equation, str):
        raise TypeError(
            f"einsum(): argument 'equation' (position 1) must be str, not {type(equation).__name__}"
        )
    equation = str.__str__(equation)  # a subclass may iterate without an end
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = operands[0]
    if not operands:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or "
            "at least one operand and its subscripts list"
        )
    return list(operands), *_read_equation(equation, len(operands))


def _expand_ellipsis(number, operand, labels):
    """Give the dims of an ellipsis labels, counted from the right."""
    named = len(labels) - (_ELLIPSIS in labels)
    if _ELLIPSIS not in labels and named != operand.ndim:
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({named}) does not "
            f"match the number of dimensions ({operand.ndim}) for operand {number} "
            f"and no ellipsis was given"
        )
    if named > operand.ndim:
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({named}) is more "
            f"than the number of dimensions ({operand.ndim}) for operand {number}"
        )
    return _substitute(labels, operand.ndim - named)


def _substitute(labels, count):
    found = []
    for label in labels:
        found += [(_ELLIPSIS, n) for n in range(count, 0, -1)] if label == _ELLIPSIS else [label]
    return found


def _output_labels(output, inputs):
    """Check the output's labels; without any, those that occur once, in order."""
    everything = [label for labels in inputs for label in labels]
    widest = max([label[1] for label in everything if isinstance(label, tuple)], default=0)
    if output is None:
        once = sorted(
            label for label in everything if isinstance(label, str) and everything.count(label) == 1
        )
        return _substitute([_ELLIPSIS, *once], widest)
    for label in output:
        if output.count(label) > 1:
            raise RuntimeError(
                f"einsum(): output subscript {label} appears more than once in the output"
            )
        if label != _ELLIPSIS and label not in everything:
            raise RuntimeError(
                f"einsum(): output subscript {label} does not appear in the "
                f"equation for any input operand"
            )
    return _substitute(output, widest)


# -- one operand -----------------------------------------------------------------------------------


def _take_diagonals(number, operand, labels):
    """Make every label of an operand occur once."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            m, n = operand.shape[first], operand.shape[second]
            if m != n:
                raise RuntimeError(
                    f"einsum(): subscript {label} is repeated for operand {number} "
                    f"but the sizes don't match, {n} != {m}"
                )
            operand = operand.diagonal(0, first, second)
            labels = [x for d, x in enumerate(labels) if d not in (first, second)] + [label]
    return operand, labels


def _check_sizes(operands, inputs):
    sizes: dict[str, int] = {}
    for number, (operand, labels) in enumerate(zip(operands, inputs)):
        for dim, (label, size) in enumerate(zip(labels, operand.shape)):
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
            elif size not in (1, sizes[label]):
                what = f"subscript {label} has size {size} for operand {number}"
                seen = "previously seen size"
                if isinstance(label, tuple):
                    what = (
                        f"dimension {dim} covered by ellipsis in operand {number} has size {size}"
                    )
                    seen = "previously seen ellipsis with size"
                raise RuntimeError(
                    f"einsum(): {what} which does not broadcast with {seen} {sizes[label]}"
                )
    return sizes


def _keep_only(operand, labels, wanted):
    """Sum the dims whose labels neither the result nor another operand has."""
    dims = tuple(d for d, label in enumerate(labels) if label not in wanted)
    if not dims:
        return operand, labels
    kept = [label for label in labels if label in wanted]
    # dims of one element need no sum; but a sum of integers is int64, as in torch
    inexact = operand.is_floating_point() or operand.is_complex()
    if inexact and all(operand.shape[d] == 1 for d in dims):
        return operand.squeeze(dims), kept
    return ops.sum(operand, dims), kept


def _ordered(operand, labels, wanted):
    """Return the operand with its dims in the wanted order."""
    order = _order(labels, wanted)
    return operand if order is None else operand.permute(order)


# -- two operands ----------------------------------------------------------------------------------


def _drop_singles(operand, labels, other, other_labels):
    """Drop shared dims in which this operand has one element and the other one more."""
    dims = tuple(
        d
        for d, label in enumerate(labels)
        if label in other_labels and operand.shape[d] == 1 != other.shape[other_labels.index(label)]
    )
    if not dims:
        return operand, labels
    return operand.squeeze(dims), [x for d, x in enumerate(labels) if d not in dims]


def _widest(left, right):
    import pullback

    return pullback.promote_types(left.dtype, right.dtype)


def _multiply(left, a, right, b, wanted):
    """Contract two operands: labels of both that are not wanted later are summed."""
    left, a = _drop_singles(left, a, right, b)
    right, b = _drop_singles(right, b, left, a)
    alike = left.dtype == right.dtype
    left, a = _keep_only(left, a, {*wanted, *b})
    right, b = _keep_only(right, b, {*wanted, *a})
    if alike and left.dtype != right.dtype:  # only one of two integers was summed
        left, right = left.to(_widest(left, right)), right.to(_widest(left, right))
    contraction = _contraction(tuple(a), tuple(b), frozenset(wanted), left.shape, right.shape)
    return contraction.run(left, right), [*contraction.labels]


class _Contraction(NamedTuple):
    """How two operands become one: their orders (None: as they are), shapes, and the result's."""

    left_order: tuple[int, ...] | None
    left_shape: tuple[int, ...]
    right_order: tuple[int, ...] | None
    right_shape: tuple[int, ...]
    is_product: bool  # of matrices; else of elements, which all dtypes have
    shape: tuple[int, ...]
    labels: tuple

    def run(self, left, right):
        if self.left_order is not None:
            left = left.permute(self.left_order)
        if self.right_order is not None:
            right = right.permute(self.right_order)
        left, right = left.reshape(self.left_shape), right.reshape(self.right_shape)
        return ops.bmm(left, right).reshape(self.shape) if self.is_product else left * right


@functools.lru_cache(maxsize=1024)
def _contraction(a, b, wanted, left_shape, right_shape):
    """Plan a contraction: labels of both that are not wanted are summed."""
    batch = [x for x in a if x in b and x in wanted]
    inner = [x for x in a if x in b and x not in wanted]
    rows = [x for x in a if x not in b]
    columns = [x for x in b if x not in a]
    sizes = {**dict(zip(b, right_shape)), **dict(zip(a, left_shape))}
    labels = (*batch, *rows, *columns)
    shape = tuple(sizes[x] for x in labels)
    orders = _order(a, [*batch, *rows, *inner]), _order(b, [*batch, *inner, *columns])
    if not inner:
        left = tuple(sizes[x] for x in (*batch, *rows)) + (1,) * len(columns)
        right = tuple(sizes[x] for x in batch) + (1,) * len(rows) + tuple(sizes[x] for x in columns)
        return _Contraction(orders[0], left, orders[1], right, False, shape, labels)
    count, m, k, n = (math.prod(sizes[x] for x in part) for part in (batch, rows, inner, columns))
    return _Contraction(orders[0], (count, m, k), orders[1], (count, k, n), True, shape, labels)


@functools.lru_cache(maxsize=1024)
def _pair_contraction(equation, left_shape, right_shape):
    """Return the contraction that is all of an equation, and the order of its result.

    None where something else is to be done: diagonals, dims summed alone or dropped, an error.
    """
    operands = [SimpleNamespace(shape=s, ndim=len(s)) for s in (left_shape, right_shape)]
    try:
        inputs, output = _read_equation(equation, 2)
        a, b = inputs = [
            _expand_ellipsis(n, o, labels) for n, (o, labels) in enumerate(zip(operands, inputs))
        ]
        output = _output_labels(output, inputs)
        _check_sizes(operands, inputs)
    except RuntimeError:
        return None
    kept = {*output, *(x for x in a if x in b)}
    sizes = dict(zip(a, left_shape))
    if (
        len({*a}) < len(a)
        or len({*b}) < len(b)
        or not kept.issuperset({*a, *b})
        or any(sizes.get(x, size) != size for x, size in zip(b, right_shape))
    ):
        return None
    contraction = _contraction(tuple(a), tuple(b), frozenset(output), left_shape, right_shape)
    return contraction, _order(contraction.labels, output)


def _order(labels, wanted):
    """Return the dims in the wanted order; None if they have it."""
    order = tuple(labels.index(label) for label in wanted)
    return None if order == tuple(range(len(order))) else order


# -- the order of products -------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _path(inputs, output, shapes):
    """Return pairs of positions to contract, as opt_einsum finds them, or greedily by cost."""
    if len(inputs) < 3:
        return [(0, 1)] * (len(inputs) - 1)
    sizes = {x: size for labels, shape in zip(inputs, shapes) for x, size in zip(labels, shape)}
    try:
        from opt_einsum import contract_path
    except ImportError:
        return _greedy(inputs, output, sizes)
    names = {label: chr(192 + n) for n, label in enumerate(sizes)}
    text = ",".join("".join(names[x] for x in labels) for labels in inputs)
    text += "->" + "".join(names[x] for x in output)
    return _in_pairs(contract_path(text, *shapes, shapes=True)[0])


def _in_pairs(path):
    """Split steps of more than two operands."""
    pairs = []
    for step in path:
        step = sorted(step)
        if len(step) > 1:
            pairs.append((step[0], step[1]))
    return pairs


def _greedy(inputs, output, sizes):
    """Each time the pair whose product needs the fewest multiplications, the first of equals."""
    left, pairs = [set(labels) for labels in inputs], []

    def cost(pair):
        return math.prod(sizes[label] for label in left[pair[0]] | left[pair[1]])

    while len(left) > 1:
        i, j = min(itertools.combinations(range(len(left)), 2), key=cost)
        pairs.append((i, j))
        second, first = left.pop(j), left.pop(i)
        wanted = set(output).union(*left)
        left.append((first | second) & wanted)
    return pairs


def _einsum(equation, operands):
    if hasattr(operands, "data_ptr") and not hasattr(equation, "data_ptr"):
        operands = (operands,)
    if (
        type(equation) is str
        and len(operands) == 2
        and all(hasattr(operand, "data_ptr") for operand in operands)
    ):
        found = _pair_contraction(equation, operands[0].shape, operands[1].shape)
        if found is not None:
            out = found[0].run(*operands)
            return out if found[1] is None else out.permute(found[1])
    operands, inputs, output = _arguments(equation, operands)
    for position, operand in enumerate(operands):
        if not hasattr(operand, "data_ptr"):
            raise TypeError(
                f"einsum(): expected Tensor as operand {position}, but got {type(operand).__name__}"
            )
    inputs = [_expand_ellipsis(n, o, labels) for n, (o, labels) in enumerate(zip(operands, inputs))]
    output = _output_labels(output, inputs)
    taken = [
        _take_diagonals(n, o, list(labels)) for n, (o, labels) in enumerate(zip(operands, inputs))
    ]
    sizes = _check_sizes(*zip(*taken))
    shapes = tuple(tuple(sizes[x] for x in labels) for _, labels in taken)
    path = _path(tuple(tuple(labels) for _, labels in taken), tuple(output), shapes)
    for i, j in path:
        right, b = taken.pop(j)
        left, a = taken.pop(i)
        wanted = set(output).union(*(labels for _, labels in taken))
        taken.append(_multiply(left, a, right, b, wanted))
    last, labels = taken[0]
    out, labels = _keep_only(last, labels, set(output))
    return _ordered(out, labels, output)


op(
    "einsum(equation: any, operands: any = ()) -> Tensor",
    autocast=(None, "lower"),
    composite=_einsum,
    varargs=True,
    method=False,
    dtypes=NUMBERS,
    ref=references.einsum,
    doc="Return the sum of products of tensors by labelled dims, as 'ij,jk->ik' or with lists of "
    "numbers after each tensor.\n\nMore than two operands are multiplied in an order that "
    "opt_einsum finds, if it is installed, or else pair by pair, cheapest first.",
    samples=lambda: [
        case("ij,jk->ik", T(2, 3), T(3, 4)),
        case("ij,jk", T(2, 3), T(3, 4)),
        case("ii", T(3, 3)),
        case("ii->i", T(3, 3)),
        case("ij->ji", T(2, 3)),
        case("ij->", T(2, 3)),
        case("i,j->ij", T(2), T(3)),
        case("i,i", T(3), T(3)),
        case("bij,bjk->bik", T(2, 2, 3), T(2, 3, 2)),
        case("...ij->...ji", T(2, 1, 3)),
        case("...i,i...->...", T(2, 3), T(3, 2)),
        case("i...,i->...", T(3, 2), T(3)),
        case("bn,anm,bm->ba", T(2, 3), T(2, 3, 4), T(2, 4)),
        case(",ij->ij", T(), T(2, 3)),
        case("ij,kj->ikj", T(2, 3), T(4, 3)),
        case("ij,ij->j", T(0, 3), T(0, 3)),
        case("ij,jk->ik", T(2, 0), T(0, 3)),
        case("ijk,k->ij", T(2, 3, 0), T(0)),
        case("iij,j->i", T(2, 2, 3), T(3)),
        case("ij,jk,kl,lm->im", T(2, 3), T(3, 2), T(2, 3), T(3, 2)),
        case("ij,jk->ki", [T(2, 3), T(3, 4)]),
        case(" b a , a -> b", T(2, 3), T(3)),
        case(T(2, 3), [0, 1], T(3, 4), [1, 2], [0, 2]),
        case(T(2, 3), [0, 1]),
        case(T(2, 3, 3), [..., 4, 4]),
    ],
)
