// Elements between the host's memory and a CUDA device's, by the device's copy engines: see shim.h.

#include "shim.h"

#include "driver.h"
#include "process.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "mlx/allocator.h"
#include "mlx/c/private/mlx.h"
#include "mlx/mlx.h"

namespace mx = mlx::core;
using lucid::guarded;
#ifdef __linux__
using lucid::Driver;
#endif

namespace {

// Buffers of at most so many bytes are in a pool whose pages stay with the host.
constexpr size_t POOLED = 16;

#ifdef __linux__
bool copied_to_host(void* out, const mx::array& a, size_t size) {
  const Driver* driver = Driver::loaded();
  return driver && a.buffer_size() > POOLED && driver->to_host(out, lucid::device_address(a), size);
}

bool copied_to_device(mx::allocator::Buffer buffer, const void* data, size_t size) {
  const Driver* driver = size > POOLED ? Driver::loaded() : nullptr;
  return driver && driver->to_device(lucid::device_address(buffer), data, size);
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
    lucid::use_device();
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
    lucid::use_device();
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
