"""Forward mode, batching (vmap) and dispatch mode."""
