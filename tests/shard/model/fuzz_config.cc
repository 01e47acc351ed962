// Fuzz target: a config.json of any bytes is refused with the file named, or gives a spec within
// the limits, finite numbers, parameters that it counts alike, and shards that share them without a
// gap.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "common/check.h"
#include "common/limits.h"
#include "shard/model/families/registry.h"
#include "shard/weights/slice_plan.h"
#include "tests/support/memory_folder.h"

namespace weft::shard {
namespace {

void CheckSpec(const DecoderSpec& spec) {
  WEFT_CHECK(spec.layers > 0 && spec.layers <= kLayersMax);
  WEFT_CHECK(spec.hidden > 0 && spec.hidden <= kHiddenMax);
  WEFT_CHECK(spec.vocab > 0 && spec.vocab <= kVocabMax);
  WEFT_CHECK(spec.context_tokens > 0 && spec.context_tokens <= kContextTokensMax);
  WEFT_CHECK(spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0);
  WEFT_CHECK(spec.experts.count <= kExpertsMax);
  WEFT_CHECK(std::isfinite(spec.attention_scale) && std::isfinite(spec.norm_epsilon));
  WEFT_CHECK_GT(spec.parameters(), 0u);
  for (uint32_t layer = 0; layer < spec.layers; ++layer) {
    WEFT_CHECK_LT(spec.KindOf(layer), spec.attention_kinds.size());
  }
  for (const AttentionKind& kind : spec.attention_kinds) {
    const std::vector<float> frequencies = RopeInverseFrequencies(kind.rope);
    WEFT_CHECK_EQ(frequencies.size(), kind.rope.dims / 2);
    for (const float frequency : frequencies) WEFT_CHECK(std::isfinite(frequency));
  }
  for (const float slope : AlibiSlopes(spec)) WEFT_CHECK(std::isfinite(slope));
}

void CheckSlices(const DecoderSpec& spec) {
  for (const uint32_t world : {1u, 2u, 3u}) {
    uint32_t heads = 0, vocab = 0, mlp = 0;
    for (Rank rank = 0; rank < world; ++rank) {
      const auto plan = MakeSlicePlan(spec, rank, world, 1);
      if (!plan.ok()) {
        WEFT_CHECK(world > 1 && absl::IsInvalidArgument(plan.status()));
        return;
      }
      WEFT_CHECK(plan->heads.begin == heads && plan->vocab.begin == vocab &&
                 plan->mlp.begin == mlp);
      heads = plan->heads.end;
      vocab = plan->vocab.end;
      mlp = plan->mlp.end;
      WEFT_CHECK_LE(plan->kv_heads.end, spec.kv_heads);
      WEFT_CHECK_EQ(plan->kv_head_of.size(), plan->heads.size());
      for (const uint32_t kv : plan->kv_head_of) WEFT_CHECK_LT(kv, plan->kv_heads.size());
    }
    WEFT_CHECK(heads == spec.heads && vocab == spec.vocab);
  }
}

}  // namespace
}  // namespace weft::shard

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static weft::test::MemoryFolder folder;
  folder.Put("config.json", data, size);
  const auto config = weft::shard::HfConfig::Load(folder.path());
  const absl::Status loaded = config.status();
  if (!loaded.ok()) {
    WEFT_CHECK_MSG(absl::StrContains(loaded.message(), "config.json"), loaded.ToString());
    return 0;
  }
  const auto model = weft::shard::DescribeHfModel(*config);
  if (!model.ok()) {
    WEFT_CHECK_MSG(absl::StrContains(model.status().message(), "config.json"),
                   model.status().ToString());
    return 0;
  }
  weft::shard::CheckSpec(model->spec);
  weft::shard::CheckSlices(model->spec);
  return 0;
}
