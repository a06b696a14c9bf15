"""Calling an op: arguments, outputs, the launch of its kernel, and observers of all that."""
