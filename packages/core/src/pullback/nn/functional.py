"""Functions of neural networks: activations, losses, dropout. Filled from the op table."""
