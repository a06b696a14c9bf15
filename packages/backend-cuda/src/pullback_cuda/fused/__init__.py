"""Compiled programs: elementwise kernels that follow each other become one generated kernel."""
