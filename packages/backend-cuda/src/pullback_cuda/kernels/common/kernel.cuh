// Definitions that every .cu file includes first.
//
// The files compile with nvcc, with NVRTC (which finds no header outside of this folder), and with
// a C++ compiler where PULLBACK_EMULATION is defined: then emulation.h, found through the include
// path, stands in for CUDA.
//
//     KERNEL(negative_f32, negative_arguments) { ... args ... }
//
// defines a kernel. Its one parameter `args` is a constant struct, which a plain C header declares
// for both sides. A block has at most 256 threads.
#ifndef PULLBACK_CUDA_KERNEL_CUH
#define PULLBACK_CUDA_KERNEL_CUH
#include "runtime/failure.h"
#include "math/integers.h"

#ifdef PULLBACK_EMULATION
#include "emulation.h"
#else

#define KERNEL(name, Arguments) \
    extern "C" __global__ void __launch_bounds__(256) name(const __grid_constant__ Arguments args)

// The block's dynamic shared memory as an array of T, from its first byte in every use.
#define DYNAMIC_SHARED(T, name) \
    extern __shared__ __align__(16) unsigned char pullback_dynamic_shared[]; \
    T *const name = reinterpret_cast<T *>(pullback_dynamic_shared)

#ifdef __CUDACC_RTC__
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#endif

#endif

// A function for device code, or a method of a class for it.
#define DEVICE __device__ __forceinline__

// A number below 2^31, divided by what find_divider of arrays.pxd got these for.
DEVICE uint32_t quotient_of(uint32_t number, uint32_t multiplier, uint32_t shift) {
    return (__umulhi(number, multiplier) + number) >> shift;
}

// The codes of abi.h that a kernel can report.
enum { PB_E_RUNTIME = 1, PB_E_INDEX = 3 };

// Report bad input to the host: `what` is one of FAILURE_*. `failure` is a failure_record, or null:
// then nothing is reported. Only the first report of a record is kept; the kernel goes on and must
// not use the bad input.
DEVICE void report(void *failure, int32_t what, int32_t code, int64_t index, int64_t size) {
    if (failure == nullptr)
        return;
    volatile failure_record *record = static_cast<failure_record *>(failure);
    // Reading before the claim spares the bus where many threads report.
    if (record->claimed != 0)
        return;
    if (atomicCAS(&static_cast<failure_record *>(failure)->claimed, 0, what) != 0)
        return;
    record->index = index;
    record->size = size;
    __threadfence_system();
    record->code = code;
}

#endif
