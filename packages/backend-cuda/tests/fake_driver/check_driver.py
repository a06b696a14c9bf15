"""The fake CUDA driver, proved through the real pycuda: what the backend's tests rest on."""

import ctypes
import struct
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))
try:
    from fake_driver import fixtures
    from fake_driver.fixtures import from_device, pack, to_device
finally:
    del sys.path[0]

clean = fixtures.clean
context = fixtures.context
control = fixtures.control
cuda = fixtures.cuda
functions = fixtures.functions
image = fixtures.image

pytestmark = pytest.mark.usefixtures("clean")


# -- devices and contexts --------------------------------------------------------------------------


def test_devices_answer_questions(cuda, control):
    assert cuda.get_version() == (13, 0, 0) and cuda.get_driver_version() == 13000
    assert cuda.Device.count() == 2
    device = cuda.Device(1)
    assert device.name() == "Fake CUDA device 1"
    assert device.compute_capability() == (9, 0)
    assert device.total_memory() == 1 << 32
    assert cuda.Device(device.pci_bus_id()) == device
    attributes = device.get_attributes()
    assert attributes[cuda.device_attribute.MAX_THREADS_PER_BLOCK] == 1024
    assert attributes[cuda.device_attribute.WARP_SIZE] == 32
    assert device.multiprocessor_count == 8
    assert device.can_access_peer(cuda.Device(0)) and not device.can_access_peer(device)
    with pytest.raises(cuda.LogicError, match="invalid device ordinal"):
        cuda.Device(2)


def test_the_number_of_devices_can_be_set(cuda, control):
    control.set_device_count(5)
    try:
        assert cuda.Device.count() == 5
        assert cuda.Device(4).name() == "Fake CUDA device 4"
        control.set_device_count(0)
        with pytest.raises(cuda.RuntimeError) as caught:
            cuda.init()
    finally:
        control.set_device_count(2)
    assert str(caught.value) == "cuInit failed: no CUDA-capable device is detected"
    with pytest.raises(ValueError, match="9 devices"):
        control.set_device_count(9)


def test_a_thread_has_no_context_until_it_pushes_one(cuda, control, context):
    outcomes = []

    def work():
        lib = ctypes.CDLL("libcuda.so.1")
        address = ctypes.c_uint64()
        outcomes.append(lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(16)))
        context.push()
        outcomes.append(lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(16)))
        outcomes.append(lib.cuMemFree_v2(address))
        cuda.Context.pop()
        outcomes.append(lib.cuMemFree_v2(address))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert outcomes == [201, 0, 0, 201]


def test_the_end_of_a_context_ends_all_in_it(cuda, control):
    leaked = control.counter("leaked_blocks")
    context = cuda.Device(1).retain_primary_context()
    context.push()
    lib = ctypes.CDLL("libcuda.so.1")
    address, event, stream = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
    assert lib.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)) == 0
    assert lib.cuEventCreate(ctypes.byref(event), 0) == 0
    assert lib.cuStreamCreate(ctypes.byref(stream), 1) == 0
    context.detach()
    assert control.counter("leaked_blocks") == leaked + 1
    assert lib.cuStreamSynchronize(stream) == 709  # the context that is current is destroyed
    context = cuda.Device(1).retain_primary_context()
    context.push()
    assert lib.cuStreamSynchronize(stream) == 400
    assert lib.cuEventSynchronize(event) == 400
    assert lib.cuMemFree_v2(address) == 1
    context.detach()


# -- memory ----------------------------------------------------------------------------------------


def test_fresh_memory_is_poisoned_and_copies_go_round(cuda, context):
    memory = cuda.mem_alloc(1000)
    assert int(memory) % 256 == 0
    assert (from_device(cuda, memory, 1000, "u1") == 0xCD).all()
    values = np.arange(250, dtype="f4")
    cuda.memcpy_htod(memory, values)
    other = cuda.mem_alloc(1000)
    cuda.memcpy_dtod(other, memory, 1000)
    assert (from_device(cuda, other, 250) == values).all()
    assert (from_device(cuda, int(other) + 400, 100) == values[100:200]).all()


