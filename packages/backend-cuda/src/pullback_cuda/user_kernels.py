"""Elementwise ops from a line of CUDA, differentiable like those of the op table."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pullback as pb
from pullback_cuda.runtime import cubin_loader, devices

MOST = 4  # inputs of one kernel
CLASSES = {
    "int": "ints",
    "long": "longs",
    "float": "floats",
    "double": "doubles",
    "complex": "complexes",
}
NUMBERS = ("UNARY", "BINARY", "TERNARY", "QUATERNARY")
LETTERS = "xyzv"  # what elementwise_driver.cuh calls the inputs


def elementwise_kernel(
    signature: str,
    expression: str,
    derivatives: Mapping[str, str | Callable] | None = None,
    *,
    preamble: str = "",
) -> ElementwiseKernel:
    """Return an op that computes an expression of CUDA for each element of its inputs.

    ``signature`` names the op and its one to four arguments, as in ``"swish(x)"``. ``expression``
    is C++ for one element, in the arguments' names. Inputs are broadcast and promoted as those of
    any op; 16-bit numbers are computed with as float. ``preamble`` is CUDA text that comes before,
    such as a ``DEVICE`` function.

    ``derivatives`` gives the derivative of the result by each argument: an expression in the same
    names; or, to differentiate again, a function of the same arguments that is made of ops, such as
    another such kernel. Arguments without one cannot require grad.

    Compiled on first use for each class of dtypes, by NVRTC or nvcc; kept in the user's cache.

    Raises: ValueError for an invalid signature; TypeError for derivatives of other kinds. When
    called: RuntimeError for tensors that are on no CUDA device, or where there is no compiler, and
    CompileError (a RuntimeError) with what the compiler said.

    >>> from pullback_cuda import elementwise_kernel
    >>> swish = elementwise_kernel(
    ...     "swish(x)", "x / (1 + exp(-x))",
    ...     {"x": "(1 + exp(-x) * (1 + x)) / ((1 + exp(-x)) * (1 + exp(-x)))"})
    >>> swish
    <elementwise kernel swish(x)>
    """
    return ElementwiseKernel(signature, expression, derivatives or {}, preamble)


class ElementwiseKernel:
    """A differentiable op that ``elementwise_kernel`` made; called with tensors and numbers."""

    def __init__(self, signature: str, expression: str, derivatives: Mapping, preamble: str):
        for name, value in (
            ("signature", signature),
            ("expression", expression),
            ("preamble", preamble),
        ):
            if not isinstance(value, str):
                raise TypeError(
                    f"elementwise_kernel(): argument {name!r} must be str, not "
                    f"{type(value).__name__}"
                )
            if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
                raise ValueError(f"elementwise_kernel(): argument {name!r} is no text: {value!a}")
        if not isinstance(derivatives, Mapping):
            raise TypeError(
                f"elementwise_kernel(): argument 'derivatives' must map arguments to derivatives, "
                f"not be {type(derivatives).__name__}"
            )
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*\(([\w\s,]*)\)\s*", signature)
        names = [name.strip() for name in match[2].split(",")] if match else []
        if not match or not all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in names):
            raise ValueError(
                f"elementwise_kernel(): argument 'signature' must look like 'name(x, y)', "
                f"got {signature!r}"
            )
        if not 1 <= len(names) <= MOST or len(set(names)) != len(names):
            raise ValueError(
                f"elementwise_kernel(): {match[1]} must have 1 to {MOST} different arguments, "
                f"got {len(names)}"
            )
        unknown = set(derivatives) - set(names)
        if unknown:
            raise ValueError(
                f"elementwise_kernel(): {match[1]} has no argument {min(unknown, key=str)!r} to "
                f"differentiate by"
            )
        self.__name__ = match[1]
        self.arguments = names
        self.expression = expression
        self.preamble = preamble
        self.derivatives = {
            name: self._derivative(name, given) for name, given in derivatives.items()
        }
        self._families: dict[str, str] = {}  # by class of dtypes
        self._loaded: set[tuple[int, str]] = set()  # devices and families
        self._function = _make_function(self)

    def _derivative(self, name: str, given) -> Callable:
        if isinstance(given, str):
            signature = f"{self.__name__}_by_{name}({', '.join(self.arguments)})"
            return ElementwiseKernel(signature, given, {}, self.preamble)
        if not callable(given):
            raise TypeError(
                f"elementwise_kernel(): the derivative of {self.__name__} by {name!r} must be str "
                f"or a function, not {type(given).__name__}"
            )
        return given

    def __call__(self, *inputs):
        """Compute the op; ``inputs`` are tensors on one CUDA device, and numbers.

        Tensors of the host may be among them if they have one element and no dims.
        """
        if len(inputs) != len(self.arguments):
            raise TypeError(
                f"{self.__name__}() takes {len(self.arguments)} arguments, got {len(inputs)}"
            )
        tensors = [value for value in inputs if isinstance(value, pb.Tensor)]
        if not tensors:
            raise TypeError(f"{self.__name__}(): at least one argument must be a Tensor")
        where = next((value for value in tensors if not _is_number(value)), tensors[0]).device
        for name, value in zip(self.arguments, inputs, strict=True):
            if isinstance(value, pb.Tensor) and value.device != where and not _is_number(value):
                raise RuntimeError(
                    f"{self.__name__}(): expected all tensors to be on {where}, but "
                    f"argument {name!r} is on {value.device}"
                )
        if where.type != "cuda":
            raise RuntimeError(
                f"{self.__name__}() is a CUDA kernel: its tensors must be on a cuda device, not on "
                f"{where}"
            )
        dtype = _common_dtype(inputs)
        if dtype == pb.bool:
            raise TypeError(f"{self.__name__}() is not for bool: convert the tensors first")
        made = [
            value.to(where, dtype)
            if isinstance(value, pb.Tensor)
            else pb.full((), value, dtype=dtype, device=where)
            for value in inputs
        ]
        return self._function.apply(*made)

    def run(self, *inputs):
        """Compute the op without recording it; all inputs have one dtype."""
        user = import_module("pullback_cuda.kernels.elementwise.user")
        values = [value.resolve_conj().resolve_neg() for value in inputs]  # kernels read plain ones
        shape = pb.broadcast_shapes(*(value.shape for value in inputs))
        out = pb.empty(shape, dtype=inputs[0].dtype, device=inputs[0].device)
        if out.numel():
            kind = user.class_name(out.dtype)
            family, kernel = self._family(kind), f"{self.__name__}_{kind}"
            found = (out.get_device(), family)
            if found not in self._loaded:  # here, so that a CompileError is raised as it is
                devices.started(out.get_device()).function(family, kernel)
                self._loaded.add(found)
            user.run(family, kernel, [out, *(value.expand(shape) for value in values)])
        return out

    def _family(self, kind: str) -> str:
        family = self._families.get(kind)
        if family is None:
            text = self.text(kind)
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            family = f"{self.__name__[:40]}-{kind}-{digest}"
            cubin_loader.USER_TEXTS[family] = text
            self._families[kind] = family
        return family

    def text(self, kind: str) -> str:
        """Return the CUDA text for a class of dtypes: int, long, float, double or complex."""
        lines = ['#include "kernels/common/elementwise_driver.cuh"', self.preamble]
        parameters = ", ".join(f"compute {name}" for name in self.arguments)
        letters = LETTERS[: len(self.arguments)]
        lines += [
            f"typedef {CLASSES[kind]}::compute compute;",
            f"static DEVICE compute {self.__name__}_of({parameters}) {{",
            f"    return {self.expression};",
            "}",
            f"{NUMBERS[len(letters) - 1]}({self.__name__}_{kind}, {CLASSES[kind]}, "
            f"{self.__name__}_of({', '.join(letters)}))",
        ]
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        return f"<elementwise kernel {self.__name__}({', '.join(self.arguments)})>"


def _is_number(tensor) -> bool:
    """Tell whether a tensor may stand beside those of a device: one element of the host's."""
    return tensor.dim() == 0 and tensor.device.type != "cuda" and not tensor.is_meta


