// Elements between the host's memory and a CUDA device's, by the device's copy engines: see shim.h.

#include "shim.h"

#include "process.h"

#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "mlx/allocator.h"
#include "mlx/backend/cuda/cuda.h"
#include "mlx/c/private/mlx.h"
#include "mlx/mlx.h"

#ifdef __linux__
#include <dlfcn.h>
#endif

namespace mx = mlx::core;
using lucid::guarded;

namespace {

// Buffers of at most so many bytes are in a pool whose pages stay with the host.
constexpr size_t POOLED = 16;

#ifdef __linux__
// What MLX's buffers are on CUDA. Its own declaration needs CUDA's headers.
struct CudaBuffer {
  void* data;
  size_t size;
  int device;
};

// What is used of CUDA's driver, whose status is 0 where all went well. MLX's memory is shared with the host, page by page at
// the first access; a copy by the device moves no page.
class Driver {
 public:
  // The driver that MLX has loaded; null where MLX has no CUDA device.
  static const Driver* loaded() {
    static const std::optional<Driver> found = find();
    return found ? &*found : nullptr;
  }

  bool to_host(void* host, const void* device, size_t size) const {
    return done([&] { return to_host_(host, reinterpret_cast<std::uintptr_t>(device), size, stream_); });
  }

  bool to_device(void* device, const void* host, size_t size) const {
    return done([&] { return to_device_(reinterpret_cast<std::uintptr_t>(device), host, size, stream_); });
  }

 private:
  // Runs a copy on a stream of its own, which waits for none of MLX's or of another library's, and waits for it.
  bool done(const std::function<int()>& copy) const {
    if (push_(context_) != 0) {
      return false;
    }
    bool well = copy() == 0 && wait_(stream_) == 0;
    void* before = nullptr;
    return pop_(&before) == 0 && well;
  }

  static std::optional<Driver> find() {
    void* library = mx::cu::is_available() ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : nullptr;
    if (!library) {
      return std::nullopt;
    }
    bool whole = true;
    auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      whole = whole && function;
    };
    Driver found;
    int (*init)(unsigned) = nullptr;
    int (*device)(int*, int) = nullptr;
    int (*retain)(void**, int) = nullptr;
    int (*create)(void**, unsigned) = nullptr;
    get(init, "cuInit");
    get(device, "cuDeviceGet");
    get(retain, "cuDevicePrimaryCtxRetain");
    get(create, "cuStreamCreate");
    get(found.push_, "cuCtxPushCurrent_v2");
    get(found.pop_, "cuCtxPopCurrent_v2");
    get(found.wait_, "cuStreamSynchronize");
    get(found.to_host_, "cuMemcpyDtoHAsync_v2");
    get(found.to_device_, "cuMemcpyHtoDAsync_v2");
    constexpr unsigned NON_BLOCKING = 1;
    int ordinal = 0;
    void* before = nullptr;
    // Nothing may have run on the device yet.
    if (!whole || init(0) != 0 || device(&ordinal, mx::default_device().index) != 0 ||
        retain(&found.context_, ordinal) != 0 || found.push_(found.context_) != 0) {
      return std::nullopt;
    }
    bool made = create(&found.stream_, NON_BLOCKING) == 0;
    return found.pop_(&before) == 0 && made ? std::optional(found) : std::nullopt;
  }

  void* context_ = nullptr;
  void* stream_ = nullptr;
  int (*push_)(void*) = nullptr;
  int (*pop_)(void**) = nullptr;
  int (*wait_)(void*) = nullptr;
  int (*to_host_)(void*, std::uintptr_t, size_t, void*) = nullptr;
  int (*to_device_)(std::uintptr_t, const void*, size_t, void*) = nullptr;
};

bool copied_to_host(void* out, const mx::array& a, size_t size) {
  const Driver* driver = Driver::loaded();
  if (!driver || a.buffer_size() <= POOLED) {
    return false;
  }
  auto buffer = static_cast<const CudaBuffer*>(a.buffer().ptr());
  return driver->to_host(out, static_cast<const char*>(buffer->data) + a.offset(), size);
}

bool copied_to_device(mx::allocator::Buffer buffer, const void* data, size_t size) {
  const Driver* driver = size > POOLED ? Driver::loaded() : nullptr;
  return driver && driver->to_device(static_cast<const CudaBuffer*>(buffer.ptr())->data, data, size);
}
#else
bool copied_to_host(void*, const mx::array&, size_t) {
  return false;
}

bool copied_to_device(mx::allocator::Buffer, const void*, size_t) {
  return false;
}
#endif

} // namespace

extern "C" bool lucid_copies_by_device(void) {
#ifdef __linux__
  return Driver::loaded() != nullptr;
#else
  return false;
#endif
}

extern "C" int lucid_array_copy(void* out, size_t size, mlx_array a) {
  return guarded([&] {
    mx::array& array = *static_cast<mx::array*>(a.ctx);
    if (!array.flags().row_contiguous || array.nbytes() != size) {
      throw std::invalid_argument("[copy] not as many bytes, or not in row-major order");
    }
    if (!copied_to_host(out, array, size)) {
      std::memcpy(out, array.data<char>(), size);
    }
  });
}

extern "C" int
lucid_array_upload(mlx_array* made, const void* data, size_t size, const int* shape, size_t ndim, mlx_dtype dtype) {
  return guarded([&] {
    auto buffer = mx::allocator::malloc(size);
    if (!buffer.ptr()) {
      throw std::runtime_error("[malloc] Unable to allocate " + std::to_string(size) + " bytes.");
    }
    mx::array array(buffer, mx::Shape(shape, shape + ndim), mlx_dtype_to_cpp(dtype));
    if (!copied_to_device(buffer, data, size)) {
      std::memcpy(buffer.raw_ptr(), data, size);
    }
    mlx_array_set_(*made, std::move(array));
  });
}
