"""Run with ``pytest --pullback-device mlx``: every operation of the table, on our device."""

from pullback.testing.suite import *
