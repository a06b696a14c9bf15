"""Optimizers whose state is divided among the processes."""

from pullback_distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["ZeroRedundancyOptimizer"]
