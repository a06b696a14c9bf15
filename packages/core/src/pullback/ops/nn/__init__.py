"""What networks are made of: layers, pooling, normalization, losses."""
