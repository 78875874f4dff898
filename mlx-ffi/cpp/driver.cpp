// See driver.h.

#include "driver.h"

#ifdef __linux__
#include "library.h"
#include "mlx/allocator.h"
#include "mlx/backend/cuda/cuda.h"

namespace mx = mlx::core;

namespace lucid {

namespace {

// What MLX's buffers are on CUDA. Its own declaration needs CUDA's headers.
struct CudaBuffer {
  void* data;
  size_t size;
  int device;
};

constexpr int NOT_READY = 600;
constexpr unsigned NON_BLOCKING = 1;

} // namespace

void* device_address(mx::allocator::Buffer buffer) {
  return static_cast<const CudaBuffer*>(buffer.ptr())->data;
}

void* device_address(const mx::array& a) {
  return static_cast<char*>(device_address(a.buffer())) + a.offset();
}

void use_device() {
  static const bool several = mx::device_count(mx::Device::gpu) > 1;
  if (several && Driver::loaded()) {
    Driver::loaded()->make_current();
  }
}

const Driver* Driver::loaded() {
  static const std::optional<Driver> found = find();
  return found ? &*found : nullptr;
}

std::optional<Driver> Driver::find() {
  if (!mx::cu::is_available()) {
    return std::nullopt;
  }
  Library library({"libcuda.so.1"});
  Driver found;
  int (*init)(unsigned) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*retain)(void**, int) = nullptr;
  library.get(init, "cuInit");
  library.get(device, "cuDeviceGet");
  library.get(retain, "cuDevicePrimaryCtxRetain");
  library.get(found.set_, "cuCtxSetCurrent");
  library.get(found.push_, "cuCtxPushCurrent_v2");
  library.get(found.pop_, "cuCtxPopCurrent_v2");
  library.get(found.create_, "cuStreamCreate");
  library.get(found.destroy_, "cuStreamDestroy_v2");
  library.get(found.wait_, "cuStreamSynchronize");
  library.get(found.query_, "cuStreamQuery");
  library.get(found.to_host_, "cuMemcpyDtoHAsync_v2");
  library.get(found.to_device_, "cuMemcpyHtoDAsync_v2");
  int ordinal = 0;
  // Nothing may have run on the device yet.
  if (!library || init(0) != 0 || device(&ordinal, mx::default_device().index) != 0 ||
      retain(&found.context_, ordinal) != 0) {
    return std::nullopt;
  }
  bool made = found.within([&] { return (found.stream_ = found.new_stream()) != nullptr; });
  return made ? std::optional(found) : std::nullopt;
}

bool Driver::make_current() const {
  return set_(context_) == 0;
}

bool Driver::within(const std::function<bool()>& action) const {
  if (push_(context_) != 0) {
    return false;
  }
  bool well = action();
  void* before = nullptr;
  return pop_(&before) == 0 && well;
}

bool Driver::to_host(void* host, const void* device, size_t size) const {
  return within([&] {
    return to_host_(host, reinterpret_cast<std::uintptr_t>(device), size, stream_) == 0 && wait_(stream_) == 0;
  });
}

bool Driver::to_device(void* device, const void* host, size_t size) const {
  return within([&] {
    return to_device_(reinterpret_cast<std::uintptr_t>(device), host, size, stream_) == 0 && wait_(stream_) == 0;
  });
}

void* Driver::new_stream() const {
  void* stream = nullptr;
  return create_(&stream, NON_BLOCKING) == 0 ? stream : nullptr;
}

Driver::Progress Driver::progress(void* stream) const {
  int status = query_(stream);
  return status == 0 ? Progress::Done : status == NOT_READY ? Progress::Running : Progress::Failed;
}

void Driver::end_stream(void* stream) const {
  wait_(stream);
  destroy_(stream);
}

} // namespace lucid
#endif
