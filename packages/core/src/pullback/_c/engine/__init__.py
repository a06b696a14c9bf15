"""Backward passes: the engine, formulas, accumulation, hooks, custom functions."""
