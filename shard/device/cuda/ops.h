// Ops on a GPU: the kernels of kernels/cuda and cuBLASLt's products, all on one stream. Owned by
// the model runner, called by the device thread. Calls between BeginStep and Sample only launch:
// nothing waits, nothing is allocated, so they can be captured into a graph (graph_cache.h). What
// a launch depends on is the plan's operation and StepShape; everything else a step needs lies in
// device memory.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/elementwise/norm.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/experts/few_rows.h"
#include "kernels/cuda/experts/product.h"
#include "kernels/cuda/gemm/gemv.h"
#include "shard/comm/nccl_communicator.h"
#include "shard/device/cuda/gemm.h"
#include "shard/device/cuda/kv_cache.h"
#include "shard/device/cuda/peer_sum.h"
#include "shard/device/cuda/planner.h"
#include "shard/device/cuda/runtime/stream.h"
#include "shard/device/cuda/slot_table.h"
#include "shard/device/cuda/step_upload.h"
#include "shard/device/cuda/weights.h"
#include "shard/device/cuda/workspace.h"
#include "shard/device/ops.h"

namespace weft::shard {

class CudaOps : public Ops {
 public:
  // All outlive the ops.
  struct Parts {
    const DecoderSpec& spec;
    const SlicePlan& slice;
    const CudaShape& shape;
    const CudaLimits& limits;
    const CudaWeights& weights;
    const CudaWorkspace& workspace;
    const CudaKvCache& kv;
    cudaStream_t stream;
    const std::vector<const PlanRule*>& left_out;
  };

  // Fills the constant parts of the workspace (rotary table, head map). `gemm` works in the
  // workspace's part for it.
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(const Parts& parts,
                                                         std::unique_ptr<Gemm> gemm);

  // Applies drops and starts of a step to the slots, on the host and on the device.
  absl::Status BeginSequences(const StepBatch& batch);
  // Forgets all slots; both serve until the next call. Not used in a group of one; `peer_sum` null:
  // all sums through NCCL.
  void BeginEpoch(NcclCommunicator* communicator, const PeerSum* peer_sum) {
    slots_.Reset();
    communicator_ = communicator;
    peer_sum_ = peer_sum;
    plans_ = peer_sum == nullptr ? &nccl_plans_ : &peer_plans_;
  }
  // Forgets all slots.
  void Reset() { slots_.Reset(); }
  // Whether rows of experts in the steps launched from here on count. Until the first call they do
  // not; nothing where the limits do not ask for it.
  absl::Status CountExperts(bool counts);

  // As Ops; takes the step as it is. To launch a captured graph instead of the calls below, pad
  // the decode rows to the graph's.
  absl::Status BeginStep(const StepBatch& batch) override { return BeginStep(batch, 0); }
  absl::Status BeginStep(const StepBatch& batch, uint32_t decode_rows);
  const StepShape& shape() const { return step_; }
  // Of each row of `batch` that samples: 1 + the top log-probabilities wanted, 0 = none at all.
  void WantedLogprobs(const StepBatch& batch, std::vector<uint32_t>* wanted) const;

  StepPlan plan() const override;
  uint32_t sampled_rows() const override { return step_.sampled; }
  uint32_t score_slices() const override {
    return (step_.scored + limits_.running_max - 1) / limits_.running_max;
  }
  absl::Status BeginSlice(uint32_t slice) override;
  // Launches the scoring; scores stay on the device (CudaWorkspace::scores). `result` is left as it
  // is.
  absl::Status ScoreSlice(StepResult* result) override;
  absl::Status Execute(const PlanOp& op, PlanPart part) override;
  // Launches the sampler; results stay on the device (CudaWorkspace::out_ids and what follows).
  // `result` is left as it is.
  // A step with masked rows is left as it is too, for SampleMasked.
  absl::Status Sample(StepResult*) override { return LaunchSampler(/*after_graph=*/false); }
  // The same where a graph was launched instead of the calls between BeginStep and Sample.
  absl::Status SampleAfterGraph() { return LaunchSampler(/*after_graph=*/true); }
  // What Sample has left out, of the step that was begun last: takes its masks, which have settled,
  // to the device through `staging` of MaskBytes, and launches the sampler. `staging` may be used
  // again once the step has ended.
  absl::Status SampleMasked(const StepBatch& batch, uint8_t* staging);
  static uint64_t MaskBytes(const CudaLimits& limits) {
    return limits.running_max * CudaWorkspace::MaskStride(limits) * sizeof(uint32_t);
  }
  // Not counted: a graph is launched without a word to the host.
  uint32_t WeightPasses() const override { return 0; }

