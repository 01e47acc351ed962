// A gRPC server that answers the shard's calls by rule, whatever is in them: Info, Rendezvous,
// JoinGroup and FilterBatch give the request back, Prefill fails, Decode and Hold never end by
// themselves, and Warmup gives back as many bytes as its request says. For tests of transports.
// Thread-safe.

#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

namespace weft::router {

// What Prefill fails with: bytes that have to be escaped on the wire.
inline constexpr char kEchoError[] = "step 3: 50% of \xC3\xA9t\xC3\xA9\nlost";

class EchoShard {
 public:
  // Starts serving at `address`, "unix:/path" or "host:0".
  EchoShard(const std::string& address, std::shared_ptr<grpc::ServerCredentials> credentials);
  ~EchoShard();

  // Where it listens: "unix:/path" or "host:port".
  const std::string& address() const { return address_; }
  // Decode calls that the client gave up.
  int cancelled() const { return cancelled_.load(); }

 private:
  class Service;

  std::atomic<int> cancelled_{0};
  std::unique_ptr<Service> service_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace weft::router
