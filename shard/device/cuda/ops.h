// Ops on a GPU: the kernels of kernels/cuda and cuBLASLt's products, all on one stream. Owned by
// the model runner, called by the device thread. Calls between BeginStep and Sample only launch:
// nothing waits, nothing is allocated, so they can be captured into a graph (graph_cache.h). What
// a launch depends on is StepShape; everything else a step needs lies in device memory.
//
// The first launch that fails makes every later one of the step a no-op; Sample says what it was.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rope.h"
#include "shard/comm/nccl_communicator.h"
#include "shard/device/cuda/gemm.h"
#include "shard/device/cuda/kv_cache.h"
#include "shard/device/cuda/peer_sum.h"
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
  };

  // Fills the constant parts of the workspace (rotary table, head map).
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(const Parts& parts);

  // Applies drops and starts of a step to the slots, on the host and on the device.
  absl::Status BeginSequences(const StepBatch& batch);
  // Forgets all slots; both serve until the next call. Not used in a group of one; `peer_sum` null:
  // all sums through NCCL.
  void BeginEpoch(NcclCommunicator* communicator, const PeerSum* peer_sum) {
    slots_.Reset();
    communicator_ = communicator;
    peer_sum_ = peer_sum;
  }
  // Forgets all slots.
  void Reset() { slots_.Reset(); }

  // As Ops; takes the step as it is. To launch a captured graph instead of the calls below, pad
  // the decode rows to the graph's.
  absl::Status BeginStep(const StepBatch& batch) override { return BeginStep(batch, 0); }
  absl::Status BeginStep(const StepBatch& batch, uint32_t decode_rows);
  const StepShape& shape() const { return step_; }
  // Of each row of `batch` that samples: 1 + the top log-probabilities wanted, 0 = none at all.
  void WantedLogprobs(const StepBatch& batch, std::vector<uint32_t>* wanted) const;

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
  // A graph was launched instead of the calls between BeginStep and Sample.
  void LaunchedAsGraph() { no_overlap_ = true; }
  // Launches the sampler; results stay on the device (CudaWorkspace::out_ids and what follows).
  // `result` is left as it is.
  absl::Status Sample(StepResult* result) override;
  uint32_t WeightPasses() const override { return 1; }

 private:
  static constexpr uint64_t kStagingAlignment = 16;
  explicit CudaOps(const Parts& parts);
  absl::Status FillConstants();
  absl::Status FillRotaryTable();
  absl::Status UploadStart(const SequenceStart& start);

  enum class Matrix : uint8_t { kQkv, kOutput, kGateUp, kDown };

  // Remembers the first error of the step.
  void Check(cudaError_t error, const char* what);
  void Check(absl::Status status);
  bool failed() const { return !status_.ok(); }

  // out[rows_, n] = in * weight^T, or the residual += that.
  void Product(const void* in, const void* weight, uint32_t n, uint32_t k, void* out,
               kernels::cuda::DType out_type, bool accumulate);
  // A piece of start_staging_ for one copy, whose end staging_read_ is to record. Waits for the
  // copies before it only when they have taken all.
  absl::StatusOr<uint8_t*> TakeStaging(size_t bytes);
  // Waits until the last copy out of start_staging_ has been made, or the epoch ends.
  absl::Status AwaitStaging();
  // residual += in times the matrix, summed over all ranks; `product` is 0 for output, 1 for down.
  void ProductIntoResidual(const kernels::cuda::GemvNext& matrix,
                           const kernels::cuda::GemvNext& next, const void* in, const void* bias,
                           uint32_t product);
  // Whether this step has so few rows that a product takes the kernel that computes norm,
  // activation and residual sum as well.
  bool UsesGemv() const;
  // Whether that kernel, for the query, key and value product, also rotates and appends to the
  // cache.
  bool AppendsInProduct() const;
  // Whether this step has so few rows that the sum over ranks adds the residual and takes the norm.
  bool UsesPeerSum() const;
  // residual += the partial sums of all ranks; normed = its norm.
  void AddPeers(const void* norm_weight);
  // The next launch may start before the one in front of it has ended: all but what follows NCCL
  // or a graph.
  bool Overlaps();
  bool HasMlpBias(Norm norm, uint32_t layer) const;
  // A matrix as that kernel wants it; layer `layers` is the head.
  kernels::cuda::GemvNext MatrixAt(uint32_t layer, Matrix matrix) const;
  // Launches that kernel: over the norm that waits to be computed, or over `in` where none does.
  // `next` is the product after this one; `heads` is given where the kernel rotates and appends.
  void RunGemv(const kernels::cuda::GemvNext& matrix, const kernels::cuda::GemvNext& next,
               const void* in, void* out, kernels::cuda::DType out_type,
               const kernels::cuda::RotateAndAppendParams* heads = nullptr);
  // rows_ rows of hidden: the sum over ranks.
  void AllReduce(void* rows, kernels::cuda::DType type);
  // Gathers the logits of all ranks and joins them to rows of the whole vocabulary.
  void GatherLogits();
  void AddBias(void* rows, const void* bias, uint32_t columns, kernels::cuda::DType type);
  // What takes all rows from their product to the rotated query and into the cache.
  kernels::cuda::RotateAndAppendParams HeadsOf(uint32_t layer) const;
  kernels::cuda::AttentionParams AttentionOf(uint32_t layer, uint32_t first_sequence,
                                             uint32_t sequences) const;
  void AttendDecode(uint32_t layer);
  void AttendChunks(uint32_t layer);
  // After the last layer's attention: residual and attention of the sampled rows alone.
  void NarrowToSampled();

  const DecoderSpec& spec_;
  const SlicePlan& slice_;
  const CudaShape& shape_;
  const CudaLimits& limits_;
  const CudaWeights& weights_;
  const CudaWorkspace& ws_;
  const CudaKvCache& kv_;
  const cudaStream_t stream_;
  std::unique_ptr<Gemm> gemm_;
  SlotTable slots_;
  StepUpload upload_;
  PinnedBuffer start_staging_;
  // Recorded on the stream behind the last copy out of start_staging_.
  CudaEvent staging_read_;
  // What copies under way may still read of start_staging_.
  MemoryParts staging_parts_{nullptr, kStagingAlignment};
  NcclCommunicator* communicator_ = nullptr;
  const PeerSum* peer_sum_ = nullptr;

  // Of the step being launched.
  absl::Status status_;
  StepShape step_;
  StepInputsOnDevice inputs_;
  uint32_t rows_ = 0;
  bool narrow_ = false;
  // Weights of a norm that the next product has to compute; or null.
  const void* pending_norm_ = nullptr;
  // Which of peer_sum_'s partial sums wait to be added; the next norm does it.
  std::optional<uint32_t> pending_sum_;
  // The launch in front is NCCL's, or a graph: the next one waits for its end.
  bool no_overlap_ = false;
  // CudaWorkspace::partial waits to be added to the residual.
  bool partial_pending_ = false;
  float* residual_ = nullptr;
  void* attention_ = nullptr;
};

}  // namespace weft::shard
