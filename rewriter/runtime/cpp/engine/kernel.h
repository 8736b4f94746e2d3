// All code that runs on a GPU. It is compiled (kernel_code.h) from the text of this file, with the files that it
// includes put in place. A test compiles it for the host, with fibers as threads.
#pragma once

#if defined(__CUDACC_RTC__)
// It is compiled without the standard library.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define INDUCTOR_REWRITER_DEVICE static __device__ __forceinline__
#define INDUCTOR_REWRITER_SPECIAL __device__ __forceinline__
#define INDUCTOR_REWRITER_MEMBER __device__ __forceinline__
#define INDUCTOR_REWRITER_TABLE static __device__ const
#define INDUCTOR_REWRITER_RARE static __device__ __noinline__
#define INDUCTOR_REWRITER_CONSTANT __grid_constant__  // arguments are read in place, not copied first
#endif

#include "quick_kernel.h"
#include "general_kernel.h"
#include "memory_kernels.h"