 private:
  static constexpr uint64_t kStagingAlignment = 16;
  explicit CudaOps(const Parts& parts);
  absl::Status FillConstants();
  // ALiBi's slopes, sinks and rotary tables.
  absl::Status FillPositions();
  // Attention reads sinks in float32, whatever the type of the weights.
  absl::Status WidenSinks();
  const float* SinksOf(uint32_t layer) const {
    return ws_.sinks == nullptr ? nullptr : ws_.sinks + size_t{layer} * shape_.query_heads;
  }
  absl::Status UploadStart(const SequenceStart& start);

  // The rows that an operation works on, and where they lie.
  struct Rows {
    uint32_t count = 0;
    float* residual = nullptr;
    void* attention = nullptr;
  };
  const Rows& RowsOf(PlanPart part) const { return part == PlanPart::kBody ? body_ : tail_; }
  // A matrix [outputs, inputs] of the plan and its bias, null where there is none.
  struct MatrixOnDevice {
    const void* weight = nullptr;
    const void* bias = nullptr;
    uint32_t outputs = 0;
    uint32_t inputs = 0;
  };
  MatrixOnDevice MatrixOf(Matrix matrix, uint32_t layer) const;
  // Of those that are no layer's.
  MatrixOnDevice MatrixOutside(Matrix matrix) const;
  CudaNorm WeightsOf(Norm norm, uint32_t layer) const;
  // All but what goes in beside the residual, and where the result goes.
  kernels::cuda::NormParams NormOf(const PlanOp& op, const Rows& rows) const;
  void* At(Buffer buffer, const Rows& rows, Matrix matrix) const;
  // Float32 for the residual and logits.
  kernels::cuda::DType TypeOf(Buffer buffer) const;
  // Elements of a row of the residual and what is added to it, or of kEmbedded.
  uint32_t ColumnsOf(Buffer buffer) const {
    return buffer == Buffer::kEmbedded ? shape_.embedding : shape_.hidden;
  }

  // Rows of the whole vocabulary, of the rows of the tail.
  kernels::cuda::SamplerParams SamplerOfTail() const;
  absl::Status LaunchSampler(bool after_graph);
  absl::Status LaunchSamplerNow(bool after_graph);
  absl::Status Embed(const PlanOp& op);
  // The row of the position table that position 0 has.
  const void* FirstPosition() const;
  absl::Status AddPositions();
  // Block tables, and what attention of decode rows and of chunks plans ahead.
  absl::Status PrepareAttention();
  absl::Status PlanDecode(uint32_t group);
  // Block tables of a KV group, from a sequence of the step on.
  kernels::cuda::BlockTables TablesOf(uint32_t group, uint32_t first_sequence) const;
  absl::Status NormalizeResidual(const PlanOp& op, const Rows& rows);
  absl::Status NormalizePartial(const PlanOp& op, const Rows& rows);
  absl::Status Round(const PlanOp& op, const Rows& rows);
  absl::Status CapLogits();
  absl::Status Normalize(const PlanOp& op, const Rows& rows);
  absl::Status AddResidual(const PlanOp& op, const Rows& rows);
  absl::Status Multiply(const PlanOp& op, const Rows& rows);
  absl::Status MultiplyFewRows(const PlanOp& op, const Rows& rows);
  absl::Status AddBias(const PlanOp& op, const Rows& rows);
  absl::Status Clip(const PlanOp& op, const Rows& rows);
  absl::Status NormalizeHeads(const PlanOp& op, const Rows& rows);
  absl::Status RotateAndAppend(const PlanOp& op, const Rows& rows);
  absl::Status Attend(const PlanOp& op);
  // Of latent attention (ops_latent.cc).
  absl::Status NormalizeLatent(const PlanOp& op, const Rows& rows);
  absl::Status MultiplyByHead(const PlanOp& op, const Rows& rows);
  absl::Status RotateAndAppendLatent(const PlanOp& op, const Rows& rows);
  absl::Status AttendLatent(const PlanOp& op);
  absl::Status Activate(const PlanOp& op, const Rows& rows);
  // Of experts (ops_experts.cc).
  // How a layer's router chooses: neither its numbers nor the rows.
  kernels::cuda::RouteParams ChoiceOf(uint32_t layer) const;
  // Of one row.
  kernels::cuda::FewRowsRouter RouterOf(const PlanOp& op, const Rows& rows) const;
  absl::Status Route(const PlanOp& op, const Rows& rows);
  // Adds the rows that were just routed to those of their experts.
  absl::Status CountRows(const PlanOp& op, const Rows& rows);
  absl::Status MultiplyByExperts(const PlanOp& op, const Rows& rows);
  absl::Status MultiplyFewRowsByExperts(const PlanOp& op, const Rows& rows);
  absl::Status ScaleShared(const PlanOp& op, const Rows& rows);
  absl::Status Combine(const PlanOp& op, const Rows& rows);
  kernels::cuda::ActivationKind ActivationOfMlps() const;
  // Whether experts' products read so few normed rows where they are.
  bool ReadsRowsInPlace(uint32_t rows) const;
  absl::StatusOr<const CUtensorMap*> ExpertMapOf(const void* weight, uint32_t n, uint32_t k);

