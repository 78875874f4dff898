// See shim.h. Only what libmlx exports, or its headers define inline, may be used here.

#include "shim.h"

#include "driver.h"
#include "process.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "mlx/allocator.h"
#include "mlx/backend/common/utils.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/private/mlx.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace mx = mlx::core;
using lucid::guarded;

namespace {

mx::array& get(mlx_array a) {
  return *static_cast<mx::array*>(a.ctx);
}

// A primitive with several outputs runs once, and is known by the first of them. (Its own address may serve several nodes.)
std::uintptr_t node_id(const mx::array& a) {
  return a.sibling_position() == 0 ? a.id() : a.siblings()[0].id();
}

// Calls `visit` once for each primitive that is not yet scheduled, with one of its outputs.
template <typename F>
void walk(std::vector<mx::array> stack, F visit) {
  std::unordered_set<std::uintptr_t> seen;
  while (!stack.empty()) {
    mx::array a = std::move(stack.back());
    stack.pop_back();
    if (a.status() != mx::array::Status::unscheduled || !a.has_primitive() || !seen.insert(node_id(a)).second) {
      continue;
    }
    visit(a);
    stack.insert(stack.end(), a.inputs().begin(), a.inputs().end());
  }
}

std::vector<mx::array> collect(const mlx_array* outputs, size_t n) {
  std::vector<mx::array> all;
  all.reserve(n);
  for (size_t i = 0; i < n; i++) {
    all.push_back(get(outputs[i]));
  }
  return all;
}

static_assert(sizeof(mx::array) == 2 * sizeof(void*), "the words that callers keep for an array");

// How many hold an array. An explicit instantiation may name a private member.
long holders(const mx::array& a);
template <auto Node>
struct Holders {
  friend long holders(const mx::array& a) {
    return (a.*Node).use_count();
  }
};
template struct Holders<&mx::array::array_desc_>;

// What MLX does where a node ends that was not evaluated: it looks for inputs that end with it, so that long graphs are not taken
// down by recursion, and makes a table of them for each node. Most have none; those that do wait in a list here.
void let_go(mx::array a) {
  std::vector<mx::array> ending;
  while (true) {
    std::optional<mx::array> next;
    if (holders(a) == 1 && a.siblings().empty()) {
      // What other holders did is done before the inputs are changed.
      std::atomic_thread_fence(std::memory_order_acquire);
      for (mx::array& input : a.inputs()) {
        if (holders(input) != 1) {
          continue;
        }
        if (!next) {
          next.emplace(std::move(input));
        } else {
          ending.push_back(std::move(input));
        }
      }
      a.inputs().clear();
    }
    if (next) {
      a = std::move(*next);
    } else if (!ending.empty()) {
      a = std::move(ending.back());
      ending.pop_back();
    } else {
      return;
    }
  }
}

// Fills the empty arrays of `made` with those that a primitive makes.
void make(
    mlx_array* made,
    const lucid_output* outputs,
    size_t n_outputs,
    const std::shared_ptr<mx::Primitive>& primitive,
    std::vector<mx::array> inputs) {
  auto shape = [&](size_t i) { return mx::Shape(outputs[i].shape, outputs[i].shape + outputs[i].ndim); };
  if (n_outputs == 1) {
    new (made->ctx) mx::array(shape(0), mlx_dtype_to_cpp(outputs[0].dtype), primitive, std::move(inputs));
    return;
  }
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (size_t i = 0; i < n_outputs; i++) {
    shapes.push_back(shape(i));
    dtypes.push_back(mlx_dtype_to_cpp(outputs[i].dtype));
  }
  std::vector<mx::array> all = mx::array::make_arrays(std::move(shapes), dtypes, primitive, inputs);
  for (size_t i = 0; i < n_outputs; i++) {
    mlx_array_set_(made[i], std::move(all[i]));
  }
}

// Arrays of our own, each with the event of an output: waiting on them touches nothing that another thread may see.
using Waiter = std::vector<mx::array>;

using Kept = std::shared_ptr<mx::array::Data>;

// A primitive that a function of the host's computes.
class Host final : public mx::Primitive {
 public:
  Host(mx::Stream stream, const lucid_host& host, std::shared_ptr<void> context)
      : mx::Primitive(stream), name_(host.name), run_(host.run), context_(std::move(context)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    std::vector<void*> to;
    for (mx::array& output : outputs) {
      mx::allocator::Buffer buffer = mx::allocator::malloc(output.nbytes());
      if (!buffer.ptr()) {
        throw std::runtime_error("[malloc] Unable to allocate " + std::to_string(output.nbytes()) + " bytes.");
      }
      output.set_data(buffer);
      to.push_back(output.data<char>());
    }
    struct From {
      const void* data;
      mx::Strides strides;
      Kept kept;
    };
    std::vector<From> from;
    for (const mx::array& input : inputs) {
      from.push_back({input.data<char>(), input.strides(), input.data_shared_ptr()});
    }
    // MLX may drop this primitive before its work is done.
    auto work = [run = run_, context = context_, from = std::move(from), to = std::move(to)] {
      std::vector<lucid_host_input> views;
      for (const From& f : from) {
        views.push_back({f.data, f.strides.data(), {new Kept(f.kept)}});
      }
      lucid::use_device();
      lucid::in_task = true;
      int failed = run(context.get(), views.data(), to.data());
      lucid::in_task = false;
      if (failed) {
        size_t length = 0;
        const char* message = lucid_error_message(&length);
        std::string why = message ? std::string(message, length) : "no reason given";
        lucid_error_clear();
        throw std::runtime_error(why);
      }
    };
    mx::cpu::get_command_encoder(stream()).dispatch(std::move(work));
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error(std::string(name_) + ": runs on MLX's CPU stream alone");
  }

