#include "shard/device/cpu/weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "shard/weights/kernel_type.h"
#include "shard/weights/row_convert.h"

namespace weft::shard {
namespace {

using kernels::WeightType;
using kernels::cpu::kPackedAlignment;
using kernels::cpu::kTileOutputs;

// Small parameters share arenas of this size; it bounds what rounding wastes.
constexpr size_t kArenaBytes = size_t{8} << 20;

std::string KeyName(ParamKey key) {
  return absl::StrCat("parameter kind ", static_cast<int>(key.kind), " of layer ", key.layer);
}

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

CpuWeights::CpuWeights(const DecoderSpec& spec, const SlicePlan& slice, bool narrow_to_bf16)
    : spec_(spec), slice_(slice), narrow_to_bf16_(narrow_to_bf16), layers_(spec.layers) {}

CpuWeights::Widths CpuWeights::SliceWidths() const {
  return Widths{int64_t{slice_.heads.size()} * spec_.head_dim,
                int64_t{slice_.kv_heads.size()} * spec_.head_dim, int64_t{slice_.mlp.size()}};
}

absl::StatusOr<CpuWeights::MatrixTarget> CpuWeights::FindMatrix(ParamKey key) {
  const int64_t hidden = spec_.hidden;
  const int64_t vocab = slice_.vocab.size();
  if (key.kind == ParamKind::kTokenEmbedding) return MatrixTarget{&embedding_, vocab, hidden};
  if (key.kind == ParamKind::kHead) return MatrixTarget{&head_, vocab, hidden};
  if (key.layer >= layers_.size()) return absl::InternalError(KeyName(key));
  CpuLayer& layer = layers_[key.layer];
  const auto [query, kv, mlp] = SliceWidths();
  switch (key.kind) {
    case ParamKind::kQuery:
      return MatrixTarget{&layer.query, query, hidden};
    case ParamKind::kKey:
      return MatrixTarget{&layer.key, kv, hidden};
    case ParamKind::kValue:
      return MatrixTarget{&layer.value, kv, hidden};
    case ParamKind::kOutput:
      return MatrixTarget{&layer.output, hidden, query};
    case ParamKind::kGate:
      return MatrixTarget{&layer.gate, mlp, hidden};
    case ParamKind::kUp:
      return MatrixTarget{&layer.up, mlp, hidden};
    case ParamKind::kDown:
      return MatrixTarget{&layer.down, hidden, mlp};
    default:
      return absl::InternalError(absl::StrCat(KeyName(key), " is no matrix"));
  }
}

absl::StatusOr<CpuWeights::VectorTarget> CpuWeights::FindVector(ParamKey key) {
  const int64_t hidden = spec_.hidden;
  if (key.kind == ParamKind::kFinalNorm) return VectorTarget{&final_norm_, hidden};
  if (key.layer >= layers_.size()) return absl::InternalError(KeyName(key));
  CpuLayer& layer = layers_[key.layer];
  const auto [query, kv, mlp] = SliceWidths();
  switch (key.kind) {
    case ParamKind::kAttentionNorm:
      return VectorTarget{&layer.attention_norm, hidden};
    case ParamKind::kMlpNorm:
      return VectorTarget{&layer.mlp_norm, hidden};
    case ParamKind::kQueryBias:
      return VectorTarget{&layer.query.bias, query};
    case ParamKind::kKeyBias:
      return VectorTarget{&layer.key.bias, kv};
    case ParamKind::kValueBias:
      return VectorTarget{&layer.value.bias, kv};
    case ParamKind::kOutputBias:
      return VectorTarget{&layer.output.bias, hidden};
    case ParamKind::kGateBias:
      return VectorTarget{&layer.gate.bias, mlp};
    case ParamKind::kUpBias:
      return VectorTarget{&layer.up.bias, mlp};
    case ParamKind::kDownBias:
      return VectorTarget{&layer.down.bias, hidden};
    default:
      return absl::InternalError(absl::StrCat(KeyName(key), " is no vector"));
  }
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
  WEFT_ASSIGN_OR_RETURN(const MatrixTarget target, FindMatrix(key));
  if (source.outputs != target.outputs || source.inputs != target.inputs) {
    return absl::InternalError(absl::StrCat(KeyName(key), ": expected [", target.outputs, ", ",
                                            target.inputs, "], found [", source.outputs, ", ",
                                            source.inputs, "]"));
  }
  WeightType type = KernelType(source.type);
  if (narrow_to_bf16_ && (type == WeightType::kF32 || type == WeightType::kF16)) {
    type = WeightType::kBf16;
  }
  const int64_t bytes = kernels::cpu::PackedBytes(type, source.outputs, source.inputs);
  WEFT_ASSIGN_OR_RETURN(uint8_t* const packed, Allocate(static_cast<size_t>(bytes)));
  PackMatrix(source, type, packed);
  target.matrix->packed = kernels::cpu::PackedMatrix{type, source.outputs, source.inputs, packed};
  return absl::OkStatus();
}

absl::Status CpuWeights::AddVector(ParamKey key, absl::Span<const float> values) {
  WEFT_ASSIGN_OR_RETURN(const VectorTarget target, FindVector(key));
  if (static_cast<int64_t>(values.size()) != target.size) {
    return absl::InternalError(
        absl::StrCat(KeyName(key), ": expected ", target.size, " values, found ", values.size()));
  }
  WEFT_ASSIGN_OR_RETURN(uint8_t* const memory, Allocate(values.size() * sizeof(float)));
  std::memcpy(memory, values.data(), values.size() * sizeof(float));
  *target.vector = absl::MakeConstSpan(reinterpret_cast<const float*>(memory), values.size());
  return absl::OkStatus();
}

absl::Status CpuWeights::Finish() {
  auto missing = [](absl::string_view name, uint32_t layer) {
    return absl::InternalError(absl::StrCat("the loader gave no ", name, " for layer ", layer));
  };
  if (embedding_.packed.data == nullptr) return missing("embedding", 0);
  if (head().packed.data == nullptr) return missing("head", 0);
  if (final_norm_.empty()) return missing("final norm", 0);
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    const CpuLayer& layer = layers_[i];
    for (const CpuMatrix* matrix : {&layer.query, &layer.key, &layer.value, &layer.output,
                                    &layer.gate, &layer.up, &layer.down}) {
      if (matrix->packed.data == nullptr) return missing("matrix", i);
    }
    if (layer.attention_norm.empty() || layer.mlp_norm.empty()) return missing("norm", i);
    if (spec_.qkv_bias &&
        (layer.query.bias.empty() || layer.key.bias.empty() || layer.value.bias.empty())) {
      return missing("query, key or value bias", i);
    }
    if (spec_.output_bias && layer.output.bias.empty()) return missing("output bias", i);
    if (spec_.mlp_bias &&
        (layer.gate.bias.empty() || layer.up.bias.empty() || layer.down.bias.empty())) {
      return missing("MLP bias", i);
    }
  }
  return absl::OkStatus();
}

uint64_t CpuWeights::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

}  // namespace weft::shard
