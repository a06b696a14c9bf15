"""Memory that runs out anywhere is a MemoryError, and everything works afterwards."""

import os
import re

import pytest
from pullback.testing._allocations import begin_failing, end_failing

import pullback as pb

SCENARIOS = """
backward accumulated create_graph saved_tensors_hooks vmapped_grad jacobians forward_over_reverse
conv2d custom_function checkpoints hooks in_place_on_views indexing linear_algebra threads exchange
joins_and_reductions losses profiler_idle anomaly functional random_numbers captures replays
""".split()
THOROUGH = bool(os.environ.get("PULLBACK_TEST_ALLOCATIONS"))
BURSTS = (1, 2, 3, 5) if THOROUGH else (1,)
LIMIT = () if THOROUGH else ("--runs", 500)


@pytest.mark.pullback_share
@pytest.mark.parametrize("burst", BURSTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_allocation_may_fail(scenario, burst, run_script):
    """PULLBACK_TEST_ALLOCATIONS=1 tries every one, and several in a row, too."""
    printed = run_script("failing_allocations", scenario, "--burst", burst, *LIMIT)
    runs, raised = re.search(r"(\d+) runs, (\d+) raised, 0 bad", printed).groups()
    assert int(runs) >= int(raised) > 5


def test_failing_allocations_are_counted():
    begin_failing(10**9, 10**9)
    try:
        with pytest.raises(RuntimeError, match="end_failing"):
            begin_failing(1, 1)
        kept = [float(i) + 0.5 for i in range(500)]
    finally:
        count = end_failing()
    assert count > 200
    assert len(kept) == 500


def test_modes_end_without_memory():
    """Leaving a mode that was entered several times asks for no memory."""
    x = pb.ones(2, requires_grad=True)
    modes = [pb.no_grad(), pb.enable_grad(), pb.inference_mode(), pb.inference_mode(False)]
    for mode in modes:
        for _ in range(3):
            mode.__enter__()
    for mode in reversed(modes):
        for _ in range(3):
            begin_failing(1, 1)
            mode.__exit__(None, None, None)
            end_failing()
    assert pb.is_grad_enabled()
    assert not pb.is_inference_mode_enabled()
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
