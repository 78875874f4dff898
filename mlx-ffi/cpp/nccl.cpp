// NCCL for groups of any processes: sums, gathering and messages, which end when they are told to. MLX's own NCCL has one group,
// no messages, and waits for a peer that is gone. See shim.h.

#include "shim.h"

#include "driver.h"
#include "library.h"
#include "process.h"

#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "mlx/backend/cuda/cuda.h"
#include "mlx/c/private/mlx.h"
#include "mlx/mlx.h"

namespace mx = mlx::core;
using lucid::guarded;

#ifdef __linux__
using lucid::Driver;

namespace {

using Comm = void*;
struct Id {
  char bytes[128];
};

// NCCL's own, as of 2.14: what later versions added is by default where `version` is older.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

constexpr int IN_PROGRESS = 7;
constexpr int SUM = 0, MAX = 2, MIN = 3;
constexpr int BYTE = 0;

// How long a communicator may take to come to its end before it is cut off.
constexpr std::chrono::seconds PATIENCE(2);

struct Nccl {
  int (*unique_id)(Id*) = nullptr;
  int (*open)(Comm*, int, Id, int, Config*) = nullptr;
  int (*async_error)(Comm, int*) = nullptr;
  int (*finalize)(Comm) = nullptr;
  int (*destroy)(Comm) = nullptr;
  int (*abort)(Comm) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int, int, Comm, void*) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int, Comm, void*) = nullptr;
  int (*broadcast)(const void*, void*, size_t, int, int, Comm, void*) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int, int, Comm, void*) = nullptr;
  int (*begin)() = nullptr;
  int (*end)() = nullptr;
  int (*send)(const void*, size_t, int, int, Comm, void*) = nullptr;
  int (*recv)(void*, size_t, int, int, Comm, void*) = nullptr;
  const char* (*text)(int) = nullptr;

  // The library that MLX has loaded; null without it, or without a CUDA device.
  static const Nccl* loaded() {
    static const std::optional<Nccl> found = find();
    return found ? &*found : nullptr;
  }

  void check(int status, const char* what) const {
    if (status != 0) {
      throw std::runtime_error(std::string("[nccl] ") + what + ": " + text(status));
    }
  }

 private:
  static std::optional<Nccl> find() {
    lucid::Library library({"libnccl.so.2"});
    Nccl found;
    library.get(found.unique_id, "ncclGetUniqueId");
    library.get(found.open, "ncclCommInitRankConfig");
    library.get(found.async_error, "ncclCommGetAsyncError");
    library.get(found.finalize, "ncclCommFinalize");
    library.get(found.destroy, "ncclCommDestroy");
    library.get(found.abort, "ncclCommAbort");
    library.get(found.all_reduce, "ncclAllReduce");
    library.get(found.all_gather, "ncclAllGather");
    library.get(found.broadcast, "ncclBroadcast");
    library.get(found.reduce_scatter, "ncclReduceScatter");
    library.get(found.begin, "ncclGroupStart");
    library.get(found.end, "ncclGroupEnd");
    library.get(found.send, "ncclSend");
    library.get(found.recv, "ncclRecv");
    library.get(found.text, "ncclGetErrorString");
    return library && mx::cu::is_available() ? std::optional(found) : std::nullopt;
  }
};

const Nccl& needed() {
  const Nccl* nccl = Nccl::loaded();
  if (nccl && Driver::loaded()) {
    return *nccl;
  }
  throw std::runtime_error("[nccl] MLX has not loaded NCCL, or has no CUDA device");
}

// Waits a little, longer the longer it has waited before.
class Pause {
 public:
  void operator()() {
    if (++turns_ < 2000) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  int turns_ = 0;
};

// Members that compute together. One thread at a time uses it; any may set what ends it.
class Communicator {
 public:
  Communicator(const Nccl& nccl, const Driver& driver, const uint8_t* ended, int size)
      : nccl_(nccl), driver_(driver), ended_(ended), size_(size) {}

  size_t size() const {
    return size_;
  }

