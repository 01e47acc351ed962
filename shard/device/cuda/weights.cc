#include "shard/device/cuda/weights.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "kernels/cuda/elementwise/random_fill.h"
#include "kernels/random_weight.h"
#include "shard/device/cuda/row_image.h"
#include "shard/device/cuda/runtime/status.h"
#include "shard/device/cuda/upload.h"
#include "shard/device/cuda/weight_layout.h"

namespace weft::shard {
namespace {

// Two for each of 16 loader threads: one is filled while the other's copy runs. A copy of 2 MiB
// fills the bus, and to pin memory takes long (128 MiB 83 ms on a virtual machine).
constexpr size_t kBuffers = 32;
constexpr size_t kBufferBytes = size_t{2} << 20;

class CudaWeightsImpl : public CudaWeights {
 public:
  CudaWeightsImpl(const DecoderSpec& spec, const CudaShape& shape)
      : spec_(spec), shape_(shape), layout_(spec_, shape_) {}
  ~CudaWeightsImpl() override {
    uploader_.reset();
    cudaFree(memory_);
  }

  absl::Status Allocate();

  absl::Status AddMatrix(ParamKey key, const MatrixSource& source) override {
    return Upload(key, source);
  }
  absl::Status AddVector(ParamKey key, absl::Span<const float> values) override;
  absl::Status FillRandom(uint64_t seed) override;
  absl::Status Finish() override;

  const CudaLayer& layer(uint32_t layer) const override { return layers_[layer]; }
  const void* embedding() const override { return Find({ParamKind::kTokenEmbedding}); }
  const void* head() const override {
    return spec_.tied_head ? embedding() : Find({ParamKind::kHead});
  }
  const void* head_bias() const override { return Find({ParamKind::kHeadBias}); }
  const void* project_in() const override { return Find({ParamKind::kProjectIn}); }
  const void* project_out() const override { return Find({ParamKind::kProjectOut}); }
  const void* positions() const override { return Find({ParamKind::kPositionEmbedding}); }
  CudaNorm embedding_norm() const override {
    return {Find({ParamKind::kEmbeddingNorm}), Find({ParamKind::kEmbeddingNormBias})};
  }
  CudaNorm final_norm() const override {
    return {Find({ParamKind::kFinalNorm}), Find({ParamKind::kFinalNormBias})};
  }

 private:
  void PointLayers();
  void PointLatent(uint32_t layer);
  void PointExperts(uint32_t layer);
  absl::Status Upload(ParamKey key, const MatrixSource& source);
  // Null when the model has none.
  const void* Find(ParamKey key) const {
    const absl::StatusOr<WeightLocation> location = layout_.Find(key);
    return location.ok() ? memory_ + location->offset : nullptr;
  }

  const DecoderSpec spec_;
  const CudaShape shape_;
  const WeightLayout layout_;
  int device_ = 0;
  // On the device; layout_.bytes().
  uint8_t* memory_ = nullptr;
  std::vector<CudaLayer> layers_;
  // Null after Finish.
  std::unique_ptr<Uploader> uploader_;

  std::mutex mutex_;
  // ParamNumber of the parameters that came.
  absl::flat_hash_set<uint32_t> received_;
};

absl::Status CudaWeightsImpl::Allocate() {
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device_), "current device"));
  void* memory = nullptr;
  WEFT_RETURN_IF_ERROR(Annotate(CudaStatus(cudaMalloc(&memory, layout_.bytes()), "weights"),
                                absl::StrCat("weights of ", layout_.bytes(), " bytes")));
  memory_ = static_cast<uint8_t*>(memory);
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(memory_, 0, layout_.bytes(), nullptr), "zeros"));
  WEFT_ASSIGN_OR_RETURN(
      uploader_, Uploader::Create(kBuffers, std::max(kBufferBytes, layout_.row_bytes_max())));
  // The copies run on streams that do not wait for this one.
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(nullptr), "zeros"));
  PointLayers();
  return absl::OkStatus();
}

void CudaWeightsImpl::PointLayers() {
  layers_.resize(shape_.layers);
  for (uint32_t i = 0; i < shape_.layers; ++i) {
    CudaLayer& layer = layers_[i];
    layer.attention_norm = {Find({ParamKind::kAttentionNorm, i}),
                            Find({ParamKind::kAttentionNormBias, i})};
    if (shape_.latent) {
      PointLatent(i);
    } else {
      layer.qkv = Find({ParamKind::kQuery, i});
    }
    layer.qkv_bias = Find({ParamKind::kQueryBias, i});
    layer.query_norm = Find({ParamKind::kQueryNorm, i});
    layer.key_norm = Find({ParamKind::kKeyNorm, i});
    layer.output = Find({ParamKind::kOutput, i});
    layer.output_bias = Find({ParamKind::kOutputBias, i});
    layer.post_attention_norm = {Find({ParamKind::kPostAttentionNorm, i}), nullptr};
    layer.post_mlp_norm = {Find({ParamKind::kPostMlpNorm, i}), nullptr};
    layer.mlp_norm = spec_.shared_norm ? layer.attention_norm
                                       : CudaNorm{Find({ParamKind::kMlpNorm, i}),
                                                  Find({ParamKind::kMlpNormBias, i})};
    layer.sinks = Find({ParamKind::kSinks, i});
    if (spec_.HasExperts(i)) {
      PointExperts(i);
      continue;
    }
    layer.gate_up = Find({spec_.gated_mlp ? ParamKind::kGate : ParamKind::kUp, i});
    layer.gate_up_bias = Find({spec_.gated_mlp ? ParamKind::kGateBias : ParamKind::kUpBias, i});
    layer.down = Find({ParamKind::kDown, i});
    layer.down_bias = Find({ParamKind::kDownBias, i});
  }
}

