#include "tests/shard/device/cuda/weights_check.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>

#include "common/limits.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;
using test::CollectingSink;
using Floats = std::vector<float>;
namespace gpu = kernels::cuda::testing;

// Copies `rows` of `from` to rows `begin` and on of `to`, whose rows hold `stride` elements.
void PlaceRows(const Floats& from, size_t rows, size_t begin, size_t stride, Floats& to) {
  const size_t columns = from.size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < columns; ++i)
      to.at((begin + row) * stride + i) = from[row * columns + i];
  }
}

// What a layer's matrices must hold; written from the comments in cuda_weights.h.
Floats ExpectedQkv(const Params& params, const CudaShape& shape, uint32_t layer, bool bias) {
  const size_t width = bias ? 1 : shape.hidden;
  Floats out(shape.qkv_columns() * width);
  size_t head = 0;
  const auto place = [&](ParamKind kind, uint32_t heads) {
    const Floats& all = params.At(kind, layer);
    const size_t size = shape.head_dim * width;
    for (uint32_t i = 0; i < heads; ++i, ++head) {
      const Floats one(all.begin() + i * size, all.begin() + (i + 1) * size);
      PlaceRows(one, shape.head_dim, head * shape.head_stride, width, out);
    }
  };
  place(bias ? ParamKind::kQueryBias : ParamKind::kQuery, shape.query_heads);
  place(bias ? ParamKind::kKeyBias : ParamKind::kKey, shape.kv_heads);
  place(bias ? ParamKind::kValueBias : ParamKind::kValue, shape.kv_heads);
  return out;
}

Floats ExpectedOutput(const Params& params, const CudaShape& shape, uint32_t layer) {
  Floats out(size_t{shape.hidden} * shape.query_columns());
  const Floats& from = params.At(ParamKind::kOutput, layer);
  const size_t columns = shape.query_heads * shape.head_dim;
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t head = i % columns / shape.head_dim;
    const size_t in_head = i % columns % shape.head_dim;
    out.at(i / columns * shape.query_columns() + head * shape.head_stride + in_head) = from[i];
  }
  return out;
}

Floats ExpectedGateUp(const Params& params, const CudaShape& shape, uint32_t layer, bool bias) {
  const size_t width = bias ? 1 : shape.hidden;
  Floats out(shape.gate_up_columns() * width);
  const auto gate = bias ? ParamKind::kGateBias : ParamKind::kGate;
  const auto up = bias ? ParamKind::kUpBias : ParamKind::kUp;
  if (shape.gated_mlp) PlaceRows(params.At(gate, layer), shape.mlp_used, 0, width, out);
  const uint32_t ups = shape.gated_mlp ? shape.mlp : 0;
  PlaceRows(params.At(up, layer), shape.mlp_used, ups, width, out);
  return out;
}

Floats ExpectedDown(const Params& params, const CudaShape& shape, uint32_t layer) {
  Floats out(size_t{shape.hidden} * shape.mlp);
  PlaceRows(params.At(ParamKind::kDown, layer), shape.hidden, 0, shape.mlp, out);
  return out;
}

Floats ExpectedVocab(const Params& params, const CudaShape& shape, ParamKind kind) {
  Floats out(size_t{shape.vocab} * shape.embedding);
  PlaceRows(params.At(kind), shape.vocab_used, 0, shape.embedding, out);
  return out;
}

void CheckEqual(const char* name, const void* device, const Floats& expected, DType type) {
  INFO(name);
  REQUIRE(device != nullptr);
  REQUIRE(reinterpret_cast<uintptr_t>(device) % 256 == 0);
  const Floats want = gpu::Rounded(expected, type);
  const Floats got = Download(device, want.size(), type);
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i])) continue;
    FAIL("element " << i << ": " << got[i] << " instead of " << want[i]);
  }
}

