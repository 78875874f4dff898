// Replaces mlx-c's error.cpp, whose message is a printf format (a '%' in it is undefined behaviour), whose default
// handler ends the process, and whose handler is an unlocked global. Here a message is bytes in a thread-local. MLX's switches are set here, too, as this file is
// always linked.

#include <cstdlib>
#include <string>

#include "shim.h"

namespace {

struct Slot {
  std::string message;
  bool set = false;
};

thread_local Slot slot;

// Sets MLX's switches, which it reads when it first computes, where the environment has not. This runs while the library is
// loaded: before `main` of a program, and in Python's `import`. Later another thread might read the environment meanwhile.
// - MLX_ENABLE_TF32: on CUDA, MLX rounds the inputs of float32 products to TF32's ten bits unless told not to.
// - MLX_CUDA_GRAPH_CACHE_SIZE: MLX keeps 400 CUDA graphs, and reports an error from whatever is being evaluated when a program
//   of many shapes makes it drop and rebuild them too often.
__attribute__((constructor)) void set_switches() {
  setenv("MLX_ENABLE_TF32", "0", 0);
  setenv("MLX_CUDA_GRAPH_CACHE_SIZE", "4096", 0);
}

} // namespace

extern "C" void lucid_error_set(const char* bytes, size_t len) {
  // What is reported later in the same call only says that the first error was passed on.
  if (!slot.set) {
    slot.message.assign(bytes, len);
    slot.set = true;
  }
}

extern "C" const char* lucid_error_message(size_t* len) {
  *len = slot.message.size();
  return slot.set ? slot.message.data() : nullptr;
}

extern "C" void lucid_error_clear(void) {
  slot.set = false;
}

// Every caller in mlx-c passes a finished message and no arguments.
extern "C" void _mlx_error(const char*, const int, const char* message, ...) {
  lucid_error_set(message, std::char_traits<char>::length(message));
}

extern "C" void mlx_set_error_handler(mlx_error_handler_func, void* data, void (*dtor)(void*)) {
  if (dtor) {
    dtor(data);
  }
}
