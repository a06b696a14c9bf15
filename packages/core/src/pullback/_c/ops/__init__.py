"""Compiled forward passes, by family. They register themselves by name for the op table."""
