"""Softmax and log_softmax with their derivatives, and linear layers."""

from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, NUMBERS, op, ops

references = references_of("normalization")

_ALONG_DIM = [
    case(T(2, 3), 0),
    case(T(2, 3), 1),
    case(T(2, 3, 2), -2),
    case(T(3), 0),
    case(T(), 0),
    case(T(0, 3), 1),
    case(T(2, 0), 1, skip={"value": "SciPy wants elements"}),
    case(fixed((0.0, 700.0, -700.0)), 0),
]
_TWO_ALONG_DIM = [
    case(T(2, 3), T(2, 3), 0),
    case(T(2, 3), T(2, 3), -1),
    case(T(), T(), 0),
    case(T(0, 3), T(0, 3), 1),
]


for _name in ("softmax", "log_softmax"):
    op(
        f"_{_name}(self: Tensor, dim: int) -> Tensor",
        method=False,
        function=False,
        kernel=_name,
        dtypes=FLOATING,
        node=_name.title().replace("_", "") + "Backward0",
        forward="along_dim",
        batch="along",
        vjp={"self": eval(f"lambda g, out, dim: ops.{_name}_backward(g, out, dim)", {"ops": ops})},
        doc=f"Return {_name} along a dim of a floating tensor.",
        samples=_ALONG_DIM,
        ref=f"scipy.special.{_name}",
    )

op(
    "softmax_backward(self: Tensor, output: Tensor, dim: int) -> Tensor",
    batch="along",
    method=False,
    function=False,
    kernel="softmax_backward",
    node="SoftmaxBackwardDataBackward0",
    forward="along_dim",
    vjp={
        "self": lambda g, output, dim: ops.softmax_backward(g, output, dim),
        "output": lambda g, self, output, dim: _softmax_backward_output(g, self, output, dim),
    },
    doc="Return output * (self - sum(self * output)).",
    dtypes=FLOATING,
    samples=_TWO_ALONG_DIM,
    ref=references.softmax_backward,
)


def _softmax_backward_output(g, self, output, dim):
    inner = (self * output).sum(dim, True)
    return g * (self - inner) - (g * output).sum(dim, True) * self


op(
    "log_softmax_backward(self: Tensor, output: Tensor, dim: int) -> Tensor",
    batch="along",
    method=False,
    function=False,
    kernel="log_softmax_backward",
    node="LogSoftmaxBackwardDataBackward0",
    forward="along_dim",
    vjp={
        "self": lambda g, output, dim: g - (g * output.exp()).sum(dim, True).expand_as(g),
        "output": lambda g, self, output, dim: -(g * output.exp()) * self.sum(dim, True),
    },
    doc="Return self - exp(output) * sum(self).",
    dtypes=FLOATING,
    samples=_TWO_ALONG_DIM,
    ref=references.log_softmax_backward,
)


for _name, _what in (("softmax", "exp(x) / sum(exp(x))"), ("log_softmax", "log(softmax(x))")):
    op(
        f"{_name}.top(self: Tensor, dim: int, dtype: dtype? = None) -> Tensor",
        composite="softmax",
        autocast=(None, "dtype"),
        kernel=_name,
        method=_name,
        function=_name,
        out=True,
        out_dtype="exact",
        elsewhere=(f"special.{_name}",),
        ref=f"scipy.special.{_name}",
        dtypes=FLOATING,
        samples=_ALONG_DIM,
        doc=f"Return {_what} along a dim, without overflow.",
    )
    op(
        f"{_name}(self: Tensor, dim: int? = None, _stacklevel: int = 3, dtype: dtype? = None) "
        "-> Tensor",
        composite="softmax",
        autocast=(None, "dtype"),
        kernel=_name,
        method=False,
        namespace="functional",
        ref=f"scipy.special.{_name}",
        dtypes=FLOATING,
        samples=_ALONG_DIM,
        doc=f"Return {_what} along a dim, without overflow.\n\nWithout a dim it warns, and takes "
        "dim 0 of 0, 1 and 3 dims, else dim 1.",
    )


def _linear(self, weight, bias):
    if not (self.ndim and weight.ndim):
        raise RuntimeError(
            f"both arguments to linear need to be at least 1D, but they are "
            f"{self.ndim}D and {weight.ndim}D"
        )
    if self.ndim == weight.ndim == 2 and bias is not None:
        return ops.addmm(bias, self, weight.t())
    out = ops.matmul(self, weight.t())
    return out if bias is None else out + bias


op(
    "linear(self: Tensor, weight: Tensor, bias: Tensor? = None) -> Tensor",
    autocast="lower",
    composite=_linear,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="functional",
    doc="Return self @ weight.T + bias.\n\nShape: (..., in), (out, in), (out) give (..., out).",
    dtypes=NUMBERS,
    samples=lambda: [
        case(T(2, 3), T(4, 3), T(4)),
        case(T(2, 3), T(4, 3)),
        case(T(3), T(4, 3), T(4)),
        case(T(2, 2, 3), T(4, 3), T(4)),
        case(T(0, 3), T(2, 3), T(2)),
    ],
    ref=lambda np, self, weight, bias=0: self @ weight.T + bias,
)


def _bilinear(input1, input2, weight, bias):
    """One product with the first operand, then one batch of products with the second."""
    if weight.ndim != 3:
        raise IndexError(f"bilinear(): expected a weight of 3 dims, got {weight.ndim}")
    if input1.ndim != input2.ndim:
        raise RuntimeError(
            f"bilinear(): input dimensions do not match: got {input1.ndim} and {input2.ndim}"
        )
    for d, (m, n) in enumerate(zip(input1.shape[:-1], input2.shape[:-1])):
        if m != n:
            raise RuntimeError(
                f"bilinear(): input batch dimensions do not match at dim {d}: got {m} and {n}"
            )
    count, first, second = weight.shape
    for name, have, want in (
        ("input1", input1.shape[-1], first),
        ("input2", input2.shape[-1], second),
    ):
        if have != want:
            raise RuntimeError(
                f"bilinear(): {name} size does not match weight size: got {have} "
                f"but expected {want}"
            )
    if bias is not None and bias.shape[0] != count:
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got "
            f"{bias.shape[0]} but expected {count}"
        )
    batch = tuple(input1.shape[:-1])
    rows = 1
    for size in batch:
        rows *= size
    spread = weight.permute((1, 0, 2)).reshape((first, count * second))
    partial = ops.mm(input1.reshape((rows, first)), spread).reshape((rows, count, second))
    out = ops.bmm(partial, input2.reshape((rows, second, 1))).reshape((*batch, count))
    return out if bias is None else out + bias


op(
    "bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor? = None) -> Tensor",
    autocast=("off", "promote"),
    composite=_bilinear,
    method=False,
    namespace=("", "functional"),
    dtypes=NUMBERS,
    doc="Return input1 @ weight[k] @ input2 + bias[k] for each k.\n\nShape: (..., m), (..., n), "
    "(out, m, n), (out) give (..., out).",
    samples=lambda: [
        case(T(2, 3), T(2, 4), T(5, 3, 4), T(5)),
        case(T(3), T(4), T(2, 3, 4)),
        case(T(2, 2, 3), T(2, 2, 1), T(2, 3, 1)),
        case(T(0, 3), T(0, 4), T(2, 3, 4), T(2)),
    ],
    ref=lambda np, input1, input2, weight, bias=0: (
        np.einsum("...i,oij,...j->...o", input1, weight, input2) + bias
    ),
)
