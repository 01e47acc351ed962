#include "shard/weights/slice_plan.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace weft::shard {
namespace {

// Part `rank` of `count` things in contiguous parts whose sizes differ by at most one; the larger
// parts come first, or last.
Range EvenPart(uint32_t count, Rank rank, uint32_t world, bool larger_first) {
  const uint32_t base = count / world;
  const uint32_t extra = count % world;
  const auto begin_of = [&](uint32_t part) {
    const uint32_t before =
        larger_first ? std::min(part, extra) : part - std::min(part, world - extra);
    return part * base + before;
  };
  return {begin_of(rank), begin_of(rank + 1)};
}

}  // namespace

absl::StatusOr<SlicePlan> MakeSlicePlan(const DecoderSpec& spec, Rank rank, uint32_t world,
                                        uint32_t mlp_multiple) {
  if (world == 0 || rank >= world) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is outside a group of ", world, " shards"));
  }
  // The widths of all that is cut as MLPs are.
  std::vector<uint32_t> widths;
  if (spec.HasPlainMlp()) widths.push_back(spec.mlp_hidden);
  if (spec.experts.count > 0) {
    widths.push_back(spec.experts.hidden);
    if (spec.experts.shared_hidden > 0) widths.push_back(spec.experts.shared_hidden);
  }
  for (const uint32_t width : widths) {
    if (mlp_multiple != 0 && width % mlp_multiple == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the MLP's ", width, " columns cannot be cut at multiples of ", mlp_multiple));
  }
  const uint32_t mlp_blocks = *absl::c_min_element(widths) / mlp_multiple;
  const uint32_t world_max = std::min({spec.heads, mlp_blocks, spec.vocab});
  if (world > world_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        world, " shards are too many: the model has ", spec.heads, " query heads and ", mlp_blocks,
        " MLP blocks of ", mlp_multiple, " columns; 1 to ", world_max, " shards would work"));
  }
  SlicePlan plan;
  plan.rank = rank;
  plan.world = world;
  plan.heads = EvenPart(spec.heads, rank, world, /*larger_first=*/true);
  const uint32_t group = spec.heads / spec.kv_heads;
  plan.kv_heads = {plan.heads.begin / group, (plan.heads.end - 1) / group + 1};
  for (uint32_t head = plan.heads.begin; head < plan.heads.end; ++head) {
    plan.kv_head_of.push_back(head / group - plan.kv_heads.begin);
  }
  // The ranks with fewer heads take what is left over of the rest.
  const auto columns_of = [&](uint32_t width) {
    const Range blocks = EvenPart(width / mlp_multiple, rank, world, /*larger_first=*/false);
    return Range{blocks.begin * mlp_multiple, blocks.end * mlp_multiple};
  };
  if (spec.HasPlainMlp()) plan.mlp = columns_of(spec.mlp_hidden);
  if (spec.experts.count > 0) {
    plan.expert = columns_of(spec.experts.hidden);
    plan.shared = columns_of(spec.experts.shared_hidden);
  }
  plan.vocab = EvenPart(spec.vocab, rank, world, /*larger_first=*/false);
  return plan;
}

TensorSlice SliceOf(const DecoderParam& param, const DecoderSpec& spec, const SlicePlan& plan) {
  TensorSlice slice = {0, param.shape[0], 0, param.shape.size() == 2 ? param.shape[1] : 1};
  const auto rows = [&slice](Range range, uint64_t unit) {
    slice.row_begin = range.begin * unit;
    slice.row_end = range.end * unit;
  };
  const auto columns = [&slice](Range range, uint64_t unit) {
    slice.column_begin = range.begin * unit;
    slice.column_end = range.end * unit;
  };
  switch (param.split) {
    case Split::kWhole:
      break;
    case Split::kVocabRows:
      rows(plan.vocab, 1);
      break;
    case Split::kHeadRows:
      rows(plan.heads, param.shape[0] / spec.heads);
      break;
    case Split::kKvHeadRows:
      rows(plan.kv_heads, param.shape[0] / spec.kv_heads);
      break;
    case Split::kHeads:
      rows(plan.heads, 1);
      break;
    case Split::kHeadColumns:
      columns(plan.heads, param.shape[1] / spec.heads);
      break;
    case Split::kMlpRows:
      rows(plan.mlp, 1);
      break;
    case Split::kMlpColumns:
      columns(plan.mlp, 1);
      break;
    case Split::kSharedRows:
      rows(plan.shared, 1);
      break;
    case Split::kSharedColumns:
      columns(plan.shared, 1);
      break;
    case Split::kExpertRows:
      rows(plan.expert, 1);
      break;
    case Split::kExpertColumns:
      columns(plan.expert, 1);
      break;
  }
  return slice;
}

}  // namespace weft::shard
