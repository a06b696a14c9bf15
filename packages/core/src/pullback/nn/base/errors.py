"""What the traceback of an error says of the module that raised it."""

from __future__ import annotations

import sys

from pullback._c.python.module_base import ModuleBase, set_note_failure

_BEGIN = "in module "
# Of shapes, dtypes, devices and arguments; control flow by exceptions is left alone.
_NOTED = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)


def _module_of(frame):
    """Return the module whose method a frame runs, or None."""
    code = frame.f_code
    if not code.co_argcount:
        return None
    first = frame.f_locals.get(code.co_varnames[0])
    return first if isinstance(first, ModuleBase) else None


def _root_and_path(module):
    """Return the outermost module being called that has a module in it, and the path to there."""
    root, path = module, ""
    seen = {id(module)}
    frame = sys._getframe(1)
    while frame is not None:
        other = _module_of(frame)
        if other is not None and id(other) not in seen:
            seen.add(id(other))
            for name, member in other.named_modules():
                if member is module:
                    root, path = other, name
        frame = frame.f_back
    return root, path


def note_module(module, error):
    """Add a note with the path and the line of the innermost module that an error comes from.

    As in ``in module layers.0.linear of Model: Linear(in_features=8, out_features=3, bias=True)``.
    """
    if not isinstance(error, _NOTED):
        return
    if any(str(note).startswith(_BEGIN) for note in getattr(error, "__notes__", ())):
        return
    try:
        root, path = _root_and_path(module)
        line = f"{module._get_name()}({module.extra_repr()})"
        place = f"{path} of {root._get_name()}: {line}" if path else line
        error.add_note(_BEGIN + place)
    except Exception:  # of a module that is half made: the error itself is what counts
        pass


if sys.version_info >= (3, 11):
    set_note_failure(note_module)
