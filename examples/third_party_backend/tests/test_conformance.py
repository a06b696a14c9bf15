"""Run with ``pytest --pullback-device example``: every operation of the table, on our device."""

from pullback.testing.suite import *