  void open(const Id& id, int rank) {
    within([&] {
      Config config;
      stream_ = driver_.new_stream();
      if (!stream_) {
        throw std::runtime_error("[nccl] no stream of the device's can be had");
      }
      settle(nccl_.open(&comm_, size_, id, rank, &config), "the members cannot connect");
    });
  }

  // Runs what puts work on the stream, and waits until the device has done it.
  void run(const char* what, const std::function<int(Comm, void*)>& begin) {
    within([&] {
      if (!comm_) {
        throw std::runtime_error(std::string("[nccl] ") + what + ": the group was ended");
      }
      settle(begin(comm_, stream_), what);
      Pause pause;
      for (;;) {
        switch (driver_.progress(stream_)) {
          case Driver::Progress::Done:
            return;
          case Driver::Progress::Failed:
            cut();
            throw std::runtime_error(std::string("[nccl] ") + what + ": the device failed");
          case Driver::Progress::Running:
            look(what);
            pause();
        }
      }
    });
  }

  // To its end, as its members all come to theirs; cut off where that takes long.
  void close() {
    within([&] {
      if (comm_) {
        auto until = std::chrono::steady_clock::now() + PATIENCE;
        int status = nccl_.finalize(comm_);
        Pause pause;
        while (status == IN_PROGRESS && std::chrono::steady_clock::now() < until) {
          pause();
          if (nccl_.async_error(comm_, &status) != 0) {
            break;
          }
        }
        if (status == 0 && nccl_.destroy(comm_) == 0) {
          comm_ = nullptr;
        }
      }
      cut();
      if (stream_) {
        driver_.end_stream(stream_);
        stream_ = nullptr;
      }
    });
  }

 private:
  void within(const std::function<void()>& action) {
    std::exception_ptr failed;
    bool could = driver_.within([&] {
      try {
        action();
      } catch (...) {
        failed = std::current_exception();
      }
      return true;
    });
    if (failed) {
      std::rethrow_exception(failed);
    }
    if (!could) {
      throw std::runtime_error("[nccl] the device cannot be used by this thread");
    }
  }

  // Calls return before they are done: a member that does not come must not keep this one.
  void settle(int status, const char* what) {
    Pause pause;
    while (status == IN_PROGRESS) {
      if (__atomic_load_n(ended_, __ATOMIC_ACQUIRE)) {
        cut();
        throw std::runtime_error(std::string("[nccl] ") + what + ": ended");
      }
      pause();
      int asked = nccl_.async_error(comm_, &status);
      status = asked != 0 ? asked : status;
    }
    if (status != 0) {
      cut();
      nccl_.check(status, what);
    }
  }

  // Ends it where it was told to, or where it has failed.
  void look(const char* what) {
    int status = 0;
    bool ended = __atomic_load_n(ended_, __ATOMIC_ACQUIRE);
    if (!ended && (nccl_.async_error(comm_, &status) != 0 || (status != 0 && status != IN_PROGRESS))) {
      cut();
      nccl_.check(status == 0 ? 1 : status, what);
    }
    if (ended) {
      cut();
      throw std::runtime_error(std::string("[nccl] ") + what + ": ended");
    }
  }

  // Ends whatever goes on, and waits until the device has let go of the arrays.
  void cut() {
    if (comm_) {
      nccl_.abort(comm_);
      comm_ = nullptr;
    }
    Pause pause;
    auto until = std::chrono::steady_clock::now() + PATIENCE;
    while (stream_ && driver_.progress(stream_) == Driver::Progress::Running &&
           std::chrono::steady_clock::now() < until) {
      pause();
    }
  }

