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
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "router/shards/client.h"

struct nghttp2_session;

namespace weft::router {

// Names a call within its session; never 0.
using Http2StreamId = int32_t;

class Http2Session {
 public:
  // A call ended: `body` is the answer's message when `status` is OK. From inside Receive and
  // Output.
  using DoneSink = std::function<void(Http2StreamId id, absl::Status status, std::string body)>;

  // The largest id is 2^31 - 1, and each call takes two.
  static constexpr Http2StreamId kWornAt = 1 << 30;

  explicit Http2Session(DoneSink on_done, Http2StreamId worn_at = kWornAt);
  ~Http2Session();

  Http2Session(const Http2Session&) = delete;
  Http2Session& operator=(const Http2Session&) = delete;

  // Starts a call of `path` ("/package.Service/Method"); `timeout_us` > 0 is what the server is
  // told. 0 when the connection takes no calls any more: it is at its end.
  Http2StreamId Start(const std::string& path, const SharedBytes& request, int64_t timeout_us);
  // Gives a call up; it ends without on_done.
  void Cancel(Http2StreamId id);
  // Asks the peer for a sign of life.
  void Ping();

  // Takes what the peer sent. An error is the connection's end: the peer says so, or it broke the
  // protocol.
  absl::Status Receive(absl::string_view bytes);
  // Appends all that is to be sent. An error is the connection's end.
  absl::Status Output(std::string* out);

  // The peer's first settings have come: it is there and speaks HTTP/2.
  bool ready() const { return ready_; }
  // Stream ids have passed `worn_at`: another connection should take its place when it is idle.
  bool worn() const;

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
    bool too_long = false;
  };
  // nghttp2's callbacks.
  struct Hooks;

  // The error that ended the connection, or OK.
  absl::Status CheckAlive() const;
  void OnHeader(Stream& stream, absl::string_view name, absl::string_view value);
  void OnClosed(Http2StreamId id, uint32_t error);

  const DoneSink on_done_;
  const uint32_t worn_at_;
  const std::string agent_;
  nghttp2_session* session_ = nullptr;
  absl::flat_hash_map<Http2StreamId, std::unique_ptr<Stream>> streams_;
  // Streams that the peer refused in the bytes under way.
  std::vector<Http2StreamId> refused_;
  bool ready_ = false;
  // What nghttp2 last found wrong.
  std::string complaint_;
  // Why the connection takes no more calls; empty while it does.
  std::string ended_;
};

}  // namespace weft::router
