"""The emulation of CUDA on the CPU: that it computes what CUDA does, and finds what is wrong."""

import ctypes
import importlib.util
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
BUILD = HERE / "emulation" / "build.py"

specification = importlib.util.spec_from_file_location("emulation_build", BUILD)
build = importlib.util.module_from_spec(specification)
specification.loader.exec_module(build)

RIGHT = r"""
#include "kernels/common/kernel.cuh"

struct arguments { void *in; void *out; int64_t size; };

KERNEL(indices, arguments) {
    const uint64_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const uint64_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    uint32_t *out = (uint32_t *)args.out
        + 6 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
    out[0] = threadIdx.x, out[1] = threadIdx.y, out[2] = threadIdx.z;
    out[3] = blockIdx.x, out[4] = blockIdx.y, out[5] = blockIdx.z;
}

// Each block reverses its part, through shared memory of both kinds.
KERNEL(turn, arguments) {
    __shared__ int fixed[256];
    DYNAMIC_SHARED(int, dynamic);
    const int *in = (const int *)args.in + blockIdx.x * blockDim.x;
    int *out = (int *)args.out + blockIdx.x * blockDim.x;
    fixed[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    dynamic[threadIdx.x] = fixed[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
    const int last = dynamic[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = last == in[threadIdx.x] ? dynamic[threadIdx.x] : -1;
}

KERNEL(votes, arguments) {
    int *out = (int *)args.out + 3 * threadIdx.x;
    for (int i = 0; i < 3; i++) {
        const bool vote = threadIdx.x < i * blockDim.x / 2;
        out[0] = out[0] * 100 + __syncthreads_count(vote);
        out[1] = out[1] * 10 + (__syncthreads_and(vote) != 0);
        out[2] = out[2] * 10 + (__syncthreads_or(vote) != 0);
    }
}

KERNEL(left_before, arguments) {
    __shared__ int fixed[2];
    DYNAMIC_SHARED(int, dynamic);
    int *out = (int *)args.out + 3 * blockIdx.x;
    out[0] = fixed[0], out[1] = dynamic[0], out[2] = dynamic[args.size / 4 - 1];
    fixed[0] = dynamic[0] = dynamic[args.size / 4 - 1] = 1;
}

template <class T> DEVICE void shuffle(T *out, T value, int width) {
    const unsigned all = __ballot_sync(0xffffffffu, 1);
    out[0] = __shfl_sync(all, value, 3, width);
    out[1] = __shfl_sync(all, value, threadIdx.x + 1, width);
    out[2] = __shfl_up_sync(all, value, 2, width);
    out[3] = __shfl_down_sync(all, value, 2, width);
    out[4] = __shfl_xor_sync(all, value, 5, width);
}
KERNEL(shuffle_i32, arguments) {
    shuffle((int *)args.out + 5 * threadIdx.x, (int)threadIdx.x, (int)args.size);
}
KERNEL(shuffle_f64, arguments) {
    shuffle((double *)args.out + 5 * threadIdx.x, (double)threadIdx.x, (int)args.size);
}
KERNEL(shuffle_absent, arguments) {
    ((int *)args.out)[threadIdx.x] = __shfl_down_sync(0xffffffffu, (int)threadIdx.x, 4);
}

KERNEL(warp_votes, arguments) {
    uint32_t *out = (uint32_t *)args.out + 8 * threadIdx.x;
    const unsigned lane = threadIdx.x % 32;
    out[0] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    out[1] = __any_sync(0xffffffffu, lane == 7);
    out[2] = __all_sync(0xffffffffu, lane < 8);
    out[3] = __match_any_sync(0xffffffffu, lane / 4);
    int same;
    out[4] = __match_all_sync(0xffffffffu, lane / 8, &same);
    out[5] = same;
    if (lane & 1) {  // the halves meet apart, twice
        out[6] = __ballot_sync(0xaaaaaaaau, lane < 4);
        out[7] = __shfl_xor_sync(0xaaaaaaaau, threadIdx.x, 2);
    } else {
        out[6] = __ballot_sync(0x55555555u, lane < 4);
        out[7] = __shfl_xor_sync(0x55555555u, threadIdx.x, 2);
    }
    __syncwarp();
}

// Lanes that have returned are not waited for.
KERNEL(returned, arguments) {
    if (threadIdx.x % 2) return;
    ((uint32_t *)args.out)[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
}

KERNEL(roundings, arguments) {
    double *out = (double *)args.out;  // a product of its own in each line
    out[0] = out[0] * out[1] - 1;
    out[2] = __dmul_rn(out[2], out[3]) - 1;
    out[4] = __dsub_rn(out[4] * out[5], 1);
}

KERNEL(atomics, arguments) {
    int *i = (int *)args.out;
    atomicAdd(i, (int)threadIdx.x), atomicSub(i + 1, 2);
    atomicMin(i + 2, -(int)threadIdx.x), atomicMax(i + 3, (int)threadIdx.x);
    atomicOr(i + 4, 1 << threadIdx.x % 8), atomicAnd(i + 5, ~(1 << threadIdx.x % 8));
    atomicXor(i + 6, (int)threadIdx.x), atomicExch(i + 7, 9);
    unsigned *u = (unsigned *)i + 8;
    atomicInc(u, 5), atomicDec(u + 1, 5);
    int seen = i[10], old;
    do { old = seen; seen = atomicCAS(i + 10, old, old + 3); } while (seen != old);
    atomicAdd((float *)i + 11, 0.5f);
    atomicAdd((unsigned long long *)(i + 12), 1ull << 33);
    atomicAdd((double *)(i + 14), 0.25);
}

KERNEL(intrinsics, arguments) {
    int64_t *out = (int64_t *)args.out;
    int n = 0;
    out[n++] = __popc(0xf0f0u), out[n++] = __popcll(-1ll), out[n++] = __clz(1);
    out[n++] = __clz(0), out[n++] = __clzll(0), out[n++] = __ffs(8), out[n++] = __ffs(0);
    out[n++] = __umulhi(0xffffffffu, 0xffffffffu), out[n++] = __mulhi(-1, 1);
    out[n++] = (int64_t)(__umul64hi(~0ull, ~0ull) >> 1), out[n++] = __mul64hi(-1, 1);
    out[n++] = __brev(1u), out[n++] = __byte_perm(0x33221100u, 0x77665544u, 0x7610u);
    out[n++] = __funnelshift_l(0x80000000u, 1u, 1), out[n++] = __funnelshift_r(1u, 1u, 1);
    out[n++] = __float_as_uint(1.0f), out[n++] = __double_as_longlong(1.0);
    out[n++] = __float2int_rn(2.5f), out[n++] = __float2int_rz(-2.5f);
    out[n++] = __float2int_rd(-2.5f), out[n++] = __float2int_ru(-2.5f);
    out[n++] = __float2int_rz(1e30f), out[n++] = __float2int_rz(NAN);
    out[n++] = __float2uint_rz(-1.0f), out[n++] = __double2ll_rz(-1e300);
    out[n++] = min(-1, 1), out[n++] = max(-1, 1u), out[n++] = min(3ll, 2ll);
    out[n++] = (int64_t)min(NAN, 2.0f), out[n++] = (int64_t)max(1.0f, 2.0);
    out[n++] = (int64_t)(8 * rsqrtf(4.0f)), out[n++] = (int64_t)__saturatef(3.0f);
    out[n++] = __ldg((const int *)args.in), out[n++] = sizeof(int4) + alignof(float4);
    args.size > 0 ? (void)(out[n] = n) : (void)0;
}

KERNEL(reports, arguments) {
    if (threadIdx.x >= 3) report(args.out, FAILURE_INDEX, PB_E_INDEX, threadIdx.x, args.size);
    report(nullptr, FAILURE_COUNT, PB_E_RUNTIME, 0, 0);
}

// Wrong without a barrier, and only in one order.
KERNEL(unordered, arguments) {
    DYNAMIC_SHARED(int, all);
    all[threadIdx.x] = threadIdx.x;
    ((int *)args.out)[threadIdx.x] = threadIdx.x > 0 ? all[threadIdx.x - 1] : -1;
}
"""

