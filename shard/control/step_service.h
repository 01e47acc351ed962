// The gRPC door of a shard: weft.shard.v1.ShardService over a Unix socket or TCP, with the callback
// API. It hands every call to the executor and answers from the executor's `done`; it never blocks
// and holds no state of its own but the calls under way. Owned by main. Together with
// health_service.h the only files of the shard that know gRPC.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "shard/control/executor.h"
#include "shard/control/probe.h"

namespace weft::shard {

struct ListenOptions {
  // Path of a Unix socket, under 100 bytes; its folder is made (0700) when it is missing, a socket
  // left over there is replaced. ALREADY_EXISTS when somebody listens on it. Or:
  std::string socket;
  // "host:port"; port 0 picks a free one. Another address than loopback, so also a wildcard (all
  // of the host's), needs the three TLS files.
  std::string listen;
  // PEM files of mutual TLS: own certificate and key, and the authority that signs the router's.
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  // A silent connection is pinged so often, and closed when no answer comes for so long: a frozen
  // router loses its claim after both together.
  absl::Duration ping_interval = absl::Seconds(3);
  absl::Duration ping_timeout = absl::Seconds(7);
  // What grpc.health.v1 says; asked on gRPC's threads, must not block. None = always serving.
  std::function<bool()> serving = nullptr;
};

class ShardServer {
 public:
  // Binds and serves. INVALID_ARGUMENT names the flag; another status says what is in the way.
  // `executor` and `probe` (may be null) outlive the server.
  static absl::StatusOr<std::unique_ptr<ShardServer>> Start(const ListenOptions& options,
                                                            Executor& executor, ShardProbe* probe);
  ~ShardServer();

  ShardServer(const ShardServer&) = delete;
  ShardServer& operator=(const ShardServer&) = delete;

  // "unix:/path" or "host:port" as a client dials it; of a wildcard address, as it is listened on.
  const std::string& address() const;

  // Ends the calls in flight after `grace` and stops serving. Blocks. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  struct Impl;
  explicit ShardServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::shard
