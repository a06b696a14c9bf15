"""Losses, by kind; nn.functional reduces them to a mean or a sum."""
