#include "shard/device/cuda/weights.h"

#include <bit>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/thread.h"
#include "kernels/random_weight.h"
#include "shard/device/cuda/weight_layout.h"
#include "shard/weights/loader.h"
#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/shard/weights/collecting_sink.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;
using test::Collected;
using test::CollectingSink;
using Floats = std::vector<float>;
namespace gpu = kernels::cuda::testing;

const std::atomic<bool> kNeverCancel{false};

// A rank's parameters in float32, looked up by kind and layer.
class Params {
 public:
  explicit Params(const CollectingSink& sink) {
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
  // Row-major, without padding.
  const Floats& At(ParamKind kind, uint32_t layer = 0) const { return values_.at({kind, layer}); }

 private:
  std::map<test::ParamId, Floats> values_;
};

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
  Floats out(size_t{shape.vocab} * shape.hidden);
  PlaceRows(params.At(kind), shape.vocab_used, 0, shape.hidden, out);
  return out;
}

Floats Download(const void* device, size_t count, DType type) {
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

// What is outside the layers besides embedding and head.
void CheckEnds(const CudaWeights& weights, const DecoderSpec& spec, const CudaShape& shape,
               const Params& params) {
  const DType type = shape.type;
  CheckNorm("final norm", weights.final_norm(), params, ParamKind::kFinalNorm,
            ParamKind::kFinalNormBias, 0, spec.norm_bias, type);
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
    CheckEqual("qkv", layer.qkv, ExpectedQkv(params, shape, i, false), type);
    CheckEqual("output", layer.output, ExpectedOutput(params, shape, i), type);
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
    CheckEqual("gate and up", layer.gate_up, ExpectedGateUp(params, shape, i, false), type);
    CheckEqual("down", layer.down, ExpectedDown(params, shape, i), type);
    CHECK((layer.qkv_bias != nullptr) == spec.qkv_bias);
    CHECK((layer.output_bias != nullptr) == spec.output_bias);
    CHECK((layer.gate_up_bias != nullptr) == spec.mlp_bias);
    CHECK((layer.down_bias != nullptr) == spec.mlp_bias);
    if (spec.qkv_bias) {
      CheckEqual("qkv bias", layer.qkv_bias, ExpectedQkv(params, shape, i, true), type);
    }
    if (spec.output_bias) {
      CheckEqual("output bias", layer.output_bias, params.At(ParamKind::kOutputBias, i), type);
    }
    if (spec.mlp_bias) {
      CheckEqual("gate and up bias", layer.gate_up_bias, ExpectedGateUp(params, shape, i, true),
                 type);
      CheckEqual("down bias", layer.down_bias, params.At(ParamKind::kDownBias, i), type);
    }
  }
}

CudaShape ShapeOf(const DecoderSpec& spec, const SlicePlan& slice, DType type) {
  const auto shape = MakeCudaShape(spec, slice, type);
  INFO(shape.status());
  REQUIRE(shape.ok());
  return *shape;
}

std::unique_ptr<CudaWeights> CreateOrFail(const DecoderSpec& spec, const CudaShape& shape) {
  auto weights = CudaWeights::Create(spec, shape);
  INFO(weights.status());
  REQUIRE(weights.ok());
  return *std::move(weights);
}

TEST_CASE("Every rank's weights are the file's, with zeros in the padding", "[cuda][weights]") {
  const std::string name = GENERATE(from_range(test::GoldenModels()));
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const uint32_t world = GENERATE(1u, 2u, 3u);
  if (world > test::GoldenRanksMax(name)) return;
  const auto files = ModelFiles::Open(test::GoldenModelPath(name));
  INFO(files.status());
  REQUIRE(files.ok());
  const DecoderSpec& spec = (*files)->spec();
  for (Rank rank = 0; rank < world; ++rank) {
    CAPTURE(name, static_cast<int>(type), world, rank);
    const auto slice = MakeSlicePlan(spec, rank, world, (*files)->mlp_multiple());
    REQUIRE(slice.ok());
    const CudaShape shape = ShapeOf(spec, *slice, type);
    LoadProgress progress;
    CollectingSink sink;
    REQUIRE((*files)->Load(*slice, 1, sink, progress, kNeverCancel).ok());
    const auto weights = CreateOrFail(spec, shape);
    const absl::Status loaded = (*files)->Load(*slice, 3, *weights, progress, kNeverCancel);
    const absl::Status finished = weights->Finish();
    INFO(loaded << " " << finished);
    REQUIRE(loaded.ok());
    REQUIRE(finished.ok());
    CheckWeights(*weights, spec, shape, Params(sink));
  }
}

