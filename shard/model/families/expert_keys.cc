#include "shard/model/families/expert_keys.h"

#include <algorithm>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace weft::shard {
namespace {

// Where each number of the spec was found, for messages.
struct Places {
  std::string count;
  std::string per_token;
  std::string hidden;
  std::string shared_hidden;
};

absl::Status CheckRange(const std::string& where, uint32_t value, uint32_t min, uint32_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": must be from ", min, " to ", max, ", found ", value));
}

absl::Status CheckExperts(const ExpertsSpec& experts, const Places& where) {
  WEFT_RETURN_IF_ERROR(CheckRange(where.count, experts.count, 1, kExpertsMax));
  WEFT_RETURN_IF_ERROR(CheckRange(where.per_token, experts.per_token, 1,
                                  std::min(experts.count, kExpertsPerTokenMax)));
  WEFT_RETURN_IF_ERROR(CheckRange(where.hidden, experts.hidden, 1, 4 * kHiddenMax));
  return CheckRange(where.shared_hidden, experts.shared_hidden, 0, 4 * kHiddenMax);
}

}  // namespace

absl::Status ExpertsFromHf(const HfObject& root, const ExpertKeys& keys, DecoderSpec* spec) {
  ExpertsSpec& experts = spec->experts;
  const char* const count = root.Has(keys.other_count) ? keys.other_count : keys.count;
  WEFT_ASSIGN_OR_RETURN(experts.count, root.GetUint(count));
  WEFT_ASSIGN_OR_RETURN(experts.per_token, root.GetUint(keys.per_token));
  WEFT_ASSIGN_OR_RETURN(experts.hidden, root.GetUint(keys.hidden));
  experts.renormalised = true;
  if (keys.renormalised != nullptr) {
    WEFT_ASSIGN_OR_RETURN(experts.renormalised, root.GetBoolOr(keys.renormalised, false));
  }
  Places where = {root.Where(count), root.Where(keys.per_token), root.Where(keys.hidden), ""};
  if (keys.shared_hidden != nullptr) {
    WEFT_ASSIGN_OR_RETURN(experts.shared_hidden, root.GetUint(keys.shared_hidden));
    experts.shared_scale = experts.shared_hidden > 0;
    where.shared_hidden = root.Where(keys.shared_hidden);
  }
  return CheckExperts(experts, where);
}

absl::Status PlainLayersFromHf(const HfObject& root, DecoderSpec* spec) {
  if (spec->layers > kLayersMax) return absl::OkStatus();  // refused by ValidateSpec
  WEFT_ASSIGN_OR_RETURN(const std::vector<uint32_t> plain,
                        root.GetUints("mlp_only_layers", kLayersMax));
  WEFT_ASSIGN_OR_RETURN(const uint32_t step, root.GetUintOr("decoder_sparse_step", 1));
  WEFT_RETURN_IF_ERROR(CheckRange(root.Where("decoder_sparse_step"), step, 1, kLayersMax));
  std::vector<bool> layers;
  for (uint32_t layer = 0; layer < spec->layers; ++layer) {
    layers.push_back(absl::c_linear_search(plain, layer) || (layer + 1) % step != 0);
  }
  if (!absl::c_linear_search(layers, false)) {
    return root.Bad("mlp_only_layers", "leaves no layer its experts");
  }
  if (absl::c_linear_search(layers, true)) spec->experts.plain_layers = std::move(layers);
  return absl::OkStatus();
}

absl::Status SharedExpertsFromHf(const HfObject& root, const char* key, DecoderSpec* spec) {
  WEFT_ASSIGN_OR_RETURN(const uint32_t count, root.GetUintOr(key, 0));
  WEFT_RETURN_IF_ERROR(
      CheckRange(root.Where(key), count, 0, 4 * kHiddenMax / spec->experts.hidden));
  spec->experts.shared_hidden = count * spec->experts.hidden;
  return absl::OkStatus();
}

absl::Status FirstLayersPlain(const HfObject& root, const char* key, uint32_t otherwise,
                              DecoderSpec* spec) {
  if (spec->layers == 0 || spec->layers > kLayersMax) return absl::OkStatus();  // as above
  WEFT_ASSIGN_OR_RETURN(const uint32_t plain, root.GetUintOr(key, otherwise));
  WEFT_RETURN_IF_ERROR(CheckRange(root.Where(key), plain, 0, spec->layers - 1));
  if (plain == 0) return absl::OkStatus();
  spec->experts.plain_layers.assign(spec->layers, false);
  std::fill_n(spec->experts.plain_layers.begin(), plain, true);
  return absl::OkStatus();
}

absl::Status ExpertGroupsFromHf(const HfObject& root, DecoderSpec* spec) {
  ExpertsSpec& experts = spec->experts;
  WEFT_ASSIGN_OR_RETURN(experts.groups, root.GetUint("n_group"));
  WEFT_ASSIGN_OR_RETURN(experts.groups_taken, root.GetUint("topk_group"));
  WEFT_RETURN_IF_ERROR(CheckRange(root.Where("n_group"), experts.groups, 1,
                                  std::min(kExpertGroupsMax, experts.count / experts.group_best)));
  if (experts.count % experts.groups != 0) {
    return root.Bad("n_group", absl::StrCat("must divide the ", experts.count, " experts, found ",
                                            experts.groups));
  }
  const uint32_t size = experts.count / experts.groups;
  const uint32_t least = (experts.per_token + size - 1) / size;
  return CheckRange(root.Where("topk_group"), experts.groups_taken, least, experts.groups);
}

absl::Status ExpertsFromGguf(const GgufKeys& keys, bool renormalised, DecoderSpec* spec) {
  ExpertsSpec& experts = spec->experts;
  WEFT_ASSIGN_OR_RETURN(experts.count, keys.UintOr("expert_count", 0));
  if (experts.count == 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(experts.per_token, keys.UintOr("expert_used_count", 0));
  WEFT_ASSIGN_OR_RETURN(experts.hidden,
                        keys.UintOr("expert_feed_forward_length", spec->mlp_hidden));
  WEFT_ASSIGN_OR_RETURN(experts.shared_hidden, keys.UintOr("expert_shared_feed_forward_length", 0));
  experts.shared_scale = experts.shared_hidden > 0;
  experts.renormalised = renormalised;
  return CheckExperts(experts, {keys.Where("expert_count"), keys.Where("expert_used_count"),
                                keys.Where("expert_feed_forward_length"),
                                keys.Where("expert_shared_feed_forward_length")});
}

}  // namespace weft::shard
