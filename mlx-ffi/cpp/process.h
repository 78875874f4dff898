// What the shim's files share.
#ifndef LUCID_MLX_PROCESS_H
#define LUCID_MLX_PROCESS_H

#include <exception>

#include "mlx/c/error.h"

namespace lucid {

// Is the thread running a function of the host's as a task of a stream?
extern thread_local bool in_task;

// Runs `body`, turning an exception into the thread's error message.
template <typename F>
int guarded(F body) {
  try {
    body();
    return 0;
  } catch (const std::exception& e) {
    mlx_error(e.what());
  } catch (...) {
    mlx_error("an exception that is no std::exception");
  }
  return 1;
}

} // namespace lucid

#endif
