"""Sequences of different lengths: padded to one tensor, or packed step by step."""

from __future__ import annotations

import collections.abc
import itertools
from collections import namedtuple

import pullback
from pullback import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]

PackedSequence_ = namedtuple(
    "PackedSequence_", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"]
)
PackedSequence_.__annotations__ = {
    "data": Tensor,
    "batch_sizes": Tensor,
    "sorted_indices": Tensor | None,
    "unsorted_indices": Tensor | None,
}


def bind(optional, fn):
    """Return ``fn(optional)``, or None for None."""
    return None if optional is None else fn(optional)


def invert_permutation(permutation):
    """Return the permutation that undoes a permutation of 0 to n - 1; None for None.

    >>> import pullback
    >>> from pullback.nn.utils.rnn import invert_permutation
    >>> invert_permutation(pullback.tensor([2, 0, 1]))
    tensor([1, 2, 0])
    """
    if permutation is None:
        return None
    places = pullback.arange(permutation.numel(), device=permutation.device)
    return pullback.empty_like(permutation).scatter_(0, permutation, places)


class PackedSequence(PackedSequence_):
    """Sequences sorted by length, stored step by step without padding.

    ``data`` (all elements, ...) has the first elements of all sequences, then the second ones, and
    so on; ``batch_sizes`` says how many there are of each. ``sorted_indices`` sorts the batch,
    ``unsorted_indices`` undoes that; both are None for a batch that was sorted. Made by
    pack_padded_sequence and pack_sequence.

    >>> import pullback
    >>> from pullback.nn.utils.rnn import pack_sequence
    >>> packed = pack_sequence([pullback.tensor([1, 2, 3]), pullback.tensor([4])])
    >>> packed.data, packed.batch_sizes
    (tensor([1, 4, 2, 3]), tensor([2, 1, 1]))
    """

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:  # the older form: one pair
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type not in ("cpu", "ref"):
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                "created manually. They should be instantiated by functions like pack_sequence and "
                "pack_padded_sequences in nn.utils.rnn. "
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data):
        """Return the sequence with other data, and its indices on the data's device."""
        if data is self.data:
            return self
        indices = (
            bind(part, lambda t: t.to(data.device))
            for part in (self.sorted_indices, self.unsorted_indices)
        )
        return type(self)(data, self.batch_sizes, *indices)

    def to(self, *args, **kwargs):
        """Move or cast the data, as ``Tensor.to`` does."""
        return self._with(self.data.to(*args, **kwargs))

    def cuda(self, *args, **kwargs):
        """Move the data to a GPU."""
        return self._with(self.data.cuda(*args, **kwargs))

    def cpu(self, *args, **kwargs):
        """Move the data to the CPU."""
        return self._with(self.data.cpu(*args, **kwargs))

    def pin_memory(self):
        """Copy the data into pinned memory."""
        return self._with(self.data.pin_memory())

    def double(self):
        """Cast the data to float64."""
        return self.to(pullback.float64)

    def float(self):
        """Cast the data to float32."""
        return self.to(pullback.float32)

    def half(self):
        """Cast the data to float16."""
        return self.to(pullback.float16)

    def long(self):
        """Cast the data to int64."""
        return self.to(pullback.int64)

    def int(self):
        """Cast the data to int32."""
        return self.to(pullback.int32)

    def short(self):
        """Cast the data to int16."""
        return self.to(pullback.int16)

    def char(self):
        """Cast the data to int8."""
        return self.to(pullback.int8)

    def byte(self):
        """Cast the data to uint8."""
        return self.to(pullback.uint8)

    @property
    def is_cuda(self):
        """Whether the data is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self):
        """Whether the data is in pinned memory."""
        return self.data.is_pinned()


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Pack a padded batch (steps, n, ...), or (n, steps, ...) with ``batch_first``.

    ``lengths`` has the length of each sequence, on the CPU. Unless ``enforce_sorted`` is False
    they must be in decreasing order.

    Raises: RuntimeError for a length below 1, a wrong number of lengths, or ones out of order.

    >>> import pullback
    >>> from pullback.nn.utils.rnn import pack_padded_sequence
    >>> padded = pullback.tensor([[1, 4], [2, 0], [3, 0]])
    >>> pack_padded_sequence(padded, [3, 1]).data
    tensor([1, 4, 2, 3])
    """
    lengths = pullback.as_tensor(lengths, dtype=pullback.int64).cpu()
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = lengths.sort(descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    steps = input.transpose(0, 1) if batch_first else input
    sizes = lengths.tolist()
    if len(sizes) != steps.shape[1]:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} "
            f"(batch_size={steps.shape[1]})"
        )
    if any(size <= 0 for size in sizes):
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            "that is <= 0"
        )
    if any(one < other for one, other in itertools.pairwise(sizes)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            "can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to "
            "sidestep this requirement if you do not need ONNX exportability."
        )
    if sizes[0] > steps.shape[0]:
        raise RuntimeError(
            f"Expected lengths of at most {steps.shape[0]}, the steps of the input, but got "
            f"{sizes[0]}"
        )
    counts = _counts_by_step(sizes)
    data = pullback.cat([steps[step, :count] for step, count in enumerate(counts)])
    return PackedSequence(data, pullback.tensor(counts), sorted_indices)


