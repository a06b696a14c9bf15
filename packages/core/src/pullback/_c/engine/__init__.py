"""Backward passes: the engine, formulas, accumulation of gradients, hooks, custom functions."""
