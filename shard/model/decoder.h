// The one forward of weft: embedding, layers, head and sampling of a step, written once against Ops
// and driven by DecoderSpec. Owned by a model runner, called by its device thread. Holds no
// weights, no activations and no state between steps.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "shard/device/ops.h"
#include "shard/model/decoder_spec.h"
#include "shard/step_batch.h"

namespace weft::shard {

class Decoder {
 public:
  // Both outlive the decoder.
  Decoder(const DecoderSpec& spec, Ops& ops) : spec_(spec), ops_(ops) {}

  // Runs a step with at least one sequence and fills `result` except its timings. An error leaves
  // device state undefined: the epoch ends (invariant scope.one).
  absl::Status Run(const StepBatch& batch, StepResult* result);
  // The part between Ops::BeginStep and Ops::Sample, which the caller calls: up to the logits of
  // `*rows_kept` rows; with 0 there is nothing to sample.
  absl::Status Forward(StepResult* result, uint32_t* rows_kept);

 private:
  // Attention half of a layer: residual += output(attention(norm(residual))). `*rows_kept` tells
  // after the last layer's key and value are stored how many rows go on.
  absl::Status Attention(uint32_t layer, uint32_t* rows_kept);
  // MLP half of a layer: residual += down(silu(gate) * up).
  absl::Status Mlp(uint32_t layer);

  const DecoderSpec& spec_;
  Ops& ops_;
};

}  // namespace weft::shard
