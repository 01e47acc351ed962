#include "shard/device/cpu/weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/device/cpu/memory_plan.h"
#include "shard/model/decoder_params.h"
#include "shard/weights/kernel_type.h"
#include "shard/weights/row_convert.h"

namespace weft::shard {
namespace {

using kernels::WeightType;
using kernels::cpu::kPackedAlignment;
using kernels::cpu::kTileOutputs;

// Small parameters share arenas of this size; it bounds what rounding wastes.
constexpr size_t kArenaBytes = size_t{8} << 20;

// Packs all tiles of `source` as `type`. F32 and F16 rows are narrowed to bf16 when asked.
void PackMatrix(const MatrixSource& source, WeightType type, uint8_t* packed) {
  const bool narrow = type != KernelType(source.type);
  std::vector<uint16_t> narrowed(narrow ? static_cast<size_t>(kTileOutputs * source.inputs)
                                        : size_t{0});
  const int64_t tile_bytes = kernels::cpu::PackedTileBytes(type, source.inputs);
  for (int64_t tile = 0; tile < kernels::cpu::TileCount(source.outputs); ++tile) {
    const uint8_t* rows[kTileOutputs] = {};
    for (int64_t n = 0; n < kTileOutputs; ++n) {
      const int64_t row = tile * kTileOutputs + n;
      if (row >= source.outputs) continue;
      rows[n] = source.row(row);
      if (narrow) {
        uint16_t* wide = narrowed.data() + n * source.inputs;
        RowToBf16(source.type, rows[n], source.inputs, wide);
        rows[n] = reinterpret_cast<const uint8_t*>(wide);
      }
    }
    kernels::cpu::PackTile(type, rows, source.inputs, packed + tile * tile_bytes);
  }
}

}  // namespace

CpuWeights::CpuWeights(const DecoderSpec& spec, const SlicePlan& slice, NumberType dtype)
    : spec_(spec), slice_(slice), dtype_(dtype), layers_(spec.layers) {
  for (DecoderParam& param : DecoderParams(spec)) {
    const uint32_t number = ParamNumber(param.key);
    expected_[number] = {std::move(param)};
  }
  for (uint32_t layer = 0; layer < spec.layers; ++layer) {
    if (spec.HasExperts(layer)) layers_[layer].experts.resize(spec.experts.count);
    if (spec.latent.rank == 0) continue;
    layers_[layer].key_up.resize(slice.heads.size());
    layers_[layer].value_up.resize(slice.heads.size());
  }
}

CpuMatrix* CpuWeights::MatrixOf(ParamKey key) {
  CpuLayer& layer = layers_[key.layer];
  switch (key.kind) {
    case ParamKind::kTokenEmbedding:
      return &embedding_;
    case ParamKind::kPositionEmbedding:
      return &positions_;
    case ParamKind::kHead:
      return &head_;
    case ParamKind::kProjectIn:
      return &project_in_;
    case ParamKind::kProjectOut:
      return &project_out_;
    case ParamKind::kQuery:
      return &layer.query;
    case ParamKind::kKey:
      return &layer.key;
    case ParamKind::kValue:
      return &layer.value;
    case ParamKind::kOutput:
      return &layer.output;
    case ParamKind::kQueryDown:
      return &layer.query_down;
    case ParamKind::kLatent:
      return &layer.latent;
    case ParamKind::kGate:
    case ParamKind::kSharedGate:
      return &layer.gate;
    case ParamKind::kUp:
    case ParamKind::kSharedUp:
      return &layer.up;
    case ParamKind::kDown:
    case ParamKind::kSharedDown:
      return &layer.down;
    case ParamKind::kSharedScale:
      return &layer.shared_scale;
    case ParamKind::kRouter:
      return &layer.router;
    case ParamKind::kExpertGate:
      return &layer.experts[key.expert].gate;
    case ParamKind::kExpertUp:
      return &layer.experts[key.expert].up;
    case ParamKind::kExpertDown:
      return &layer.experts[key.expert].down;
    default:
      return nullptr;
  }
}

std::vector<CpuMatrix>* CpuWeights::HeadMatricesOf(ParamKey key) {
  CpuLayer& layer = layers_[key.layer];
  if (key.kind == ParamKind::kKeyUp) return &layer.key_up;
  return key.kind == ParamKind::kValueUp ? &layer.value_up : nullptr;
}

absl::Span<const float>* CpuWeights::VectorOf(ParamKey key) {
  CpuLayer& layer = layers_[key.layer];
  switch (key.kind) {
    case ParamKind::kEmbeddingNorm:
      return &embedding_norm_.weight;
    case ParamKind::kEmbeddingNormBias:
      return &embedding_norm_.bias;
    case ParamKind::kFinalNorm:
      return &final_norm_.weight;
    case ParamKind::kFinalNormBias:
      return &final_norm_.bias;
    case ParamKind::kHeadBias:
      return &head_.bias;
    case ParamKind::kAttentionNorm:
      return &layer.attention_norm.weight;
    case ParamKind::kAttentionNormBias:
      return &layer.attention_norm.bias;
    case ParamKind::kPostAttentionNorm:
      return &layer.post_attention_norm.weight;
    case ParamKind::kPostMlpNorm:
      return &layer.post_mlp_norm.weight;
    case ParamKind::kMlpNorm:
      return &layer.mlp_norm.weight;
    case ParamKind::kMlpNormBias:
      return &layer.mlp_norm.bias;
    case ParamKind::kQueryNorm:
      return &layer.query_norm;
    case ParamKind::kKeyNorm:
      return &layer.key_norm;
    case ParamKind::kSinks:
      return &layer.sinks;
    case ParamKind::kQueryLatentNorm:
      return &layer.query_latent_norm;
    case ParamKind::kLatentNorm:
      return &layer.latent_norm;
    case ParamKind::kChoiceBias:
      return &layer.choice_bias;
    case ParamKind::kQueryBias:
      return &layer.query.bias;
    case ParamKind::kKeyBias:
      return &layer.key.bias;
    case ParamKind::kValueBias:
      return &layer.value.bias;
    case ParamKind::kOutputBias:
      return &layer.output.bias;
    case ParamKind::kGateBias:
      return &layer.gate.bias;
    case ParamKind::kUpBias:
      return &layer.up.bias;
    case ParamKind::kDownBias:
      return &layer.down.bias;
    case ParamKind::kRouterBias:
      return &layer.router.bias;
    case ParamKind::kExpertGateBias:
      return &layer.experts[key.expert].gate.bias;
    case ParamKind::kExpertUpBias:
      return &layer.experts[key.expert].up.bias;
    case ParamKind::kExpertDownBias:
      return &layer.experts[key.expert].down.bias;
    default:
      return nullptr;
  }
}

absl::Status CpuWeights::Receive(ParamKey key, int64_t outputs, int64_t inputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto expected = expected_.find(ParamNumber(key));
  if (expected == expected_.end()) {
    return absl::InternalError(absl::StrCat(ParamName(key), " is no part of this model"));
  }
  const TensorSlice slice = SliceOf(expected->second.param, spec_, slice_);
  const auto rows = static_cast<int64_t>(slice.rows());
  const auto columns = static_cast<int64_t>(slice.columns());
  if (outputs != rows || inputs != columns) {
    return absl::InternalError(absl::StrCat(ParamName(key), ": expected [", rows, ", ", columns,
                                            "], found [", outputs, ", ", inputs, "]"));
  }
  expected->second.received = true;
  return absl::OkStatus();
}

absl::StatusOr<uint8_t*> CpuWeights::Allocate(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t wanted = MemoryParts(nullptr, kPackedAlignment).Rounded(bytes);
  bytes_ += wanted;
  for (Arena& arena : arenas_) {
    if (arena.memory.size() - arena.parts.used() >= wanted) return arena.parts.Take(bytes);
  }
  WEFT_ASSIGN_OR_RETURN(HostMemory memory,
                        HostMemory::Map(std::max<uint64_t>(wanted, kArenaBytes), "weights"));
  uint8_t* const base = memory.data();
  arenas_.push_back({std::move(memory), MemoryParts(base, kPackedAlignment)});
  return arenas_.back().parts.Take(bytes);
}

absl::Status CpuWeights::AddMatrix(ParamKey key, const MatrixSource& source) {
  WEFT_RETURN_IF_ERROR(Receive(key, source.outputs, source.inputs));
  if (std::vector<CpuMatrix>* const heads = HeadMatricesOf(key)) {
    const int64_t rows = source.outputs / static_cast<int64_t>(heads->size());
    for (size_t head = 0; head < heads->size(); ++head) {
      const int64_t first = static_cast<int64_t>(head) * rows;
      const auto row = [&source, first](int64_t i) { return source.row(first + i); };
      WEFT_RETURN_IF_ERROR(Pack({source.type, rows, source.inputs, row}, &(*heads)[head]));
    }
    return absl::OkStatus();
  }
  CpuMatrix* const matrix = MatrixOf(key);
  if (matrix == nullptr) {
    return absl::InternalError(absl::StrCat(ParamName(key), " is no matrix"));
  }
  return Pack(source, matrix);
}

absl::Status CpuWeights::Pack(const MatrixSource& source, CpuMatrix* matrix) {
  const WeightType type = KernelType(CpuMatrixType(source.type, dtype_));
  const int64_t bytes = kernels::cpu::PackedBytes(type, source.outputs, source.inputs);
  WEFT_ASSIGN_OR_RETURN(uint8_t* const packed, Allocate(static_cast<size_t>(bytes)));
  PackMatrix(source, type, packed);
  matrix->packed = kernels::cpu::PackedMatrix{type, source.outputs, source.inputs, packed};
  return absl::OkStatus();
}

absl::Status CpuWeights::AddVector(ParamKey key, absl::Span<const float> values) {
  WEFT_RETURN_IF_ERROR(Receive(key, static_cast<int64_t>(values.size()), 1));
  absl::Span<const float>* const vector = VectorOf(key);
  if (vector == nullptr) {
    return absl::InternalError(absl::StrCat(ParamName(key), " is no vector"));
  }
  WEFT_ASSIGN_OR_RETURN(uint8_t* const memory, Allocate(values.size() * sizeof(float)));
  auto* const numbers = reinterpret_cast<float*>(memory);
  const float offset = IsNorm(key.kind) ? spec_.norm_weight_offset : 0.0f;
  for (size_t i = 0; i < values.size(); ++i) numbers[i] = values[i] + offset;
  *vector = absl::MakeConstSpan(numbers, values.size());
  return absl::OkStatus();
}

absl::Status CpuWeights::Finish() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const DecoderParam& param : DecoderParams(spec_)) {
      if (expected_.at(ParamNumber(param.key)).received) continue;
      return absl::InternalError(absl::StrCat("the loader gave no ", ParamName(param.key)));
    }
  }
  if (spec_.tied_head) head_.packed = embedding_.packed;
  if (spec_.shared_norm) {
    for (CpuLayer& layer : layers_) layer.mlp_norm = layer.attention_norm;
  }
  return absl::OkStatus();
}

uint64_t CpuWeights::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

}  // namespace weft::shard