  const Nccl& nccl_;
  const Driver& driver_;
  const uint8_t* ended_;
  int size_;
  Comm comm_ = nullptr;
  void* stream_ = nullptr;
};

Communicator& of(lucid_nccl group) {
  return *static_cast<Communicator*>(group.ctx);
}

// The array, which has to be evaluated and in row-major order.
const mx::array& evaluated(mlx_array a) {
  const mx::array& array = *static_cast<const mx::array*>(a.ctx);
  if (array.status() == mx::array::Status::unscheduled || !array.flags().row_contiguous) {
    throw std::invalid_argument("[nccl] an array that is not evaluated, or not in row-major order");
  }
  return array;
}

// How NCCL reduces elements: their dtype, of which one of MLX's may have several, and its operation.
struct Kind {
  int code;
  size_t parts;
  int op = SUM;
};

Kind kind_of(mx::Dtype dtype) {
  switch (dtype.val()) {
    case mx::Dtype::Val::int8:
      return {0, 1};
    case mx::Dtype::Val::uint8:
      return {1, 1};
    case mx::Dtype::Val::int32:
      return {2, 1};
    case mx::Dtype::Val::uint32:
      return {3, 1};
    case mx::Dtype::Val::int64:
      return {4, 1};
    case mx::Dtype::Val::uint64:
      return {5, 1};
    case mx::Dtype::Val::float16:
      return {6, 1};
    case mx::Dtype::Val::float32:
      return {7, 1};
    case mx::Dtype::Val::float64:
      return {8, 1};
    case mx::Dtype::Val::bfloat16:
      return {9, 1};
    case mx::Dtype::Val::complex64:
      return {7, 2};
    default:
      throw std::invalid_argument("[nccl] no reduction of elements of this dtype");
  }
}

Kind kind_of(const mx::array& from, const mx::array& to, int how) {
  Kind kind = kind_of(from.dtype());
  if (from.dtype() != to.dtype() || how < 0 || how > 2 || (kind.parts > 1 && how != 0)) {
    throw std::invalid_argument("[nccl] no such reduction of elements of this dtype");
  }
  kind.op = how == 0 ? SUM : how == 1 ? MAX : MIN;
  return kind;
}

} // namespace
#else
namespace {

[[noreturn]] void missing() {
  throw std::runtime_error("[nccl] CUDA is only on Linux");
}

} // namespace
#endif

extern "C" bool lucid_nccl_is_available(void) {
#ifdef __linux__
  return Nccl::loaded() != nullptr;
#else
  return false;
#endif
}

extern "C" int lucid_nccl_new_id(char* id, size_t size, const char* interface) {
  return guarded([&] {
#ifdef __linux__
    const Nccl& nccl = needed();
    if (interface && setenv("NCCL_SOCKET_IFNAME", interface, 0) != 0) {
      throw std::runtime_error("[nccl] no memory left for the environment");
    }
    if (size != sizeof(Id)) {
      throw std::invalid_argument("[nccl] an id of another size");
    }
    Id made;
    nccl.check(nccl.unique_id(&made), "no address can be had");
    std::memcpy(id, made.bytes, sizeof(made.bytes));
#else
    missing();
#endif
  });
}

extern "C" int
lucid_nccl_open(lucid_nccl* group, const char* id, size_t id_size, int size, int rank, const uint8_t* ended) {
  return guarded([&] {
#ifdef __linux__
    auto made = std::make_unique<Communicator>(needed(), *Driver::loaded(), ended, size);
    Id given;
    if (id_size != sizeof(Id)) {
      throw std::invalid_argument("[nccl] an id of another size");
    }
    std::memcpy(given.bytes, id, sizeof(given.bytes));
    try {
      made->open(given, rank);
    } catch (...) {
      made->close();
      throw;
    }
    group->ctx = made.release();
#else
    missing();
#endif
  });
}

extern "C" void lucid_nccl_free(lucid_nccl group) {
#ifdef __linux__
  if (group.ctx) {
    std::unique_ptr<Communicator> owned(&of(group));
    // What cannot be ended here ends with the process.
    try {
      owned->close();
    } catch (...) {
    }
  }
#endif
}

extern "C" int lucid_nccl_all_reduce(lucid_nccl group, mlx_array in, mlx_array out, int how) {
  return guarded([&] {
#ifdef __linux__
    const mx::array &from = evaluated(in), &to = evaluated(out);
    if (from.size() != to.size()) {
      throw std::invalid_argument("[nccl] all_reduce: arrays that do not fit");
    }
    Kind kind = kind_of(from, to, how);
    of(group).run("all_reduce", [&](Comm comm, void* stream) {
      return needed().all_reduce(
          lucid::device_address(from), lucid::device_address(to), from.size() * kind.parts, kind.code, kind.op, comm,
          stream);
    });
#else
    missing();
#endif
  });
}

