// Ops on CPU cores: the kernels of kernels/cpu spread over the compute pool, activations in one
// workspace. Owned by the model runner, called by the device thread. Takes no memory in a step.
//
// Work is split over rows, output tiles or heads, never over the inputs of a sum (invariant
// num.row). A step of few rows is cut over output tiles only; its small operations run on the
// calling thread alone, where they cost less than waking anybody.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/cpu/kernels.h"
#include "shard/comm/communicator.h"
#include "shard/device/cpu/rotary_table.h"
#include "shard/device/cpu/step_rows.h"
#include "shard/device/cpu/weights.h"
#include "shard/device/cpu/workspace.h"
#include "shard/device/host/compute_pool.h"
#include "shard/device/ops.h"
#include "shard/kv/kv_cache.h"
#include "shard/sampling/sampler.h"

namespace weft::shard {

class CpuOps : public Ops {
 public:
  struct Parts {
    const DecoderSpec& spec;
    const SlicePlan& slice;
    const CpuWeights& weights;
    Workspace& workspace;
    KvCache& kv;
    ComputePool& pool;
    Sampler& sampler;
    kernels::cpu::ActivationType activation;
    StepRowsLimits limits;
  };

  // Everything in `parts` outlives the ops.
  explicit CpuOps(const Parts& parts);

  // Begins an epoch: the instruction set and the communicator (outlives the epoch's steps).
  void BeginEpoch(const kernels::cpu::Kernels& kernels, HostCommunicator& communicator);

  absl::Status BeginStep(const StepBatch& batch) override;
  absl::Status Embed() override;
  void Normalize(Norm norm, uint32_t layer) override;
  void LinearQkv(uint32_t layer) override;
  void RotateAndAppend(uint32_t layer) override;
  void Attend(uint32_t layer) override;
  absl::Status LinearOutput(uint32_t layer) override;
  void LinearGatedSilu(uint32_t layer) override;
  absl::Status LinearDown(uint32_t layer) override;
  uint32_t KeepSampledRows() override;
  absl::Status LinearHead() override;
  absl::Status Sample(StepResult* result) override;
  uint32_t WeightPasses() const override;

 private:
  // A matrix and where its outputs go: row r, output n at out + r * stride + n.
  struct LinearPart {
    const CpuMatrix* matrix;
    float* out;
    int64_t stride;
  };
  // Told that columns [begin, end) of a part are there, all rows.
  using Finish = absl::FunctionRef<void(int64_t begin, int64_t end)>;

  // Calls body(begin, end, thread) over [0, rows) in pieces of at least `grain` rows.
  void ForRows(uint32_t rows, uint32_t grain,
               absl::FunctionRef<void(uint32_t, uint32_t, int)> body);
  // The prepared input rows of a matrix with `inputs` inputs.
  kernels::cpu::Activations Input(kernels::cpu::ActivationType type, int64_t inputs) const;
  kernels::cpu::ActivationType InputType(const CpuMatrix& matrix) const;
  // Rounds rows [begin, end) of x to the input types of `matrices`; row `begin` is at x.
  void Prepare(absl::Span<const CpuMatrix* const> matrices, const float* x, int64_t stride,
               uint32_t begin, uint32_t end);
  // Output tiles of one item.
  int64_t ChunkTiles(int64_t tiles) const;
  // Each part's outputs for all rows, biases included. `finish`, when given, is called after each
  // piece, in the same item.
  void RunLinear(absl::Span<const LinearPart> parts, const Finish* finish);
  // One item: tiles [begin, end) of `part`.
  void LinearItem(const LinearPart& part, int64_t tile_begin, int64_t tile_end);
  // residual += all-reduced partial sums of `matrix` times the prepared rows.
  absl::Status LinearAddResidual(const CpuMatrix& matrix);
  void CountPass(absl::Span<const LinearPart> parts);

  const DecoderSpec& spec_;
  const SlicePlan& slice_;
  const CpuWeights& weights_;
  Workspace& ws_;
  KvCache& kv_;
  ComputePool& pool_;
  Sampler& sampler_;
  const kernels::cpu::ActivationType activation_;
  const int64_t query_columns_;
  const int64_t kv_columns_;
  const int64_t qkv_columns_;
  // Query heads of this rank in order, and where those of each KV head begin.
  std::vector<uint32_t> heads_;
  std::vector<uint32_t> heads_begin_;

  StepRows rows_;
  RotaryTable rotary_;
  std::vector<Sampler::Row> sampler_rows_;
  const kernels::cpu::Kernels* kernels_ = nullptr;
  HostCommunicator* communicator_ = nullptr;
  // Tiles of layer matrices multiplied in this step, and how many the layers have.
  uint64_t step_weight_tiles_ = 0;
  uint64_t layer_weight_tiles_ = 0;
};

}  // namespace weft::shard
