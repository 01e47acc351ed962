#include "kernels/cuda/attention/prompt_attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>

#include "tests/kernels/cuda/attention/prompt_attention_rig.h"
#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/kernels/cuda/graph.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;
using testing::PromptChunk;
using testing::PromptLayer;
using testing::PromptSetup;

void CheckAgainstReference(const PromptSetup& setup) {
  PromptLayer layer(setup);
  const std::vector<double> reference = layer.Reference();
  // Weights are rounded to the type of the values: bf16 in the cache bounds float32 results too.
  const bool exact = setup.type == DType::kFloat32 && setup.kv_type == DType::kFloat32;
  const double tolerance = testing::Tolerance(exact ? DType::kFloat32 : DType::kBfloat16);
  for (const bool tensor_maps : {false, true}) {
    if (tensor_maps && !setup.HasMaps()) continue;
    CAPTURE(tensor_maps);
    const std::vector<float> out = layer.OwnRows(layer.Run(tensor_maps));
    CHECK(testing::RelativeError(out, reference) < tolerance);
    // Row by row too: one bad row of many would be lost in the norm of all. Rows over one key are
    // as exact as the others; 2 for the spread over rows of 64 elements.
    double worst = 0;
    for (size_t at = 0; at < out.size(); at += setup.head_dim) {
      const double error = testing::RelativeError(std::span(out).subspan(at, setup.head_dim),
                                                  std::span(reference).subspan(at, setup.head_dim));
      worst = std::max(worst, error);
    }
    CHECK(worst < 2 * tolerance);
  }
}

// All lengths with all prefixes, and sequences without rows first, between and last.
std::vector<PromptChunk> ManyChunks() {
  std::vector<PromptChunk> chunks = {{0, 0}};
  for (uint32_t rows : {1u, 2u, 63u, 64u, 65u, 200u}) {
    for (uint32_t prefix : {0u, 1u, 63u, 64u, 500u}) chunks.push_back({rows, prefix});
    chunks.push_back({0, 70});
  }
  return chunks;
}

TEST_CASE("Prompt attention: lengths, prefixes and head sizes", "[cuda][prompt_attention]") {
  PromptSetup setup;
  setup.chunks = ManyChunks();
  setup.head_dim = GENERATE(64, 80, 96, 128, 256);
  CAPTURE(setup.head_dim);
  CheckAgainstReference(setup);
}

// Several tiles of keys and of rows, with prefixes that end anywhere in a tile.
TEST_CASE("Prompt attention: long prompts", "[cuda][prompt_attention][long]") {
  PromptSetup setup;
  setup.chunks = {{300, 77}, {129, 383}, {128, 128}, {1, 640}, {70, 190}, {64, 65}, {256, 1}};
  setup.groups = {1};
  setup.head_dim = GENERATE(64, 128, 256);
  setup.window = GENERATE(0, 64, 130, 257);
  setup.alibi = GENERATE(false, true);
  setup.soft_cap = setup.alibi ? 3.0f : 0.0f;
  CAPTURE(setup.head_dim, setup.window, setup.alibi);
  CheckAgainstReference(setup);
}

// What lies behind the last key is NaN: contexts that end everywhere in a tile, with windows that
// begin everywhere.
TEST_CASE("Prompt attention: ends of contexts", "[cuda][prompt_attention]") {
  PromptSetup setup;
  for (uint32_t i = 0; i < 128; ++i) {
    const uint32_t rows = 1 + i * 37 % 67;
    setup.chunks.push_back({rows, 128 + i - rows});
  }
  setup.groups = {1};
  setup.head_dim = GENERATE(64, 128, 256);
  setup.window = GENERATE(0, 43);
  CAPTURE(setup.head_dim, setup.window);
  CheckAgainstReference(setup);
}

TEST_CASE("Prompt attention: equal bits however a prompt is cut", "[cuda][prompt_attention]") {
  PromptSetup setup;
  setup.chunks = {{333, 45}};
  setup.head_dim = GENERATE(64, 128, 256);
  setup.window = GENERATE(0, 100);
  setup.alibi = GENERATE(false, true);
  const bool tensor_maps = GENERATE(false, true);
  CAPTURE(setup.head_dim, setup.window, setup.alibi, tensor_maps);
  PromptLayer whole(setup);
  const std::vector<float> out = whole.Run(tensor_maps);
  for (uint32_t rows : {1u, 63u, 64u, 83u, 128u, 200u, 290u, 332u}) {
    CAPTURE(rows);
    PromptLayer rest(setup);
    rest.Cut(rows);
    const std::vector<float> again = rest.Run(tensor_maps);
    REQUIRE(rest.OwnRows(again).size() == rest.OwnEnd() - rest.OwnBegin());
    CHECK(std::equal(again.begin() + rest.OwnBegin(), again.begin() + rest.OwnEnd(),
                     out.begin() + rest.OwnBegin()));
  }
}