  const char* name() const override {
    return name_;
  }

 private:
  const char* name_;
  int (*run_)(void*, const lucid_host_input*, void* const*);
  std::shared_ptr<void> context_;
};

} // namespace

extern "C" void lucid_array_take(mlx_array to, mlx_array from) {
  get(to) = std::move(get(from));
  delete &get(from);
}

extern "C" void lucid_array_share(mlx_array to, mlx_array from) {
  new (to.ctx) mx::array(get(from));
}

extern "C" void lucid_array_end(mlx_array a) {
  let_go(std::move(get(a)));
}

extern "C" const int* lucid_array_shape(mlx_array a, size_t* ndim) {
  const mx::Shape& shape = get(a).shape();
  *ndim = shape.size();
  return shape.data();
}

extern "C" uintptr_t lucid_array_id(mlx_array a) {
  return get(a).id();
}

extern "C" size_t lucid_array_nbytes(mlx_array a) {
  return get(a).nbytes();
}

extern "C" bool lucid_array_is_evaluated(mlx_array a) {
  return get(a).status() != mx::array::Status::unscheduled;
}

extern "C" size_t lucid_array_buffer_size(mlx_array a) {
  return get(a).buffer_size();
}

extern "C" bool lucid_array_is_unshared(mlx_array a) {
  bool alone = get(a).is_donatable();
  // What the last other holder read or wrote there is done before whatever the caller does next.
  std::atomic_thread_fence(std::memory_order_acquire);
  return alone;
}

extern "C" int lucid_schedule(const mlx_array* outputs, size_t n, lucid_waiter* waiter) {
  return guarded([&] {
    lucid::use_device();
    std::vector<mx::array> todo;
    for (size_t i = 0; i < n; i++) {
      if (get(outputs[i]).status() == mx::array::Status::unscheduled) {
        todo.push_back(get(outputs[i]));
      }
    }
    if (!todo.empty()) {
      mx::async_eval(std::move(todo));
    }
    if (!waiter) {
      return;
    }
    waiter->ctx = nullptr;
    auto waits = std::make_unique<Waiter>();
    const void* last = nullptr;
    for (size_t i = 0; i < n; i++) {
      mx::array& a = get(outputs[i]);
      if (a.status() == mx::array::Status::available || !a.event().valid()) {
        continue;
      }
      // Outputs of one evaluation share their stream's event: one wait serves them all.
      const void* event = &a.event().cast<char>();
      if (event == last && waits->back().event().value() == a.event().value()) {
        continue;
      }
      last = event;
      mx::array proxy(mx::Shape{}, mx::bool_, nullptr, {});
      proxy.attach_event(a.event());
      proxy.set_status(mx::array::Status::evaluated);
      waits->push_back(std::move(proxy));
    }
    if (!waits->empty()) {
      waiter->ctx = waits.release();
    }
  });
}

extern "C" int lucid_refuse_larger(const mlx_array* outputs, size_t n, size_t limit) {
  return guarded([&] {
    // These share their input's memory, so that their size may exceed the machine's.
    static const std::unordered_set<std::string> views = {
        "AsStrided", "Broadcast", "BroadcastAxes", "ExpandDims", "Slice", "Squeeze", "StopGradient", "Transpose"};
    walk(collect(outputs, n), [&](const mx::array& a) {
      if (a.nbytes() > limit && !views.count(a.primitive().name())) {
        throw std::runtime_error("[malloc] Unable to allocate " + std::to_string(a.nbytes()) + " bytes.");
      }
    });
  });
}

