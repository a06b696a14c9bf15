"""Reading and writing at index tensors, masks and slices."""
