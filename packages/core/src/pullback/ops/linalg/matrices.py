"""What entries of linear algebra share: checks of matrices, failures of LAPACK, small helpers."""

import math
import warnings

from pullback.ops.rules.dtypes import check_inexact, dtype_named, type_name
from pullback.ops.rules.operands import all_hold
from pullback.ops.table.primitives_api import new_empty, run_primitive, whole_batch
from pullback.ops.table.schema import COMPLEX, FLOATING, HALF, ops

# The dtypes of LAPACK.
SOLVED = (FLOATING & ~HALF) | COMPLEX


def check_square(name, self):
    """Raise RuntimeError unless the tensor holds square matrices."""
    check_matrices(name, self)
    rows, columns = self.shape[-2:]
    if rows != columns:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {rows} by "
            f"{columns} matrices"
        )


def check_solvable(name, self):
    """Raise RuntimeError for integers, bools and 16-bit floats."""
    check_inexact(name, self)
    if self.dtype.itemsize == 2:
        raise RuntimeError(
            f"{name}: Low precision dtypes not supported. Got {type_name(self.dtype)}"
        )


def epsilon(dtype):
    """Return the distance from 1 to the next number of a dtype, of a complex number's parts."""
    return {2: 2.0**-10, 4: 2.0**-23, 8: 2.0**-52}[dtype.to_real().itemsize]


def check_word(name, argument, value):
    """Raise TypeError unless an argument is a str."""
    if not isinstance(value, str):
        raise TypeError(f"{name}(): argument '{argument}' must be str, not {type(value).__name__}")


def warn_deprecated(old, new, rest):
    """Warn as torch does of a function that has a successor in linalg."""
    warnings.warn(
        f"pullback.{old} is deprecated in favor of {new} and will be removed in a future release.\n"
        f"{rest}",
        UserWarning,
        stacklevel=3,
    )


def fail_first(text, info):
    """Raise LinAlgError for the first matrix whose info is not 0; on meta values are unknown."""
    from pullback.linalg import LinAlgError

    info = whole_batch(info)
    if all_hold(info == 0, LinAlgError):
        return
    numbers = info.reshape(-1).tolist()
    batch, number = next((b, n) for b, n in enumerate(numbers) if n)
    prefix = f"(Batch element {batch}): " if info.ndim else ""
    raise LinAlgError(text.format(prefix=prefix, number=number))


def adjoint(matrices):
    """Return the conjugate transposes."""
    return ops.conj(matrices.transpose(-2, -1))


def identity_like(like):
    """Return identity matrices in the shape of a batch of matrices."""
    out = ops.new_zeros(like, tuple(like.shape))
    ops.fill_(out.diagonal(0, -2, -1), 1)
    return out


def check_matrices(name, self, what="A"):
    """Raise RuntimeError unless the tensor has the two dims of a matrix."""
    if self.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {what} must have at least 2 dimensions.")


def new_by_columns(like, shape, dtype=None):
    """Return uninitialised matrices, each stored column by column, as LAPACK writes them."""
    *batch, rows, columns = shape
    return new_empty(like, (*batch, columns, rows), dtype).transpose(-2, -1)


def run_on_batch(primitive, outs, ins, *params):
    """Run a primitive on matrices and vectors, pairs of a tensor and its dims beside the batch."""
    first, dims = ins[0]
    if not first.numel():
        return
    count = math.prod(first.shape[: first.ndim - dims])

    def flat(tensor, dims):
        return tensor.reshape((count, *tensor.shape[tensor.ndim - dims :]))

    run_primitive(
        primitive,
        tuple(flat(*out) for out in outs),
        tuple(flat(*operand) for operand in ins),
        *params,
    )


def new_info(self, batch):
    """Return a 0 for each matrix of a batch."""
    return ops.new_zeros(self, tuple(batch), dtype=dtype_named("int32"))


def diagonal_of(matrices):
    """Return the view of the diagonals."""
    return matrices.diagonal(0, -2, -1)


def hermitian_part(matrices):
    """Return the half of each matrix and its conjugate transpose."""
    return (matrices + adjoint(matrices)) * 0.5
