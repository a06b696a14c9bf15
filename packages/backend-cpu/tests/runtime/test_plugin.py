"""What the plugin manager sees. Needs core."""

from __future__ import annotations

import pytest
from kernel_calls import KERNELS

pytest.importorskip("pullback.backend", reason="core is not installed")


class Table(list):
    """Takes what a plugin registers."""

    def __init__(self):
        self.take_conj = set()

    def add(self, primitive, mask, kernel, *, conj=False):
        self.append((primitive, (mask, kernel)))
        if conj:
            self.take_conj.add(primitive)


def test_plugin_registers_every_primitive_for_its_own_device_only():
    from pullback.ops.table.primitives import PRIMITIVES
    from pullback_cpu import plugin
    from pullback_cpu.kernels import OPTIONAL

    table, other = Table(), Table()
    plugin.pullback_register_kernels(table, "cpu")
    plugin.pullback_register_kernels(other, "elsewhere")
    assert table == [*KERNELS.items(), *OPTIONAL.items()]
    assert set(KERNELS) == set(PRIMITIVES)
    assert table.take_conj == {"bmm"}
    assert other == []


def test_plugin_knows_its_device():
    from pullback_cpu import plugin

    assert "pb_backend" in repr(plugin.pullback_backend("cpu"))
    assert plugin.pullback_backend("elsewhere") is None


def test_import_is_cheap_and_leaves_scipy_alone():
    """Only the first large matrix product may load SciPy."""
    import os
    import subprocess
    import sys

    code = "import sys, pullback_cpu.plugin; sys.exit('scipy' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
