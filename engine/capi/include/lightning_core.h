/* Lightning Core's C API over Lucid's engine.
 *
 * Every function may be called from any thread. A function that fails returns an error and has written nothing; none
 * aborts. What is got from lcMalloc is given back by lcFree alone. Strings belong to the library and live as long as it
 * is loaded. The values of the enumerations and the layout of the structures are the ABI of version 1.
 */
#ifndef LIGHTNING_CORE_H
#define LIGHTNING_CORE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LC_ABI_VERSION 1

typedef int32_t lcError;
enum {
  lcSuccess = 0,
  lcErrorInvalidValue = 1,    /* an argument is not one of those allowed, or a pointer is null */
  lcErrorInvalidPointer = 2,  /* memory that lcMalloc did not give, that was freed, or a range beyond its end */
  lcErrorOutOfMemory = 3,
  lcErrorNotAvailable = 4,    /* the backend is not on this machine */
  lcErrorUnknown = 5
};

typedef int32_t lcBackend;
enum { lcBackendCpu = 0, lcBackendMetal = 1, lcBackendCuda = 2 };

typedef int32_t lcMemoryModel;
enum { lcMemoryHostManagedCompat = 0, lcMemoryNativeDevice = 1 };

typedef int32_t lcSyncPolicy;
enum { lcSyncAuto = 0, lcSyncAlways = 1, lcSyncNever = 2 };

typedef int32_t lcMemcpyKind;
enum { lcMemcpyHostToHost = 0, lcMemcpyHostToDevice = 1, lcMemcpyDeviceToHost = 2, lcMemcpyDeviceToDevice = 3 };

/* Each field is 0 or 1, but for the first and the last. */
typedef struct {
  lcBackend backend;
  int32_t built;
  int32_t available;
  int32_t compute;
  int32_t memory;
  int32_t sync;
  int32_t profiling;
  int32_t trace;
  int32_t sync_policy;
  lcMemoryModel memory_model;
} lcBackendCapabilities;

/* Bits of the methods that each interface has, see below. */
typedef struct {
  lcBackend backend;
  uint32_t version;
  uint32_t compute;
  uint32_t memory;
  uint32_t sync;
  uint32_t profiler;
} lcBackendInterfaceContract;

enum { lcComputeMatmul = 1, lcComputeAttention = 2, lcComputeConv2d = 4, lcComputeElementwise = 8, lcComputeGraph = 16 };
enum { lcMemoryUpload = 1, lcMemoryDownload = 2, lcMemoryResident = 4, lcMemoryZeroCopy = 8 };
enum { lcSyncHasPolicy = 1, lcSyncHasDevice = 2, lcSyncHasEvent = 4 };
enum { lcProfilerTrace = 1, lcProfilerTimeline = 2, lcProfilerChrome = 4, lcProfilerHtml = 8 };

/* Backends. The active one is the machine's GPU, or the CPU where it has none. */
const char *lcBackendName(void);
int32_t lcIsMetalAvailable(void);
int32_t lcIsCudaAvailable(void);
lcError lcGetDeviceCount(lcBackend backend, int32_t *count);
lcError lcGetBackendCapabilities(lcBackend backend, lcBackendCapabilities *capabilities);
lcError lcGetActiveBackendCapabilities(lcBackendCapabilities *capabilities);
lcError lcGetBackendInterfaceContract(lcBackend backend, lcBackendInterfaceContract *contract);
lcError lcGetActiveBackendInterfaceContract(lcBackendInterfaceContract *contract);
lcBackend lcGetPreferredDeviceForInference(void);
lcBackend lcGetPreferredDeviceForTraining(void);

/* Memory that the CPU and the engine see, aligned to 64 bytes. lcFree of NULL does nothing. A range that lcMemcpy is
 * given as a device's must be within one lcMalloc; one that is given as the host's is the caller's to answer for. */
lcMemoryModel lcGetMemoryModel(void);
const char *lcGetMemoryModelName(lcMemoryModel model);
lcError lcMalloc(void **pointer, size_t bytes);
lcError lcFree(void *pointer);
lcError lcMemcpy(void *to, const void *from, size_t bytes, lcMemcpyKind kind);

/* Synchronisation. lcDeviceSynchronize waits always; the policies wait unless they are lcSyncNever. */
lcError lcDeviceSynchronize(void);
lcError lcSetDefaultSyncPolicy(lcSyncPolicy policy);
lcSyncPolicy lcGetDefaultSyncPolicy(void);
lcError lcApplySyncPolicy(lcSyncPolicy policy);
lcError lcApplyDefaultSyncPolicy(void);

const char *lcGetErrorString(lcError error);

#ifdef __cplusplus
}
#endif
#endif
