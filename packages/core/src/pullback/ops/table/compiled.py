"""How entries reach compiled code, which is not there yet when the table is imported."""

from functools import cache


@cache
def compiled(module, name):
    """Return a function of the core's compiled modules: ``compiled("ops.clone", "zeros_of")``."""
    from importlib import import_module

    return getattr(import_module(f"pullback._c.{module}"), name)
