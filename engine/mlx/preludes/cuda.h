#define LUCID_SHARED __shared__
#define LUCID_BARRIER __syncthreads()
#define LUCID_F16 __half
#define LUCID_BF16 __nv_bfloat16
#define LUCID_SHUFFLE(v, by) __shfl_xor_sync(0xffffffffu, v, by)
#define LUCID_DEVICE
#define LUCID_AS_FLOAT(v) __uint_as_float(v)
#define LUCID_AS_BITS(v) __float_as_uint(v)
#define LUCID_UNROLL _Pragma("unroll")
#define LUCID_UNROLL_BY_4 _Pragma("unroll 4")
// Counts that the groups of a launch share. One more, whose number before it gives.
#define LUCID_TAKE(count) atomicAdd(count, 1u)
#define LUCID_FENCE __threadfence()
// So many more, whoever sees which sees what the group wrote before; waits until there are so many.
#define LUCID_ADD_DONE(count, n) \
  __threadfence();               \
  atomicAdd(count, n)
#ifndef LUCID_AWAIT
#define LUCID_AWAIT(count, n)                                                              \
  for (unsigned int seen = 0; seen < (n);) {                                               \
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory"); \
  }
#endif
// The numbers of two 16-bit floats in a word, and back.
template <typename T>
union lucid_half {
  unsigned short bits;
  T number;
};
template <typename T>
__device__ inline float lucid_of(unsigned int word) {
  lucid_half<T> half;
  half.bits = (unsigned short)word;
  return (float)half.number;
}
template <typename T>
__device__ inline unsigned int lucid_to(float number) {
  lucid_half<T> half;
  half.number = (T)number;
  return half.bits;
}
#define LUCID_LOW(kind, word) lucid_of<kind>(word)
#define LUCID_HIGH(kind, word) lucid_of<kind>((word) >> 16)
#define LUCID_PAIR(kind, low, high) (lucid_to<kind>(low) | lucid_to<kind>(high) << 16)
// A warp's product of 16 x 16 and 16 x 8 numbers of 16 bits, added to four sums of each thread.
#ifndef LUCID_MMA
#define LUCID_MMA(kind, sums, a0, a1, a2, a3, b0, b1)                                                   \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." kind "." kind ".f32 {%0, %1, %2, %3}, "        \
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                          \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                             \
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#endif
