"""Reductions, cumulative results, statistics, counts and sorts."""
