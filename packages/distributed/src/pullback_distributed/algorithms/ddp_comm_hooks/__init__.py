"""Communication hooks of ``DistributedDataParallel``: what travels in place of gradients."""
