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
__attribute__((nomerge, noduplicate)) void lucid_barrier(uint32_t flags);
void lucid_atomic(void* p, uint32_t size, int load, int store);
__attribute__((noduplicate)) void lucid_simd_exchange(uint64_t value);
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
// Groups run one after the other, so that fences order what is in order already.
LUCID_INLINE void __threadfence() {}
LUCID_INLINE float __uint_as_float(unsigned int x) { return __builtin_bit_cast(float, x); }
LUCID_INLINE unsigned int __float_as_uint(float x) { return __builtin_bit_cast(unsigned int, x); }
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
template <typename T>
LUCID_INLINE T __shfl_sync(unsigned int, T x, int lane) {
  lucid_simd_exchange(__builtin_bit_cast(uint32_t, x));
  return __builtin_bit_cast(T, (uint32_t)lucid_simd_read((uint32_t)lane));
}
template <typename T>
LUCID_INLINE T __shfl_xor_sync(unsigned int mask, T x, int by) {
  return __shfl_sync(mask, x, (int)(lucid_attribute(7, 0) ^ (uint32_t)by));
}
template <typename T>
LUCID_INLINE T __shfl_down_sync(unsigned int mask, T x, unsigned int by) {
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
// PTX's mma.m16n8k16 with float32 sums: what each thread of a warp has of both matrices, and of the result.
LUCID_INLINE float lucid_half_of(bool bfloat, uint64_t word) {
  if (bfloat) return __builtin_bit_cast(float, (uint32_t)word << 16);
  return (float)__builtin_bit_cast(_Float16, (uint16_t)word);
}
LUCID_INLINE float lucid_pair_product(bool bfloat, uint64_t a, uint64_t b) {
  return lucid_half_of(bfloat, a) * lucid_half_of(bfloat, b) + lucid_half_of(bfloat, a >> 16) * lucid_half_of(bfloat, b >> 16);
}
static inline void lucid_mma(bool bfloat, float* sums, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t b0, uint64_t b1) {
  uint32_t lane = lucid_attribute(7, 0), row = lane / 4, column = lane % 4 * 2;
  uint64_t left[4], right[4];
  lucid_simd_exchange(a0 | a1 << 32);
  for (uint32_t k = 0; k < 4; k++) left[k] = lucid_simd_read(row * 4 + k);
  lucid_simd_exchange(a2 | a3 << 32);
  for (uint32_t k = 0; k < 4; k++) right[k] = lucid_simd_read(row * 4 + k);
  lucid_simd_exchange(b0 | b1 << 32);
  for (uint32_t n = 0; n < 2; n++)
    for (uint32_t k = 0; k < 4; k++) {
      uint64_t b = lucid_simd_read((column + n) * 4 + k);
      sums[n] += lucid_pair_product(bfloat, left[k], b) + lucid_pair_product(bfloat, right[k], b >> 32);
      sums[n + 2] += lucid_pair_product(bfloat, left[k] >> 32, b) + lucid_pair_product(bfloat, right[k] >> 32, b >> 32);
    }
}
// What is waited for is there: groups run one after the other.
#define LUCID_AWAIT(count, n) \
  if (*(count) < (n)) __builtin_trap()
#define LUCID_MMA(kind, sums, a0, a1, a2, a3, b0, b1) lucid_mma(kind[0] == 'b', sums, a0, a1, a2, a3, b0, b1)

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
