// CUDA's own headers of 16-bit floats take longer to compile than a kernel does, and kernels only load and store them.
struct __half {
  unsigned short bits;
  __half() = default;
  __device__ __half(float v) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
  }
  __device__ operator float() const {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
  }
};
struct __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __device__ __nv_bfloat16(float v) {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v));
#else
    unsigned int b = __float_as_uint(v);
    bits = v != v ? 0x7fffu : (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
#endif
  }
  __device__ operator float() const {
    return __uint_as_float((unsigned int)bits << 16);
  }
};
