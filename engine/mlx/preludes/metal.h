#define LUCID_SHARED threadgroup
#define LUCID_BARRIER threadgroup_barrier(mem_flags::mem_threadgroup)
#define LUCID_F16 half
#define LUCID_BF16 bfloat16_t
#define LUCID_SHUFFLE(v, by) simd_shuffle_xor(v, by)
#define LUCID_DEVICE device
#define LUCID_AS_FLOAT(v) as_type<float>(v)
#define LUCID_AS_BITS(v) as_type<unsigned int>(v)
#define LUCID_UNROLL _Pragma("unroll")
#define LUCID_UNROLL_BY_4 _Pragma("unroll 4")
// The numbers of two 16-bit floats in a word, and back.
#define LUCID_LOW(kind, word) ((float)as_type<kind>((ushort)(word)))
#define LUCID_HIGH(kind, word) ((float)as_type<kind>((ushort)((word) >> 16)))
#define LUCID_PAIR(kind, low, high) \
  ((uint)as_type<ushort>((kind)(low)) | (uint)as_type<ushort>((kind)(high)) << 16)
