"""Work on devices in a Chrome trace: kernels, what launched them, and blocks over them."""

from trace_checks import arrows, entries, export, nanoseconds, span
from trace_programs import step_on_device

import pullback as pb
from pullback_profiler import profile


def step(device, path, **options):
    with profile(use_device=device, **options) as profiled:
        step_on_device(device)
    return profiled.function_events, export(profiled, path)


def test_kernels_stand_on_the_lane_of_their_device(tmp_path, timed_device):
    with profile(use_device=timed_device) as profiled:
        for index in range(2):
            pb.ones(3, device=f"{timed_device}:{index}").exp()
    trace = export(profiled, tmp_path / "trace.json")
    labels = {e["pid"]: e["args"]["labels"] for e in entries(trace, "M") if "labels" in e["args"]}
    streams = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in entries(trace, "M")
        if e["name"] == "thread_name"
    }
    kernels = entries(trace, "X", "kernel")
    assert len(kernels) == 4
    for kernel in kernels:
        index = kernel["args"]["device"]
        assert labels[kernel["pid"]] == f"GPU {index}"
        assert streams[kernel["pid"], kernel["tid"]] == f"stream {kernel['args']['stream']}"
        assert nanoseconds(kernel["dur"]) >= 5000
    assert [kernel["args"]["device"] for kernel in kernels] == [0, 0, 1, 1]


def test_every_kernel_is_linked_to_what_launched_it(tmp_path, timed_device):
    events, trace = step(timed_device, tmp_path / "trace.json")
    launches = {
        (event.linked_correlation_id, event.id) for event in events if event.device_type != "cpu"
    }
    assert len(launches) > 5
    assert set(arrows(trace, "ac2g")) == launches
    by_number = {event.id: event for event in events}
    for launcher, kernel in launches:
        assert by_number[launcher].time_range.start <= by_number[kernel].time_range.start
        args = next(e for e in entries(trace, "X", "kernel") if e["args"]["correlation"] == kernel)
        assert args["args"]["External id"] == launcher


def test_blocks_cover_the_kernels_launched_inside(tmp_path, timed_device):
    events, trace = step(timed_device, tmp_path / "trace.json")
    blocks = {bar["name"]: bar for bar in entries(trace, "X", "gpu_user_annotation")}
    assert blocks.keys() == {"forward", "loss", "backward"}
    by_number = {event.id: event for event in events}
    for name, block in blocks.items():
        inside = []
        for bar in entries(trace, "X", "kernel"):
            around = by_number[bar["args"]["External id"]]
            while around is not None and around.name != name:
                around = around.cpu_parent
            if around is not None:
                inside.append(span(bar))
        assert inside
        assert span(block) == (min(s for s, _ in inside), max(e for _, e in inside))


def test_changes_of_device_memory(tmp_path, timed_device):
    _, trace = step(timed_device, tmp_path / "trace.json", profile_memory=True)
    changes = [e["args"] for e in entries(trace, "i") if e.get("cat") == "cpu_instant_event"]
    on_device = [change for change in changes if change["Device Type"] == 1]
    assert on_device and {change["Device Id"] for change in on_device} == {0}
    total = 0
    for change in on_device:
        total += change["Bytes"]
        assert change["Total Allocated"] == total
