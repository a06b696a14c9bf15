"""Operators that users define: kernels by device, derivatives, batching, and their look-up."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pullback as pb
from pullback import Tensor
from pullback.autograd.function import Function, batching
from pullback.backend import begin_range, end_range
from pullback.library.schema import Schema, bind, check_result
from pullback.overrides import handle_torch_function, has_torch_function

__all__ = ["OpNamespace", "OpOverload", "OpOverloadPacket", "define_operator", "find", "namespace"]

_NAMESPACES: dict[str, OpNamespace] = {}
_running = threading.local()


class OpOverload:
    """One overload of an operator: ``pullback.ops.NAMESPACE.NAME.default``."""

    def __deepcopy__(self, memo: Any) -> Any:
        return self  # as functions are

    def __init__(self, schema: Schema):
        self._schema = schema
        self._overloadname = schema.overload_name or "default"
        self._opname = schema.name.rpartition("::")[2]
        self.namespace = schema.name.partition("::")[0]
        self.__name__ = f"{self._opname}.{self._overloadname}"
        self.__qualname__ = self.__name__
        self.__module__ = f"pullback.ops.{self.namespace}"
        self.__doc__ = f"The operator ``{schema}``."
        self.kernels: dict[str, Any] = {}
        self.disabled: set[str] = set()
        self.fake: Any = None
        self.backward: Any = None
        self.setup_context: Any = None
        self.batching: Any = None
        self.tangents: Any = None  # the rule of forward mode, and what backward replays
        self.surroundings: Any = None
        self.function: Any = None  # the Function of the last registration
        self.checks_aliases = False
        self.label = self.name()
        self.tags: tuple = ()

    def name(self) -> str:
        """Return ``namespace::name``, with the overload's name where it has one."""
        overload = self._schema.overload_name
        return f"{self._schema.name}.{overload}" if overload else self._schema.name

    @property
    def op(self) -> Any:
        return self

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        return getattr(namespace(self.namespace), self._opname)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return (
            f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"
        )

    def has_kernel_for_dispatch_key(self, key: str) -> bool:
        """Return True if a kernel is registered for a key such as ``"CPU"``."""
        return key in self.kernels

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        values = bind(self._schema, args, kwargs)
        tensors = tensors_of(values)
        if has_torch_function(tensors):
            return handle_torch_function(self, tensors, *args, **kwargs)
        number = begin_range(self.name())
        try:
            return self._run(values, tensors)
        finally:
            end_range(number)

    def _run(self, values: list[Any], tensors: list[Tensor]) -> Any:
        composite = self.kernels.get("CompositeImplicitAutograd")
        if composite is not None:
            return check_result(self._schema, self.call(composite, values))
        override = self.kernels.get("Autograd")
        active = _running.__dict__.setdefault("operators", [])
        if override is not None and self not in active:
            active.append(self)
            try:
                return self.call(override, values)
            finally:
                active.remove(self)
        if self._schema.is_mutable and not batching.are_batched(tensors):
            result = self.run_kernel(values)
            for argument, value in zip(self._schema.arguments, values):
                if argument.is_write and value is not None:
                    pb.autograd.graph.increment_version(value)
            return result
        if self.function is None:
            self.function = make_function(self)
        flat, lengths = flattened(values)
        outputs = self.function.apply(*flat, Places(lengths))
        return list(outputs) if self._schema.returns == ("Tensor[]",) else outputs

    def call(self, function: Any, values: list[Any]) -> Any:
        """Call a function as the schema says: arguments behind ``*`` by name."""
        named = {
            argument.name: value
            for argument, value in zip(self._schema.arguments, values)
            if argument.kwarg_only
        }
        return function(*values[: len(values) - len(named)], **named)

    def run_kernel(self, values: list[Any]) -> Any:
        """Run the kernel for the device of the tensors, below autograd."""
        tensors = tensors_of(values)
        devices = [tensor.device.type for tensor in tensors]
        with pb.no_grad():
            if "meta" in devices:
                return check_result(self._schema, self.call(self._fake(), values))
            other = (device for device in devices if device != "cpu")  # beside numbers on the host
            kernel = self._kernel(next(other, "cpu"))
            result = check_result(self._schema, self.call(kernel, values))
        if self.checks_aliases:
            self._check_aliases(tensors, result)
        return result

    def _fake(self) -> Any:
        found = self.fake or self.kernels.get("Meta")
        if found is None and self._schema.is_mutable and not self._schema.returns:
            return lambda *args, **named: None
        if found is None:
            found = (
                self.kernels.get("CompositeExplicitAutograd") if not self.checks_aliases else None
            )
        if found is None and self.checks_aliases:
            raise RuntimeError(
                f"There was no fake impl registered for <CustomOpDef({self.name()})>. This is "
                f"necessary for torch.compile/export/fx tracing to work. Please use "
                f"`{self._opname}.register_fake` to add an fake impl."
            )
        if found is None:
            raise NotImplementedError(
                f"{self.name()}: attempted to run this operator with Meta tensors, but there was "
                f"no fake impl or Meta kernel registered. Use pullback.library.register_fake to "
                f"add one."
            )
        return found

    def _kernel(self, device: str) -> Any:
        key = device.upper()
        found = None if device in self.disabled else self.kernels.get(key)
        found = found or self.kernels.get("CompositeExplicitAutograd")
        if found is None:
            raise NotImplementedError(
                f"Could not run '{self.name()}' with arguments from the '{key}' backend. It has "
                f"kernels for {sorted(self.kernels) or 'no backend'}."
            )
        return found

    def _check_aliases(self, tensors: list[Tensor], result: Any) -> None:
        seen = {tensor.untyped_storage()._cdata for tensor in tensors if not tensor.is_sparse}
        for tensor in tensors_of(list(result) if isinstance(result, (list, tuple)) else [result]):
            if tensor.untyped_storage()._cdata in seen:
                raise RuntimeError(
                    f"{self._opname} (with implementation in {self.label}): The output of this "
                    f"custom operator (1) must not also be an input to this custom operator and "
                    f"(2) may not alias any inputs to this custom operator or other returns. The "
                    f"most common way to trigger this error is if we have y = custom_op(x) and y "
                    f"and x are the same Tensor. Please instead return a clone of the offending "
                    f"output tensor(s) (e.g. return x.clone()) or refactor the custom op to not "
                    f"return y."
                )
            seen.add(tensor.untyped_storage()._cdata)


