"""Data parallel training: modules whose gradients are averaged over the processes."""
