"""Measurements of Pullback against torch: ``python -m benchmarks.run``."""