// Several hundred sequences of very unequal length: far more items than multiprocessors, of one and
// of two warpgroups in all orders.
std::vector<PromptChunk> HundredsOfChunks(uint32_t count) {
  constexpr uint32_t kRows[] = {1, 128, 64, 1, 65, 17, 128, 1, 1, 127, 2, 64};
  std::mt19937_64 random(testing::Seed());
  std::vector<PromptChunk> chunks = {{3, 900}, {700, 0}};
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t rows = kRows[i % std::size(kRows)];
    // Contexts that end with a tile of keys, that have just one, and others.
    const uint32_t prefixes[] = {0, 256 - rows, static_cast<uint32_t>(random() % 260)};
    chunks.push_back({rows, prefixes[random() % 3]});
    if (i % 50 == 0) chunks.push_back({0, 1});
  }
  chunks.push_back({300, 411});
  chunks.push_back({1, 1500});
  return chunks;
}

TEST_CASE("Prompt attention: hundreds of unequal sequences", "[cuda][prompt_attention][items]") {
  PromptSetup setup;
  setup.head_dim = GENERATE(64, 128, 256);
  setup.chunks = HundredsOfChunks(setup.head_dim == 256 ? 120 : 300);
  setup.groups = {1, 2};
  CAPTURE(setup.head_dim);
  CheckAgainstReference(setup);
}

TEST_CASE("Prompt attention: unequal lengths and groups", "[cuda][prompt_attention][items]") {
  PromptSetup setup;
  setup.chunks = HundredsOfChunks(12);
  setup.head_dim = GENERATE(64, 128, 256);
  setup.groups = {3, 1, 2};
  setup.window = GENERATE(0, 90);
  setup.alibi = setup.window != 0;
  CAPTURE(setup.head_dim, setup.window);
  CheckAgainstReference(setup);
}

// Launches that follow each other as the layers of a step do, by one plan.
TEST_CASE("Prompt attention: a plan serves many launches", "[cuda][prompt_attention][items]") {
  PromptSetup setup;
  setup.chunks = HundredsOfChunks(60);
  setup.head_dim = GENERATE(64, 128, 256);
  setup.groups = {4, 1, 4};
  CAPTURE(setup.head_dim);
  PromptLayer layer(setup);
  const std::vector<float> once = layer.OwnRows(layer.Run(true));
  for (uint32_t launches : {2u, 9u}) {
    CAPTURE(launches);
    const std::vector<float> again = layer.OwnRows(layer.Run(true, launches));
    REQUIRE(again.size() == once.size());
    CHECK(std::memcmp(again.data(), once.data(), once.size() * sizeof(float)) == 0);
  }
}

// Around one and two items for each multiprocessor of an H200: blocks with no item, with the last.
TEST_CASE("Prompt attention: few items", "[cuda][prompt_attention][items]") {
  PromptSetup setup;
  const uint32_t items = GENERATE(1, 2, 131, 132, 133, 264, 265);
  const uint32_t rows = GENERATE(1, 66);
  setup.chunks.assign(items, {rows, 70});
  setup.groups = {1};
  CAPTURE(items, rows);
  PromptLayer layer(setup);
  const std::vector<float> out = layer.OwnRows(layer.Run(true, 5));
  CHECK(testing::RelativeError(out, layer.Reference()) < testing::Tolerance(setup.type));
}

TEST_CASE("Prompt attention: types and other head sizes", "[cuda][prompt_attention]") {
  PromptSetup setup;
  setup.chunks = {{65, 64}, {0, 3}, {1, 500}, {130, 1}, {2, 63}, {17, 0}};
  setup.head_dim = GENERATE(8, 64, 80, 112, 256);
  setup.groups = {1, 2};
  setup.type = GENERATE(DType::kFloat32, DType::kBfloat16);
  setup.kv_type = GENERATE(DType::kFloat32, DType::kBfloat16);
  setup.window = GENERATE(0, 17);
  CAPTURE(setup.head_dim, static_cast<int>(setup.type), static_cast<int>(setup.kv_type),
          setup.window);
  CheckAgainstReference(setup);
}

