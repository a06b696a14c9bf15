"""A backend for Pullback with one compiled kernel: the device ``native``."""
