"""What ``Module`` is composed of: hooks, state dicts, conversions."""
