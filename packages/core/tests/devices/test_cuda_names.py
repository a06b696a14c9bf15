"""Names of pullback.cuda, and streams, where there is no device."""

import sys
import types

import pytest

import pullback as pb


def test_generator_is_that_of_all_devices():
    pb.cuda.manual_seed(3)
    assert pb.cuda.initial_seed() == pb.initial_seed() == 3
    state = pb.cuda.get_rng_state()
    first = pb.rand(2).tolist()
    pb.cuda.set_rng_state(state)
    assert pb.rand(2).tolist() == first
    pb.cuda.set_rng_state_all([state])
    assert pb.rand(2).tolist() == first
    assert len(pb.cuda.get_rng_state_all()) == pb.cuda.device_count()
    pb.cuda.seed_all()
    assert pb.cuda.initial_seed() != 3
    assert pb.cuda.is_current_stream_capturing() is False and pb.cuda.ipc_collect() is None


@pytest.mark.skipif(pb.cuda.is_available(), reason="there is a CUDA device")
def test_nothing_is_supported_without_a_device():
    assert not pb.cuda.is_bf16_supported() and not pb.cuda.is_tf32_supported()
    with pytest.raises((RuntimeError, ImportError)):
        pb.Stream("cuda")


def test_state_of_a_device_is_read_through_pynvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ModuleNotFoundError, match="pynvml does not seem to be installed"):
        pb.cuda.utilization()
    rates = types.SimpleNamespace(gpu=7, memory=5)
    process = types.SimpleNamespace(pid=12, usedGpuMemory=3 << 20)
    library = types.SimpleNamespace(
        NVML_TEMPERATURE_GPU=0,
        NVML_CLOCK_SM=1,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetUtilizationRates=lambda handle: rates,
        nvmlDeviceGetTemperature=lambda handle, kind: (40, kind),
        nvmlDeviceGetPowerUsage=lambda handle: 100,
        nvmlDeviceGetClockInfo=lambda handle, kind: (900, kind),
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [process] * handle,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    cuda = pb.cuda
    assert (cuda.utilization(), cuda.memory_usage(0), cuda.power_draw()) == (7, 5, 100)
    assert (cuda.temperature(), cuda.clock_rate()) == ((40, 0), (900, 1))
    assert cuda.list_gpu_processes(0) == "GPU:0\nno processes are running"
    assert cuda.list_gpu_processes(1).endswith("process         12 uses        3.000 MB GPU memory")


def test_streams_of_hosts_are_always_done():
    stream, event = pb.Stream("ref"), pb.Event("ref", enable_timing=True)
    with stream as entered:
        assert entered is stream and stream.query() and stream.synchronize() is None
    assert stream == pb.Stream("ref") and hash(stream) == hash(pb.Stream("ref"))
    assert stream != pb.Stream("meta") and event.query() and event.synchronize() is None
    assert "device_type=ref" in repr(stream) and "device_type=ref" in repr(event)
    for call in (stream.record_event, lambda: stream.wait_event(event), event.record):
        with pytest.raises(RuntimeError, match="ref backend doesn't support events"):
            call()
    with pytest.raises(ValueError, match="'enable_timing=True'"):
        event.elapsed_time(pb.Event("ref"))
    with pytest.raises(RuntimeError, match="doesn't support events"):
        event.elapsed_time(event)
    for kind in (pb.Stream, pb.Event):
        with pytest.raises(TypeError, match=r"\(\): argument 'device' \(position 1\) must be pull"):
            kind(3.5)


def test_reinforce_was_removed():
    with pytest.raises(RuntimeError, match="was removed"):
        pb.ones(1).reinforce(1.0)
