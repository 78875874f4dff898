// The process that MLX runs in: its forks, its exit, its memory. See shim.h.

#include "process.h"

#include <dlfcn.h>
#include <pthread.h>
#ifdef __GLIBC__
#include <sys/syscall.h>
#endif
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>

#include "mlx/allocator.h"
#include "mlx/c/private/mlx.h"
#include "mlx/memory.h"
#include "mlx/mlx.h"
#include "mlx/scheduler.h"
#include "shim.h"

namespace mx = mlx::core;

namespace lucid {

thread_local bool in_task = false;

} // namespace lucid

namespace {

std::atomic<bool> forked{false};

#ifdef __GLIBC__
int exit_status = 0;
std::terminate_handler earlier_handler = nullptr;
bool passing = false;
std::jmp_buf passed;

[[noreturn]] void end_as_begun();

void handle_terminate() {
  if (std::get_terminate() != end_as_begun) {
    earlier_handler = std::set_terminate(end_as_begun);
  }
}

// A child has MLX's encoders of its thread but not CUDA's state: their destructors throw where `exit` calls them, before it tells
// any function its status. The thread's newest object calls all older ones' destructors, and goes on behind what threw.
struct Newest {
  ~Newest() {
    void* destroy = dlsym(RTLD_DEFAULT, "__call_tls_dtors");
    if (!destroy) {
      return;
    }
    handle_terminate();
    passing = true;
    setjmp(passed);
    reinterpret_cast<void (*)()>(destroy)();
    passing = false;
  }
};

// What MLX destroys, or waits for, when the CUDA driver goes, or has gone, throws in a destructor. The process has ended by then.
[[noreturn]] void end_as_begun() {
  if (std::exception_ptr error = std::current_exception()) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      bool over = std::strstr(e.what(), "Destroy(handle_) failed") || std::strstr(e.what(), "driver shutting down");
      bool child = forked.load(std::memory_order_relaxed) && std::strstr(e.what(), "failed: initialization error");
      if (child && passing) {
        std::longjmp(passed, 1);
      }
      if (over || child) {
        std::fflush(nullptr);
        _exit(exit_status);
      }
    } catch (...) {
    }
  }
  earlier_handler();
  std::abort();
}
#endif

using mx::allocator::Allocator;
using mx::allocator::Buffer;

Buffer (*allocate)(Allocator*, size_t) = nullptr;

// MLX's own allocation, whose result its CPU kernels write to without a look at it.
Buffer allocate_checked(Allocator* allocator, size_t size) {
  Buffer buffer = allocate(allocator, size);
  if (!buffer.ptr() && size > 0) {
    mx::clear_cache();
    buffer = allocate(allocator, size);
  }
  if (!buffer.ptr() && size > 0) {
    throw std::runtime_error("[malloc] Unable to allocate " + std::to_string(size) + " bytes.");
  }
  return buffer;
}

} // namespace

extern "C" int lucid_note_forks(void) {
  static const int status = pthread_atfork(nullptr, nullptr, [] {
    forked.store(true, std::memory_order_relaxed);
#ifdef __GLIBC__
    // What waits for streams that are no thread's own throws, too.
    lucid_outlive_driver();
    static thread_local Newest newest;
    (void)newest;
#endif
  });
  return status;
}

extern "C" bool lucid_forked(void) {
  return forked.load(std::memory_order_relaxed);
}

extern "C" int lucid_outlive_driver(void) {
#ifdef __GLIBC__
  return on_exit(
      [](int status, void*) {
        exit_status = status;
        handle_terminate();
      },
      nullptr);
#else
  return 0;
#endif
}

extern "C" int lucid_make_scheduler(void) {
  return lucid::guarded([] { mx::scheduler::scheduler(); });
}

extern "C" int lucid_at_exit(void (*finish)(void)) {
  return std::atexit(finish);
}

extern "C" void lucid_before_exit(void (*finish)(void)) {
#ifdef __GLIBC__
  // `exit` destroys what is its thread's own before it calls any function, and so before libraries undo what they made on first
  // use, which may have been after all that was noted. Other threads than the first end without the process.
  struct First {
    void (*finish)(void) = nullptr;
    ~First() {
      finish();
    }
  };
  if (getpid() == syscall(SYS_gettid)) {
    static thread_local First first;
    first.finish = finish;
  }
#else
  (void)finish;
#endif
}

extern "C" bool lucid_in_task(void) {
  return lucid::in_task;
}

extern "C" int lucid_drain(mlx_stream stream, bool gpu) {
  return lucid::guarded([&] {
    mx::Stream s = mlx_stream_get_(stream);
    if (s.device != mx::Device::cpu) {
      if (gpu) {
        mx::synchronize(s);
      }
      return;
    }
    // As MLX's `synchronize`, which would also take the stream's error from whoever waits for it.
    auto reached = std::make_shared<std::promise<void>>();
    std::future<void> future = reached->get_future();
    mx::scheduler::enqueue(s, [reached = std::move(reached)] { reached->set_value(); });
    future.wait();
  });
}

extern "C" void lucid_check_allocations(void) {
#if !defined(__APPLE__)
  // Offset to the top and type information; malloc, free, size, make_buffer, release and two destructors.
  static void* table[9];
  Allocator& allocator = mx::allocator::allocator();
  void** own;
  std::memcpy(&own, &allocator, sizeof own);
  if (own == table + 2) {
    return;
  }
  std::memcpy(table, own - 2, sizeof table);
  std::memcpy(&allocate, &table[2], sizeof allocate);
  auto checked = &allocate_checked;
  std::memcpy(&table[2], &checked, sizeof checked);
  void** ours = table + 2;
  std::memcpy(static_cast<void*>(&allocator), &ours, sizeof ours);
#endif
}
