"""Normalizations by layer, group, batch and instance."""
