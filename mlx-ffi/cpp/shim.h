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

/* Arrays whose memory is the caller's: two words, of which null is the empty array. mlx-c's functions fill one by a handle that
 * points there. Such an array may be moved to other words as it is. */
/* Moves the array of a handle that mlx-c made into an empty one, and frees the handle. */
void lucid_array_take(mlx_array to, mlx_array from);
/* Makes an empty array another holder of what `from` holds. */
void lucid_array_share(mlx_array to, mlx_array from);
/* Lets go of what the array holds. */
void lucid_array_end(mlx_array a);

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
/* Frees a waiter (may be null) that nobody waits with. */
void lucid_waiter_free(lucid_waiter waiter);
/* After a wait: marks the arrays available, or, if the wait failed, unusable (a later evaluation fails again). */
int lucid_settle(const mlx_array* outputs, size_t n, bool failed);
/* The bytes of an available array, null if it is not row-contiguous. */
int lucid_array_data(const void** data, mlx_array a);
/* Are elements copied between host and device by the device, which has memory of its own? Else both use the same. */
bool lucid_copies_by_device(void);
/* Copies an available row-contiguous array of `size` bytes out. */
int lucid_array_copy(void* out, size_t size, mlx_array a);
/* A row-contiguous array of a copy of `size` bytes, as many as shape and dtype say. */
int lucid_array_upload(mlx_array* made, const void* data, size_t size, const int* shape, size_t ndim, mlx_dtype dtype);

// May the first element be at an odd multiple of 4 bytes, by where it is or by what is to be evaluated for it?
int lucid_array_may_begin_odd(bool* odd, mlx_array a);

// How many bytes an available row-major array begins behind its buffer; -1 where it is not such an array.
int lucid_array_offset(int64_t* offset, mlx_array a);

/* A primitive, held apart from the arrays that it makes. */
typedef struct lucid_primitive_ {
  void* ctx;
} lucid_primitive;
/* The primitive of an array that was made of exactly these inputs; ctx is null where it was not. The array must be known to
 * the calling thread alone. */
lucid_primitive lucid_primitive_of(mlx_array made, const mlx_array* inputs, size_t n);
void lucid_primitive_free(lucid_primitive primitive);
typedef struct lucid_output_ {
  const int* shape;
  size_t ndim;
  mlx_dtype dtype;
} lucid_output;
/* The arrays that the primitive makes of other inputs. Its parameters are as they were. */
int lucid_repeat(
    mlx_array* made,
    const lucid_output* outputs,
    size_t n_outputs,
    lucid_primitive primitive,
    const mlx_array* inputs,
    size_t n);
/* The array that `second` makes of what `first` makes of the input; of both the outputs are told, in that order. */
int lucid_repeat_twice(
    mlx_array* made,
    const lucid_output* outputs,
    lucid_primitive first,
    lucid_primitive second,
    mlx_array input);

/* Kernels in CUDA's language, compiled apart from MLX: it puts its headers before every text, which are most of the time that
 * compiling takes, and keeps no result. */
/* 1000 times the major version of CUDA's compiler and its minor version; 0 where MLX has not loaded it. */
int lucid_nvrtc_version(void);
/* What was compiled: `size` bytes, as long as the image is not freed. */
typedef struct lucid_image_ {
  void* ctx;
  const char* data;
  size_t size;
} lucid_image;
/* Compiles a text for GPUs of this capability (90 of Hopper's). `name` is what messages call it. */
int lucid_nvrtc_compile(lucid_image* image, const char* source, const char* name, int capability);
void lucid_image_free(lucid_image image);
/* Records a launch of the function `name` of an image, whose parameters are the inputs' and then the outputs' pointers; inputs
 * that are not row-major are copied. */
int lucid_cuda_launch(
    mlx_array* made,
    const lucid_output* outputs,
    size_t n_outputs,
    const char* name,
    const char* image,
    size_t image_size,
    const mlx_array* inputs,
    size_t n,
    const int* grid,
    const int* group,
    mlx_stream stream);

/* What keeps the elements of an array where they are, apart from the array. */
typedef struct lucid_kept_ {
  void* ctx;
} lucid_kept;
void lucid_kept_free(lucid_kept kept);
/* An input of a host's node: its first element and its strides, in elements, both valid during the call, the elements for as
 * long as `kept`, which whoever gets it has to free. */
typedef struct lucid_host_input_ {
  const void* data;
  const int64_t* strides;
  lucid_kept kept;
} lucid_host_input;
/* A function of the host's. `run` writes the outputs' elements in row-major order and returns 0, or sets the thread's error;
 * it must not throw, nor touch arrays. `release` is called once, on any thread, when nothing needs the context any more. */
typedef struct lucid_host_ {
  const char* name; /* static */
  void* context;
  int (*run)(void* context, const lucid_host_input* inputs, void* const* outputs);
  void (*release)(void* context);
} lucid_host;
/* The arrays that the function makes of the inputs, on MLX's CPU stream; it owns the context, on errors too. */
int lucid_host_node(
    mlx_array* made,
    const lucid_output* outputs,
    size_t n_outputs,
    lucid_host host,
    const mlx_array* inputs,
    size_t n,
    mlx_stream stream);

