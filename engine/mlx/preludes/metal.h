#define LUCID_SHARED threadgroup
#define LUCID_BARRIER threadgroup_barrier(mem_flags::mem_threadgroup)
