"""Steps of optimizers, over lists of tensors."""