def _counts_by_step(sizes):
    """Return how many sequences there are at each step, for lengths in decreasing order."""
    counts = []
    count = len(sizes)
    for step in range(sizes[0]):
        while sizes[count - 1] <= step:
            count -= 1
        counts.append(count)
    return counts


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """Return a packed sequence as a padded batch (steps, n, ...), and the lengths.

    ``total_length`` is the number of steps, by default that of the longest sequence.

    Raises: ValueError for a total_length that is too small.

    >>> import pullback
    >>> from pullback.nn.utils.rnn import pack_sequence, pad_packed_sequence
    >>> packed = pack_sequence([pullback.tensor([1, 2, 3]), pullback.tensor([4])])
    >>> pad_packed_sequence(packed, batch_first=True)
    (tensor([[1, 2, 3],
            [4, 0, 0]]), tensor([3, 1]))
    """
    counts = sequence.batch_sizes.tolist()
    steps = len(counts)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in "
                f"input, but got total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    data, batch = sequence.data, counts[0]
    parts, first = [], 0
    for count in counts:
        part = data.narrow(0, first, count)
        first += count
        if count < batch:
            rest = data.new_full((batch - count, *data.shape[1:]), padding_value)
            part = pullback.cat([part, rest])
        parts.append(part)
    parts += [data.new_full((batch, *data.shape[1:]), padding_value)] * (steps - len(counts))
    padded = pullback.stack(parts, 1 if batch_first else 0)
    lengths = pullback.tensor([sum(count > i for count in counts) for i in range(batch)])
    if sequence.unsorted_indices is not None:
        dim = 0 if batch_first else 1
        padded = padded.index_select(dim, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return padded, lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Stack tensors (length, ...) of different lengths, padded to the longest one.

    The result is (steps, n, ...), or (n, steps, ...) with ``batch_first``.

    Raises: RuntimeError for no tensors, or what is no iterable.

    >>> import pullback
    >>> from pullback.nn.utils.rnn import pad_sequence
    >>> pad_sequence([pullback.tensor([1, 2]), pullback.tensor([3])], batch_first=True)
    tensor([[1, 2],
            [3, 0]])
    """
    if not isinstance(sequences, collections.abc.Iterable):
        raise RuntimeError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type: "
            f"{type(sequences)}"
        )
    sequences = tuple(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"padding_side should be either 'right' or 'left', but got {padding_side!r}"
        )
    steps = max(sequence.shape[0] for sequence in sequences)
    padded = []
    for sequence in sequences:
        missing = steps - sequence.shape[0]
        if missing:
            rest = sequence.new_full((missing, *sequence.shape[1:]), padding_value)
            pair = (sequence, rest) if padding_side == "right" else (rest, sequence)
            sequence = pullback.cat(pair)
        padded.append(sequence)
    return pullback.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """Return the sequences of a padded batch as a list, without their padding.

    >>> import pullback
    >>> from pullback.nn.utils.rnn import unpad_sequence
    >>> unpad_sequence(pullback.tensor([[1, 2], [3, 0]]), pullback.tensor([2, 1]), True)
    [tensor([1, 2]), tensor([3])]
    """
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    sizes = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    return [one[:size] for one, size in zip(padded_sequences, sizes, strict=False)]


def pack_sequence(sequences, enforce_sorted=True):
    """Pack tensors (length, ...) of different lengths. See pack_padded_sequence.

    >>> import pullback
    >>> from pullback.nn.utils.rnn import pack_sequence
    >>> pack_sequence([pullback.tensor([1]), pullback.tensor([2, 3])], enforce_sorted=False).data
    tensor([2, 1, 3])
    """
    lengths = [sequence.size(0) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """Return the sequences of a packed one as a list.

    >>> import pullback
    >>> from pullback.nn.utils.rnn import pack_sequence, unpack_sequence
    >>> unpack_sequence(pack_sequence([pullback.tensor([1, 2]), pullback.tensor([3])]))
    [tensor([1, 2]), tensor([3])]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