@pytest.mark.parametrize("offset, size", [(0, 101), (1, 100), (-1, 10), (100, 1), (5000, 1)])
def test_copies_outside_a_block_fail(cuda, context, offset, size):
    memory, host = cuda.mem_alloc(100), np.zeros(size, "u1")
    address = int(memory) + offset
    for copy in (
        lambda: cuda.memcpy_htod(address, host),
        lambda: cuda.memcpy_dtoh(host, address),
        lambda: cuda.memcpy_dtod(memory, address, size),
        lambda: cuda.memset_d8(address, 0, size),
        lambda: cuda.memcpy_htod_async(address, host, cuda.Stream()),
    ):
        with pytest.raises(cuda.LogicError, match="invalid argument"):
            copy()


def test_freed_memory_cannot_be_used(cuda, context, control):
    memory = cuda.mem_alloc(64)
    address = int(memory)
    cuda.memcpy_htod(memory, np.zeros(64, "u1"))
    memory.free()
    with pytest.raises(cuda.LogicError, match="invalid argument"):
        cuda.memcpy_dtoh(np.empty(64, "u1"), address)
    assert ctypes.string_at(address, 64) == b"\xdd" * 64
    assert ctypes.CDLL("libcuda.so.1").cuMemFree_v2(ctypes.c_uint64(address)) == 1
    assert control.counter("bad_frees") == 1


def test_writes_around_and_after_blocks_are_counted(cuda, context, control):
    assert control.check_memory() == 0
    memory, freed = cuda.mem_alloc(60), cuda.mem_alloc(100)
    address = int(freed)
    freed.free()
    ctypes.memset(int(memory) + 60, 0, 1)
    ctypes.memset(address + 99, 0, 1)
    assert control.check_memory() == 2
    assert control.check_memory() == 0
    ctypes.memset(int(memory) - 4, 0, 4)
    memory.free()
    counters = control.counters()
    assert counters["overruns"] == 2 and counters["writes_after_free"] == 1


def test_a_device_runs_out_of_memory(cuda, context, control):
    control.set_memory(1000, 1)
    first = cuda.mem_alloc(600)
    assert cuda.mem_get_info() == (400, 1000)
    with pytest.raises(cuda.MemoryError, match="out of memory"):
        cuda.mem_alloc(401)
    second = cuda.mem_alloc(400)
    first.free()
    second.free()
    assert cuda.mem_get_info() == (1000, 1000)


def test_the_pool_reuses_and_gives_back(cuda, context, control):
    from pycuda.tools import DeviceMemoryPool

    pool = DeviceMemoryPool()
    before = control.counter("allocations")
    block = pool.allocate(1000)
    address = int(block)
    block.free()
    again = pool.allocate(1000)
    assert int(again) == address and control.counter("allocations") == before + 1
    assert pool.active_blocks == 1
    del again
    assert pool.held_blocks == 1
    pool.free_held()
    assert pool.held_blocks == 0 and cuda.mem_get_info()[0] == 1 << 32
    # Out of memory: the pool frees what it holds, and tries once more.
    control.set_memory(4096, 1)
    held = pool.allocate(3000)
    held.free()
    larger = pool.allocate(3500)
    with pytest.raises(cuda.MemoryError):
        pool.allocate(4000)
    del larger
    pool.stop_holding()


def test_blocks_of_the_pool_can_be_freed_on_any_thread(cuda, context, control):
    from pycuda.tools import DeviceMemoryPool

    pool = DeviceMemoryPool()
    pool.allocate(5000).free()  # one that is held: the first needs a context in its thread
    blocks = [pool.allocate(100)]
    thread = threading.Thread(target=blocks.clear)
    thread.start()
    thread.join()
    assert pool.held_blocks == 2
    pool.stop_holding()
    assert cuda.mem_get_info()[0] == 1 << 32


def test_pinned_memory_has_one_address_for_both_sides(cuda, context, control, functions):
    flags = cuda.host_alloc_flags.DEVICEMAP | cuda.host_alloc_flags.PORTABLE
    pinned = cuda.pagelocked_zeros(10, "f4", mem_flags=flags)
    address = pinned.base.get_device_pointer()
    assert address == pinned.ctypes.data
    source = to_device(cuda, np.ones(10, "f4"))
    functions("scale")._launch_kernel((1,), (32,), pack(source, address, 10), 0, None)
    assert (pinned == 2).all()


