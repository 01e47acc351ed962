// Fuzz target: what a part of a recording may say behind right checksums. It is played on behind
// differences, as a recording that was made with care would be. Nothing in it may lead the
// scheduler to break its invariants, which are checked after each record.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "common/limits.h"
#include "router/recording/player.h"
#include "tests/router/recording/change_records.h"

// libFuzzer's changes of bytes; not there where ctest runs the target without it.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t* data, size_t size,
                                                         size_t size_max);

namespace weft::router::recording {
namespace {

// So that an input costs milliseconds.
constexpr PlayerLimits kSmall = {.pool_tokens = 1u << 16,
                                 .pool_blocks = 1u << 12,
                                 .context_tokens = 1u << 14,
                                 .prompt_tokens = 1u << 16,
                                 .waiting = 1u << 13};

void Play(absl::string_view payload) {
  ReplayReport report;
  Player player(&report, kSmall);
  player.PlayOnForTest();
  const absl::Status status = player.Play(1, payload);
  // What is wrong is said with its place.
  WEFT_CHECK(status.ok() || absl::string_view(status.message()).substr(0, 5) == "part ");
}

}  // namespace
}  // namespace weft::router::recording

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::router::recording::Play({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  std::mt19937 random(seed);
  if (random() % 4 == 0) return LLVMFuzzerMutate(data, size, size_max);
  const std::string changed =
      weft::router::recording::ChangeRecords({reinterpret_cast<const char*>(data), size}, random);
  if (changed.empty() || changed.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
