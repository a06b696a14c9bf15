"""What Python sees: method tables, operators, the methods of tensors and nodes."""