namespace {

// On CUDA MLX's waits sleep, and who sleeps is woken 20 to 40 microseconds late, which is longer than many an op takes.
void ask_for_a_while(const mx::array& proxy) {
#ifdef __linux__
  // How long a thread asks a GPU whether it is done before it sleeps until it is told.
  constexpr std::chrono::milliseconds asking{2};
  static const bool asks = lucid::Driver::loaded() && std::thread::hardware_concurrency() > 1;
  if (!asks) {
    return;
  }
  auto until = std::chrono::steady_clock::now() + asking;
  while (!proxy.is_available() && std::chrono::steady_clock::now() < until) {
  }
#else
  (void)proxy;
#endif
}

} // namespace

extern "C" int lucid_wait(lucid_waiter waiter) {
  std::unique_ptr<Waiter> waits(static_cast<Waiter*>(waiter.ctx));
  return guarded([&] {
    if (waits) {
      for (mx::array& proxy : *waits) {
        ask_for_a_while(proxy);
        proxy.wait();
      }
    }
  });
}

extern "C" void lucid_waiter_free(lucid_waiter waiter) {
  delete static_cast<Waiter*>(waiter.ctx);
}

extern "C" int lucid_settle(const mlx_array* outputs, size_t n, bool failed) {
  return guarded([&] {
    lucid::use_device();
    for (size_t i = 0; i < n; i++) {
      mx::array& a = get(outputs[i]);
      if (failed && a.status() == mx::array::Status::evaluated) {
        // Its buffer holds nothing of worth. Unscheduled and without a primitive, it can never be evaluated.
        a.set_status(mx::array::Status::unscheduled);
      } else if (!failed && a.status() == mx::array::Status::evaluated) {
        // It has been waited for: asking the device once more would take a microsecond.
        a.attach_event(mx::Event());
        a.set_status(mx::array::Status::available);
      }
    }
  });
}

extern "C" int lucid_array_data(const void** data, mlx_array a) {
  return guarded([&] {
    lucid::use_device();
    mx::array& array = get(a);
    *data = array.flags().row_contiguous ? array.data<char>() : nullptr;
  });
}

namespace {

bool may_begin_odd(const mx::array& a) {
  // These write to memory of their own. What is neither here nor a view may write over its inputs, as norms and scans do.
  static const std::unordered_set<std::string> own = {
      "Arange", "ArgReduce", "Concatenate", "Convolution", "CustomKernel", "Full", "Gather", "GatherAxis", "Matmul", "Pad",
      "QuantizedMatmul", "RandomBits", "Reduce"};
  static const std::unordered_set<std::string> within = {"AsStrided", "DynamicSlice", "Slice", "Split"};
  constexpr int most = 64;
  std::vector<mx::array> stack = {a};
  for (int looked = 0; !stack.empty(); looked++) {
    mx::array x = std::move(stack.back());
    stack.pop_back();
    if (x.status() != mx::array::Status::unscheduled) {
      if (x.offset() % 8 != 0) {
        return true;
      }
    } else if (x.has_primitive()) {
      const std::string name = x.primitive().name();
      if (looked >= most || within.count(name)) {
        return true;
      }
      if (!own.count(name)) {
        stack.insert(stack.end(), x.inputs().begin(), x.inputs().end());
      }
    }
  }
  return false;
}

} // namespace

extern "C" int lucid_array_may_begin_odd(bool* odd, mlx_array a) {
  return guarded([&] { *odd = may_begin_odd(get(a)); });
}

extern "C" int lucid_array_offset(int64_t* offset, mlx_array a) {
  return guarded([&] {
    mx::array& array = get(a);
    *offset = array.is_available() && array.flags().row_contiguous ? array.offset() : -1;
  });
}

extern "C" lucid_primitive lucid_primitive_of(mlx_array made, const mlx_array* inputs, size_t n) {
  const mx::array& a = get(made);
  if (!a.has_primitive() || a.inputs().size() != n) {
    return {nullptr};
  }
  for (size_t i = 0; i < n; i++) {
    if (a.inputs()[i].id() != get(inputs[i]).id()) {
      return {nullptr};
    }
  }
  return {new std::shared_ptr<mx::Primitive>(a.primitive_ptr())};
}

extern "C" void lucid_primitive_free(lucid_primitive primitive) {
  delete static_cast<std::shared_ptr<mx::Primitive>*>(primitive.ctx);
}

extern "C" int lucid_repeat(
    mlx_array* made,
    const lucid_output* outputs,
    size_t n_outputs,
    lucid_primitive primitive,
    const mlx_array* inputs,
    size_t n) {
  return guarded([&] {
    const auto& repeated = *static_cast<std::shared_ptr<mx::Primitive>*>(primitive.ctx);
    make(made, outputs, n_outputs, repeated, collect(inputs, n));
  });
}