extern "C" int lucid_nccl_reduce_scatter(lucid_nccl group, mlx_array in, mlx_array out, int how) {
  return guarded([&] {
#ifdef __linux__
    const mx::array &from = evaluated(in), &to = evaluated(out);
    if (from.size() != to.size() * of(group).size()) {
      throw std::invalid_argument("[nccl] reduce_scatter: arrays that do not fit");
    }
    Kind kind = kind_of(from, to, how);
    of(group).run("reduce_scatter", [&](Comm comm, void* stream) {
      return needed().reduce_scatter(
          lucid::device_address(from), lucid::device_address(to), to.size() * kind.parts, kind.code, kind.op, comm,
          stream);
    });
#else
    missing();
#endif
  });
}

extern "C" int lucid_nccl_broadcast(lucid_nccl group, mlx_array in, mlx_array out, int root) {
  return guarded([&] {
#ifdef __linux__
    const mx::array &from = evaluated(in), &to = evaluated(out);
    if (from.nbytes() != to.nbytes()) {
      throw std::invalid_argument("[nccl] broadcast: arrays that do not fit");
    }
    of(group).run("broadcast", [&](Comm comm, void* stream) {
      return needed().broadcast(
          lucid::device_address(from), lucid::device_address(to), from.nbytes(), BYTE, root, comm, stream);
    });
#else
    missing();
#endif
  });
}

extern "C" int lucid_nccl_all_to_all(lucid_nccl group, mlx_array in, mlx_array out) {
  return guarded([&] {
#ifdef __linux__
    const mx::array &from = evaluated(in), &to = evaluated(out);
    size_t size = of(group).size();
    if (from.nbytes() != to.nbytes() || from.nbytes() % size != 0) {
      throw std::invalid_argument("[nccl] all_to_all: arrays that do not fit");
    }
    size_t part = from.nbytes() / size;
    of(group).run("all_to_all", [&](Comm comm, void* stream) {
      const Nccl& nccl = needed();
      auto* source = static_cast<char*>(lucid::device_address(from));
      auto* target = static_cast<char*>(lucid::device_address(to));
      int status = nccl.begin();
      for (size_t i = 0; i < size && status == 0; i++) {
        status = nccl.send(source + i * part, part, BYTE, static_cast<int>(i), comm, stream);
        status = status == 0 || status == IN_PROGRESS
            ? nccl.recv(target + i * part, part, BYTE, static_cast<int>(i), comm, stream)
            : status;
        status = status == IN_PROGRESS ? 0 : status;
      }
      int ended = nccl.end();
      return status != 0 ? status : ended;
    });
#else
    missing();
#endif
  });
}

extern "C" int lucid_nccl_all_gather(lucid_nccl group, mlx_array in, mlx_array out) {
  return guarded([&] {
#ifdef __linux__
    const mx::array &from = evaluated(in), &to = evaluated(out);
    if (from.nbytes() * of(group).size() != to.nbytes()) {
      throw std::invalid_argument("[nccl] all_gather: arrays that do not fit");
    }
    of(group).run("all_gather", [&](Comm comm, void* stream) {
      return needed().all_gather(
          lucid::device_address(from), lucid::device_address(to), from.nbytes(), BYTE, comm, stream);
    });
#else
    missing();
#endif
  });
}

extern "C" int lucid_nccl_send(lucid_nccl group, mlx_array in, int to) {
  return guarded([&] {
#ifdef __linux__
    const mx::array& from = evaluated(in);
    of(group).run("send", [&](Comm comm, void* stream) {
      return needed().send(lucid::device_address(from), from.nbytes(), BYTE, to, comm, stream);
    });
#else
    missing();
#endif
  });
}

extern "C" int lucid_nccl_recv(lucid_nccl group, mlx_array out, int from) {
  return guarded([&] {
#ifdef __linux__
    const mx::array& to = evaluated(out);
    of(group).run("recv", [&](Comm comm, void* stream) {
      return needed().recv(lucid::device_address(to), to.nbytes(), BYTE, from, comm, stream);
    });
#else
    missing();
#endif
  });
}
