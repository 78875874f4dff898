// Prints the text that MLX itself makes of a custom kernel. MLX's Linux library has the writer of Metal's text and refuses to
// write only because there is no Metal: here it is told that there is, and nothing is evaluated. With CUDA defined, against
// the library of the package mlx-cuda-12 (its CUDA libraries may be empty ones), it prints CUDA's text.
// Arguments: name, header, body, "atomic" or "plain", then I NAME DTYPE DIMS..., O NAME DTYPE, T NAME DTYPE|NUMBER|true|false.
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include "mlx/fast.h"
#include "mlx/mlx.h"

using namespace mlx::core;

#ifdef CUDA
namespace mlx::core::cu {
bool is_available() { return true; }
}  // namespace mlx::core::cu
namespace mlx::core::gpu {
bool is_available() { return true; }
}  // namespace mlx::core::gpu
#else
namespace mlx::core::metal {
bool is_available() { return true; }
}  // namespace mlx::core::metal
#endif

int main(int count, char** words) {
  const std::map<std::string, Dtype> dtypes = {
      {"bool", bool_},     {"uint8", uint8}, {"uint16", uint16}, {"uint32", uint32},   {"uint64", uint64},
      {"int8", int8},      {"int16", int16}, {"int32", int32},   {"int64", int64},     {"float16", float16},
      {"float32", float32}, {"bfloat16", bfloat16}, {"complex64", complex64}};
  std::vector<std::string> input_names, output_names;
  std::vector<array> inputs;
  std::vector<Shape> shapes;
  std::vector<Dtype> kinds;
  std::vector<std::pair<std::string, fast::TemplateArg>> values;
  for (int at = 5; at < count;) {
    std::string what = words[at], name = words[at + 1], dtype = words[at + 2];
    at += 3;
    if (what == "I") {
      Shape shape;
      while (at < count && std::isdigit(words[at][0])) shape.push_back(std::atoi(words[at++]));
      input_names.push_back(name);
      inputs.push_back(array(shape, dtypes.at(dtype), nullptr, {}));
    } else if (what == "O") {
      output_names.push_back(name);
      shapes.push_back({16});
      kinds.push_back(dtypes.at(dtype));
    } else if (dtypes.count(dtype)) {
      values.push_back({name, dtypes.at(dtype)});
    } else if (dtype == "true" || dtype == "false") {
      values.push_back({name, dtype == "true"});
    } else {
      values.push_back({name, std::atoi(dtype.c_str())});
    }
  }
#ifdef CUDA
  auto kernel = fast::cuda_kernel(words[1], input_names, output_names, words[3], words[2]);
#else
  auto kernel = fast::metal_kernel(words[1], input_names, output_names, words[3], words[2], true, std::string(words[4]) == "atomic");
#endif
  kernel(inputs, shapes, kinds, {1, 1, 1}, {1, 1, 1}, values, std::nullopt, true, Stream(0, Device::gpu));
}