TEST_CASE("Prompt attention: groups, windows, caps and ALiBi", "[cuda][prompt_attention]") {
  PromptSetup setup;
  setup.chunks = {{200, 64}, {1, 500}, {65, 1}, {0, 0}, {63, 63}, {2, 126}};
  setup.head_dim = GENERATE(64, 128, 256);
  setup.window = GENERATE(0, 1, 17, 100);
  setup.soft_cap = GENERATE(0.0f, 2.0f);
  setup.alibi = GENERATE(false, true);
  setup.groups = {1, 2};
  CAPTURE(setup.head_dim, setup.window, setup.soft_cap, setup.alibi);
  CheckAgainstReference(setup);
}

TEST_CASE("Prompt attention: sinks", "[cuda][prompt_attention]") {
  PromptSetup setup;
  setup.chunks = {{200, 64}, {1, 500}, {65, 1}, {0, 0}, {63, 63}, {2, 126}, {1, 0}};
  setup.head_dim = GENERATE(64, 80, 112, 128, 256);
  setup.window = GENERATE(0, 17);
  setup.soft_cap = setup.window != 0 ? 2.0f : 0.0f;
  setup.sinks = true;
  setup.type = GENERATE(DType::kFloat32, DType::kBfloat16);
  setup.kv_type = GENERATE(DType::kFloat32, DType::kBfloat16);
  setup.groups = {1, 2};
  CAPTURE(setup.head_dim, setup.window, static_cast<int>(setup.type));
  CheckAgainstReference(setup);
}

TEST_CASE("Prompt attention: groups of query heads", "[cuda][prompt_attention]") {
  PromptSetup setup;
  setup.chunks = {{65, 64}, {1, 100}};
  setup.groups = GENERATE(std::vector<uint32_t>{1, 1, 1}, std::vector<uint32_t>{3, 3},
                          std::vector<uint32_t>{4, 4}, std::vector<uint32_t>{8},
                          std::vector<uint32_t>{1, 4, 2}, std::vector<uint32_t>(40, 1));
  setup.type = GENERATE(DType::kFloat32, DType::kBfloat16);
  CAPTURE(setup.groups, static_cast<int>(setup.type));
  CheckAgainstReference(setup);
}

