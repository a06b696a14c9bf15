"""The device ``mlx`` for Pullback: memory and kernels are MLX arrays."""
