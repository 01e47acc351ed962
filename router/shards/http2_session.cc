#include "router/shards/http2_session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/version.h"

namespace weft::router {
namespace {

// A message's frame: a flag for compression and the length, big-endian.
constexpr size_t kPrefixBytes = 5;
constexpr size_t kBodyBytesMax = kPrefixBytes + kShardMessageBytesMax;
constexpr int64_t kTimeoutDigitsMax = 99'999'999;

std::array<char, kPrefixBytes> Prefix(size_t bytes) {
  return {0, static_cast<char>(bytes >> 24), static_cast<char>(bytes >> 16),
          static_cast<char>(bytes >> 8), static_cast<char>(bytes)};
}

// A status for a message that cannot be; empty when `body` is one whole message.
absl::Status CheckFrame(absl::string_view body) {
  if (body.size() < kPrefixBytes) return absl::InternalError("the answer has no message");
  if (body[0] != 0) return absl::InternalError("the answer is compressed, which was not offered");
  const std::array<char, kPrefixBytes> expected = Prefix(body.size() - kPrefixBytes);
  if (std::memcmp(body.data(), expected.data(), kPrefixBytes) != 0) {
    return absl::InternalError("the answer is not one message");
  }
  return absl::OkStatus();
}

// `grpc-timeout`: at most eight digits and a unit.
std::string TimeoutText(int64_t timeout_us) {
  constexpr std::pair<int64_t, char> kUnitsUs[] = {{1, 'u'}, {1'000, 'm'}, {1'000'000, 'S'}};
  for (const auto& [unit_us, name] : kUnitsUs) {
    if (timeout_us / unit_us <= kTimeoutDigitsMax) {
      return absl::StrCat(timeout_us / unit_us, absl::string_view(&name, 1));
    }
  }
  return absl::StrCat(kTimeoutDigitsMax, "S");
}

// `grpc-message` is percent-encoded; what is not is taken as it stands.
std::string PercentDecoded(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        absl::SimpleHexAtoi(text.substr(i + 1, 2), &value)) {
      out.push_back(static_cast<char>(value));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

// What a reset stream means to the caller (PROTOCOL-HTTP2, "Errors").
absl::Status ResetStatus(uint32_t error) {
  const std::string why = absl::StrCat("the stream was reset: ", nghttp2_http2_strerror(error));
  if (error == NGHTTP2_REFUSED_STREAM) return absl::UnavailableError(why);
  if (error == NGHTTP2_CANCEL) return absl::CancelledError(why);
  if (error == NGHTTP2_ENHANCE_YOUR_CALM) return absl::ResourceExhaustedError(why);
  return absl::InternalError(why);
}

nghttp2_nv Field(absl::string_view name, absl::string_view value) {
  // nghttp2 copies both; its C interface knows no const.
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

struct Http2Session::Hooks {
  static Http2Session& Self(void* user_data) { return *static_cast<Http2Session*>(user_data); }

  static Stream* Find(void* user_data, int32_t id) {
    const auto it = Self(user_data).streams_.find(id);
    return it == Self(user_data).streams_.end() ? nullptr : it->second.get();
  }

  static int OnHeader(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                      size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t,
                      void* user_data) {
    Stream* stream = Find(user_data, frame->hd.stream_id);
    if (stream == nullptr) return 0;
    Self(user_data).OnHeader(*stream, {reinterpret_cast<const char*>(name), name_bytes},
                             {reinterpret_cast<const char*>(value), value_bytes});
    return 0;
  }

  static int OnData(nghttp2_session* session, uint8_t, int32_t id, const uint8_t* data,
                    size_t bytes, void* user_data) {
    Stream* stream = Find(user_data, id);
    if (stream == nullptr) return 0;
    if (stream->body.size() + bytes > kBodyBytesMax) {
      stream->too_long = true;
      return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    }
    stream->body.append(reinterpret_cast<const char*>(data), bytes);
    return 0;
  }

  static int OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
    Http2Session& self = Self(user_data);
    if (frame->hd.type == NGHTTP2_SETTINGS) self.ready_ = true;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
      const nghttp2_goaway& goaway = frame->goaway;
      self.ended_ =
          absl::StrCat("the shard is going away: ", nghttp2_http2_strerror(goaway.error_code), " ",
                       absl::CHexEscape({reinterpret_cast<const char*>(goaway.opaque_data),
                                         goaway.opaque_data_len}));
    }
    return 0;
  }

  // nghttp2 has found the peer at fault. That may cost a stream, or the connection: then it says
  // GOAWAY by itself and reads no more.
  static int OnError(nghttp2_session*, int, const char* message, size_t bytes, void* user_data) {
    Self(user_data).complaint_ = absl::CHexEscape({message, bytes});
    return 0;
  }
  static int OnFrameSent(nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
    Http2Session& self = Self(user_data);
    if (frame->hd.type == NGHTTP2_GOAWAY && self.ended_.empty()) {
      self.ended_ =
          absl::StrCat("the shard broke HTTP/2: ", nghttp2_http2_strerror(frame->goaway.error_code),
                       " ", self.complaint_);
    }
    return 0;
  }

  static int OnClose(nghttp2_session*, int32_t id, uint32_t error, void* user_data) {
    Self(user_data).OnClosed(id, error);
    return 0;
  }

  // Copies the next piece of a framed request.
  static ssize_t OnRead(nghttp2_session*, int32_t, uint8_t* out, size_t room, uint32_t* flags,
                        nghttp2_data_source* source, void*) {
    Stream& stream = *static_cast<Stream*>(source->ptr);
    const std::string& message = *stream.request;
    const std::array<char, kPrefixBytes> prefix = Prefix(message.size());
    size_t count = 0;
    while (count < room && stream.sent < kPrefixBytes) {
      out[count++] = static_cast<uint8_t>(prefix[stream.sent++]);
    }
    const size_t at = stream.sent - kPrefixBytes;
    if (stream.sent >= kPrefixBytes) {
      const size_t piece = std::min(room - count, message.size() - at);
      std::memcpy(out + count, message.data() + at, piece);
      count += piece;
      stream.sent += piece;
    }
    if (stream.sent == kPrefixBytes + message.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(count);
  }
};

Http2Session::Http2Session(DoneSink on_done, Http2StreamId worn_at)
    : on_done_(std::move(on_done)),
      worn_at_(static_cast<uint32_t>(worn_at)),
      agent_(absl::StrCat("weft-router/", Version())) {
  nghttp2_session_callbacks* callbacks = nullptr;
  WEFT_CHECK_EQ(nghttp2_session_callbacks_new(&callbacks), 0);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, &Hooks::OnHeader);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, &Hooks::OnData);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, &Hooks::OnFrame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, &Hooks::OnClose);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, &Hooks::OnFrameSent);
  nghttp2_session_callbacks_set_error_callback2(callbacks, &Hooks::OnError);
  const int made = nghttp2_session_client_new(&session_, callbacks, this);
  nghttp2_session_callbacks_del(callbacks);
  WEFT_CHECK_EQ(made, 0);
  // Windows that hold the largest answer: a shard is trusted, and never waits for one.
  constexpr int32_t kWindowBytes = kBodyBytesMax;
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<uint32_t>(kWindowBytes)}};
  WEFT_CHECK_EQ(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings)),
                0);
  WEFT_CHECK_EQ(nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kWindowBytes),
                0);
}

