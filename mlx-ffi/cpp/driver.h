// CUDA's driver, as far as it is used beside MLX.
#ifndef LUCID_MLX_DRIVER_H
#define LUCID_MLX_DRIVER_H

#ifdef __linux__
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "mlx/mlx.h"

namespace lucid {

// Status 0 is success. MLX's memory is shared with the host, page by page at the first access; a copy by the device moves no
// page.
class Driver {
 public:
  // The driver that MLX has loaded; null where MLX has no CUDA device.
  static const Driver* loaded();

  bool to_host(void* host, const void* device, size_t size) const;
  bool to_device(void* device, const void* host, size_t size) const;

  // Runs something with the device's context as the calling thread's. False where that cannot be, or it says so.
  bool within(const std::function<bool()>& action) const;

  // Makes the device's context the calling thread's for good.
  bool make_current() const;

  // The three below are called within. A stream that waits for none of MLX's; null where there can be none.
  void* new_stream() const;
  enum class Progress { Done, Running, Failed };
  Progress progress(void* stream) const;
  void end_stream(void* stream) const;

 private:
  static std::optional<Driver> find();

  void* context_ = nullptr;
  void* stream_ = nullptr;
  int (*set_)(void*) = nullptr;
  int (*push_)(void*) = nullptr;
  int (*pop_)(void**) = nullptr;
  int (*create_)(void**, unsigned) = nullptr;
  int (*destroy_)(void*) = nullptr;
  int (*wait_)(void*) = nullptr;
  int (*query_)(void*) = nullptr;
  int (*to_host_)(void*, std::uintptr_t, size_t, void*) = nullptr;
  int (*to_device_)(std::uintptr_t, const void*, size_t, void*) = nullptr;
};

// Where the device finds a buffer of MLX's, and the first element of an evaluated array.
void* device_address(mlx::core::allocator::Buffer buffer);
void* device_address(const mlx::core::array& a);

// Makes the device that this process computes on the calling thread's, where there are several: MLX does so where it launches,
// and reads and allocates on whichever the thread has. Without this, a process that saw two GPUs and used NCCL failed at reads
// and corrupted its heap. To be called once there is a stream.
void use_device();

} // namespace lucid
#else
namespace lucid {

inline void use_device() {}

} // namespace lucid
#endif

#endif