void CheckNorm(const char* name, const CudaNorm& norm, const Params& params, ParamKind weight,
               ParamKind bias, uint32_t layer, bool has_bias, DType type) {
  CheckEqual(name, norm.weight, params.At(weight, layer), type);
  CHECK((norm.bias != nullptr) == has_bias);
  if (has_bias) CheckEqual(name, norm.bias, params.At(bias, layer), type);
}

void CheckHeadNorm(const void* device, const CudaShape& shape, const Floats& norm, DType type) {
  Floats padded = norm;
  padded.resize(shape.head_stride);
  CheckEqual("norm of heads", device, padded, type);
}

// Latents, what makes them, and the matrices of heads lie as the files have them.
void CheckLatent(const CudaLayer& layer, const DecoderSpec& spec, const Params& params, uint32_t i,
                 DType type) {
  const struct {
    ParamKind kind;
    const void* device;
  } all[] = {{ParamKind::kQueryDown, layer.query_down},
             {ParamKind::kQueryLatentNorm, layer.query_latent_norm},
             {ParamKind::kQuery, layer.query},
             {ParamKind::kLatent, layer.latent},
             {ParamKind::kLatentNorm, layer.latent_norm},
             {ParamKind::kKeyUp, layer.key_up},
             {ParamKind::kValueUp, layer.value_up},
             {ParamKind::kOutput, layer.output}};
  for (const auto& param : all) {
    const bool of_query =
        param.kind == ParamKind::kQueryDown || param.kind == ParamKind::kQueryLatentNorm;
    if (of_query && spec.latent.query_rank == 0) {
      CHECK(param.device == nullptr);
      continue;
    }
    CheckEqual("of latents", param.device, params.At(param.kind, i), type);
  }
}

// Rows of a matrix, or elements of a bias, of each expert: `rows` from `begin` on of the
// rows_of_expert that it has in memory.
void PlaceExperts(const Params& params, const CudaShape& shape, ParamKind kind, uint32_t layer,
                  uint32_t rows, uint32_t begin, uint32_t rows_of_expert, uint32_t stride,
                  Floats* out) {
  for (uint32_t expert = 0; expert < shape.experts; ++expert) {
    const Floats& one = params.At(kind, expert * kLayersMax + layer);
    PlaceRows(one, rows, expert * rows_of_expert + begin, stride, *out);
  }
}

void CheckExpertBiases(const CudaLayer& layer, const CudaShape& shape, const Params& params,
                       uint32_t i) {
  const uint32_t columns = shape.expert_mlp;
  Floats gate_up(size_t{shape.experts} * 2 * columns);
  PlaceExperts(params, shape, ParamKind::kExpertGateBias, i, shape.expert_mlp_used, 0, 2 * columns,
               1, &gate_up);
  PlaceExperts(params, shape, ParamKind::kExpertUpBias, i, shape.expert_mlp_used, columns,
               2 * columns, 1, &gate_up);
  CheckEqual("experts' gate and up bias", layer.expert_gate_up_bias, gate_up, shape.type);
  Floats down(size_t{shape.experts} * shape.hidden);
  PlaceExperts(params, shape, ParamKind::kExpertDownBias, i, shape.hidden, 0, shape.hidden, 1,
               &down);
  CheckEqual("experts' down bias", layer.expert_down_bias, down, shape.type);
}