WRONG = r"""
#include "kernels/common/kernel.cuh"
struct arguments { void *at; int64_t size; };
KERNEL(returns_early, arguments) { if (threadIdx.x < 3) return; __syncthreads(); }
KERNEL(skips, arguments) {
    if (threadIdx.x % 2)
        __syncthreads();
    __syncwarp();
}
KERNEL(two_barriers, arguments) {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}
KERNEL(not_in_mask, arguments) { __shfl_sync(0xfu, 1, 0); }
KERNEL(lanes_missing, arguments) {
    if (threadIdx.x % 32 < 8)
        __shfl_sync(0xffffffffu, 1, 0);
    else
        __shfl_sync(0xffffff00u, 1, 8), __syncthreads();
}
KERNEL(two_kinds, arguments) {
    if (threadIdx.x % 2)
        __ballot_sync(0xffffffffu, 1);
    else
        __syncwarp();
}
KERNEL(unaligned, arguments) { *(int4 *)((char *)args.at + 4) = make_int4(1, 2, 3, 4); }
KERNEL(outside, arguments) { __shared__ int part[4]; part[threadIdx.x] = 1; }
KERNEL(divides, arguments) { *(int64_t *)args.at = 5 / args.size; }
KERNEL(shifts, arguments) { *(int *)args.at = 1 << (args.size + 32); }
KERNEL(casts, arguments) { *(int *)args.at = (int)(3e10f + args.size); }
KERNEL(traps, arguments) { __trap(); }
KERNEL(too_far, arguments) {
    const int *from = (const int *)args.at;
    *(int *)args.at = from[args.size + 4];
}
KERNEL(too_far_shared, arguments) {
    DYNAMIC_SHARED(int, all);
    *(int *)args.at = all[args.size + 16];
}
"""

