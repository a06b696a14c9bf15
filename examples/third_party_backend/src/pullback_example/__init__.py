"""A backend for Pullback in pure Python: the device ``example``."""
