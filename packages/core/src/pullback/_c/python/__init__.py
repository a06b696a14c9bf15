"""The Python interface: runtime ops of entries, operators, methods of tensors and nodes."""
