#define LUCID_SHARED __shared__
#define LUCID_BARRIER __syncthreads()