DecoderSpec SpecOf(uint32_t layers, uint32_t hidden, uint32_t heads, uint32_t kv_heads,
                   uint32_t head_dim, uint32_t mlp, uint32_t vocab) {
  DecoderSpec spec;
  spec.layers = layers;
  spec.hidden = hidden;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = head_dim;
  spec.mlp_hidden = mlp;
  spec.vocab = vocab;
  return spec;
}

SlicePlan WholeOf(const DecoderSpec& spec) {
  const auto slice = MakeSlicePlan(spec, 0, 1, 1);
  REQUIRE(slice.ok());
  return *slice;
}

// Feeds `sink` what FillRandom makes of one parameter, in float32.
absl::Status FeedRandom(const WeightLayout& layout, ParamKey key, uint64_t seed, WeightSink& sink) {
  const auto& grid = layout.At(key).grid;
  const bool norm = IsNorm(key.kind);
  if (norm || IsBias(key.kind)) {
    return sink.AddVector(key, Floats(grid.columns, norm ? 1.0f : 0.0f));
  }
  const uint64_t random = kernels::RandomWeightKey(seed, ParamNumber(key));
  Floats values(size_t{grid.rows} * grid.columns);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto row = static_cast<uint32_t>(i / grid.columns);
    const auto column = static_cast<uint32_t>(i % grid.columns);
    values[i] = kernels::RandomWeight(kernels::RandomWeightRow(random, row), column);
  }
  const auto row = [&](int64_t i) {
    return reinterpret_cast<const uint8_t*>(values.data() + i * grid.columns);
  };
  return sink.AddMatrix(key, {TensorType::kF32, grid.rows, grid.columns, row});
}

Params RandomParams(const WeightLayout& layout, uint64_t seed) {
  CollectingSink sink;
  for (const ParamKey key : layout.params()) REQUIRE(FeedRandom(layout, key, seed, sink).ok());
  return Params(sink);
}

TEST_CASE("Random weights are the host's, and padding stays zero", "[cuda][weights]") {
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  // Padded heads, MLP and vocabulary, with widths that end inside a vector; and none padded.
  DecoderSpec spec = GENERATE(SpecOf(2, 48, 6, 2, 20, 90, 211), SpecOf(2, 72, 3, 3, 33, 75, 97),
                              SpecOf(1, 1024, 8, 2, 128, 2560, 4096));
  spec.tied_head = GENERATE(false, true);
  spec.qkv_bias = spec.output_bias = spec.mlp_bias = spec.tied_head;
  const CudaShape shape = ShapeOf(spec, WholeOf(spec), type);
  const auto weights = CreateOrFail(spec, shape);
  REQUIRE(weights->FillRandom(7).ok());
  REQUIRE(weights->Finish().ok());
  CheckWeights(*weights, spec, shape, RandomParams(WeightLayout(spec, shape), 7));
  // They spread as they should.
  const size_t count = size_t{shape.vocab_used} * shape.hidden;
  const Floats numbers = Download(weights->embedding(), count, type);
  double sum = 0;
  double squares = 0;
  for (const float x : numbers) {
    sum += x;
    squares += double{x} * x;
  }
  CHECK(std::abs(sum / static_cast<double>(count)) < 1e-3);
  CHECK(std::sqrt(squares / static_cast<double>(count)) == Approx(0.02).epsilon(0.03));
}

TEST_CASE("Buffers are filled again only when they are copied", "[cuda][weights]") {
  // More parameters than there are buffers, and one that needs several buffers at a time.
  DecoderSpec spec = SpecOf(60, 96, 6, 2, 20, 200, 60000);
  spec.tied_head = true;
  const CudaShape shape = ShapeOf(spec, WholeOf(spec), GENERATE(DType::kFloat32, DType::kBfloat16));
  const WeightLayout layout(spec, shape);
  const auto weights = CreateOrFail(spec, shape);
  std::vector<Thread> threads;
  std::atomic<size_t> next{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back("upload", [&] {
      for (size_t at = next++; at < layout.params().size(); at = next++) {
        WEFT_CHECK(FeedRandom(layout, layout.params()[at], 3, *weights).ok());
      }
    });
  }
  threads.clear();  // joins
  REQUIRE(weights->Finish().ok());
  CheckWeights(*weights, spec, shape, RandomParams(layout, 3));
}

