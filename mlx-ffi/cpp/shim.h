/* What mlx-c lacks and our safe layer needs: errors kept verbatim, cheap accessors, evaluation in two steps, a look
 * into the graph. Same conventions as mlx-c: 0 is success, otherwise the message waits in lucid_error_message(). */
#ifndef LUCID_MLX_SHIM_H
#define LUCID_MLX_SHIM_H

#include "mlx/c/mlx.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The calling thread's pending error, as bytes (no terminator), or null. The first error since the last clear stays. */
const char* lucid_error_message(size_t* len);
void lucid_error_clear(void);
void lucid_error_set(const char* bytes, size_t len);

/* The shape, without a copy: valid as long as the handle. */
const int* lucid_array_shape(mlx_array a, size_t* ndim);
/* A number that two handles share exactly when they stand for the same array. */
uintptr_t lucid_array_id(mlx_array a);
/* The size of the value in bytes. */
size_t lucid_array_nbytes(mlx_array a);
/* Whether nothing is left to schedule for this array (it is computed, or being computed). */
bool lucid_array_is_evaluated(mlx_array a);
/* Of an available array: the size of the memory that it keeps, and whether this handle alone keeps it. */
size_t lucid_array_buffer_size(mlx_array a);
bool lucid_array_is_unshared(mlx_array a);

/* Evaluation. The caller holds the evaluation lock around schedule, settle and data, and the wait lock around wait and
 * settle; wait runs without the evaluation lock. */
typedef struct lucid_waiter_ {
  void* ctx;
} lucid_waiter;
/* Schedules what is not yet scheduled. With a waiter (may be null) returns what to wait for: ctx null if nothing. */
int lucid_schedule(const mlx_array* outputs, size_t n, lucid_waiter* waiter);
/* An error if evaluating the outputs would allocate more than `limit` bytes for one array. On its CPU stream MLX does not
 * check whether it got the memory. */
int lucid_refuse_larger(const mlx_array* outputs, size_t n, size_t limit);
/* Waits, and frees the waiter. */
int lucid_wait(lucid_waiter waiter);
/* After a wait: marks the arrays available, or, if the wait failed, unusable (a later evaluation fails again). */
int lucid_settle(const mlx_array* outputs, size_t n, bool failed);
/* The bytes of an available array, null if it is not row-contiguous. */
int lucid_array_data(const void** data, mlx_array a);

/* Names of the primitives that evaluating the outputs would run, one per line, each as often as it would run. */
int lucid_graph_primitives(mlx_string* names, const mlx_array* outputs, size_t n);
/* The graph in Graphviz's language. */
int lucid_graph_dot(mlx_string* text, const mlx_array* outputs, size_t n);

#ifdef __cplusplus
}
#endif

#endif