void CudaWeightsImpl::PointLatent(uint32_t i) {
  CudaLayer& layer = layers_[i];
  layer.query = Find({ParamKind::kQuery, i});
  layer.query_down = Find({ParamKind::kQueryDown, i});
  layer.query_latent_norm = Find({ParamKind::kQueryLatentNorm, i});
  layer.latent = Find({ParamKind::kLatent, i});
  layer.latent_norm = Find({ParamKind::kLatentNorm, i});
  layer.key_up = Find({ParamKind::kKeyUp, i});
  layer.value_up = Find({ParamKind::kValueUp, i});
}

void CudaWeightsImpl::PointExperts(uint32_t i) {
  CudaLayer& layer = layers_[i];
  layer.choice_bias = static_cast<const float*>(Find({ParamKind::kChoiceBias, i}));
  layer.router = Find({ParamKind::kRouter, i});
  layer.router_bias = Find({ParamKind::kRouterBias, i});
  layer.expert_gate_up = Find({ParamKind::kExpertGate, i});
  layer.expert_gate_up_bias = Find({ParamKind::kExpertGateBias, i});
  layer.expert_down = Find({ParamKind::kExpertDown, i});
  layer.expert_down_bias = Find({ParamKind::kExpertDownBias, i});
  layer.gate_up = Find({ParamKind::kSharedGate, i});
  layer.down = Find({ParamKind::kSharedDown, i});
  layer.shared_scale = Find({ParamKind::kSharedScale, i});
}

absl::Status CudaWeightsImpl::AddVector(ParamKey key, absl::Span<const float> values) {
  const auto row = [values](int64_t) { return reinterpret_cast<const uint8_t*>(values.data()); };
  return Upload(key, {TensorType::kF32, 1, static_cast<int64_t>(values.size()), row});
}

absl::Status CudaWeightsImpl::Upload(ParamKey key, const MatrixSource& source) {
  WEFT_ASSIGN_OR_RETURN(const WeightLocation location, layout_.Find(key));
  if (source.outputs != location.grid.rows || source.inputs != location.grid.columns) {
    return absl::InternalError(absl::StrCat(ParamName(key), ": expected [", location.grid.rows,
                                            ", ", location.grid.columns, "], found [",
                                            source.outputs, ", ", source.inputs, "]"));
  }
  WEFT_CHECK(uploader_ != nullptr);
  // Each thread has a current device of its own.
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "device of the load"));
  RowImage image(source, location.grid, location.type);
  const uint64_t rows = location.memory_rows();
  const uint64_t rows_of_buffer = uploader_->buffer_bytes() / image.row_bytes();
  for (uint64_t begin = 0; begin < rows; begin += rows_of_buffer) {
    const uint64_t end = std::min(rows, begin + rows_of_buffer);
    WEFT_ASSIGN_OR_RETURN(Uploader::Buffer* const buffer, uploader_->Take());
    image.Write(begin, end, buffer->data);
    WEFT_RETURN_IF_ERROR(uploader_->Copy(buffer,
                                         memory_ + location.offset + begin * image.row_bytes(),
                                         (end - begin) * image.row_bytes()));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  received_.insert(ParamNumber(key));
  return absl::OkStatus();
}

absl::Status CudaWeightsImpl::FillRandom(uint64_t seed) {
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device_), "device of the load"));
  for (const ParamKey key : layout_.params()) {
    // Biases stay as zero as Create made them.
    if (IsBias(key.kind)) continue;
    const WeightLocation& location = layout_.At(key);
    if (IsNorm(key.kind)) {
      WEFT_RETURN_IF_ERROR(AddVector(key, std::vector<float>(location.grid.columns, 1.0f)));
      continue;
    }
    kernels::cuda::RandomFillParams params;
    params.out = memory_ + location.offset;
    params.grid = location.grid;
    params.key = kernels::RandomWeightKey(seed, ParamNumber(key));
    params.type = shape_.type;
    WEFT_RETURN_IF_ERROR(
        CudaStatus(kernels::cuda::RandomFill(params, nullptr), "random numbers for weights"));
  }
  WEFT_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(nullptr), "random numbers for weights"));
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const ParamKey key : layout_.params()) received_.insert(ParamNumber(key));
  return absl::OkStatus();
}

absl::Status CudaWeightsImpl::Finish() {
  WEFT_CHECK(uploader_ != nullptr);
  WEFT_RETURN_IF_ERROR(uploader_->Finish());
  uploader_.reset();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const ParamKey key : layout_.params()) {
    if (received_.contains(ParamNumber(key))) continue;
    return absl::InternalError(absl::StrCat("the loader gave no ", ParamName(key)));
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t CudaWeights::Bytes(const DecoderSpec& spec, const CudaShape& shape) {
  return WeightLayout(spec, shape).bytes();
}

absl::StatusOr<std::unique_ptr<CudaWeights>> CudaWeights::Create(const DecoderSpec& spec,
                                                                 const CudaShape& shape) {
  auto weights = std::make_unique<CudaWeightsImpl>(spec, shape);
  WEFT_RETURN_IF_ERROR(weights->Allocate());
  return weights;
}

}  // namespace weft::shard