# ---- lists of tensors among the arguments --------------------------------------------------------


class Places:
    """Where the flat arguments of a Function belong: a length for each list, None for others."""

    def __init__(self, lengths: list[int | None]):
        self.lengths = lengths

    def nested(self, flat: Any) -> list[Any]:
        """Return flat values with the lists made again."""
        items, made = iter(flat), []
        for length in self.lengths:
            made.append(next(items) if length is None else [next(items) for _ in range(length)])
        return made

    def flat(self, nested: Any) -> list[Any]:
        """Return the items of lists in place of the lists; None stands for a list of them."""
        found: list[Any] = []
        for length, value in zip(self.lengths, nested):
            if length is None:
                found.append(value)
            else:
                found.extend([None] * length if value is None else value)
        return found


def _is_list_of_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value)


def flattened(values: list[Any]) -> tuple[list[Any], list[int | None]]:
    flat: list[Any] = []
    lengths: list[int | None] = []
    for value in values:
        if _is_list_of_tensors(value):
            flat.extend(value)
            lengths.append(len(value))
        else:
            flat.append(value)
            lengths.append(None)
    return flat, lengths


def tensors_of(values: list[Any]) -> list[Tensor]:
    flat, _lengths = flattened(values)
    return [value for value in flat if isinstance(value, Tensor)]


# ---- autograd and vmap ---------------------------------------------------------------------------


