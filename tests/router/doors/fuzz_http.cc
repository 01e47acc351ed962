// Fuzz target: bytes as a client might send them. However they are cut, the reader sees the same
// requests and the same refusal, and holds no more than its limits; a request that it took, written
// in the plainest way, is read as the same.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "router/doors/http/request_reader.h"

namespace weft::router {
namespace {

constexpr RequestReader::Limits kLimits = {1024, 4096};

constexpr const char* kMethods[] = {"GET", "HEAD", "POST", "OPTIONS", "PUT"};

// What a request says, in words; `plain` has it as a client that takes no liberties writes it.
std::string Words(const RequestHead& head, const std::string& body, std::string* plain) {
  const std::pair<const char*, const std::string*> fields[] = {
      {"host", &head.host},
      {"x-request-id", &head.request_id},
      {"authorization", &head.authorization},
      {"x-api-key", &head.api_key},
      {"content-type", &head.content_type},
      {"content-encoding", &head.content_encoding},
      {"origin", &head.origin},
      {"traceparent", &head.traceparent},
      {"access-control-request-method", &head.preflight_method},
      {"access-control-request-headers", &head.preflight_headers}};
  const char* const method = kMethods[static_cast<size_t>(head.method)];
  *plain = absl::StrCat(method, " ", head.path, head.query.empty() ? "" : "?", head.query,
                        " HTTP/1.1\r\n");
  std::string words = absl::StrCat(method, " ", head.path, "?", head.query, "\n");
  for (const auto& [name, raw] : fields) {
    // Of several lines joined the last may be empty.
    const absl::string_view value = absl::StripAsciiWhitespace(*raw);
    absl::StrAppend(&words, name, ": ", value, "\n");
    if (!value.empty()) absl::StrAppend(plain, name, ": ", value, "\r\n");
  }
  absl::StrAppend(plain, head.host.empty() ? "host: \r\n" : "", "content-length: ", body.size(),
                  "\r\n", head.keep_alive ? "" : "connection: close\r\n",
                  head.expect_continue ? "expect: 100-continue\r\n" : "", "\r\n", body);
  return absl::StrCat(words, head.keep_alive, head.expect_continue, body, "\n");
}

struct Seen {
  // Of all requests, and the status of the refusal.
  std::string words;
  // The requests written anew.
  std::vector<std::string> plain;
};

Seen ReadAll(absl::string_view bytes, size_t piece) {
  auto budget = std::make_shared<BodyBudget>(1u << 20);
  RequestReader reader(kLimits, budget);
  Seen seen;
  std::string held;
  while (!bytes.empty()) {
    const size_t size = std::min(piece, bytes.size());
    held.assign(bytes.data(), size);
    bytes.remove_prefix(size);
    absl::string_view input = held;
    RequestReader::Event event = RequestReader::Event::kHead;
    while (event != RequestReader::Event::kMore) {
      event = reader.Next(&input);
      WEFT_CHECK_LE(budget->used(), 4 * kLimits.body_bytes_max);
      if (event == RequestReader::Event::kRefused) {
        const int status = reader.refusal().status;
        WEFT_CHECK(status >= 400 && status <= 505 && !reader.refusal().message.empty());
        WEFT_CHECK_EQ(budget->used(), size_t{0});
        absl::StrAppend(&seen.words, status);
        return seen;
      }
      if (event == RequestReader::Event::kRequest) {
        const std::string body = reader.TakeBody();
        WEFT_CHECK_LE(body.size(), kLimits.body_bytes_max);
        seen.words += Words(reader.head(), body, &seen.plain.emplace_back());
        reader.Begin();
        WEFT_CHECK_EQ(budget->used(), size_t{0});
      }
    }
    WEFT_CHECK(input.empty());
  }
  return seen;
}

// Only what the limits take can be read again: a plain head may be longer than the one that came.
void CheckPlain(const Seen& seen) {
  for (const std::string& plain : seen.plain) {
    if (plain.find("\r\n\r\n") + 4 > kLimits.header_bytes_max) continue;
    const Seen again = ReadAll(plain, plain.size());
    WEFT_CHECK_EQ(again.plain.size(), size_t{1});
    WEFT_CHECK_EQ(again.plain[0], plain);
  }
}

}  // namespace
}  // namespace weft::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const weft::router::Seen whole = weft::router::ReadAll(bytes, std::max<size_t>(size, 1));
  WEFT_CHECK_EQ(weft::router::ReadAll(bytes, 1).words, whole.words);
  WEFT_CHECK_EQ(weft::router::ReadAll(bytes, 1 + size / 3).words, whole.words);
  weft::router::CheckPlain(whole);
  return 0;
}
