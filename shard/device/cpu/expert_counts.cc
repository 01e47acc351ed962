#include "shard/device/cpu/expert_counts.h"

namespace weft::shard {

ExpertCounts::ExpertCounts(const DecoderSpec& spec)
    : ExpertLoad(spec.LayersWithExperts(), spec.experts.count),
      place_of_layer_(spec.layers),
      rows_(layers().size() * experts()) {
  for (uint32_t place = 0; place < layers().size(); ++place) {
    place_of_layer_[layers()[place]] = place;
  }
}

absl::StatusOr<std::vector<uint64_t>> ExpertCounts::Read() {
  std::vector<uint64_t> out;
  out.reserve(rows_.size());
  for (const std::atomic<uint64_t>& rows : rows_) {
    out.push_back(rows.load(std::memory_order_relaxed));
  }
  return out;
}

}  // namespace weft::shard
