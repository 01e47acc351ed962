// A TCP relay between a client and a server that can go silent: from then on it takes and gives no
// byte and closes nothing, so that each side sees a peer that has vanished without a word. Owned by
// a test; one connection, one thread of its own; any thread may call. It never looks at the bytes.

#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/thread.h"

namespace weft::router {

class TcpRelay {
 public:
  // Listens on a free port of 127.0.0.1 and connects to `server_port` there for its first client.
  explicit TcpRelay(uint16_t server_port);
  // Closes both sides.
  ~TcpRelay();

  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  uint16_t port() const { return port_; }
  // Bytes that the client has sent and the server was given.
  uint64_t to_server() const;
  // Waits up to 10 s until the server was given `bytes` in all. False when it was not.
  bool WaitToServer(uint64_t bytes) const;
  // No byte is relayed any more when it returns.
  void GoSilent();

 private:
  void Run();
  // Relays one read. False at the end of a connection.
  bool Relay(int from, int to, bool to_server);

  const uint16_t server_port_;
  int listen_fd_ = -1;
  int stop_fd_ = -1;
  uint16_t port_ = 0;
  mutable absl::Mutex mutex_;
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t to_server_ ABSL_GUARDED_BY(mutex_) = 0;
  Thread thread_;
};

}  // namespace weft::router
