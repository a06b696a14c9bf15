"""Calls of a module with other parameters and buffers than its own."""

from __future__ import annotations

import contextlib

from pullback import Tensor

__all__ = ["functional_call"]


def functional_call(
    module, parameters_and_buffers, args=None, kwargs=None, *, tie_weights=True, strict=False
):
    """Call a module with tensors in the place of its parameters and buffers, by their paths.

    See ``pullback.func.functional_call``, which takes several dicts too.

    >>> import pullback
    >>> layer = pullback.nn.Linear(2, 1, bias=False)
    >>> x = pullback.ones(2)
    >>> pullback.nn.utils.stateless.functional_call(layer, {"weight": pullback.ones(1, 2)}, x)
    tensor([2.])
    """
    tensors = parameters_and_buffers
    if tie_weights:
        tensors = _with_tied(module, tensors)
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    with swapped(module, tensors, strict):
        return module(*args, **(kwargs or {}))


def _all_members(module):
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _with_tied(module, tensors):
    """Add the other paths of parameters and buffers that have several."""
    paths = {}
    for path, tensor in _all_members(module):
        paths.setdefault(id(tensor), []).append(path)
    made = dict(tensors)
    for group in paths.values():
        if len(group) > 1:
            given = [tensors[path] for path in group if path in tensors]
            if any(tensor is not given[0] for tensor in given):
                raise ValueError(
                    f"functional_call got multiple values for keys {sorted(group)}, which are "
                    "tied. Consider using tie_weights=False"
                )
            made.update((path, tensor) for tensor in given[:1] for path in group)
    return made


def _check_keys(module, tensors):
    own = {path for path, _ in _all_members(module)}
    lines = []
    for kind, keys in (
        ("Unexpected", tensors.keys() - own),
        ("Missing", own - tensors.keys()),
    ):
        if keys:
            lines.append(f"{kind} key(s): {', '.join(map(repr, sorted(keys)))}.")
    if lines:
        raise RuntimeError(
            f"Error(s) in reparametrizing for {module._get_name()}:\n\t" + "\n\t".join(lines)
        )


_MISSING = object()


@contextlib.contextmanager
def swapped(module, tensors, strict=False):
    """Put tensors into a module by their paths, for the time of a ``with`` block.

    A path without a member gives an attribute, which goes again.

    Raises: RuntimeError with ``strict`` unless there is one tensor for every parameter and buffer.
    """
    if strict:
        _check_keys(module, tensors)
    modules = {"": module}
    before = []
    try:
        for path, tensor in tensors.items():
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{tensor} is not an instance of pullback.Tensor")
            where, _, name = path.rpartition(".")
            if not name:
                raise KeyError('tensor name can\'t be empty string ""')
            owner = modules.get(where)
            if owner is None:
                owner = modules[where] = module.get_submodule(where)
            if name in owner._modules:
                raise TypeError(
                    f"attribute `{name}`: {owner._modules[name]} is not an instance of "
                    f"pullback.Tensor"
                )
            table = _table_of(owner, name)
            before.append((table, name, table.get(name, _MISSING)))
            table[name] = tensor
        yield
    finally:
        for table, name, value in reversed(before):
            if value is _MISSING:
                del table[name]
            else:
                table[name] = value


def _table_of(module, name):
    """Return the dict that a member or attribute of a module is in."""
    for table in (module._parameters, module._buffers):
        if name in table:
            return table
    return module.__dict__
