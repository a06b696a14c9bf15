"""Functions of networks: activations, losses, dropout. Filled from the op table."""