void CheckExperts(const CudaLayer& layer, const DecoderSpec& spec, const CudaShape& shape,
                  const Params& params, uint32_t i) {
  const uint32_t hidden = shape.hidden;
  Floats router(size_t{shape.router_rows} * hidden);
  PlaceRows(params.At(ParamKind::kRouter, i), shape.experts, 0, hidden, router);
  CheckEqual("router", layer.router, router, shape.type);
  if (spec.experts.router_bias) {
    CheckEqual("router bias", layer.router_bias, params.At(ParamKind::kRouterBias, i), shape.type);
  }
  if (spec.experts.choice_bias) {
    // Not rounded.
    CheckEqual("choice bias", layer.choice_bias, params.At(ParamKind::kChoiceBias, i),
               DType::kFloat32);
  }
  const uint32_t columns = shape.expert_mlp;
  Floats gate_up(size_t{shape.experts} * 2 * columns * hidden);
  PlaceExperts(params, shape, ParamKind::kExpertGate, i, shape.expert_mlp_used, 0, 2 * columns,
               hidden, &gate_up);
  PlaceExperts(params, shape, ParamKind::kExpertUp, i, shape.expert_mlp_used, columns, 2 * columns,
               hidden, &gate_up);
  CheckEqual("experts' gate and up", layer.expert_gate_up, gate_up, shape.type);
  Floats down(size_t{shape.experts} * hidden * columns);
  PlaceExperts(params, shape, ParamKind::kExpertDown, i, hidden, 0, hidden, columns, &down);
  CheckEqual("experts' down", layer.expert_down, down, shape.type);
  if (spec.experts.bias) CheckExpertBiases(layer, shape, params, i);
  if (shape.shared_mlp == 0) return;
  Floats shared(size_t{2} * shape.shared_mlp * hidden);
  PlaceRows(params.At(ParamKind::kSharedGate, i), shape.shared_mlp_used, 0, hidden, shared);
  PlaceRows(params.At(ParamKind::kSharedUp, i), shape.shared_mlp_used, shape.shared_mlp, hidden,
            shared);
  CheckEqual("shared gate and up", layer.gate_up, shared, shape.type);
  Floats shared_down(size_t{hidden} * shape.shared_mlp);
  PlaceRows(params.At(ParamKind::kSharedDown, i), hidden, 0, shape.shared_mlp, shared_down);
  CheckEqual("shared down", layer.down, shared_down, shape.type);
}

void CheckPlainMlp(const CudaLayer& layer, const DecoderSpec& spec, const CudaShape& shape,
                   const Params& params, uint32_t i) {
  CheckEqual("gate and up", layer.gate_up, ExpectedGateUp(params, shape, i, false), shape.type);
  CheckEqual("down", layer.down, ExpectedDown(params, shape, i), shape.type);
  CHECK((layer.gate_up_bias != nullptr) == spec.mlp_bias);
  CHECK((layer.down_bias != nullptr) == spec.mlp_bias);
  if (!spec.mlp_bias) return;
  CheckEqual("gate and up bias", layer.gate_up_bias, ExpectedGateUp(params, shape, i, true),
             shape.type);
  CheckEqual("down bias", layer.down_bias, params.At(ParamKind::kDownBias, i), shape.type);
}

// What is outside the layers besides embedding and head.
void CheckEnds(const CudaWeights& weights, const DecoderSpec& spec, const CudaShape& shape,
               const Params& params) {
  const DType type = shape.type;
  if (spec.final_norm) {
    CheckNorm("final norm", weights.final_norm(), params, ParamKind::kFinalNorm,
              ParamKind::kFinalNormBias, 0, spec.norm_bias, type);
  }
  CHECK((weights.project_in() != nullptr) == shape.projects);
  if (shape.projects) {
    CheckEqual("projection of the embedding", weights.project_in(),
               params.At(ParamKind::kProjectIn), type);
    CheckEqual("projection in front of the head", weights.project_out(),
               params.At(ParamKind::kProjectOut), type);
  }
  if (spec.embedding_norm) {
    CheckNorm("embedding norm", weights.embedding_norm(), params, ParamKind::kEmbeddingNorm,
              ParamKind::kEmbeddingNormBias, 0, spec.norm_bias, type);
  }
  if (spec.position == PositionKind::kLearned) {
    CheckEqual("positions", weights.positions(), params.At(ParamKind::kPositionEmbedding), type);
  }
  CHECK((weights.head_bias() != nullptr) == spec.head_bias);
  if (spec.head_bias) {
    Floats padded = params.At(ParamKind::kHeadBias);
    padded.resize(shape.vocab);
    CheckEqual("head bias", weights.head_bias(), padded, type);
  }
}

}  // namespace