USER = r"""
/* __global__ void commented_out(int a) { } */
// and __global__ void this_too(int a) { }
template <class T> __device__ __forceinline__ T twice(T value) { return value + value; }
extern "C" __global__ void __launch_bounds__(128, 2)
scale(const float *__restrict__ in, char shift, double factor, short *more, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = twice(in[i]) * factor + shift + more[i];
}
template <class T> __global__ void any_type(T *out) { *out = 0; }
__global__ void declared_only(int *out);
__global__ void nothing() {}
"""


def kernels_of(text, name):
    return build.Kernels(build.image_of_text(text, name))


@pytest.fixture(scope="module")
def right():
    return kernels_of(RIGHT, "right")


def run(kernels, name, grid, block, out, given=None, size=0, shared=0):
    pointer = given.ctypes.data if given is not None else 0
    arguments = struct.pack("PPq", pointer, out.ctypes.data, size)
    kernels.launch(name, grid, block, shared, arguments)
    return out


# -- what works ------------------------------------------------------------------------------------


def test_grids_and_blocks_have_three_dims(right):
    grid, block = (2, 3, 2), (4, 2, 3)
    out = run(right, "indices", grid, block, np.full((*grid[::-1], *block[::-1], 6), 99, np.uint32))
    expected = np.indices(out.shape[:-1])
    np.testing.assert_array_equal(np.moveaxis(out, -1, 0), expected[[5, 4, 3, 2, 1, 0]])


@pytest.mark.parametrize("threads", [1, 2, 31, 32, 33, 256])
def test_barriers_order_the_threads_of_a_block(right, threads):
    given = np.arange(3 * threads, dtype=np.int32)
    out = run(right, "turn", 3, threads, np.zeros_like(given), given, shared=4 * threads)
    np.testing.assert_array_equal(out, given.reshape(3, -1)[:, ::-1].ravel())


def test_barriers_count_votes(right):
    out = run(right, "votes", 1, 64, np.zeros((64, 3), np.int32))
    assert (out == [3264, 1, 11]).all()


def test_shared_memory_holds_rubbish_before_every_block(right):
    out = run(right, "left_before", 3, 1, np.zeros((3, 3), np.uint32), size=400, shared=400)
    assert (out == 0xCDCDCDCD).all()


@pytest.mark.parametrize("name, dtype", [("shuffle_i32", np.int32), ("shuffle_f64", np.float64)])
@pytest.mark.parametrize("width", [32, 16, 8])
def test_shuffles(right, name, dtype, width):
    out = run(right, name, 1, 64, np.zeros((64, 5), dtype), size=width)
    for thread in range(64):
        lane, warp = thread % 32, thread // 32 * 32
        part = lane // width * width
        expected = [
            part + 3,
            part + (lane + 1) % width,
            lane - 2 if lane - 2 >= part else lane,
            lane + 2 if lane + 2 < part + width else lane,
            lane ^ 5 if lane ^ 5 < part + width else lane,
        ]
        assert out[thread].tolist() == [warp + source for source in expected]