def _common_dtype(inputs):
    """Return the dtype that all inputs are promoted to.

    Tensors without dims count only where no other tensor is of their kind (integral, floating,
    complex), numbers only where no tensor is.
    """
    tensors = [value for value in inputs if isinstance(value, pb.Tensor)]
    numbers: list[Any] = [value for value in inputs if not isinstance(value, pb.Tensor)]
    with_dims = [value.dtype for value in tensors if value.dim()]
    without = [value.dtype for value in tensors if not value.dim()]
    shape = (1,) if with_dims else ()
    if with_dims and without:  # one that stands for all without dims
        dtype = functools.reduce(pb.promote_types, without)
        numbers.insert(0, pb.empty((), dtype=dtype, device="meta"))
    common = functools.reduce(pb.promote_types, with_dims or without)
    for value in numbers:
        common = pb.result_type(pb.empty(shape, dtype=common, device="meta"), value)
    return common


def _make_function(kernel: ElementwiseKernel):
    """Return the Function that records a kernel."""

    def partial(index: int, inputs):
        name = kernel.arguments[index]
        if name not in kernel.derivatives:
            raise RuntimeError(
                f"{kernel.__name__}(): the derivative by {name!r} was not given to "
                f"elementwise_kernel()"
            )
        found = kernel.derivatives[name](*inputs)
        if isinstance(found, (bool, int, float, complex)):
            dtype = None if isinstance(found, complex) else inputs[index].dtype
            found = pb.full((), found, dtype=dtype, device=inputs[index].device)
        if not isinstance(found, pb.Tensor):
            raise TypeError(
                f"{kernel.__name__}(): the derivative by {name!r} must return a Tensor or a "
                f"number, not {type(found).__name__}"
            )
        return found

    def forward(*inputs):
        return kernel.run(*inputs)

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    def backward(ctx, grad):
        inputs = ctx.saved_tensors
        return tuple(
            (grad * partial(i, inputs).conj()).sum_to_size(inputs[i].shape) if needed else None
            for i, needed in enumerate(ctx.needs_input_grad)
        )

    def jvp(ctx, *tangents):
        inputs = ctx.saved_tensors
        total = None
        for i, tangent in enumerate(tangents):
            if tangent is not None:
                term = partial(i, inputs) * tangent
                total = term if total is None else total + term
        return total

    def vmap(info, in_dims, *inputs):
        most = max(
            value.dim() - (where is not None) for value, where in zip(inputs, in_dims, strict=True)
        )
        moved = []
        for value, where in zip(inputs, in_dims, strict=True):
            front = value.unsqueeze(0) if where is None else value.movedim(where, 0)
            missing = most + 1 - front.dim()
            moved.append(front.reshape(front.shape[:1] + (1,) * missing + front.shape[1:]))
        return kernel._function.apply(*moved), 0

    methods: dict[str, Callable] = {
        "forward": forward,
        "setup_context": setup_context,
        "backward": backward,
        "jvp": jvp,
        "vmap": vmap,
    }
    name = "".join(part.capitalize() for part in kernel.__name__.split("_"))
    body: dict[str, Any] = {key: staticmethod(value) for key, value in methods.items()}
    return type(name, (pb.autograd.Function,), body)
