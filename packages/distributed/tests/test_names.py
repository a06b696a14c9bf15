"""Modules of torch.distributed as programs import them."""

import importlib

import pytest


@pytest.mark.parametrize("name", ["fsdp", "_composable.fsdp"])
def test_fsdp_has_torch_s_names(name):
    module = importlib.import_module(f"pullback.distributed.{name}")
    from pullback_distributed import fsdp

    assert module.fully_shard is fsdp.fully_shard
    assert module.FSDPModule is fsdp.FSDPModule
    assert importlib.import_module("pullback.distributed.fsdp.fully_sharded_data_parallel")
    for left_out in ("FullyShardedDataParallel", "MixedPrecisionPolicy", "StateDictType"):
        with pytest.raises(NotImplementedError, match=f"fsdp.{left_out}: tensors on several"):
            getattr(module, left_out)()