Http2Session::~Http2Session() { nghttp2_session_del(session_); }

Http2StreamId Http2Session::Start(const std::string& path, const SharedBytes& request,
                                  int64_t timeout_us) {
  if (!ended_.empty() || nghttp2_session_check_request_allowed(session_) == 0) return 0;
  const std::string timeout = TimeoutText(timeout_us);
  const nghttp2_nv fields[] = {
      Field(":method", "POST"),    Field(":scheme", "http"),
      Field(":path", path),        Field(":authority", "localhost"),
      Field("te", "trailers"),     Field("content-type", "application/grpc"),
      Field("user-agent", agent_), Field("grpc-timeout", timeout)};
  auto stream = std::make_unique<Stream>();
  stream->request = request;
  nghttp2_data_provider body;
  body.source.ptr = stream.get();
  body.read_callback = &Hooks::OnRead;
  const int32_t id = nghttp2_submit_request(session_, /*priority=*/nullptr, fields,
                                            std::size(fields), &body, /*stream_user_data=*/nullptr);
  if (id < 0) return 0;
  streams_.emplace(id, std::move(stream));
  return id;
}

void Http2Session::Cancel(Http2StreamId id) {
  const auto it = streams_.find(id);
  if (it == streams_.end()) return;
  it->second->cancelled = true;  // nghttp2 refers to it until the reset is out
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
}

