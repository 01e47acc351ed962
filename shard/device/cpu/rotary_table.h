// Cosines and sines of rotary embedding for all positions of the context, computed the first time a
// position is used, in float32 as transformers does: angle = position * inverse frequency, both
// times the spec's attention factor. Owned by CpuOps, extended by the device thread only, between
// the regions in which compute threads read it.

#pragma once

#include <cstdint>
#include <vector>

#include "common/ids.h"
#include "shard/model/decoder_spec.h"

namespace weft::shard {

class RotaryTable {
 public:
  // `cosines` and `sines` hold context * dims / 2 floats each and outlive the table.
  RotaryTable(const RopeSpec& rope, uint32_t context_tokens, float* cosines, float* sines);

  // Makes positions 0 .. end - 1 available; end <= context.
  void Extend(uint32_t end);

  const float* cosines(Position position) const { return cosines_ + uint64_t{position} * pairs_; }
  const float* sines(Position position) const { return sines_ + uint64_t{position} * pairs_; }

 private:
  // Positions are computed in pages, so that a decoding sequence rarely computes any.
  static constexpr uint32_t kPageTokens = 64;

  const std::vector<float> inverse_frequencies_;
  const float factor_;
  const uint32_t pairs_;
  const uint32_t context_tokens_;
  float* const cosines_;
  float* const sines_;
  uint32_t end_ = 0;
};

}  // namespace weft::shard