std::vector<float> Download(const void* device, size_t count, DType type) {
  Floats out(count);
  if (type == DType::kFloat32) {
    WEFT_CUDA_CHECK(cudaMemcpy(out.data(), device, count * 4, cudaMemcpyDeviceToHost));
    return out;
  }
  std::vector<__nv_bfloat16> halves(count);
  WEFT_CUDA_CHECK(cudaMemcpy(halves.data(), device, count * 2, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < count; ++i) out[i] = __bfloat162float(halves[i]);
  return out;
}

Params::Params(const CollectingSink& sink) {
  for (const auto& [id, collected] : sink.params()) {
    Floats& values = values_[id];
    values = collected.values;
    const size_t row_bytes =
        BytesOf(collected.type, static_cast<uint64_t>(std::max<int64_t>(collected.inputs, 0)));
    for (int64_t row = 0; row < collected.outputs; ++row) {
      const Floats decoded = test::DecodeRow(
          collected.type, collected.bytes.data() + row * row_bytes, collected.inputs);
      values.insert(values.end(), decoded.begin(), decoded.end());
    }
  }
}

void CheckWeights(const CudaWeights& weights, const DecoderSpec& spec, const CudaShape& shape,
                  const Params& params) {
  const DType type = shape.type;
  CheckEqual("embedding", weights.embedding(),
             ExpectedVocab(params, shape, ParamKind::kTokenEmbedding), type);
  CHECK((weights.head() == weights.embedding()) == spec.tied_head);
  if (!spec.tied_head) {
    CheckEqual("head", weights.head(), ExpectedVocab(params, shape, ParamKind::kHead), type);
  }
  CheckEnds(weights, spec, shape, params);
  for (uint32_t i = 0; i < spec.layers; ++i) {
    INFO("layer " << i);
    const CudaLayer& layer = weights.layer(i);
    CheckNorm("attention norm", layer.attention_norm, params, ParamKind::kAttentionNorm,
              ParamKind::kAttentionNormBias, i, spec.norm_bias, type);
    if (shape.latent) {
      CheckLatent(layer, spec, params, i, type);
    } else {
      CheckEqual("qkv", layer.qkv, ExpectedQkv(params, shape, i, false), type);
      CheckEqual("output", layer.output, ExpectedOutput(params, shape, i), type);
    }
    if (spec.shared_norm) {
      CHECK(layer.mlp_norm.weight == layer.attention_norm.weight);
      CHECK(layer.mlp_norm.bias == layer.attention_norm.bias);
    } else {
      CheckNorm("MLP norm", layer.mlp_norm, params, ParamKind::kMlpNorm, ParamKind::kMlpNormBias, i,
                spec.norm_bias, type);
    }
    if (spec.head_norms) {
      CheckHeadNorm(layer.query_norm, shape, params.At(ParamKind::kQueryNorm, i), type);
      CheckHeadNorm(layer.key_norm, shape, params.At(ParamKind::kKeyNorm, i), type);
    }
    CHECK((layer.qkv_bias != nullptr) == spec.qkv_bias);
    CHECK((layer.output_bias != nullptr) == spec.output_bias);
    if (spec.qkv_bias) {
      CheckEqual("qkv bias", layer.qkv_bias, ExpectedQkv(params, shape, i, true), type);
    }
    if (spec.output_bias) {
      CheckEqual("output bias", layer.output_bias, params.At(ParamKind::kOutputBias, i), type);
    }
    if (spec.HasExperts(i)) {
      CheckExperts(layer, spec, shape, params, i);
    } else {
      CheckPlainMlp(layer, spec, shape, params, i);
    }
  }
}

}  // namespace weft::shard
