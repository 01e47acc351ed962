#include "shard/kv/memory_plan.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace weft::shard {
absl::StatusOr<NumberType> ParseNumberType(absl::string_view text) {
  for (NumberType type :
       {NumberType::kAuto, NumberType::kFloat32, NumberType::kBfloat16, NumberType::kFloat16}) {
    if (text == NumberTypeName(type)) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown number type '", text, "'; choose auto, float32, bfloat16 or float16"));
}

const char* NumberTypeName(NumberType type) {
  switch (type) {
    case NumberType::kAuto:
      return "auto";
    case NumberType::kFloat32:
      return "float32";
    case NumberType::kBfloat16:
      return "bfloat16";
    case NumberType::kFloat16:
      return "float16";
  }
  return "unknown";
}

std::string NoKvBlock(uint64_t kv_memory_bytes, uint32_t kv_groups, uint32_t block_tokens,
                      uint64_t block_bytes) {
  const std::string lack = kv_groups == 1 ? std::string("no KV block")
                                          : absl::StrCat("less than one KV block for each of ",
                                                         kv_groups, " groups of layers");
  return absl::StrCat("--kv-memory ", kv_memory_bytes, " bytes hold ", lack, "; one of ",
                      block_tokens, " tokens takes ", block_bytes, " bytes on all ranks together");
}

std::string Describe(const MemoryPlan& plan) {
  const auto mib = [](uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); };
  std::string line = absl::StrCat("memory plan: weights ", mib(plan.weights_bytes), ", workspace ",
                                  mib(plan.workspace_bytes), ", KV pool ", mib(plan.kv_bytes), " (",
                                  plan.kv_tokens(), " tokens",
                                  plan.kv_capped ? ", all that --running-max uses" : "",
                                  "), together ", mib(plan.total_bytes()));
  if (plan.kv_groups.count() > 1) absl::StrAppend(&line, "; ", Describe(plan.kv_groups));
  if (plan.kv_bytes_unlimited > 0) {
    absl::StrAppend(&line, "; the KV pool would be ", mib(plan.kv_bytes_unlimited),
                    " without the limit of memory");
  }
  if (plan.host.bytes > 0) {
    absl::StrAppend(&line, "; all shards and the router ", mib(plan.host_used_bytes), " of ",
                    mib(plan.host.bytes), " ", plan.host.name);
  }
  if (plan.device_bytes == 0) return line;
  absl::StrAppend(&line, " of ", mib(plan.device_bytes), "; in use before ",
                  mib(plan.device_used_bytes), ", left ", mib(plan.left_bytes()));
  return line;
}

}  // namespace weft::shard