TEST_CASE("A parameter that never came is named", "[cuda][weights]") {
  const DecoderSpec spec = SpecOf(2, 48, 6, 2, 20, 96, 211);
  const CudaShape shape = ShapeOf(spec, WholeOf(spec), DType::kFloat32);
  const WeightLayout layout(spec, shape);
  const auto weights = CreateOrFail(spec, shape);
  for (const ParamKey key : layout.params()) {
    if (key.kind == ParamKind::kUp && key.layer == 1) continue;
    REQUIRE(FeedRandom(layout, key, 1, *weights).ok());
  }
  const absl::Status status = weights->Finish();
  CHECK(absl::IsInternal(status));
  CHECK(absl::StrContains(status.message(), "up of layer 1"));
}

TEST_CASE("Parameters of another shape or model are refused by name", "[cuda][weights]") {
  DecoderSpec spec = SpecOf(1, 48, 6, 2, 20, 96, 211);
  spec.tied_head = true;
  const auto weights = CreateOrFail(spec, ShapeOf(spec, WholeOf(spec), DType::kBfloat16));
  const Floats zeros(48 * 211);
  const auto row = [&zeros](int64_t) { return reinterpret_cast<const uint8_t*>(zeros.data()); };
  const absl::Status shape =
      weights->AddMatrix({ParamKind::kDown}, {TensorType::kF32, 48, 95, row});
  CHECK(absl::IsInternal(shape));
  CHECK(absl::StrContains(shape.message(), "down of layer 0: expected [48, 96], found [48, 95]"));
  const absl::Status head =
      weights->AddMatrix({ParamKind::kHead}, {TensorType::kF32, 211, 48, row});
  CHECK(absl::IsInternal(head));
  CHECK(absl::StrContains(head.message(), "head is no part of this model"));
  CHECK_FALSE(weights->AddVector({ParamKind::kMlpNorm, 1}, Floats(48)).ok());
}

// Seconds that `work` takes.
double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST_CASE("Weights of an 8B model: time", "[cuda][weights][time]") {
  const DecoderSpec spec = SpecOf(32, 4096, 32, 8, 128, 14336, 128256);
  const CudaShape shape = ShapeOf(spec, WholeOf(spec), DType::kBfloat16);
  const auto bytes = static_cast<double>(CudaWeights::Bytes(spec, shape));
  std::unique_ptr<CudaWeights> weights;
  const double create = Seconds([&] { weights = CreateOrFail(spec, shape); });
  gpu::Report("weights: create", "8B bf16", create * 1e6, bytes);
  const double fill = Seconds([&] { REQUIRE(weights->FillRandom(1).ok()); });
  gpu::Report("weights: random", "8B bf16", fill * 1e6, bytes);
  // The rows of all matrices lie in one host buffer, so that no disk is measured.
  const std::vector<uint8_t> host(size_t{256} << 20, 1);
  for (const TensorType type : {TensorType::kBf16, TensorType::kF16, TensorType::kQ4_0}) {
    const auto upload = [&](ParamKey key) {
      const auto& grid = WeightLayout(spec, shape).At(key).grid;
      const size_t row_bytes = BytesOf(type, grid.columns);
      const size_t rows = host.size() / row_bytes;
      const auto row = [&](int64_t i) { return host.data() + i % rows * row_bytes; };
      WEFT_CHECK(weights->AddMatrix(key, {type, grid.rows, grid.columns, row}).ok());
    };
    const double took = Seconds([&] {
      std::vector<Thread> threads;
      std::atomic<uint32_t> next{0};
      for (int i = 0; i < 16; ++i) {
        threads.emplace_back("upload", [&] {
          for (uint32_t layer = next++; layer < spec.layers; layer = next++) {
            for (const ParamKind kind :
                 {ParamKind::kQuery, ParamKind::kKey, ParamKind::kValue, ParamKind::kOutput,
                  ParamKind::kGate, ParamKind::kUp, ParamKind::kDown}) {
              upload({kind, layer});
            }
          }
        });
      }
      threads.clear();
    });
    const double layer_elements = 2.0 * 4096 * (4096 + 1024) + 3.0 * 4096 * 14336;
    gpu::Report("weights: 16 threads", absl::StrCat("8B layers from ", FormatOf(type).name),
                took * 1e6, 2 * spec.layers * layer_elements);
  }
  REQUIRE(weights->Finish().ok());
}

}  // namespace
}  // namespace weft::shard
