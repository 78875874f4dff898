/* Models that lucid.export wrote, run from C, without Python.
 *
 * Every function may be called from any thread; a model may be run by many at once, and be freed while others run it. A
 * function that fails returns a status other than 0 (or NULL), has written nothing to the caller's memory, and leaves a sentence
 * for lucid_infer_last_error. Broken files and wrong arguments are failures; none ends the process. The values of the
 * enumerations and the layout of the structure are the ABI of version 1; later versions only add functions.
 */
#ifndef LUCID_INFER_H
#define LUCID_INFER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUCID_INFER_ABI_VERSION 1
#define LUCID_INFER_MAX_DIMS 8

typedef int32_t lucid_infer_status;
enum {
  LUCID_INFER_OK = 0,
  LUCID_INFER_INVALID_VALUE = 1, /* a null pointer, a shape, dtype or number of tensors that does not fit */
  LUCID_INFER_INVALID_MODEL = 2, /* a model that was freed, or that lucid_infer_load did not give */
  LUCID_INFER_IO = 3,            /* the file cannot be read, is damaged, or is of another version */
  LUCID_INFER_OUT_OF_MEMORY = 4, /* there is no memory for a result, or it does not fit into what was given */
  LUCID_INFER_FAILED = 5         /* what the kernels report */
};

typedef int32_t lucid_infer_dtype;
enum {
  LUCID_INFER_BOOL = 0, LUCID_INFER_UINT8 = 1, LUCID_INFER_INT8 = 2, LUCID_INFER_INT16 = 3, LUCID_INFER_INT32 = 4,
  LUCID_INFER_INT64 = 5, LUCID_INFER_FLOAT16 = 6, LUCID_INFER_BFLOAT16 = 7, LUCID_INFER_FLOAT32 = 8,
  LUCID_INFER_FLOAT64 = 9, LUCID_INFER_COMPLEX64 = 10, LUCID_INFER_COMPLEX128 = 11
};

/* Elements by rows, without gaps. `bytes` is the size of what `data` points at. In a description a size that varies is -1.
 * Zero what is not set. */
typedef struct {
  lucid_infer_dtype dtype;
  int32_t ndim;
  int64_t shape[LUCID_INFER_MAX_DIMS];
  void *data;
  size_t bytes;
} lucid_infer_tensor;

typedef struct lucid_infer_model lucid_infer_model;

/* The version that the library was built as: LUCID_INFER_ABI_VERSION of its own header. */
uint32_t lucid_infer_abi_version(void);

/* A model from a file, on the CPU; NULL where that fails. */
lucid_infer_model *lucid_infer_load(const char *path);
/* Gives the model back. NULL is allowed. Runs of other threads end as they would. */
lucid_infer_status lucid_infer_free(lucid_infer_model *model);

/* How many tensors go in and come out; -1 where the model is none. */
int32_t lucid_infer_input_count(const lucid_infer_model *model);
int32_t lucid_infer_output_count(const lucid_infer_model *model);
/* Dtype and sizes of an input; `data` is NULL. `name`, where it is not NULL, gets the name: `name_bytes` with the final 0. */
lucid_infer_status lucid_infer_input(const lucid_infer_model *model, int32_t index, lucid_infer_tensor *tensor,
                                     char *name, size_t name_bytes);
lucid_infer_status lucid_infer_output(const lucid_infer_model *model, int32_t index, lucid_infer_tensor *tensor,
                                      char *name, size_t name_bytes);

/* Runs the model on all inputs. For each output: where `data` is NULL the library allocates, and lucid_infer_release gives that
 * back; else the elements are written to `data`, which must have `bytes` enough. Dtype, sizes and bytes are set. */
lucid_infer_status lucid_infer_run(const lucid_infer_model *model, const lucid_infer_tensor *inputs, size_t input_count,
                                   lucid_infer_tensor *outputs, size_t output_count);
/* Frees the data that lucid_infer_run allocated for a tensor, and sets it to NULL. */
void lucid_infer_release(lucid_infer_tensor *tensor);

/* What the last failure of this thread was, in words; empty where there was none. Valid until the thread's next failure. */
const char *lucid_infer_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