def test_host_memory_can_be_registered(cuda, context, control):
    """By the call itself: pycuda's register_host_memory and NumPy 2 do not get on."""
    lib, plain = ctypes.CDLL("libcuda.so.1"), np.zeros(1024, "f4")
    place, size = ctypes.c_void_p(plain.ctypes.data), ctypes.c_size_t(plain.nbytes)
    source, stream = to_device(cuda, np.ones(10, "f4")), cuda.Stream(1)
    assert lib.cuMemHostRegister_v2(place, size, 0) == 0
    assert lib.cuMemHostRegister_v2(place, size, 0) == 712
    with control.deferred():
        cuda.memcpy_dtoh_async(plain[:10], source, stream)
        assert (plain == 0).all()  # as for pinned memory: nothing before a wait
        stream.synchronize()
    assert (plain[:10] == 1).all() and (plain[10:] == 0).all()
    assert lib.cuMemHostUnregister(place) == 0
    assert lib.cuMemHostUnregister(place) == 713


def test_copies_between_devices(cuda, context, control):
    other = cuda.Device(0).retain_primary_context()
    here = to_device(cuda, np.arange(10, dtype="f4"))
    context.enable_peer_access(other)
    with pytest.raises(cuda.Error, match="already enabled"):
        context.enable_peer_access(other)
    lib, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(40)

    def copy(target, target_context, source, source_context):
        return lib.cuMemcpyPeer(
            ctypes.c_uint64(int(target)),
            ctypes.c_void_p(target_context.handle),
            ctypes.c_uint64(int(source)),
            ctypes.c_void_p(source_context.handle),
            size,
        )

    other.push()
    there = cuda.mem_alloc(40)
    assert copy(there, other, here, context) == 0
    assert (from_device(cuda, there, 10) == np.arange(10)).all()
    assert copy(there, context, here, other) == 1
    # pycuda gives the current context twice, whatever devices it gets.
    with pytest.raises(cuda.LogicError, match="invalid argument"):
        cuda.memcpy_peer(there, here, 40, other, context)
    # With unified addressing a plain copy does it.
    cuda.memset_d8(there, 0, 40)
    cuda.memcpy_dtod(there, here, 40)
    assert (from_device(cuda, there, 10) == np.arange(10)).all()
    there.free()
    other.detach()


