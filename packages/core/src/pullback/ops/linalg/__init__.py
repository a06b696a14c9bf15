"""Products, systems of equations, singular values, distances."""
