/* Starting the driver, and queries about its devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { VERSION = 13000, MULTIPROCESSORS = 8 };

fake_device fake_devices[FAKE_MAX_DEVICES];
int fake_device_total = 2;
int fake_initialized;

static size_t number_from(const char *variable, size_t otherwise, size_t most) {
    const char *text = getenv(variable);
    if (!text || !*text) return otherwise;
    size_t number = strtoull(text, NULL, 10);
    return number < most ? number : most;
}

__attribute__((constructor)) static void read_environment(void) {
    fake_device_total = (int)number_from("FAKE_CUDA_DEVICES", 2, FAKE_MAX_DEVICES);
    size_t memory = number_from("FAKE_CUDA_MEMORY", (size_t)4 << 30, SIZE_MAX);
    for (int i = 0; i < FAKE_MAX_DEVICES; i++) fake_devices[i].memory = memory;
    fake_deferred = (int)number_from("FAKE_CUDA_DEFERRED", 0, 2);
}

int fake_device_exists(CUdevice device) { return device >= 0 && device < fake_device_total; }

API CUresult cuInit(unsigned flags) {
    ENTER_BEFORE_INIT();
    REQUIRE(!flags, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_total, CUDA_ERROR_NO_DEVICE);
    fake_initialized = 1;
    return CUDA_SUCCESS;
}

API CUresult cuDriverGetVersion(int *version) {
    ENTER_BEFORE_INIT();
    REQUIRE(version, CUDA_ERROR_INVALID_VALUE);
    *version = VERSION;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int *count) {
    ENTER();
    REQUIRE(count, CUDA_ERROR_INVALID_VALUE);
    *count = fake_device_total;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int number) {
    ENTER();
    REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_exists(number), CUDA_ERROR_INVALID_DEVICE);
    *device = number;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    ENTER();
    REQUIRE(name && length > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)length, "Fake CUDA device %d", device);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(char uuid[16], CUdevice device) {
    ENTER();
    REQUIRE(uuid, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    memcpy(uuid, "fake cuda device", 16);
    uuid[15] = (char)device;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER();
    REQUIRE(bytes, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *bytes = fake_devices[device].memory;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    ENTER();
    REQUIRE(major && minor, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *major = 9;
    *minor = 0;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    ENTER();
    REQUIRE(text && length > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    snprintf(text, (size_t)length, "0000:%02X:00.0", device + 1);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
    ENTER();
    REQUIRE(device && text, CUDA_ERROR_INVALID_VALUE);
    unsigned domain, bus, primitive;
    REQUIRE(sscanf(text, "%x:%x:%x", &domain, &bus, &primitive) == 3, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!domain && !primitive && bus && fake_device_exists((int)bus - 1), CUDA_ERROR_INVALID_DEVICE);
    *device = (int)bus - 1;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER();
    REQUIRE(can, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_exists(device) && fake_device_exists(peer), CUDA_ERROR_INVALID_DEVICE);
    *can = device != peer;
    return CUDA_SUCCESS;
}

/* The numbers are an H100's, but for few multiprocessors: tests must not launch a thousand blocks. */
static int attribute(int which, CUdevice device) {
    switch (which) {
        case 1: return 1024; /* threads in a block */
        case 2: return 1024;
        case 3: return 1024;
        case 4: return 64;
        case 5: return 0x7fffffff; /* blocks in a grid */
        case 6: return 65535;
        case 7: return 65535;
        case 8: return 48 << 10; /* shared memory in a block */
        case 9: return 64 << 10;
        case 10: return 32; /* threads in a warp */
        case 11: return 0x7fffffff;
        case 12: return 65536; /* registers in a block */
        case 13: return 1785000; /* kHz */
        case 14: return 512;
        case 15: return 1;
        case 16: return MULTIPROCESSORS;
        case 17: return 0; /* a time limit for kernels */
        case 18: return 0; /* integrated */
        case 19: return 1; /* can map host memory */
        case 20: return 0; /* compute mode: shared by all */
        case 30: return 512;
        case 31: return 1; /* concurrent kernels */
        case 32: return 1;
        case 33: return device + 1; /* PCI bus */
        case 34: return 0;
        case 35: return 0;
        case 36: return 2619000;
        case 37: return 5120; /* bits of the memory bus */
        case 38: return 50 << 20; /* L2 cache */
        case 39: return 2048; /* threads in a multiprocessor */
        case 40: return 3; /* copy engines */
        case 41: return 1; /* unified addressing */
        case 50: return 0;
        case 51: return 32;
        case 75: return 9; /* compute capability */
        case 76: return 0;
        case 78: return 1; /* stream priorities */
        case 79: return 1;
        case 80: return 1;
        case 81: return 228 << 10; /* shared memory in a multiprocessor */
        case 82: return 65536;
        case 83: return 1; /* managed memory */
        case 89: return 1;
        case 90: return 1;
        case 91: return 1;
        case 97: return 227 << 10; /* shared memory in a block that asks for it */
        case 99: return 1;
        case 106: return 32; /* blocks in a multiprocessor */
        case 111: return 1 << 10;
        case 115: return 0; /* memory pools of the driver */
        default: return 0;
    }
}

API CUresult cuDeviceGetAttribute(int *value, int which, CUdevice device) {
    ENTER();
    REQUIRE(value && which > 0 && which < 200, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    *value = attribute(which, device);
    return CUDA_SUCCESS;
}

/* The first and oldest way to ask; its struct is fourteen ints. */
API CUresult cuDeviceGetProperties(int *properties, CUdevice device) {
    ENTER();
    REQUIRE(properties, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_device_exists(device), CUDA_ERROR_INVALID_DEVICE);
    static const int which[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++)
        properties[i] = attribute(which[i], device);
    return CUDA_SUCCESS;
}

/* There is nothing to profile, and no harm in asking. */
API CUresult cuProfilerStart(void) {
    ENTER_CONTEXT();
    return CUDA_SUCCESS;
}

API CUresult cuProfilerStop(void) {
    ENTER_CONTEXT();
    return CUDA_SUCCESS;
}
