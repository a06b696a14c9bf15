"""What is measured, by class: importing this package registers every row."""

from benchmarks.workloads import (
    creation,
    derivatives,
    elementwise,
    files,
    linalg,
    loading,
    movement,
    neural,
    optimizers,
    overhead,
    reductions,
    training,
)
from benchmarks.workloads.registry import WORKLOADS as REGISTERED

CLASSES = (  # in the order of the report
    *("overhead", "elementwise", "reductions", "movement", "creation"),
    *("linalg", "neural", "training", "derivatives", "files"),
)
WORKLOADS = dict(sorted(REGISTERED.items(), key=lambda item: CLASSES.index(item[1].group)))

__all__ = ["CLASSES", "WORKLOADS"]