extern "C" int lucid_repeat_twice(
    mlx_array* made,
    const lucid_output* outputs,
    lucid_primitive first,
    lucid_primitive second,
    mlx_array input) {
  return guarded([&] {
    auto repeat = [&](size_t i, lucid_primitive p, mx::array of) {
      const auto& repeated = *static_cast<std::shared_ptr<mx::Primitive>*>(p.ctx);
      mx::Shape shape(outputs[i].shape, outputs[i].shape + outputs[i].ndim);
      std::vector<mx::array> inputs;
      inputs.push_back(std::move(of));
      return mx::array(std::move(shape), mlx_dtype_to_cpp(outputs[i].dtype), repeated, std::move(inputs));
    };
    new (made->ctx) mx::array(repeat(1, second, repeat(0, first, get(input))));
  });
}

extern "C" void lucid_kept_free(lucid_kept kept) {
  delete static_cast<Kept*>(kept.ctx);
}

extern "C" int lucid_host_node(
    mlx_array* made,
    const lucid_output* outputs,
    size_t n_outputs,
    lucid_host host,
    const mlx_array* inputs,
    size_t n,
    mlx_stream stream) {
  return guarded([&] {
    std::shared_ptr<void> context(host.context, host.release);
    auto primitive = std::make_shared<Host>(mlx_stream_get_(stream), host, std::move(context));
    make(made, outputs, n_outputs, primitive, collect(inputs, n));
  });
}

extern "C" bool lucid_array_strides(mlx_array a, int64_t* strides, bool* row_major) {
  const mx::array& array = get(a);
  if (array.status() == mx::array::Status::unscheduled) {
    return false;
  }
  std::copy(array.strides().begin(), array.strides().end(), strides);
  *row_major = array.flags().row_contiguous;
  return true;
}

extern "C" int lucid_view_now(mlx_array* made, mlx_array a, const int* shape, const int64_t* strides, size_t ndim) {
  return guarded([&] {
    lucid::use_device();
    const mx::array& base = get(a);
    if (base.status() == mx::array::Status::unscheduled) {
      return;
    }
    mx::array view(mx::Shape(shape, shape + ndim), base.dtype(), nullptr, {});
    mx::Strides steps(strides, strides + ndim);
    mx::array::Flags flags = base.flags();
    if (view.size() > base.size()) {
      flags.row_contiguous = flags.col_contiguous = false;
    } else if (flags.contiguous && base.data_size() == base.size()) {
      auto [size, row, col] = mx::check_contiguity(view.shape(), steps);
      flags.row_contiguous = row;
      flags.col_contiguous = col;
    }
    view.copy_shared_buffer(base, steps, flags, base.data_size());
    view.set_status(base.status());
    if (base.status() == mx::array::Status::evaluated) {
      view.attach_event(base.event());
    }
    mlx_array_set_(*made, std::move(view));
  });
}

extern "C" int lucid_graph_primitives(mlx_string* names, const mlx_array* outputs, size_t n) {
  return guarded([&] {
    std::string text;
    walk(collect(outputs, n), [&](const mx::array& a) {
      text += a.primitive().name();
      text += '\n';
    });
    mlx_string_set_(*names, text);
  });
}

extern "C" int lucid_graph_nodes(mlx_string* nodes, const mlx_array* outputs, size_t n) {
  return guarded([&] {
    std::ostringstream text;
    walk(collect(outputs, n), [&](const mx::array& a) {
      text << a.primitive().name();
      for (const mx::array& input : a.inputs()) {
        text << ' ' << input.dtype();
      }
      text << " > " << a.dtype() << '\n';
    });
    mlx_string_set_(*nodes, text.str());
  });
}

extern "C" int lucid_graph_dot(mlx_string* text, const mlx_array* outputs, size_t n) {
  return guarded([&] {
    // MLX's own export takes one primitive for one node.
    std::ostringstream dot;
    dot << "digraph {\n";
    auto arrow = [&](std::uintptr_t from, std::uintptr_t to) { dot << "  n" << from << " -> n" << to << ";\n"; };
    walk(collect(outputs, n), [&](const mx::array& a) {
      dot << "  n" << node_id(a) << " [label=\"" << a.primitive().name() << "\", shape=box];\n";
      for (const mx::array& input : a.inputs()) {
        bool pending = input.status() == mx::array::Status::unscheduled && input.has_primitive();
        std::uintptr_t from = pending ? node_id(input) : input.id();
        if (!pending) {
          dot << "  n" << from << " [label=\"" << input.shape() << "\"];\n";
        }
        arrow(from, node_id(a));
      }
    });
    dot << "}\n";
    mlx_string_set_(*text, dot.str());
  });
}