def test_values_of_absent_lanes_are_rubbish(right):
    out = run(right, "shuffle_absent", 1, 40, np.zeros(40, np.uint32))
    last = [36, 37, 38, 39, *[0xCDCDCDCD] * 4]
    assert out.tolist() == [*range(4, 32), 28, 29, 30, 31, *last]


def test_votes_and_matches(right):
    out = run(right, "warp_votes", 1, 32, np.zeros((32, 8), np.uint32))
    for lane, row in enumerate(out.tolist()):
        odd = lane & 1
        assert row == [
            sum(1 << i for i in range(0, 32, 3)),
            1,
            0,
            0xF << lane // 4 * 4,
            0,
            0,
            0b1010 if odd else 0b0101,
            lane ^ 2,
        ]


def test_votes_of_part_of_a_warp(right):
    out = run(right, "warp_votes", 1, 8, np.zeros((8, 8), np.uint32))
    assert out[0].tolist() == [0b01001001, 1, 1, 0xF, 0xFF, 1, 0b0101, 2]


def test_lanes_that_have_returned_are_not_waited_for(right):
    out = run(right, "returned", 1, 64, np.zeros(64, np.uint32))
    assert (out[::2] == 0x55555555).all() and not out[1::2].any()


def test_products_are_fused_with_sums_but_for_those_that_must_not_be(right):
    tiny = 2.0**-30
    out = run(right, "roundings", 1, 1, np.array([1 + tiny, 1 - tiny] * 3))
    fused = build.rounding_flags()[0] != "-ffp-contract=off"
    assert out[::2].tolist() == [-(tiny**2) if fused else 0, 0, 0]


def test_atomics(right):
    out = run(right, "atomics", 4, 64, np.array([0, 0, 0, 0, 0, -1, *[0] * 10], np.int32))
    threads = 256
    assert out[:8].tolist() == [4 * 2016, -2 * threads, -63, 63, 255, ~255, 0, 9]
    assert out[8] == threads % 6
    assert out[9] == -threads % 6
    assert out[10] == 3 * threads
    assert out[11:12].view(np.float32) == threads / 2
    assert out[12:14].view(np.int64) == threads << 33
    assert out[14:].view(np.float64) == threads / 4


def test_intrinsics(right):
    out = run(right, "intrinsics", 1, 1, np.zeros(40, np.int64), np.array([77], np.int32), 1)
    assert out.tolist()[:35] == [
        *(8, 64, 31, 32, 64, 4, 0),
        *(0xFFFFFFFE, -1, (2**64 - 2) >> 1, -1),
        *(0x80000000, 0x77661100, 3, 0x80000000),
        *(0x3F800000, 0x3FF0000000000000),
        *(2, -2, -3, -2, 2**31 - 1, 0, 0, -(2**63)),
        *(-1, 2**32 - 1, 2, 2, 2, 4, 1, 77, 32, 34),
    ]


def test_the_first_report_wins(right):
    record = run(right, "reports", 2, 64, np.zeros(3, np.int64), size=11)
    assert record.tolist() == [3 | 4 << 32, 3, 11]


def test_codes_are_those_of_the_abi():
    abi = (HERE.parents[1] / "core/src/pullback/include/pullback/abi.h").read_text()
    own = (build.KERNELS / "common" / "kernel.cuh").read_text()
    codes = dict(re.findall(r"\b(PB_E_\w+) = (\d+)", own))
    assert len(codes) == 2
    assert codes.items() <= dict(re.findall(r"\b(PB_E_\w+) = (\d+)", abi)).items()


def test_the_other_order_shows_what_lacks_a_barrier(right):
    expected = [-1, *range(31)]
    assert run(right, "unordered", 1, 32, np.zeros(32, np.int32), shared=128).tolist() == expected
    right.reverse()
    try:
        out = run(right, "unordered", 1, 32, np.zeros(32, np.uint32), shared=128)
        assert out.tolist() == [2**32 - 1, *[0xCDCDCDCD] * 31]
        given = np.arange(512, dtype=np.int32)
        out = run(right, "turn", 2, 256, np.zeros_like(given), given, shared=1024)
        np.testing.assert_array_equal(out, given.reshape(2, -1)[:, ::-1].ravel())
    finally:
        right.reverse(False)


