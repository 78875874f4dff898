// CUDA's built-in words and functions, and MLX's types, on this machine's processor, as far as custom kernels use them.
#pragma once

#define __global__ extern "C"
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((__always_inline__))
#define __shared__ static
#define __grid_constant__
#define __restrict__ __restrict
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef __SIZE_TYPE__ size_t;

struct uint3 {
  unsigned int x, y, z;
};
struct alignas(8) uint2 {
  unsigned int x, y;
};
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};
struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

extern "C" {
uint32_t lucid_attribute(uint32_t which, uint32_t axis);
__attribute__((nomerge)) void lucid_barrier(uint32_t flags);
void lucid_atomic(void* p, uint32_t size, int load, int store);
void lucid_simd_exchange(uint64_t value);
uint64_t lucid_simd_read(uint32_t lane);
void lucid_simdgroup_barrier(uint32_t flags);
float sinf(float), cosf(float), tanf(float), tanhf(float), expf(float), exp2f(float), logf(float), log1pf(float), expm1f(float);
float log2f(float), sqrtf(float), rsqrtf(float), floorf(float), ceilf(float), truncf(float), rintf(float), roundf(float);
float fabsf(float), powf(float, float), fmodf(float, float), fmaxf(float, float), fminf(float, float), fmaf(float, float, float);
float erff(float), atan2f(float, float);
double exp(double), log(double), sqrt(double), floor(double), fabs(double), pow(double, double);
double sin(double), cos(double), tanh(double), ceil(double);
}
#define LUCID_INLINE static inline __attribute__((__always_inline__))
LUCID_INLINE uint3 lucid_three(uint32_t which) {
  return {lucid_attribute(which, 0), lucid_attribute(which, 1), lucid_attribute(which, 2)};
}
#define threadIdx lucid_three(1)
#define blockIdx lucid_three(2)
#define blockDim lucid_three(4)
#define gridDim lucid_three(5)
#define warpSize 32
LUCID_INLINE float __uint_as_float(unsigned int x) { return __builtin_bit_cast(float, x); }
LUCID_INLINE float exp(float x) { return expf(x); }
LUCID_INLINE float log(float x) { return logf(x); }
LUCID_INLINE float sqrt(float x) { return sqrtf(x); }
LUCID_INLINE float floor(float x) { return floorf(x); }
LUCID_INLINE float fabs(float x) { return fabsf(x); }
LUCID_INLINE float sin(float x) { return sinf(x); }
LUCID_INLINE float cos(float x) { return cosf(x); }
LUCID_INLINE float tanh(float x) { return tanhf(x); }
LUCID_INLINE float ceil(float x) { return ceilf(x); }
LUCID_INLINE float pow(float x, float y) { return powf(x, y); }
LUCID_INLINE float max(float a, float b) { return fmaxf(a, b); }
LUCID_INLINE float min(float a, float b) { return fminf(a, b); }
LUCID_INLINE int max(int a, int b) { return a > b ? a : b; }
LUCID_INLINE int min(int a, int b) { return a < b ? a : b; }
LUCID_INLINE unsigned int max(unsigned int a, unsigned int b) { return a > b ? a : b; }
LUCID_INLINE unsigned int min(unsigned int a, unsigned int b) { return a < b ? a : b; }
// No function of its own: two calls of one are taken for one, which two barriers are not.
#define __syncthreads() lucid_barrier(3)
LUCID_INLINE void __syncwarp(unsigned int = 0xffffffff) { lucid_simdgroup_barrier(3); }
LUCID_INLINE float __shfl_sync(unsigned int, float x, int lane) {
  lucid_simd_exchange(__builtin_bit_cast(uint32_t, x));
  return __builtin_bit_cast(float, (uint32_t)lucid_simd_read((uint32_t)lane));
}
LUCID_INLINE float __shfl_xor_sync(unsigned int mask, float x, int by) {
  return __shfl_sync(mask, x, (int)(lucid_attribute(7, 0) ^ (uint32_t)by));
}
LUCID_INLINE float __shfl_down_sync(unsigned int mask, float x, unsigned int by) {
  uint32_t lane = lucid_attribute(7, 0);
  return __shfl_sync(mask, x, (int)(lane + by < 32 ? lane + by : lane));
}
template <typename T>
__attribute__((__noinline__, no_sanitize("thread"))) T atomicAdd(T* p, T x) {
  lucid_atomic(p, sizeof(T), 1, 1);
  T old = *p;
  *p = old + x;
  return old;
}
typedef _Float16 __half;
typedef __bf16 __nv_bfloat16;

namespace mlx::core::cu {
constexpr int MAX_NDIM = 8;
template <typename T>
struct lucid_array {
  T values[MAX_NDIM];
  const T& operator[](int i) const { return values[i]; }
};
using Shape = lucid_array<int32_t>;
using Strides = lucid_array<int64_t>;
struct complex64_t {
  float re, im;
};
}  // namespace mlx::core::cu
