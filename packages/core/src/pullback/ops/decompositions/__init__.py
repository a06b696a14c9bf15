"""Decompositions of primitives in other ops, by family, for devices without a kernel.

A function registers itself with ``decomposition``; a few stand beside the op that they are for.
"""
