#include "tests/router/doors/grpc_flood.h"

#include "absl/strings/str_cat.h"

namespace weft::router {
namespace {

std::string Number(uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

std::string Frame(char type, char flags, uint32_t stream, const std::string& body) {
  return absl::StrCat(Number(static_cast<uint32_t>(body.size()), 3), std::string{type, flags},
                      Number(stream, 4), body);
}

// A header field as HPACK's literal without indexing: nothing is remembered, each costs in full.
std::string Field(const std::string& name, const std::string& value) {
  return absl::StrCat(std::string(1, '\0'), Number(static_cast<uint32_t>(name.size()), 1), name,
                      Number(static_cast<uint32_t>(value.size()), 1), value);
}

// Indexed fields 3 and 6: POST, http.
std::string CallHeaders(const std::string& path) {
  return absl::StrCat("\x83\x86", Field(":path", path), Field(":authority", "localhost"),
                      Field("content-type", "application/grpc"), Field("te", "trailers"));
}

}  // namespace

std::string Http2Preface() {
  return absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Frame(4, 0, 0, ""));
}

std::string Http2PrefaceWithWindow(uint32_t bytes) {
  constexpr uint32_t kInitialWindowSize = 4;
  constexpr uint32_t kDefaultWindow = 65'535;
  std::string preface =
      absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                   Frame(4, 0, 0, absl::StrCat(Number(kInitialWindowSize, 2), Number(bytes, 4))));
  if (bytes > kDefaultWindow) preface += Frame(8, 0, 0, Number(bytes - kDefaultWindow, 4));
  return preface;
}

std::string Http2Call(uint32_t stream, const std::string& path, const std::string& message) {
  constexpr char kEndHeaders = 4;
  constexpr char kEndStream = 1;
  std::string call = Frame(1, kEndHeaders, stream, CallHeaders(path));
  if (message.empty()) return call;
  return absl::StrCat(
      call, Frame(0, kEndStream, stream,
                  absl::StrCat(std::string(1, '\0'),
                               Number(static_cast<uint32_t>(message.size()), 4), message)));
}

std::string Http2OpenHeaders(uint32_t stream, const std::string& path) {
  return Frame(1, 0, stream, CallHeaders(path));
}

std::string Http2Continuation(uint32_t stream, size_t bytes) {
  std::string fields;
  while (fields.size() < bytes) fields += Field("x-a", std::string(120, 'a'));
  return Frame(9, 0, stream, fields);
}

std::string Http2Reset(uint32_t stream) {
  constexpr uint32_t kCancel = 8;
  return Frame(3, 0, stream, Number(kCancel, 4));
}

std::string Http2ResetCalls(uint32_t first, uint32_t count, const std::string& path,
                            const std::string& message) {
  std::string bytes;
  for (uint32_t i = 0; i < count; ++i) {
    bytes += Http2Call(first + 2 * i, path, message) + Http2Reset(first + 2 * i);
  }
  return bytes;
}

}  // namespace weft::router
