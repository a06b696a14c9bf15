"""Attention, and steps of recurrent layers."""
