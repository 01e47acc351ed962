// The listening sockets of the public gRPC address. Used once by the connection gate, on the thread
// that starts the server. It resolves, binds and listens; it never accepts, and it logs nothing: an
// error says the address, what was wrong and the way out.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft::router {

// Owns its descriptors. Moves only.
class Listener {
 public:
  // `address` is "host:port" ("[::1]:0", "localhost:8081", "0.0.0.0:8081"; port 0 = a free one) or
  // "unix:/path" ("unix:///path" too; a socket file that nobody listens on is replaced). A host
  // with several addresses gets a socket for each, all on one port. "0.0.0.0" and "[::]" mean both
  // families where the machine has both.
  static absl::StatusOr<Listener> Open(const std::string& address);

  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  // Non-blocking, close-on-exec.
  const std::vector<int>& descriptors() const { return descriptors_; }
  // 0 for a Unix socket.
  int port() const { return port_; }
  bool is_unix() const { return !path_.empty(); }

 private:
  Listener() = default;
  absl::Status OpenUnix(const std::string& address);
  absl::Status OpenTcp(const std::string& address);

  std::vector<int> descriptors_;
  int port_ = 0;
  std::string path_;  // of a Unix socket, removed at the end
};

}  // namespace weft::router