def test_kernels_without_the_macro():
    kernels = kernels_of(USER, "user")
    assert sorted(kernels) == ["nothing", "scale"]
    given, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    more = np.arange(8, dtype=np.int16)
    pointers = given.ctypes.data, more.ctypes.data, out.ctypes.data
    arguments = struct.pack("PbdPP", pointers[0], 5, 1.5, *pointers[1:])
    kernels.launch("scale", 2, 4, 0, arguments)
    np.testing.assert_array_equal(out, given * 3 + 5 + more)
    kernels.launch("nothing", 1, 1, 0, b"")
    with pytest.raises(ValueError, match="scale takes 40 bytes of arguments, not 39"):
        kernels.launch("scale", 2, 4, 0, arguments[:-1])


def test_launches_from_several_threads(right):
    given = np.arange(64 * 256, dtype=np.int32)
    expected = given.reshape(64, -1)[:, ::-1].ravel()
    wrong = []

    def work():
        for _ in range(20):
            out = run(right, "turn", 64, 256, np.zeros_like(given), given, shared=1024)
            wrong.append((out != expected).sum())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0] * 80


def test_images_share_nothing(tmp_path):
    text = """
    #include "kernels/common/kernel.cuh"
    struct arguments { void *out; };
    template <class T> __device__ T counted;
    KERNEL(count, arguments) { *(int *)args.out = ++counted<int> %s; }
    """
    out = np.zeros(1, np.int32)
    for number in range(2):
        kernels = build.Kernels(build.image_of_text(text % f"+ {number}", cache=tmp_path))
        kernels.launch("count", 1, 1, 0, struct.pack("P", out.ctypes.data))
        assert out[0] == 1 + number


def test_a_grid_of_many_blocks():
    kernels = kernels_of("__global__ void nothing() {}", "nothing")
    kernels.launch("nothing", 2**20 + 1, 1, 0, b"")


# -- what is wrong ---------------------------------------------------------------------------------

LAUNCH = """
import ctypes, resource, struct, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path.insert(0, sys.argv[1])
import build
memory = ctypes.create_string_buffer(64)
start = (ctypes.addressof(memory) + 15) // 16 * 16
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
if sys.argv[4] == "16 bytes":
    start = libc.malloc(ctypes.c_size_t(16))
build.Kernels(sys.argv[2]).launch(sys.argv[3], 2, 64, 64, struct.pack("Pq", start, 0))
"""


@pytest.fixture(scope="module")
def wrong():
    return build.image_of_text(WRONG, "wrong")


def what_is_said(image, name, environment=None, memory="64 bytes"):
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, BUILD.parent, image, name, memory],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode != 0
    return done.stderr


STUCK = "block (0, 0, 0): no thread can go on: of 64 threads "


@pytest.mark.parametrize(
    "name, message",
    [
        ("returns_early", STUCK + "3 have returned, 61 wait at the barrier of wrong.cu:4"),
        (
            "skips",
            STUCK + "0 have returned, 32 wait at the barrier of wrong.cu:7, lanes 0x55555555 "
            "of warp 0 wait in __syncwarp with the mask 0xffffffff of wrong.cu:8, lanes 0x55555555 "
            "of warp 1 wait",
        ),
        (
            "two_barriers",
            "thread (32, 0, 0): the barrier of wrong.cu:14 is reached while 32 "
            "threads wait at that of wrong.cu:12",
        ),
        ("not_in_mask", "lane 4 calls a shuffle at wrong.cu:16 with the mask 0x0000000f, which"),
        ("lanes_missing", "lanes 0x000000ff of warp 0 wait in a shuffle with the mask 0xffffffff"),
        (
            "two_kinds",
            "lane 1 calls a vote at wrong.cu:25, but lanes 0x00000001 of the same mask "
            "wait in __syncwarp at wrong.cu:27",
        ),
        ("unaligned", "a pointer that is null or not aligned to its type at wrong.cu:29"),
        ("outside", "thread (4, 0, 0): an index outside of the array at wrong.cu:30"),
        ("divides", "an integer division by zero at wrong.cu:31"),
        ("shifts", "a shift by more bits than there are at wrong.cu:32"),
        ("casts", "a number that the integer type cannot hold at wrong.cu:33"),
        ("traps", "__trap"),
    ],
)
def test_what_is_wrong_ends_the_process(wrong, name, message):
    said = what_is_said(wrong, name)
    assert f"CUDA emulation: kernel {name}, block (0, 0, 0)" in said
    assert message in said


