"""Lets threadpoolctl see and limit the threads of the kernels, next to those of BLAS.

threadpoolctl is not needed here, and importing it takes time, so it learns of our threads when
somebody imports it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "threadpoolctl"


def announce(version: str) -> None:
    """Register with threadpoolctl, now or as soon as it is imported, as this version of us."""
    if NAME in sys.modules:
        register(sys.modules[NAME], version)
    else:
        sys.meta_path.insert(0, _Waiter(version))


def register(threadpoolctl: Any, version: str) -> None:
    """Tell threadpoolctl which library holds the threads and how to ask it."""

    class PullbackController(threadpoolctl.LibController):
        """The threads of pullback's CPU kernels."""

        user_api = "pullback"
        internal_api = "pullback_cpu"
        filename_prefixes = ("threads.",)
        check_symbols = ("pullback_cpu_get_num_threads", "pullback_cpu_set_num_threads")

        def get_num_threads(self) -> int:
            return self.dynlib.pullback_cpu_get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            self.dynlib.pullback_cpu_set_num_threads(num_threads)

        def get_version(self) -> str:
            return version

        def set_additional_attributes(self) -> None:
            """There are none."""

    threadpoolctl.register(PullbackController)


class _Waiter:
    """A finder that finds threadpoolctl as it would be found anyway, and registers when it ran."""

    looking = False

    def __init__(self, version: str):
        self.version = version

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != NAME or self.looking:
            return None
        self.looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.looking = False
        if spec is None or spec.loader is None:
            return spec
        run_module = spec.loader.exec_module

        def run_and_register(module: ModuleType) -> None:
            run_module(module)
            if self in sys.meta_path:  # somebody may only ask whether it can be found
                sys.meta_path.remove(self)
            register(module, self.version)

        spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec
