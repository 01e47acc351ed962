// The client's side of gRPC on one HTTP/2 connection: unary calls as bytes, from request message to
// status (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). Frames and header
// compression are nghttp2's. It owns no socket and no clock: bytes come in by Receive and go out by
// Output, so the thread that waits for the socket does everything else too. Owned by an
// Http2ShardClient, one per connection; never used again once Receive or Output failed.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/shard_client.h"

struct nghttp2_session;

namespace weft::router {

// Names a call within its session; never 0.
using GrpcStreamId = int32_t;

class GrpcSession {
 public:
  // A call ended: `body` is the answer's message when `status` is OK. From inside Receive and
  // Output.
  using DoneSink = std::function<void(GrpcStreamId id, absl::Status status, std::string body)>;

  explicit GrpcSession(DoneSink on_done);
  ~GrpcSession();

  GrpcSession(const GrpcSession&) = delete;
  GrpcSession& operator=(const GrpcSession&) = delete;

  // Starts a call of `path` ("/package.Service/Method"); `timeout_us` > 0 is what the server is
  // told. 0 when the connection takes no calls any more.
  GrpcStreamId Start(const std::string& path, const SharedBytes& request, int64_t timeout_us);
  // Gives a call up; it ends without on_done.
  void Cancel(GrpcStreamId id);
  // Asks the peer for a sign of life.
  void Ping();

  // Takes what the peer sent. An error is the connection's end.
  absl::Status Receive(absl::string_view bytes);
  // Appends all that is to be sent. An error is the connection's end.
  absl::Status Output(std::string* out);

  // The peer's first settings have come: it is there and speaks HTTP/2.
  bool ready() const { return ready_; }
  // The peer takes no calls any more.
  bool closing() const { return closing_; }

 private:
  struct Stream {
    SharedBytes request;
    // Bytes of the framed request that were handed on.
    size_t sent = 0;
    std::string body;
    std::string http_status;
    int grpc_status = -1;
    std::string grpc_message;
    bool cancelled = false;
  };
  // nghttp2's callbacks.
  struct Hooks;

  void OnHeader(Stream& stream, absl::string_view name, absl::string_view value);
  void OnClosed(GrpcStreamId id, uint32_t error);

  const DoneSink on_done_;
  const std::string agent_;
  nghttp2_session* session_ = nullptr;
  absl::flat_hash_map<GrpcStreamId, std::unique_ptr<Stream>> streams_;
  bool ready_ = false;
  bool closing_ = false;
};

}  // namespace weft::router
