"""Ops of torch.nn.functional: layers, pooling, normalization, losses."""
