// Replaces mlx-c's error.cpp, whose message is a printf format (a '%' in it is undefined behaviour), whose default
// handler ends the process, and whose handler is an unlocked global. Here a message is bytes in a thread-local.

#include <string>

#include "shim.h"

namespace {

struct Slot {
  std::string message;
  bool set = false;
};

thread_local Slot slot;

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
