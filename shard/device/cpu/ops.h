// Ops on CPU cores: the kernels of kernels/cpu spread over the compute pool, activations in one
// workspace. Owned by the model runner, called by the device thread. Takes no memory in a step.
//
// Work is split over rows, output tiles or heads, never over the inputs of a sum (invariant
// num.row). A step of few rows is cut over output tiles only; its small operations run on the
// calling thread alone, where they cost less than waking anybody. The plan is the same for steps of
// all sizes.

#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/cpu/kernels.h"
#include "shard/comm/communicator.h"
#include "shard/device/cpu/expert_counts.h"
#include "shard/device/cpu/expert_routes.h"
#include "shard/device/cpu/rotary_table.h"
#include "shard/device/cpu/step_rows.h"
#include "shard/device/cpu/weights.h"
#include "shard/device/cpu/workspace.h"
#include "shard/device/host/compute_pool.h"
#include "shard/device/ops.h"
#include "shard/kv/kv_cache.h"
#include "shard/model/plan_rules.h"
#include "shard/sampling/sampler.h"
#include "shard/sampling/scorer.h"

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
    Scorer& scorer;
    kernels::cpu::ActivationType activation;
    StepRowsLimits limits;
    // Joins of operations that it may make (cpu/planner.h).
    absl::Span<const PlanRule* const> rules;
    // Set by any thread: no further operation of the step is begun.
    const std::atomic<bool>& aborted;
  };

  // Everything in `parts` outlives the ops.
  explicit CpuOps(const Parts& parts);

  // Begins an epoch: the instruction set and the communicator (outlives the epoch's steps).
  void BeginEpoch(const kernels::cpu::Kernels& kernels, HostCommunicator& communicator);

  absl::Status BeginStep(const StepBatch& batch) override;
  StepPlan plan() const override { return {plan_.body, plan_.tail}; }
  uint32_t sampled_rows() const override { return static_cast<uint32_t>(rows_.sampled().size()); }
  uint32_t score_slices() const override;
  absl::Status BeginSlice(uint32_t slice) override;
  absl::Status ScoreSlice(StepResult* result) override;
  absl::Status Execute(const PlanOp& op, PlanPart part) override;
  absl::Status Sample(StepResult* result) override;
  uint32_t WeightPasses() const override;
  // Keys and values of this step that float16 could not hold (StepResult::kv_saturated).
  uint64_t kv_saturated() const { return kv_saturated_.load(std::memory_order_relaxed); }
  // From the next step on rows of experts are added to `counts` (outlives those steps); null: they
  // are not.
  void CountExperts(ExpertCounts* counts) { expert_counts_ = counts; }

 private:
  // A matrix, the buffer that it reads and where its outputs go: row r, output n at
  // out + r * stride + n.
  struct LinearPart {
    const CpuMatrix* matrix;
    Buffer in;
    float* out;
    int64_t stride;
    bool adds_bias;
  };
  // The matrices behind one name of the plan: query, key and value are three on this device, gate
  // and up two, and what reads the norm before experts is up to six.
  struct MatrixGroup {
    static constexpr size_t kMax = 6;
    const CpuMatrix* matrices[kMax] = {};
    size_t count = 0;
    absl::Span<const CpuMatrix* const> span() const { return {matrices, count}; }
  };
  // Rows that one item of a row-wise operation takes at least: about a microsecond of work.
  static constexpr uint32_t kRowGrain = 8;
  // Told that columns [begin, end) of a part are there, all rows.
  using Finish = absl::FunctionRef<void(int64_t begin, int64_t end)>;

  // Calls body(begin, end, thread) over [0, rows) in pieces of at least `grain` rows.
  void ForRows(uint32_t rows, uint32_t grain,
               absl::FunctionRef<void(uint32_t, uint32_t, int)> body);
  // The rows of `buffer` as they are prepared for matrices with `inputs` inputs.
  kernels::cpu::Activations Input(Buffer buffer, kernels::cpu::ActivationType type,
                                  int64_t inputs) const;
  // `rows` rows of `prepared`, likewise.
  static kernels::cpu::Activations View(const Workspace::Prepared& prepared,
                                        kernels::cpu::ActivationType type, int64_t rows,
                                        int64_t inputs);
  kernels::cpu::ActivationType InputType(const CpuMatrix& matrix) const;
  // Rounds rows [begin, end) of x, which is `buffer`, to the input types of `matrices`; row `begin`
  // is at x.
  void Prepare(Buffer buffer, absl::Span<const CpuMatrix* const> matrices, const float* x,
               int64_t stride, uint32_t begin, uint32_t end);
  // The same for all rows.
  void PrepareRows(Buffer buffer, const MatrixGroup& readers, const float* x, int64_t stride);
  MatrixGroup MatricesOf(Matrix matrix, uint32_t layer) const;
  MatrixGroup ReadersOfExperts(const CpuLayer& weights) const;
  // Where the first element of a buffer's row 0 lies.
  float* At(Buffer buffer);
  // Elements of a row of the residual, or of kEmbedded.
  int64_t ColumnsOf(Buffer buffer) const {
    return buffer == Buffer::kEmbedded ? spec_.embedding_dim : spec_.hidden;
  }
  // The parts of a product whose outputs go to `out`, a buffer of its own width.
  absl::Span<const LinearPart> LinearParts(const PlanOp& op, float* out, bool adds_bias);

  void Embed(const PlanOp& op);
  // Adds the rows of the position table to rows of `hidden` elements.
  void AddPositions(float* rows);
  void Round(const PlanOp& op);
  const CpuNorm& WeightsOf(Norm norm, uint32_t layer) const;
  // out = norm(in), one row.
  void NormalizeRow(const CpuNorm& weights, const float* in, float* out) const;
  // Rows of `hidden` elements, in place.
  void NormalizeInPlace(const PlanOp& op, float* rows);
  void CapLogits();
  void Normalize(const PlanOp& op);
  void RunProduct(const PlanOp& op);
  void RunActivatedProduct(const PlanOp& op, absl::Span<const LinearPart> parts);
  // Of `count` gates, and ups where the model has them, into `gate`.
  void ActivateRange(float* gate, const float* up, int64_t count) const;
  void AddBias(const PlanOp& op);
  void Clip();
  void NormalizeHeads(const PlanOp& op);
  void RotateAndAppend(const PlanOp& op);
  // Any compute thread, of what it has put into the KV cache.
  void CountSaturated(int64_t numbers);
  // Narrows residual and query to the rows that go on: those of the slice, or those that sample.
  void KeepRows();
  // One row's residual and query.
  struct RowState {
    float* residual;
    float* query;
  };
  RowState StateOf(uint32_t row) const {
    return {ws_.residual + int64_t{row} * spec_.hidden, ws_.qkv + row * qkv_columns_};
  }
  RowState WaitingState(uint32_t index) const {
    return {ws_.waiting_residual + int64_t{index} * spec_.hidden,
            ws_.waiting_query + index * query_columns_};
  }
  void Copy(const RowState& from, const RowState& to) const;
  void Attend(const PlanOp& op);
  void Activate(const PlanOp& op);
  // Of latent attention (ops_latent.cc).
  void NormalizeLatent(const PlanOp& op);
  void MultiplyByHead(const PlanOp& op);
  void RotateAndAppendLatent(const PlanOp& op);
  // Of experts (ops_experts.cc).
  void Route(const PlanOp& op);
  // A normed row goes to each of its places.
  void GatherNormed(const CpuExpert& expert);
  void MultiplyByExperts(const PlanOp& op);
  void ActivateExperts(const PlanOp& op);
  void PrepareActivated(const CpuMatrix& down);
  void ScaleShared(const PlanOp& op);
  void Combine(const PlanOp& op);

  absl::Status SumRanks(const PlanOp& op);
  void AddResidual();

  // Output tiles of one item, of products that have so many of them and as many rows each.
  int64_t ChunkTiles(int64_t tiles, uint32_t rows) const;
  // Each part's outputs for all rows, biases included. `finish`, when given, is called after each
  // piece, in the same item.
  void RunLinear(absl::Span<const LinearPart> parts, const Finish* finish);
  // One item: tiles [begin, end) of `part`.
  void LinearItem(const LinearPart& part, int64_t tile_begin, int64_t tile_end);
  // Those tiles of a product of `input`, whose row r goes to out + r * stride.
  void MultiplyTiles(const CpuMatrix& matrix, const kernels::cpu::Activations& input,
                     int64_t tile_begin, int64_t tile_end, bool adds_bias, float* out,
                     int64_t stride);
  void CountPass(absl::Span<const LinearPart> parts);

  const DecoderSpec& spec_;
  const SlicePlan& slice_;
  const CpuWeights& weights_;
  Workspace& ws_;
  KvCache& kv_;
  ComputePool& pool_;
  Sampler& sampler_;
  Scorer& scorer_;
  const kernels::cpu::ActivationType activation_;
  // Of a row of qkv, and of one of attention.
  const int64_t query_columns_;
  const int64_t kv_columns_;
  const int64_t qkv_columns_;
  const int64_t attention_columns_;
  const std::atomic<bool>& aborted_;
  const LayerPlan plan_;
  // Query heads of this rank in order, and where those of each KV head begin.
  std::vector<uint32_t> heads_;
  std::vector<uint32_t> heads_begin_;
  // Of the largest group.
  uint32_t heads_max_ = 0;

  StepRows rows_;
  ExpertRoutes routes_;
  // Null: nobody asks for them.
  ExpertCounts* expert_counts_ = nullptr;
  // By attention kind, as in Workspace::rotary.
  std::vector<RotaryTable> rotary_;
  // Of this rank's query heads; empty without ALiBi.
  std::vector<float> slopes_;
  std::vector<Sampler::Row> sampler_rows_;
  // Rows of a slice that is scored; of the one whose tail runs, the range in rows_.scored().
  const uint32_t slice_rows_;
  uint32_t slice_begin_ = 0;
  uint32_t slice_end_ = 0;
  std::vector<Scorer::Row> scorer_rows_;
  // Of the step; null when no row of it is masked.
  const StepMasks* masks_ = nullptr;
  // Of the product being run.
  std::vector<LinearPart> linear_parts_;
  const kernels::cpu::Kernels* kernels_ = nullptr;
  HostCommunicator* communicator_ = nullptr;
  // Tiles of layer matrices multiplied in this step, and how many the layers have.
  uint64_t step_weight_tiles_ = 0;
  uint64_t layer_weight_tiles_ = 0;
  std::atomic<uint64_t> kv_saturated_{0};
};

}  // namespace weft::shard
