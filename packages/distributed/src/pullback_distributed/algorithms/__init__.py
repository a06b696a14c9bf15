"""Ways to train that need the processes to work together."""
