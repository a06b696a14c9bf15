"""Checkpoints that all ranks write and read together: ``pullback.distributed.checkpoint``.

A checkpoint is a folder: ``index.json`` says which part of which tensor lies where, and
``rank-00000.safetensors`` and so on, a file for each rank that had something to write, hold the
values. It can be read by another number of processes, with tensors cut in another way.
"""

from pullback_distributed.checkpoint.loading import is_complete, load
from pullback_distributed.checkpoint.saving import save
from pullback_distributed.checkpoint.shards import Shard

__all__ = ["Shard", "is_complete", "load", "save"]
