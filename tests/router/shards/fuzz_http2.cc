// Fuzz target: what a shard may send on the router's HTTP/2 connection, beside calls that begin and
// are given up. Every call ends at most once and never after it was given up, a good answer has a
// bounded body, and however the bytes are cut the same calls end the same way.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "router/shards/http2_session.h"
#include "tests/support/fuzz_input.h"

namespace weft::router {
namespace {

// One connection and what became of its calls.
class Connection {
 public:
  // `whole`: bytes are handed on as they come, else one by one.
  explicit Connection(bool whole)
      : whole_(whole), session_([this](Http2StreamId id, absl::Status status, std::string body) {
          OnDone(id, status, body);
        }) {}

  // False when the connection is over.
  bool Start(size_t request_bytes, int64_t timeout_us) {
    const auto request = std::make_shared<const std::string>(request_bytes, 'r');
    const Http2StreamId id =
        session_.Start("/weft.shard.v1.ShardService/Decode", request, timeout_us);
    if (id == 0) return false;
    WEFT_CHECK(calls_.emplace(id, true).second);
    return true;
  }
  void Cancel(Http2StreamId id) {
    session_.Cancel(id);
    if (const auto call = calls_.find(id); call != calls_.end()) call->second = false;
  }
  void Ping() { session_.Ping(); }
  bool Receive(absl::string_view bytes) {
    if (whole_) return bytes.empty() || session_.Receive(bytes).ok();
    for (const char byte : bytes) {
      if (!session_.Receive(absl::string_view(&byte, 1)).ok()) return false;
    }
    return true;
  }
  bool Output() {
    std::string out;
    return session_.Output(&out).ok();
  }

  // The calls that ended, in order, and whether the peer has shown itself.
  const std::string& ends() const { return ends_; }
  bool ready() const { return session_.ready(); }

 private:
  void OnDone(Http2StreamId id, const absl::Status& status, const std::string& body) {
    const auto call = calls_.find(id);
    WEFT_CHECK(call != calls_.end() && call->second);
    call->second = false;
    WEFT_CHECK_LE(body.size(), kShardMessageBytesMax);
    WEFT_CHECK(status.ok() || body.empty());
    absl::StrAppend(&ends_, id, " ", static_cast<int>(status.code()), " ", body, "\n");
  }

  const bool whole_;
  std::string ends_;
  // By id: it is on its way.
  std::map<Http2StreamId, bool> calls_;
  Http2Session session_;
};

// A frame with the length that it has: header and payload.
std::string Frame(test::FuzzInput& input) {
  const uint8_t type = input.Byte();
  const uint8_t flags = input.Byte();
  const uint8_t stream = input.Byte();
  const absl::string_view payload = input.Piece();
  std::string frame = {0, static_cast<char>(payload.size() >> 8), static_cast<char>(payload.size()),
                       static_cast<char>(type), static_cast<char>(flags)};
  frame.append({0, 0, 0, static_cast<char>(stream)});
  return absl::StrCat(frame, payload);
}

bool Step(test::FuzzInput& input, Connection& connection) {
  switch (input.Byte() % 8) {
    case 0:
      return connection.Receive(input.Piece());
    case 1: {
      const size_t bytes = input.Short();
      return connection.Start(bytes, 1 + input.Short());
    }
    case 2:
      connection.Cancel(input.Byte());
      return true;
    case 3:
      connection.Ping();
      return true;
    case 4:
      return connection.Output();
    default:
      return connection.Receive(Frame(input));
  }
}

// True when the script came to its end.
bool Play(test::FuzzInput input, Connection& connection) {
  if (!connection.Start(10, 1'000'000) || !connection.Output()) return false;
  while (!input.empty()) {
    if (!Step(input, connection)) return false;
  }
  return true;
}

}  // namespace
}  // namespace weft::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weft::router::Connection;
  const weft::test::FuzzInput input(data, size);
  Connection whole(true);
  Connection cut(false);
  const bool over = weft::router::Play(input, whole);
  const bool cut_over = weft::router::Play(input, cut);
  WEFT_CHECK(over || !cut_over);
  // A connection that breaks does so at once where the bytes come one by one.
  WEFT_CHECK_EQ(whole.ends().substr(0, cut.ends().size()), cut.ends());
  // nghttp2 counts the pieces of a CONTINUATION's head as if they were frames, and breaks sooner.
  if (cut_over) {
    WEFT_CHECK_EQ(whole.ends(), cut.ends());
    WEFT_CHECK_EQ(whole.ready(), cut.ready());
  }
  return 0;
}