  absl::Status SumRanks(const PlanOp& op, const Rows& rows);
  // Gathers the logits of all ranks and joins them to rows of the whole vocabulary.
  absl::Status GatherLogits();
  // The later product of few rows that `op` names, as that kernel wants it.
  kernels::cuda::GemvNext NextOf(const PlanOp& op) const;
  // A piece of start_staging_ for one copy, whose end staging_read_ is to record. Waits for the
  // copies before it only when they have taken all.
  absl::StatusOr<uint8_t*> TakeStaging(size_t bytes);
  // Waits until the last copy out of start_staging_ has been made, or the epoch ends.
  absl::Status AwaitStaging();
  // What takes all rows from their product to the rotated query and into the cache.
  kernels::cuda::RotateAndAppendParams HeadsOf(const PlanOp& op, const Rows& rows) const;
  kernels::cuda::AttentionParams AttentionOf(uint32_t layer, uint32_t first_sequence,
                                             uint32_t sequences) const;
  absl::Status AttendDecode(const PlanOp& op);
  absl::Status AttendChunks(const PlanOp& op);
  // Residual and attention of the tail's rows alone.
  absl::Status KeepRows();

  const DecoderSpec& spec_;
  const SlicePlan& slice_;
  const CudaShape& shape_;
  const CudaLimits& limits_;
  const CudaWeights& weights_;
  const CudaWorkspace& ws_;
  const CudaKvCache& kv_;
  const cudaStream_t stream_;
  std::unique_ptr<Gemm> gemm_;
  // By the experts' matrices; as many as layers have stacks.
  absl::flat_hash_map<const void*, CUtensorMap> expert_maps_;
  SlotTable slots_;
  StepUpload upload_;
  PinnedBuffer start_staging_;
  // Recorded on the stream behind the last copy out of start_staging_.
  CudaEvent staging_read_;
  // What copies under way may still read of start_staging_.
  MemoryParts staging_parts_{nullptr, kStagingAlignment};
  NcclCommunicator* communicator_ = nullptr;
  const PeerSum* peer_sum_ = nullptr;

  CudaPlans nccl_plans_;
  CudaPlans peer_plans_;
  const CudaPlans* plans_ = &nccl_plans_;

  // Of the step being launched.
  StepShape step_;
  StepInputsOnDevice inputs_;
  bool masked_ = false;
  Rows body_;
  Rows tail_;
  // Which rows of the body the tail works on.
  const uint32_t* kept_rows_ = nullptr;
  // The first of the slice's rows among those that are scored.
  uint32_t slice_begin_ = 0;
  // Attention in front of the rows that are kept has been computed for all of them.
  bool attended_ = false;
};

}  // namespace weft::shard
