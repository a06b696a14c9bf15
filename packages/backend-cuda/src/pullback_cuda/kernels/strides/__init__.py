"""Iteration over strided arrays: coalesced dims, and offsets of indices."""