void Http2Session::Ping() { nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr); }

absl::Status Http2Session::Receive(absl::string_view bytes) {
  const ssize_t taken = nghttp2_session_mem_recv(
      session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (taken < 0) {
    return absl::UnavailableError(
        absl::StrCat("malformed HTTP/2: ", nghttp2_strerror(static_cast<int>(taken))));
  }
  // A GOAWAY refuses streams before it is seen itself.
  for (const Http2StreamId id : std::exchange(refused_, {})) {
    on_done_(id,
             ended_.empty() ? ResetStatus(NGHTTP2_REFUSED_STREAM) : absl::UnavailableError(ended_),
             "");
  }
  return CheckAlive();
}

absl::Status Http2Session::CheckAlive() const {
  const bool over =
      nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0;
  if (!over && ended_.empty()) return absl::OkStatus();
  return absl::UnavailableError(ended_.empty() ? "the connection is over" : ended_);
}

bool Http2Session::worn() const { return nghttp2_session_get_next_stream_id(session_) > worn_at_; }

absl::Status Http2Session::Output(std::string* out) {
  while (true) {
    const uint8_t* data = nullptr;
    const ssize_t count = nghttp2_session_mem_send(session_, &data);
    if (count == 0) return CheckAlive();
    if (count < 0) {
      return absl::UnavailableError(
          absl::StrCat("HTTP/2: ", nghttp2_strerror(static_cast<int>(count))));
    }
    out->append(reinterpret_cast<const char*>(data), static_cast<size_t>(count));
  }
}

void Http2Session::OnHeader(Stream& stream, absl::string_view name, absl::string_view value) {
  if (name == ":status") {
    stream.http_status = std::string(value);
  } else if (name == "grpc-status") {
    if (!absl::SimpleAtoi(value, &stream.grpc_status)) stream.grpc_status = -1;
  } else if (name == "grpc-message") {
    stream.grpc_message = PercentDecoded(value);
  }
}

void Http2Session::OnClosed(Http2StreamId id, uint32_t error) {
  auto node = streams_.extract(id);
  if (node.empty() || node.mapped()->cancelled) return;
  if (error == NGHTTP2_REFUSED_STREAM) return refused_.push_back(id);
  Stream& stream = *node.mapped();
  absl::Status status;
  if (stream.too_long) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("the answer is longer than ", kShardMessageBytesMax, " bytes"));
  } else if (stream.grpc_status > 0 &&
             stream.grpc_status <= static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    status = absl::Status(static_cast<absl::StatusCode>(stream.grpc_status), stream.grpc_message);
  } else if (error != NGHTTP2_NO_ERROR) {
    status = ResetStatus(error);
  } else if (stream.grpc_status != 0) {
    status = absl::UnknownError(absl::StrCat("no gRPC status, HTTP status ", stream.http_status));
  } else {
    status = CheckFrame(stream.body);
  }
  std::string body;
  if (status.ok()) {
    body = std::move(stream.body);
    body.erase(0, kPrefixBytes);
  }
  on_done_(id, std::move(status), std::move(body));
}

}  // namespace weft::router
