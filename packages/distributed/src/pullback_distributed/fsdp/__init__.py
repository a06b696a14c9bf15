"""Parameters divided among the processes: ``fully_shard``."""

from pullback_distributed.fsdp.fully_shard import (
    FSDPModule,
    ShardInfo,
    clip_grad_norm_,
    full_state_dict,
    fully_shard,
    load_full_state_dict,
    shard_info,
    sharded_state_dict,
)

__all__ = [
    "FSDPModule",
    "ShardInfo",
    "clip_grad_norm_",
    "full_state_dict",
    "fully_shard",
    "load_full_state_dict",
    "shard_info",
    "sharded_state_dict",
]
