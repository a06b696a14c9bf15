"""Ops that work element by element, special functions among them."""
