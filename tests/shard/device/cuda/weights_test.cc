#include "shard/device/cuda/weights.h"

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
#include "tests/shard/device/cuda/weights_check.h"
#include "tests/shard/weights/collecting_sink.h"
#include "tests/shard/weights/goldens.h"

namespace weft::shard {
namespace {

using kernels::cuda::DType;
using test::CollectingSink;
using Floats = std::vector<float>;
namespace gpu = kernels::cuda::testing;

const std::atomic<bool> kNeverCancel{false};

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
