// Bytes as a client might send them: however they are cut, the reader sees the same requests and
// the same refusal, and holds no more than its limits.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "common/check.h"
#include "router/doors/http/request_reader.h"

namespace weft::router {
namespace {

constexpr RequestReader::Limits kLimits = {1024, 4096};

// Methods, targets and bodies of all requests, and the status of the refusal.
std::string ReadAll(absl::string_view bytes, size_t piece) {
  auto budget = std::make_shared<BodyBudget>(1u << 20);
  RequestReader reader(kLimits, budget);
  std::string seen;
  std::string held;
  while (!bytes.empty()) {
    const size_t size = std::min(piece, bytes.size());
    held.append(bytes.data(), size);
    bytes.remove_prefix(size);
    absl::string_view input = held;
    RequestReader::Event event = RequestReader::Event::kHead;
    while (event != RequestReader::Event::kMore) {
      event = reader.Next(&input);
      WEFT_CHECK_LE(budget->used(), 4 * kLimits.body_bytes_max);
      if (event == RequestReader::Event::kRefused) {
        return seen + std::to_string(reader.refusal().status);
      }
      if (event == RequestReader::Event::kRequest) {
        seen += reader.head().path + " " + reader.TakeBody() + "\n";
        reader.Begin();
        WEFT_CHECK_EQ(budget->used(), size_t{0});
      }
    }
    WEFT_CHECK(input.empty());
    held.clear();
  }
  return seen;
}

}  // namespace
}  // namespace weft::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = weft::router::ReadAll(bytes, std::max<size_t>(size, 1));
  WEFT_CHECK(weft::router::ReadAll(bytes, 1) == whole);
  WEFT_CHECK(weft::router::ReadAll(bytes, 1 + size / 3) == whole);
  return 0;
}
