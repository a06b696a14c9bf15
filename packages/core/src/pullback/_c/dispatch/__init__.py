"""Calling an op: parsing of arguments, outputs, the launch of its kernel, observers."""
