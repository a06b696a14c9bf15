"""Calls of every op with hostile arguments: no crash, no hang, no runaway memory, honest errors.

    python -m pullback.testing hostile --device NAME --count 20000 --seed 0

The calls follow from the seed and run in processes of their own; a failure prints a line that
repeats it.
"""
