"""The NumPy reference backend, device ``ref``: slow, plain and right.

It implements every primitive as a Python callable ``fn(out, *ins, **params)`` over NumPy
arrays. The conformance suite takes it as its oracle, core falls back to it for primitives that a
backend lacks, and authors of a backend may read it as an example.
"""
