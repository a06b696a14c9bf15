"""Diagnostics of graphs and gradients; modules are imported when they are first used."""
