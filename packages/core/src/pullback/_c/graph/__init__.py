"""Tensors, runtime ops, nodes, saved values, recording, grad modes, transform levels, overrides."""
