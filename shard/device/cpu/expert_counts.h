// The rows of each expert on the CPU: plain counters. The device thread adds, once a step and layer
// for each expert that has rows; any thread reads.

#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "shard/expert_load.h"
#include "shard/model/decoder_spec.h"

namespace weft::shard {

class ExpertCounts : public ExpertLoad {
 public:
  explicit ExpertCounts(const DecoderSpec& spec);

  // REQUIRES: the layer has experts.
  void Add(uint32_t layer, uint32_t expert, uint32_t rows) {
    rows_[size_t{place_of_layer_[layer]} * experts() + expert].fetch_add(rows,
                                                                         std::memory_order_relaxed);
  }
  absl::StatusOr<std::vector<uint64_t>> Read() override;

 private:
  // Position in layers().
  std::vector<uint32_t> place_of_layer_;
  std::vector<std::atomic<uint64_t>> rows_;
};

}  // namespace weft::shard
