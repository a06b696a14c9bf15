"""Signatures, descriptions of arguments, and examples of ops, for ``help`` and ``inspect``."""
