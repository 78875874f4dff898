// See shim.h. Only what libmlx exports, or its headers define inline, may be used here.

#include "shim.h"

#include <atomic>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"
#include "mlx/graph_utils.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"

namespace mx = mlx::core;

namespace {

mx::array& get(mlx_array a) {
  return *static_cast<mx::array*>(a.ctx);
}

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

// Calls `visit` once for each primitive that is not yet scheduled, with one of its outputs.
template <typename F>
void walk(std::vector<mx::array> stack, F visit) {
  std::unordered_set<std::uintptr_t> seen;
  while (!stack.empty()) {
    mx::array a = std::move(stack.back());
    stack.pop_back();
    // A primitive with several outputs runs once: it is known by its own address.
    if (a.status() != mx::array::Status::unscheduled || !a.has_primitive() || !seen.insert(a.primitive_id()).second) {
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

// Arrays of our own, each with the event of an output: waiting on them touches nothing that another thread may see.
using Waiter = std::vector<mx::array>;

} // namespace

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

extern "C" int lucid_wait(lucid_waiter waiter) {
  std::unique_ptr<Waiter> waits(static_cast<Waiter*>(waiter.ctx));
  return guarded([&] {
    if (waits) {
      for (mx::array& proxy : *waits) {
        proxy.wait();
      }
    }
  });
}

extern "C" int lucid_settle(const mlx_array* outputs, size_t n, bool failed) {
  return guarded([&] {
    for (size_t i = 0; i < n; i++) {
      mx::array& a = get(outputs[i]);
      if (failed && a.status() == mx::array::Status::evaluated) {
        // Its buffer holds nothing of worth. Unscheduled and without a primitive, it can never be evaluated.
        a.set_status(mx::array::Status::unscheduled);
      } else if (!failed) {
        a.wait();
      }
    }
  });
}

extern "C" int lucid_array_data(const void** data, mlx_array a) {
  return guarded([&] {
    mx::array& array = get(a);
    *data = array.flags().row_contiguous ? array.data<char>() : nullptr;
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

extern "C" int lucid_graph_dot(mlx_string* text, const mlx_array* outputs, size_t n) {
  return guarded([&] {
    std::ostringstream stream;
    mx::export_to_dot(stream, mx::NodeNamer{}, collect(outputs, n));
    mlx_string_set_(*text, stream.str());
  });
}
