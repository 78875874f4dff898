// Kernels in CUDA's language that are compiled here, and not by MLX: see shim.h.

#include "shim.h"

#include "library.h"
#include "process.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mlx/c/private/mlx.h"
#include "mlx/fast.h"
#include "mlx/mlx.h"

namespace mx = mlx::core;
using lucid::guarded;

namespace {

#ifdef __linux__
// What is used of NVRTC. Its handle is a pointer and its status 0 where all went well.
struct Nvrtc {
  using Program = void*;
  int (*version)(int*, int*) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*image_size)(Program, size_t*) = nullptr;
  int (*image)(Program, char*) = nullptr;
  int (*destroy)(Program*) = nullptr;

  // The library that MLX has loaded, if it has: the newest of these.
  static const Nvrtc* loaded() {
    static const std::optional<Nvrtc> found = find();
    return found ? &*found : nullptr;
  }

 private:
  static std::optional<Nvrtc> find() {
    lucid::Library library({"libnvrtc.so.14", "libnvrtc.so.13", "libnvrtc.so.12"});
    Nvrtc found;
    library.get(found.version, "nvrtcVersion");
    library.get(found.create, "nvrtcCreateProgram");
    library.get(found.compile, "nvrtcCompileProgram");
    library.get(found.log_size, "nvrtcGetProgramLogSize");
    library.get(found.log, "nvrtcGetProgramLog");
    library.get(found.image_size, "nvrtcGetCUBINSize");
    library.get(found.image, "nvrtcGetCUBIN");
    library.get(found.destroy, "nvrtcDestroyProgram");
    return library ? std::optional(found) : std::nullopt;
  }
};

std::string compiled(const Nvrtc& nvrtc, const char* source, const char* name, int capability) {
  struct Program {
    const Nvrtc& nvrtc;
    Nvrtc::Program it = nullptr;
    ~Program() {
      if (it) {
        nvrtc.destroy(&it);
      }
    }
  } program{nvrtc};
  auto check = [&](int status, const char* what) {
    if (status != 0) {
      throw std::runtime_error(std::string("[NVRTC] ") + what + " failed with status " + std::to_string(status));
    }
  };
  check(nvrtc.create(&program.it, source, name, 0, nullptr, nullptr), "nvrtcCreateProgram");
  std::string architecture = "--gpu-architecture=sm_" + std::to_string(capability);
  const char* options[] = {architecture.c_str(), "--std=c++17", "--device-as-default-execution-space"};
  if (nvrtc.compile(program.it, 3, options) != 0) {
    size_t size = 0;
    check(nvrtc.log_size(program.it, &size), "nvrtcGetProgramLogSize");
    std::string log(size, '\0');
    check(nvrtc.log(program.it, log.data()), "nvrtcGetProgramLog");
    throw std::runtime_error("[NVRTC] " + std::string(name) + " does not compile: " + log.c_str());
  }
  size_t size = 0;
  check(nvrtc.image_size(program.it, &size), "nvrtcGetCUBINSize");
  std::string image(size, '\0');
  check(nvrtc.image(program.it, image.data()), "nvrtcGetCUBIN");
  return image;
}
#endif

} // namespace

extern "C" int lucid_nvrtc_version(void) {
#ifdef __linux__
  int major = 0, minor = 0;
  const Nvrtc* nvrtc = Nvrtc::loaded();
  return nvrtc && nvrtc->version(&major, &minor) == 0 ? major * 1000 + minor : 0;
#else
  return 0;
#endif
}

extern "C" int lucid_nvrtc_compile(lucid_image* image, const char* source, const char* name, int capability) {
  return guarded([&] {
#ifdef __linux__
    if (const Nvrtc* nvrtc = Nvrtc::loaded()) {
      auto made = new std::string(compiled(*nvrtc, source, name, capability));
      *image = {made, made->data(), made->size()};
      return;
    }
#endif
    throw std::runtime_error("[NVRTC] MLX has not loaded CUDA's compiler");
  });
}

extern "C" void lucid_image_free(lucid_image image) {
  delete static_cast<std::string*>(image.ctx);
}

extern "C" int lucid_cuda_launch(
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
    mlx_stream stream) {
  return guarded([&] {
    std::vector<mx::array> given;
    for (size_t i = 0; i < n; i++) {
      given.push_back(*static_cast<mx::array*>(inputs[i].ctx));
    }
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    for (size_t i = 0; i < n_outputs; i++) {
      shapes.emplace_back(outputs[i].shape, outputs[i].shape + outputs[i].ndim);
      dtypes.push_back(mlx_dtype_to_cpp(outputs[i].dtype));
    }
    auto all = mx::fast::precompiled_cuda_kernel(
        name, std::string(image, image_size), given, shapes, dtypes, {}, {grid[0], grid[1], grid[2]},
        {group[0], group[1], group[2]}, 0, std::nullopt, true, mlx_stream_get_(stream));
    for (size_t i = 0; i < n_outputs; i++) {
      mlx_array_set_(made[i], std::move(all[i]));
    }
  });
}
