"""The profiler's names; they live in the package pullback-profiler."""

from __future__ import annotations

_NAMES = ("EnforceUnique", "KinetoStepTracker", "emit_itt", "emit_nvtx", "load_nvprof",
          "parse_nvprof_trace", "profile", "record_function")


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module 'pullback.autograd.profiler' has no attribute {name!r}")
    try:
        import pullback_profiler
    except ImportError:
        raise ImportError(f"pullback.autograd.profiler.{name} needs the package pullback-profiler: "
                          f"install it with 'pip install pullback-profiler' (or "
                          f"pullback[profiler])") from None
    try:
        return getattr(pullback_profiler, name)
    except AttributeError:
        raise ImportError(f"pullback.autograd.profiler.{name} needs a newer pullback-profiler than "
                          f"{pullback_profiler.__version__}") from None