def test_copies_and_memsets_with_pitches(cuda, context):
    memory, pitch = cuda.mem_alloc_pitch(12, 5, 4)
    assert pitch % 512 == 0
    cuda.memset_d8(memory, 1, pitch * 5)
    cuda.memset_d2d32(memory, pitch, 7, 3, 5)
    whole = from_device(cuda, memory, (5, pitch // 4), "i4")
    assert (whole[:, :3] == 7).all() and (whole[:, 3:] == 0x01010101).all()
    copy, values = cuda.Memcpy2D(), np.arange(15, dtype="i4").reshape(5, 3)
    copy.set_src_host(values)
    copy.set_dst_device(memory)
    copy.src_pitch, copy.dst_pitch, copy.width_in_bytes, copy.height = 12, pitch, 12, 5
    copy(aligned=True)
    assert (from_device(cuda, memory, (5, pitch // 4), "i4")[:, :3] == values).all()
    copy.height = 6
    with pytest.raises(cuda.LogicError, match="invalid argument"):
        copy(aligned=True)
    cuda.memset_d16(memory, 0x1234, 6)
    assert (from_device(cuda, memory, 6, "u2") == 0x1234).all()


# -- streams and events ----------------------------------------------------------------------------


def test_streams_and_events(cuda, context, control):
    stream, start, end = cuda.Stream(1), cuda.Event(), cuda.Event()
    assert stream.is_done() and start.query()
    with pytest.raises(cuda.LogicError, match="invalid resource handle"):
        end.time_since(start)  # neither was recorded
    start.record(stream)
    end.record(stream)
    end.synchronize()
    assert 0 <= end.time_since(start) < 1000
    stream.wait_for_event(end)
    stream.synchronize()
    quick = cuda.Event(cuda.event_flags.DISABLE_TIMING)
    quick.record(stream)
    with pytest.raises(cuda.LogicError, match="invalid resource handle"):
        quick.time_since(start)


def test_an_event_belongs_to_one_context(cuda, context):
    event = cuda.Event()
    other = cuda.Device(0).retain_primary_context()
    other.push()
    stream = cuda.Stream()
    with pytest.raises(cuda.LogicError, match="invalid resource handle"):
        event.record(stream)
    del stream
    other.detach()


# -- modules and launches --------------------------------------------------------------------------


def test_launches_in_every_way(cuda, context, control, functions):
    scale = functions("scale")
    source = to_device(cuda, np.arange(1000, dtype="f4"))
    target, stream = cuda.mem_alloc(4000), cuda.Stream(1)
    arguments = pack(source, target, 1000)
    for launch in (
        lambda: scale._launch_kernel((4, 1, 1), (256, 1, 1), arguments, 0, stream),
        lambda: scale.prepared_async_call(
            (4, 1), (256, 1, 1), stream, int(source), int(target), 1000, 2.0, 0
        ),
        lambda: scale.prepared_call((4, 1), (256, 1, 1), int(source), int(target), 1000, 2.0, 0),
        lambda: scale(
            source,
            target,
            np.int64(1000),
            np.float32(2),
            np.int32(0),
            grid=(4, 1),
            block=(256, 1, 1),
        ),
    ):
        scale.prepare("PPqfi")
        cuda.memset_d8(target, 0, 4000)
        launch()
        assert (from_device(cuda, target, 1000) == np.arange(1000) * 2).all()
    assert control.counter("launches") == 4
    last = control.launches()[-1]
    assert last[:5] == ("scale", (4, 1, 1), (256, 1, 1), 0, 1)
    assert scale.max_threads_per_block == 1024


def test_launches_that_cannot_be(cuda, context, control, functions):
    scale, target = functions("scale"), cuda.mem_alloc(4096)
    arguments = pack(target, target, 1024)

    def fails(match, grid=(1, 1, 1), block=(32, 1, 1), arguments=arguments, shared=0, stream=None):
        with pytest.raises(cuda.Error, match=match):
            scale._launch_kernel(grid, block, arguments, shared, stream)

    fails("invalid argument", arguments=arguments[:-1])
    fails("invalid argument", arguments=arguments + b"\0" * 8)
    fails("invalid argument", block=(1025, 1, 1))
    fails("invalid argument", block=(64, 32, 1))
    fails("invalid argument", block=(1, 1, 65))
    fails("invalid argument", grid=(0, 1, 1))
    fails("invalid argument", grid=(1, 65536, 1))
    fails("invalid argument", shared=49153)
    control.set_block_limit(256)
    fails("too many resources", block=(257, 1, 1))
    assert scale.max_threads_per_block == 256
    other = cuda.Device(0).retain_primary_context()
    other.push()
    stream = cuda.Stream()
    fails("invalid resource handle")  # the function's context is not current
    cuda.Context.pop()
    fails("invalid resource handle", stream=stream)
    del stream
    other.push()
    other.detach()
    assert control.counter("launches") == 0


def test_dynamic_shared_memory_has_to_be_asked_for(cuda, context, functions):
    sums, memory = functions("shared_sum"), to_device(cuda, np.ones(8, "f4"))
    arguments = pack(memory, memory, 8)
    sums._launch_kernel((1,), (8,), arguments, 48 << 10, None)
    assert (from_device(cuda, memory, 8) == 8).all()
    attribute = cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
    with pytest.raises(cuda.LogicError, match="invalid argument"):
        sums.set_attribute(attribute, (227 << 10) + 1)
    sums.set_attribute(attribute, 227 << 10)
    sums._launch_kernel((1,), (8,), arguments, 227 << 10, None)
    assert (from_device(cuda, memory, 8) == 64).all()


def test_what_modules_hold(cuda, context, control, image):
    module, twin = cuda.module_from_buffer(image), cuda.module_from_buffer(image)
    with pytest.raises(cuda.LogicError, match="named symbol not found"):
        module.get_function("absent")
    address, size = module.get_global("table")
    assert size == 16 and (from_device(cuda, address, 4) == [1, 2, 3, 4]).all()
    cuda.memset_d32(address, 0, 4)
    assert (from_device(cuda, twin.get_global("table")[0], 4) == [1, 2, 3, 4]).all()
    for name in ("absent", "malloc", "emulated_kernels"):
        with pytest.raises(cuda.LogicError, match="named symbol not found"):
            module.get_global(name)
    live = control.counter("live_modules")
    function = module.get_function("scale")
    del module
    assert control.counter("live_modules") == live  # a function keeps its module
    del function
    assert control.counter("live_modules") == live - 1


@pytest.mark.parametrize(
    "image, match",
    [
        (b"\x50\xed\x55\xba" + bytes(60), "no kernel image is available"),  # a fatbin
        (
            b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 2, 190) + bytes(44),
            "no kernel image",
        ),
        (b".version 9.0\n" + bytes(64), "kernel image is invalid"),
        (bytes(64), "kernel image is invalid"),
    ],
)
def test_images_for_devices_cannot_be_loaded(cuda, context, image, match):
    with pytest.raises(cuda.Error, match=match):
        cuda.module_from_buffer(image)