def make_function(operator: OpOverload) -> type[Function]:
    """Return the Function that runs an operator, records it, and runs it on batches."""

    def forward(*flat):
        if operator.surroundings is not None:
            flat[-1].surroundings = operator.surroundings()
        result = operator.run_kernel(flat[-1].nested(flat[:-1]))
        return tuple(result) if isinstance(result, list) else result

    def setup_context(ctx, inputs, output):
        ctx._structure = inputs[-1]
        if operator.setup_context is None:
            return
        values = inputs[-1].nested(inputs[:-1])
        arguments = operator._schema.arguments
        named = {a.name: v for a, v in zip(arguments, values) if a.kwarg_only}
        given = tuple(values[: len(values) - len(named)])
        if operator._schema.returns == ("Tensor[]",):
            output = list(output)
        more = {"keyword_only_inputs": named} if named else {}
        operator.setup_context(ctx=ctx, inputs=given, output=output, **more)

    def backward(ctx, *grads):
        if operator.backward is None:
            raise RuntimeError(
                f"Trying to backward through {operator} but no autograd formula was registered. "
                f"Please use register_autograd to add one."
            )
        if operator._schema.returns == ("Tensor[]",):
            grads = (list(grads),)
        found = operator.backward(ctx, *grads)
        found = found if isinstance(found, tuple) else (found,)
        wanted = [a for a in operator._schema.arguments if not a.kwarg_only]
        if len(found) != len(wanted):
            raise RuntimeError(
                f"function {made.__name__}Backward returned an incorrect number of gradients "
                f"(expected {len(wanted)}, got {len(found)})"
            )
        rest = (None,) * (len(operator._schema.arguments) - len(wanted))
        return (*ctx._structure.flat((*found, *rest)), None)

    def vmap(info, in_dims, *flat):
        places = flat[-1]
        values, dims = places.nested(flat[:-1]), places.nested(in_dims[:-1])
        if operator.batching is not None:
            found = operator.call(
                lambda *args, **named: operator.batching(info, tuple(dims), *args, **named), values
            )
            return _with_dims(operator, found)
        return _each(operator, info.batch_size, places, flat[:-1], in_dims[:-1])

    def jvp(ctx, *tangents):
        if operator.tangents is None:
            raise NotImplementedError(f"{operator}: there is no derivative in forward mode")
        return operator.tangents(ctx, *tangents)

    name = f"GeneratedBackwardFor_{operator.namespace}_{operator.__name__.replace('.', '_')}"
    members = {"forward": forward, "setup_context": setup_context}
    members |= {"backward": backward, "vmap": vmap, "jvp": jvp}
    made = type(name, (Function,), {key: staticmethod(value) for key, value in members.items()})
    return made


def _with_dims(operator, found):
    """Return what a rule for batches returned, which is results and the dims of their batches."""
    if isinstance(found, tuple) and len(found) == 2:
        dims = found[1] if isinstance(found[1], (tuple, list)) else [found[1]]
        if all(dim is None or isinstance(dim, int) for dim in dims):
            return found
    raise RuntimeError(
        f"{operator}: Expected the vmap staticmethod to have two returns, an output and out_dims "
        f"with pytree structure compatible with the output. Got a {type(found)} instead"
    )


def _each(operator, size, places, flat, in_dims):
    """Run an operator on each element of a batch, and stack the results."""
    reason = None
    if operator._schema.is_mutable:
        reason = "the fallback path doesn't work on out= or view ops."
    elif not {*operator._schema.returns} <= {"Tensor", "Tensor[]", "(Tensor)"}:
        reason = "We could not generate a fallback."
    elif not size:
        reason = "The fallback path does not support vmap over dims of size 0."
    if reason is not None:
        name = operator.name()
        raise RuntimeError(f"Batching rule not implemented for {name}; {reason} Use register_vmap.")
    results = []
    for k in range(size):
        items = [
            value if dim is None else value.select(dim, k) for value, dim in zip(flat, in_dims)
        ]
        results.append(operator.call(operator, places.nested(items)))
    if isinstance(results[0], Tensor):
        return pb.stack(results), 0
    stacked = tuple(pb.stack(column) for column in zip(*results, strict=True))
    return stacked, (0,) * len(stacked)


# ---- look-up -------------------------------------------------------------------------------------


