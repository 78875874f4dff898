// Rings of processes over TCP, beyond what mlx-c offers: several in one process, and ending one that waits for its
// peers. See shim.h.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "mlx/c/distributed_group.h"
#include "mlx/c/private/mlx.h"
#include "mlx/distributed/distributed.h"
#include "mlx/mlx.h"
#include "process.h"
#include "shim.h"

namespace mx = mlx::core;
using lucid::guarded;

namespace {

std::mutex opening;

// The address as the text `ip:port`, empty for what is no address of IP's.
std::string text_of(const sockaddr_storage& address) {
  char ip[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, ip, sizeof(ip));
    return std::string(ip) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, ip, sizeof(ip));
    return std::string("[") + ip + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  return {};
}

// Calls `action` with each of this process's sockets at, or to, the addresses. How many there were.
template <typename Action>
int each_socket(const char* const* addresses, size_t n, Action action) {
  rlimit limit{};
  int most = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536)) : 1024;
  int found = 0;
  for (int fd = 0; fd < most; fd++) {
    auto ours = [&](int (*name)(int, sockaddr*, socklen_t*)) {
      sockaddr_storage address{};
      socklen_t length = sizeof(address);
      if (name(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        return false;
      }
      std::string text = text_of(address);
      return std::any_of(addresses, addresses + n, [&](const char* other) { return text == other; });
    };
    if (ours(getsockname) || ours(getpeername)) {
      action(fd);
      found++;
    }
  }
  return found;
}

} // namespace

extern "C" int lucid_ring_open(mlx_distributed_group* group, const char* hostfile, const char* rank) {
  return guarded([&] {
    std::lock_guard<std::mutex> lock(opening);
    // MLX remembers one ring for the process, and asks the environment for the next.
    mx::distributed::clear_backends();
    if (setenv("MLX_HOSTFILE", hostfile, 1) != 0 || setenv("MLX_RANK", rank, 1) != 0) {
      throw std::runtime_error("[ring] no memory left for the environment");
    }
    struct Forget {
      ~Forget() {
        unsetenv("MLX_HOSTFILE");
        unsetenv("MLX_RANK");
        mx::distributed::clear_backends();
      }
    } forget;
    auto made = mx::distributed::init(true, "ring");
    group->ctx = new mx::distributed::Group(std::move(made));
  });
}

extern "C" int lucid_ring_block(const char* const* addresses, size_t n) {
  // Short, so that a thread that receives gets round to what it has to send over the same socket.
  timeval patience{};
  patience.tv_usec = 1000;
  return each_socket(addresses, n, [&](int fd) {
    bool set = setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0;
    int flags = fcntl(fd, F_GETFL, 0);
    // Without the timeouts a thread that waits for a peer would never look at anything else.
    if (set && flags >= 0) {
      fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    }
  });
}

extern "C" int lucid_ring_abort(const char* const* addresses, size_t n) {
  return each_socket(addresses, n, [](int fd) { shutdown(fd, SHUT_RDWR); });
}
