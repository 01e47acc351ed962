#include "shard/kv/memory_texts.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "common/limits.h"
#include "common/status.h"

namespace weft::shard {
namespace {

constexpr double kFractionLeast = 0.05;
constexpr double kFractionMost = 0.99;

absl::StatusOr<NumberType> ParseType(const char* name, absl::string_view text, bool float16) {
  const absl::StatusOr<NumberType> type = ParseNumberType(text);
  if (type.ok() && (float16 || *type != NumberType::kFloat16)) return type;
  return absl::InvalidArgumentError(absl::StrCat("--", name, ": \"", text,
                                                 "\" is not one of auto, float32, bfloat16",
                                                 float16 ? ", float16" : ""));
}

absl::StatusOr<double> ParseFraction(const std::string& text) {
  double value = 0;
  if (absl::SimpleAtod(text, &value) && value >= kFractionLeast && value <= kFractionMost) {
    return value;
  }
  return absl::InvalidArgumentError(absl::StrCat("--memory-fraction: \"", text, "\" is not in ",
                                                 kFractionLeast, " .. ", kFractionMost));
}

}  // namespace

void DeclareMemoryFlags(Flags& flags, MemoryTexts* texts) {
  flags.Add("dtype", &texts->dtype, "Activations: auto, float32 or bfloat16");
  flags.Add("kv-dtype", &texts->kv_dtype, "KV cache: auto, float32, float16 or bfloat16");
  flags.Add("kv-memory", &texts->kv_memory,
            "KV pool of all ranks of this host, bytes (KiB, MiB, GiB); auto = 1GiB on the CPU or "
            "what fits into memory, all that --memory-fraction leaves on CUDA");
  flags.Add("memory-fraction", &texts->memory_fraction,
            "Share of a GPU's memory that may be in use, 0.05 .. 0.99");
  flags.Add("running-max", &texts->running_max,
            "Sequences of the running batch, 1 .. 1024; 0 = 64 on the CPU, 512 on CUDA, at most "
            "--step-tokens-max");
  flags.Add("step-tokens-max", &texts->step_tokens_max,
            "Tokens of one step, running-max .. 16384; 0 = 512 on the CPU, 8192 on CUDA");
}

absl::StatusOr<MemoryFlags> ResolveMemory(const MemoryTexts& texts, bool cuda) {
  MemoryFlags memory;
  WEFT_ASSIGN_OR_RETURN(memory.dtype, ParseType("dtype", texts.dtype, /*float16=*/false));
  WEFT_ASSIGN_OR_RETURN(memory.kv_dtype, ParseType("kv-dtype", texts.kv_dtype, /*float16=*/true));
  if (texts.kv_memory != "auto") {
    absl::StatusOr<uint64_t> kv_memory = ParseBytes(texts.kv_memory);
    if (!kv_memory.ok()) return Annotate(kv_memory.status(), "--kv-memory");
    memory.kv_memory_bytes = *kv_memory;
    memory.kv_memory_asked = true;
  } else if (cuda) {
    memory.kv_memory_bytes = 0;
  }
  WEFT_ASSIGN_OR_RETURN(memory.memory_fraction, ParseFraction(texts.memory_fraction));
  memory.running_max = texts.running_max;
  if (memory.running_max == 0) memory.running_max = cuda ? kRunningDefaultCuda : kRunningDefault;
  WEFT_RETURN_IF_ERROR(CheckRange("running-max", memory.running_max, 1u, kRunningMax));
  memory.step_tokens_max = texts.step_tokens_max;
  if (memory.step_tokens_max == 0) {
    memory.step_tokens_max =
        std::max(cuda ? kStepTokensDefaultCuda : kStepTokensDefault, memory.running_max);
  }
  // Who names the step's limit alone need not know the batch's.
  if (texts.running_max == 0) {
    memory.running_max = std::min(memory.running_max, memory.step_tokens_max);
  }
  WEFT_RETURN_IF_ERROR(
      CheckRange("step-tokens-max", memory.step_tokens_max, memory.running_max, kStepTokensMax));
  return memory;
}

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  struct Unit {
    const char* suffix;
    double bytes;
  };
  double scale = 1.0;
  absl::string_view number = text;
  for (const Unit& unit :
       {Unit{"KiB", 1024.0}, Unit{"MiB", 1048576.0}, Unit{"GiB", 1073741824.0}}) {
    if (!absl::EndsWith(text, unit.suffix)) continue;
    number.remove_suffix(3);
    scale = unit.bytes;
  }
  number = absl::StripAsciiWhitespace(number);
  double value = 0.0;
  if (!absl::SimpleAtod(number, &value) || !(value > 0.0) || !(value * scale <= 1e18)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a number of bytes; write 1073741824, 512MiB or 1GiB"));
  }
  return static_cast<uint64_t>(std::llround(value * scale));
}

}  // namespace weft::shard
