/* The integer types of fixed size, for plain C, C++, nvcc and NVRTC, which has no headers. */
#ifndef PULLBACK_CUDA_INTEGERS_H
#define PULLBACK_CUDA_INTEGERS_H

#ifndef __CUDACC_RTC__
#include <stddef.h>
#include <stdint.h>
#else

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
#ifdef _WIN32
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
typedef long int64_t;
typedef unsigned long uint64_t;
#endif
typedef int64_t intptr_t;
typedef uint64_t uintptr_t;

#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN ((int64_t)(-9223372036854775807ll - 1))
#define INT64_MAX ((int64_t)9223372036854775807ll)
#define UINT64_MAX ((uint64_t)18446744073709551615ull)

#endif
#endif
