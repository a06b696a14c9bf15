"""What runs where a device has no kernel for a primitive: the same in other ops, by family.

A function registers itself with ``decomposition``; a few stand beside the op that they are for.
"""
