"""Process groups on MPI, with torch.distributed's names: the same script under ``mpiexec``."""

from __future__ import annotations

__version__ = "0.1.0"

from pullback.distributed import ReduceOp
from pullback_distributed import nn
from pullback_distributed.collectives.monitored import monitored_barrier
from pullback_distributed.collectives.movements import (
    all_gather,
    all_gather_into_tensor,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    scatter,
)
from pullback_distributed.collectives.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from pullback_distributed.collectives.point_to_point import (
    P2POp,
    batch_isend_irecv,
    irecv,
    isend,
    recv,
    send,
)
from pullback_distributed.collectives.progress import Work
from pullback_distributed.collectives.reductions import (
    all_reduce,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
)
from pullback_distributed.data_parallel.distributed_data_parallel import DistributedDataParallel
from pullback_distributed.data_parallel.reducer import synchronize_gradients
from pullback_distributed.groups.lifecycle import (
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from pullback_distributed.groups.process_group import ProcessGroup