TEST_CASE("Prompt attention: equal bits from run to run", "[cuda][prompt_attention]") {
  PromptSetup setup;
  setup.chunks = ManyChunks();
  setup.alibi = GENERATE(false, true);
  setup.kv_type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const bool tensor_maps = GENERATE(false, true);
  if (tensor_maps && !setup.HasMaps()) return;
  PromptLayer layer(setup);
  const std::vector<float> first = layer.OwnRows(layer.Run(tensor_maps));
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> again = layer.OwnRows(layer.Run(tensor_maps));
    REQUIRE(again.size() == first.size());
    CHECK(std::memcmp(again.data(), first.data(), first.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("Prompt attention: limits", "[cuda][prompt_attention]") {
  PromptAttentionParams params;
  CHECK(PromptTilesMax(0, 5) == 0);
  CHECK(PromptTilesMax(3, 5) == 3);
  CHECK(PromptTilesMax(256, 1) == 3);
  CHECK(PromptAttention(params, nullptr) == cudaSuccess);
  params.rows_max = 1;
  params.attention.sequences = 1;
  params.attention.query_heads = 1;
  params.attention.scale = 1;
  params.attention.kv.head_dim = 264;
  CHECK(PromptAttention(params, nullptr) == cudaErrorInvalidValue);
  params.attention.kv.head_dim = 128;
  params.attention.scale = 0;
  CHECK(PromptAttention(params, nullptr) == cudaErrorInvalidValue);
  KvTensorMaps maps;
  params.attention.scale = 1;
  params.tensor_maps = &maps;
  CHECK(PromptAttention(params, nullptr) == cudaErrorInvalidValue);  // No counters.
  CHECK(MakeKvTensorMaps({nullptr, nullptr, 1, 96, DType::kBfloat16}, 1, &maps) ==
        cudaErrorInvalidValue);
  CHECK(MakeKvTensorMaps({nullptr, nullptr, 1, 64, DType::kFloat32}, 1, &maps) ==
        cudaErrorInvalidValue);
}

// Drawing a hundred million numbers would take longer than all the kernels.
DeviceTensor RandomHalves(std::mt19937_64& random, size_t size) {
  const std::vector<float> period = testing::RandomFloats(random, (1u << 20) + 7);
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = period[i % period.size()];
  return DeviceTensor(DType::kBfloat16, values);
}

// Of one of several launches that follow each other, as the layers of a step do but for what is
// between them.
double MedianInGraphUs(const PromptAttentionParams& params) {
  constexpr int kLaunches = 8;
  testing::Graph graph([&](cudaStream_t stream) {
    for (int i = 0; i < kLaunches; ++i) WEFT_CUDA_CHECK(PromptAttention(params, stream));
  });
  graph.Replay();
  std::vector<double> times;
  for (int i = 0; i < 7; ++i) times.push_back(graph.Replay() / kLaunches);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

TEST_CASE("Prompt attention: time", "[cuda][prompt_attention][time]") {
  constexpr uint32_t kQueryHeads = 32, kKvHeads = 8;
  const uint32_t head_dim = GENERATE(64, 128, 256);
  const uint32_t rows = GENERATE(2048, 8192, 16384);
  const bool tensor_maps = GENERATE(false, true);
  if (head_dim != 128 && rows != 8192) return;
  std::mt19937_64 random(testing::Seed());
  const size_t query_size = size_t{rows} * kQueryHeads * head_dim;
  const size_t kv_size = size_t{rows} * kKvHeads * head_dim;
  DeviceTensor query = RandomHalves(random, query_size);
  DeviceTensor keys = RandomHalves(random, kv_size);
  DeviceTensor values = RandomHalves(random, kv_size);
  DeviceTensor out(DType::kBfloat16, query_size);
  std::vector<uint32_t> ids(rows / kKvBlockTokens);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  DeviceArray<uint32_t> tables(ids);
  DeviceArray<uint32_t> contexts(std::vector<uint32_t>{rows});
  DeviceArray<uint32_t> row_begin(std::vector<uint32_t>{0, rows});
  DeviceArray<uint32_t> kv_head_begin(std::vector<uint32_t>{0, 4, 8, 12, 16, 20, 24, 28, 32});
  DeviceArray<PromptTile> tiles(PromptTilesMax(rows, 1));
  PromptAttentionParams params;
  params.attention.query = query.data();
  params.attention.query_stride = kQueryHeads * head_dim;
  params.attention.query_heads = kQueryHeads;
  params.attention.kv = {keys.data(), values.data(), kKvHeads, head_dim, DType::kBfloat16};
  params.attention.tables = {tables.data(), static_cast<uint32_t>(ids.size())};
  params.attention.context_lengths = contexts.data();
  params.attention.sequences = 1;
  params.attention.kv_head_begin = kv_head_begin.data();
  params.attention.group_max = 4;
  params.attention.scale = 1 / std::sqrt(static_cast<float>(head_dim));
  params.attention.out = out.data();
  params.row_begin = row_begin.data();
  params.rows_max = rows;
  params.tiles = tiles.data();
  DeviceArray<uint32_t> counters(kPromptCounters);
  params.counters = counters.data();
  KvTensorMaps maps;
  if (tensor_maps) {
    WEFT_CUDA_CHECK(
        MakeKvTensorMaps(params.attention.kv, static_cast<uint32_t>(ids.size()), &maps));
    params.tensor_maps = &maps;
  }
  const double plan_us = testing::MedianUs(
      [&](cudaStream_t stream) { WEFT_CUDA_CHECK(PlanPromptAttention(params, stream)); });
  const double us = testing::MedianUs(
      [&](cudaStream_t stream) { WEFT_CUDA_CHECK(PromptAttention(params, stream)); }, 10);
  const std::string shape =
      std::to_string(rows) + " rows, 32/8 heads of " + std::to_string(head_dim);
  const double bytes = 4.0 * query_size + 4.0 * kv_size;
  const double flops = 4.0 * head_dim * kQueryHeads * (0.5 * rows * rows);
  testing::Report(tensor_maps ? "prompt attention: wgmma" : "prompt attention: mma", shape, us,
                  bytes, flops);
  if (tensor_maps) {
    testing::Report("prompt attention: wgmma, of 8", shape, MedianInGraphUs(params), bytes, flops);
  }
  testing::Report("prompt attention: plan", shape, plan_us, 8.0 * tiles.size());
}

}  // namespace
}  // namespace weft::kernels::cuda
