"""Let the tests import the helper modules beside them, however pytest was started."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from range_tools import itt_tool, nvtx_tool  # noqa: F401
from timed_device import timed_device  # noqa: F401