class OpOverloadPacket:
    """An operator with its overloads: ``pullback.ops.NAMESPACE.NAME``."""

    def __deepcopy__(self, memo: Any) -> Any:
        return self  # as functions are

    def __init__(self, qualified: str):
        self._qualified_op_name = qualified
        self.__name__ = qualified.rpartition("::")[2]
        self.__module__ = f"pullback.ops.{qualified.partition('::')[0]}"
        self._overloads: dict[str, OpOverload] = {}

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self._qualified_op_name.replace('::', '.')}')>"

    def __str__(self) -> str:
        return self._qualified_op_name.replace("::", ".")

    def overloads(self) -> list[str]:
        """Return the names of the overloads."""
        return list(self._overloads)

    def __getattr__(self, name: str) -> OpOverload:
        found = self.__dict__.get("_overloads", {}).get(name)
        if found is None:
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")
        return found

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        overloads = list(self._overloads.values())
        for overload in overloads[:-1]:
            try:
                bind(overload._schema, args, kwargs)
            except RuntimeError:
                continue
            return overload(*args, **kwargs)
        return overloads[-1](*args, **kwargs)


class OpNamespace:
    """The operators of a namespace: ``pullback.ops.NAMESPACE``."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"<module 'pullback.ops.{self.name}' from 'pullback.ops'>"

    def __getattr__(self, name: str) -> OpOverloadPacket:
        raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'")


class BuiltinNamespace(OpNamespace):
    """The ops of Pullback under the namespace ``aten``."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(pb, name, None) or getattr(Tensor, name, None)
        if not isinstance(found, type(pb.add)):
            return super().__getattr__(name)
        return Builtin(found)


# Torch's names of overloads. One op has them all, as it takes tensors and numbers in one signature.
_OVERLOADS = frozenset(
    "Scalar ScalarOpt_dim ScalarOpt_dim_dtype ScalarOpt_dtype Scalar_Tensor Scalar_mode Tensor"
    " Tensor_Scalar Tensor_Tensor Tensor_mode correction dim dim_IntList dim_int dims dtype"
    " generator int other self stable values".split()
)


class Builtin:
    """An op of the op table, which is its own default overload and every other."""

    def __init__(self, op: Any):
        self.default = op
        self.__name__ = op.__name__

    def __getattr__(self, name: str) -> Any:
        if name in _OVERLOADS:
            return self.default
        name_of_op = self.__dict__.get("__name__", "?")  # a copy begins without it
        raise AttributeError(
            f"The underlying op of 'aten.{name_of_op}' has no overload name '{name}'"
        )

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.default(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


def namespace(name: str) -> OpNamespace:
    """Return the operators of a namespace, which may have none yet."""
    found = _NAMESPACES.get(name)
    if found is None:
        found = _NAMESPACES[name] = (BuiltinNamespace if name == "aten" else OpNamespace)(name)
    return found


def find(qualified: str) -> OpOverload | None:
    """Return the operator ``namespace::name`` or ``namespace::name.overload``; None if none is."""
    owner, _colons, rest = qualified.partition("::")
    name, _dot, overload = rest.partition(".")
    packet = vars(namespace(owner)).get(name)
    return None if packet is None else packet._overloads.get(overload or "default")


def define_operator(schema: Schema) -> OpOverload:
    """Add an operator, or an overload, to its namespace."""
    owner, _colons, name = schema.name.partition("::")
    members = vars(namespace(owner))
    packet = members.get(name)
    if packet is None:
        packet = members[name] = OpOverloadPacket(schema.name)
    made = OpOverload(schema)
    packet._overloads[made._overloadname] = made
    return made


def forget_operator(operator: OpOverload) -> None:
    """Remove an overload from its namespace."""
    members = vars(namespace(operator.namespace))
    packet = members.get(operator._opname)
    if packet is not None and packet._overloads.get(operator._overloadname) is operator:
        del packet._overloads[operator._overloadname]
        if not packet._overloads:
            del members[operator._opname]


def caller(depth: int) -> str:
    """Return the place of a call, for messages about registrations."""
    frame = sys._getframe(depth + 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
