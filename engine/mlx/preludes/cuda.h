#define LUCID_SHARED __shared__
#define LUCID_BARRIER __syncthreads()
#define LUCID_F16 __half
#define LUCID_BF16 __nv_bfloat16
#define LUCID_SHUFFLE(v, by) __shfl_xor_sync(0xffffffffu, v, by)
#define LUCID_DEVICE
#define LUCID_AS_FLOAT(v) __uint_as_float(v)
#define LUCID_UNROLL _Pragma("unroll")
#define LUCID_UNROLL_BY_4 _Pragma("unroll 4")
