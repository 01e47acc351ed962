// The flags on types, pool and limits that weft-shard and `weft inspect` share: one text, one range
// and one refusal for both. Main thread.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/flags.h"
#include "shard/kv/memory_plan.h"

namespace weft::shard {

// As they are typed.
struct MemoryTexts {
  std::string dtype = "auto";
  std::string kv_dtype = "auto";
  std::string kv_memory = "auto";
  std::string memory_fraction = "0.9";
  uint32_t running_max = 0;
  uint32_t step_tokens_max = 0;
};

// Declares them on `flags`, filled into *texts (which must outlive the parse).
void DeclareMemoryFlags(Flags& flags, MemoryTexts* texts);

// With the defaults of the CPU or of CUDA. INVALID_ARGUMENT names the flag, what it was and what it
// may be. Leaves `deterministic` and `threads` as they are by default.
absl::StatusOr<MemoryFlags> ResolveMemory(const MemoryTexts& texts, bool cuda);

// "1073741824", "512MiB", "1.5GiB": bytes. INVALID_ARGUMENT otherwise.
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);

// INVALID_ARGUMENT naming flag, value and range when `value` is outside of it, or no number.
template <typename T>
absl::Status CheckRange(const char* name, T value, T least, T most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, ": ", value, " is not in ", least, " .. ", most));
}

}  // namespace weft::shard