@pytest.mark.parametrize("name", ["too_far", "too_far_shared"])
def test_the_address_sanitizer_finds_what_lies_outside(name):
    image = build.image_of_text(WRONG, "wrong", sanitize=True)
    said = what_is_said(image, name, build.sanitizer_environment(), "16 bytes")
    assert "heap-buffer-overflow" in said and "READ of size 4" in said
    line = WRONG[: WRONG.index(f"KERNEL({name},")].count("\n") + 3
    assert f"wrong.cu:{line}" in said


def test_the_address_sanitizer_is_content_with_what_is_right():
    image = build.image_of_text(RIGHT, "right", sanitize=True)
    program = """
import ctypes, struct, sys
sys.path.insert(0, sys.argv[1])
import build
kernels = build.Kernels(sys.argv[2])
given = (ctypes.c_int * 512)(*range(512))
out = (ctypes.c_int * (8 * 512))()
arguments = struct.pack("PPq", ctypes.addressof(given), ctypes.addressof(out), 1024)
for name in ["turn", "votes", "left_before", "warp_votes", "returned", "turn"]:
    for block in [256, 40]:
        kernels.launch(name, 2, block, 1024, arguments)
assert list(out[:40]) == list(range(39, -1, -1))
"""
    subprocess.run(
        [sys.executable, "-c", program, BUILD.parent, image],
        check=True,
        env=build.sanitizer_environment(),
    )


# -- building --------------------------------------------------------------------------------------


def test_an_image_is_built_again_when_something_changes(tmp_path):
    header, source, cache = tmp_path / "own.h", tmp_path / "own.cu", tmp_path / "cache"
    header.write_text("struct arguments { void *out; };\n#define VALUE 1\n")
    source.write_text(
        '#include "kernels/common/kernel.cuh"\n#include "own.h"\n'
        "KERNEL(own, arguments) { *(int *)args.out = VALUE; }\n"
    )
    first = build.image(source, cache=cache)
    made = first.stat().st_ino
    assert build.image(source, cache=cache) == first and first.stat().st_ino == made
    header.write_text(header.read_text().replace("VALUE 1", "VALUE 2"))
    second = build.image(source, cache=cache)
    assert first != second
    for image, value in [(first, 1), (second, 2)]:
        out = ctypes.c_int()
        arguments = struct.pack("P", ctypes.addressof(out))
        build.Kernels(image).launch("own", 1, 1, 0, arguments)
        assert out.value == value
    assert sorted(path.suffix for path in cache.iterdir()) == [".so", ".so"]


def test_the_cache_forgets_what_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "KEPT", 2)
    texts = [f"__global__ void own() {{}} // {number}" for number in range(3)]
    first, _ = (build.image_of_text(text, "own", cache=tmp_path) for text in texts[:2])
    assert build.image_of_text(texts[0], "own", cache=tmp_path) == first
    third = build.image_of_text(texts[2], "own", cache=tmp_path)
    assert set(tmp_path.iterdir()) == {first, third}


def test_source_that_does_not_compile(tmp_path):
    source = tmp_path / "bad.cu"
    include = '#include "kernels/common/kernel.cuh"'
    source.write_text(f"{include}\n\nKERNEL(bad, int) {{ return args.x; }}\n")
    with pytest.raises(build.BuildError, match=r"bad.cu:3:\d+: error"):
        build.image(source, cache=tmp_path / "cache")


def test_as_a_program(tmp_path):
    source = tmp_path / "own.cu"
    source.write_text('#include "kernels/common/kernel.cuh"\nKERNEL(own, int) {}\n')
    command = [sys.executable, BUILD, "--cache", tmp_path / "cache", source]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert list(build.Kernels(done.stdout.strip())) == ["own"]
    source.write_text("nonsense")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "nonsense" in done.stderr
