"""Compiled forward passes, by family."""
