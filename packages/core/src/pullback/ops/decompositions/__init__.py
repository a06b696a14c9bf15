"""What runs where a device has no kernel for a primitive: the same in other ops."""