/* A view of an evaluated array, itself evaluated: another shape and strides (in elements) over the same memory, from the same
 * first element, where it is transposed, reshaped or broadcast. `made` stays empty where the array is not evaluated. */
int lucid_view_now(mlx_array* made, mlx_array a, const int* shape, const int64_t* strides, size_t ndim);
/* The strides of an evaluated array into `strides`, as many as it has dimensions, and whether its elements are in row-major
 * order; false where it is not evaluated. */
bool lucid_array_strides(mlx_array a, int64_t* strides, bool* row_major);

/* After lucid_note_forks, which returns 0 on success, a child that this process forks finds lucid_forked true. */
int lucid_note_forks(void);

/* After this, which returns 0 on success, a process that ends keeps its exit status where MLX then finds the CUDA driver
   gone, instead of being aborted. */
int lucid_outlive_driver(void);

/* Makes MLX's scheduler, and with it the pool of CUDA's events. Before the first stream: streams that any thread may use are
   destroyed in the reverse order at the process's end, and give their events back to that pool. */
int lucid_make_scheduler(void);
bool lucid_forked(void);

/* Calls `finish` when the process exits, before what was registered earlier and before libraries are finalised. */
int lucid_at_exit(void (*finish)(void));

/* Where the calling thread is the process's first, has its exit call `finish` before anything that was registered at any time.
   Elsewhere, and without glibc, nothing. */
void lucid_before_exit(void (*finish)(void));
/* Is the calling thread a stream's, in a function of the host's? */
bool lucid_in_task(void);
/* Waits until the stream has done all that it was given so far; for one of a GPU only where `gpu`. Its errors are left to who
 * evaluated. */
int lucid_drain(mlx_stream stream, bool gpu);

/* From here on allocations on MLX's CPU that the system refuses fail with an exception: MLX's kernels write to what they get.
 * Replaces the first function in the table of MLX's allocator, which is called by its table alone. */
void lucid_check_allocations(void);

/* A new ring of processes over TCP, of its own. `hostfile` names a JSON list with a list of addresses `ip:port` for each rank.
 * Waits for its peers. The environment is written to meanwhile: no other thread may read it. */
int lucid_ring_open(mlx_distributed_group* group, const char* hostfile, const char* rank);
/* Has MLX's threads sleep while they wait for a peer of the ring at these addresses, whose sockets MLX makes such that the
 * threads spin. How many sockets there were. */
int lucid_ring_block(const char* const* addresses, size_t n);
/* Shuts down this process's sockets at, or to, the addresses, so that what waits for a peer there fails. How many there were. */
int lucid_ring_abort(const char* const* addresses, size_t n);

/* NCCL, which MLX has loaded where it has a CUDA device. */
bool lucid_nccl_is_available(void);
/* What members of a new group find one another by, made by one of them; 128 bytes, which `size` has to be. `interface`, if not
 * null, is the network interface that it listens at unless the environment names one. */
int lucid_nccl_new_id(char* id, size_t size, const char* interface);
/* A group. One thread at a time uses it; where the byte at `ended`, which outlives it, is no more 0, what it waits for fails. */
typedef struct lucid_nccl_ {
  void* ctx;
} lucid_nccl;
int lucid_nccl_open(lucid_nccl* group, const char* id, size_t id_size, int size, int rank, const uint8_t* ended);
void lucid_nccl_free(lucid_nccl group);
/* Arrays are evaluated and in row-major order, on the device; what arrives is written to `out`, whose memory nobody else has.
 * These return once it is there. `how`: 0 sum, 1 largest, 2 smallest. */
int lucid_nccl_all_reduce(lucid_nccl group, mlx_array in, mlx_array out, int how);
int lucid_nccl_all_gather(lucid_nccl group, mlx_array in, mlx_array out);
int lucid_nccl_broadcast(lucid_nccl group, mlx_array in, mlx_array out, int root);
/* This member's part of what is reduced; the members' parts follow one another in `in`. */
int lucid_nccl_reduce_scatter(lucid_nccl group, mlx_array in, mlx_array out, int how);
/* Part i of `in` goes to member i, whose own arrives as part i of `out`. */
int lucid_nccl_all_to_all(lucid_nccl group, mlx_array in, mlx_array out);
int lucid_nccl_send(lucid_nccl group, mlx_array in, int to);
int lucid_nccl_recv(lucid_nccl group, mlx_array out, int from);

/* Names of the primitives that evaluating the outputs would run, one per line, each as often as it would run. */
int lucid_graph_primitives(mlx_string* names, const mlx_array* outputs, size_t n);
/* A line for each: the primitive's name, the dtypes of its inputs, `>`, and the dtype of the output that was reached. */
int lucid_graph_nodes(mlx_string* nodes, const mlx_array* outputs, size_t n);
/* The graph in Graphviz's language. */
int lucid_graph_dot(mlx_string* text, const mlx_array* outputs, size_t n);

#ifdef __cplusplus
}
#endif

#endif
