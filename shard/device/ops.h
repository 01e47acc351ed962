// What the one forward (shard/model/decoder.cc) asks of a device. Each call is one operation over
// all rows of a step; a row is one token. Weights, KV pool and activations live on the device and
// are named here by role, never by pointer: model code cannot read them. Calls are made by the
// device thread, in one order on all ranks (invariant rank.same); an accelerator may run them
// later, in that order. Implemented by shard/device/cpu and shard/device/cuda.
//
// Activations of a step, all [rows, ...] and taken at load:
//   residual   float32 [hidden]
//   normed     activation type [hidden]: input of qkv, gate-up and head
//   query, key, value   float32, heads of this rank * head_dim
//   attention  activation type [query heads of this rank * head_dim]: input of output projection
//   mlp        activation type [MLP columns of this rank]: input of the down projection
//   logits     float32 [vocabulary slice], of the rows that sample

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "shard/step_batch.h"

namespace weft::shard {

enum class Norm : uint8_t { kAttention, kMlp, kFinal };

class Ops {
 public:
  virtual ~Ops() = default;

  // Takes the step's inputs to the device: ids (those of from_last_sample rows are the slot's last
  // sampled token), positions, block tables. `batch` outlives the step.
  virtual absl::Status BeginStep(const StepBatch& batch) = 0;

  // residual = embedding rows of the ids. Vocabulary-parallel, summed over ranks.
  virtual absl::Status Embed() = 0;
  // normed = residual / rms(residual) * weights, rounded to the activation type. `layer` is
  // ignored for kFinal.
  virtual void Normalize(Norm norm, uint32_t layer) = 0;
  // query, key, value = normed times their matrices, plus biases.
  virtual void LinearQkv(uint32_t layer) = 0;
  // Rotates query and key by their positions; appends key and value to the KV cache.
  virtual void RotateAndAppend(uint32_t layer) = 0;
  // attention = causal attention of query over the KV cache, this step's rows included.
  virtual void Attend(uint32_t layer) = 0;
  // residual += attention times the output matrix: partial sums of this rank, all-reduced.
  virtual absl::Status LinearOutput(uint32_t layer) = 0;
  // mlp = silu(normed times gate) * (normed times up).
  virtual void LinearGatedSilu(uint32_t layer) = 0;
  // residual += mlp times the down matrix: partial sums of this rank, all-reduced.
  virtual absl::Status LinearDown(uint32_t layer) = 0;

  // Narrows residual and query to the rows that sample, in the order of their sequences; all later
  // calls work on these. Returns how many there are.
  virtual uint32_t KeepSampledRows() = 0;
  // logits = normed times this rank's rows of the head. A device may gather those of all ranks now.
  virtual absl::Status LinearHead() = 0;
  // Samples one token per kept row, updates the slots' device state and fills slots, ids and
  // logprobs of `result`.
  virtual absl::Status Sample(StepResult* result) = 0;

  // How often this step has read the layers' matrices: 1 unless its rows were split.
  virtual uint32_t WeightPasses() const = 0;
};

}  // namespace weft::shard
