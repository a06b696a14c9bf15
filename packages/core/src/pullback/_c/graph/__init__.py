"""Tensors, ops at run time, nodes, saved values, recording; modes and levels of a thread."""
