/* Runs a model that lucid.export wrote on zeros, and prints what goes in and what comes out.
 *
 *   cargo build --release -p lucid-infer
 *   cc engine/infer/examples/infer.c -Iengine/infer/include -Ltarget/release -llucid_infer \
 *      -Wl,-rpath,$PWD/target/release -o infer
 *   ./infer model.lucid 32        # sizes that vary are 32
 */
#include "lucid_infer.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const size_t SIZES[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
static const char *const NAMES[] = {"bool",    "uint8",    "int8",    "int16",   "int32",     "int64",
                                    "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};

static int failed(const char *what) {
  fprintf(stderr, "%s: %s\n", what, lucid_infer_last_error());
  return 1;
}

static void show(const char *name, const lucid_infer_tensor *t) {
  printf("%s %s [", name, NAMES[t->dtype]);
  for (int32_t i = 0; i < t->ndim; i++) printf("%s%" PRId64, i ? ", " : "", t->shape[i]);
  printf("]");
  for (size_t i = 0; t->dtype == LUCID_INFER_FLOAT32 && i < 4 && 4 * i < t->bytes; i++) printf(" %g", ((float *)t->data)[i]);
  printf("\n");
}

int main(int argc, char **argv) {
  if (argc < 2 || lucid_infer_abi_version() < LUCID_INFER_ABI_VERSION) {
    fprintf(stderr, "usage: infer MODEL [SIZE]\n");
    return 2;
  }
  const int64_t varies = argc > 2 ? atoll(argv[2]) : 1;
  lucid_infer_model *model = lucid_infer_load(argv[1]);
  if (!model) return failed(argv[1]);
  const int32_t n = lucid_infer_input_count(model), m = lucid_infer_output_count(model);
  lucid_infer_tensor *inputs = calloc((size_t)n + 1, sizeof *inputs), *outputs = calloc((size_t)m + 1, sizeof *outputs);
  char name[256];
  int status = !inputs || !outputs;
  for (int32_t i = 0; !status && i < n; i++) {
    if (lucid_infer_input(model, i, &inputs[i], name, sizeof name)) return failed("input");
    inputs[i].bytes = SIZES[inputs[i].dtype];
    for (int32_t d = 0; d < inputs[i].ndim; d++) {
      if (inputs[i].shape[d] < 0) inputs[i].shape[d] = varies;
      inputs[i].bytes *= (size_t)inputs[i].shape[d];
    }
    inputs[i].data = calloc(inputs[i].bytes + 1, 1);
    show(name, &inputs[i]);
  }
  if (!status && lucid_infer_run(model, inputs, (size_t)n, outputs, (size_t)m)) status = failed("run");
  for (int32_t i = 0; !status && i < m; i++) {
    lucid_infer_tensor description;
    if (lucid_infer_output(model, i, &description, name, sizeof name)) return failed("output");
    show(name, &outputs[i]);
  }
  for (int32_t i = 0; i < m; i++) lucid_infer_release(&outputs[i]);
  for (int32_t i = 0; i < n; i++) free(inputs[i].data);
  free(inputs);
  free(outputs);
  lucid_infer_free(model);
  return status;
}
