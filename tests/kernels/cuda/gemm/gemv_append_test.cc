// Gemv that rotates and appends: bit for bit what Gemv and RotateAndAppend one after the other
// leave in the query and in the cache.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/cuda/elementwise/rope.h"
#include "tests/kernels/cuda/gemm/gemv_rig.h"
#include "tests/kernels/cuda/graph.h"

namespace weft::kernels::cuda {
namespace {

using testing::Before;
using testing::DeviceArray;
using testing::DeviceTensor;
using testing::Graph;
using testing::Inputs;
using testing::kHalf;
using testing::kRows;
using testing::kSameBits;
using testing::Workspace;

struct Case {
  uint32_t query_heads;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t k;
  bool rotates = true;
  bool biased = false;

  uint32_t heads() const { return query_heads + 2 * kv_heads; }
  uint32_t n() const { return heads() * head_dim; }
};

// Everything but the query and the cache, for eight rows of six sequences: two follow each other
// over a block's border, one is padding.
class Problem {
 public:
  Problem(const Case& shape, std::mt19937_64& random)
      : shape_(shape),
        inputs_(random, shape.n(), shape.k),
        bias_(DType::kBfloat16, testing::RandomFloats(random, shape.n())),
        positions_(kPositions),
        sequences_(kSequences) {
    std::vector<uint32_t> ids(kTables * kStride);
    std::iota(ids.begin(), ids.end(), 0u);
    std::shuffle(ids.begin(), ids.end(), random);
    ids_ = std::make_unique<DeviceArray<uint32_t>>(ids);
    const uint32_t pairs = (kLastPosition + 1) * shape.head_dim / 2;
    std::vector<float2> turns;
    for (const float angle : testing::RandomFloats(random, pairs, 3.0f)) {
      turns.push_back({std::cos(angle), std::sin(angle)});
    }
    rotary_ = std::make_unique<DeviceArray<float2>>(turns);
  }

  Inputs& inputs() { return inputs_; }

  RotateAndAppendParams Heads() {
    RotateAndAppendParams params;
    params.bias = shape_.biased ? bias_.data() : nullptr;
    params.query_heads = shape_.query_heads;
    params.rotary = shape_.rotates ? rotary_->data() : nullptr;
    params.rotary_dim = shape_.rotates ? shape_.head_dim : 0;
    params.positions = positions_.data();
    params.sequences = sequences_.data();
    params.query_stride = QueryStride();
    params.kv = {nullptr, nullptr, shape_.kv_heads, shape_.head_dim, DType::kBfloat16};
    params.tables = {ids_->data(), kStride};
    return params;
  }
  uint32_t QueryStride() const { return shape_.query_heads * shape_.head_dim + 8; }
  size_t CacheSize() const {
    return size_t{kTables} * kStride * shape_.kv_heads * kKvBlockTokens * shape_.head_dim;
  }

 private:
  static constexpr uint32_t kTables = 7;
  static constexpr uint32_t kStride = 4;
  static constexpr uint32_t kLastPosition = 200;
  inline static const std::vector<uint32_t> kPositions = {5, 63, 64, 0, 7, 200, 128, 191};
  inline static const std::vector<uint32_t> kSequences = {0, 1, 1, 2, kNoSequence, 6, 4, 5};

  Case shape_;
  Inputs inputs_;
  DeviceTensor bias_;
  DeviceArray<uint32_t> positions_;
  DeviceArray<uint32_t> sequences_;
  std::unique_ptr<DeviceArray<uint32_t>> ids_;
  std::unique_ptr<DeviceArray<float2>> rotary_;
};

// What the kernels write; poisoned before.
struct Result {
  std::vector<__nv_bfloat16> query;
  std::vector<__nv_bfloat16> keys;
  std::vector<__nv_bfloat16> values;

  friend bool operator==(const Result& a, const Result& b) {
    return Same(a.query, b.query) && Same(a.keys, b.keys) && Same(a.values, b.values);
  }
  static bool Same(const std::vector<__nv_bfloat16>& a, const std::vector<__nv_bfloat16>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
  }
};

// `launch` with heads that point into fresh memory.
template <typename Launch>
Result Run(Problem& problem, const Launch& launch) {
  DeviceArray<__nv_bfloat16> query(size_t{kRows} * problem.QueryStride());
  DeviceArray<__nv_bfloat16> keys(problem.CacheSize());
  DeviceArray<__nv_bfloat16> values(problem.CacheSize());
  RotateAndAppendParams heads = problem.Heads();
  heads.query = query.data();
  heads.kv.keys = keys.data();
  heads.kv.values = values.data();
  launch(heads);
  return {query.Host(), keys.Host(), values.Host()};
}

Result Apart(const Case& shape, Problem& problem, uint32_t rows, bool norm,
             const GemvTuning& tuning) {
  return Run(problem, [&](RotateAndAppendParams heads) {
    DeviceTensor products(DType::kBfloat16, size_t{kRows} * shape.n());
    GemvParams params = problem.inputs().Params(norm ? Before::kRmsNorm : Before::kNothing);
    params.out = products.data();
    params.out_stride = shape.n();
    params.rows = rows;
    WEFT_CUDA_CHECK(GemvTuned(params, tuning, nullptr));
    heads.qkv = products.data();
    heads.qkv_stride = shape.n();
    heads.rows = rows;
    WEFT_CUDA_CHECK(RotateAndAppend(heads, nullptr));
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
  });
}

GemvParams Together(Problem& problem, const RotateAndAppendParams& heads, uint32_t rows,
                    bool norm) {
  GemvParams params = problem.inputs().Params(norm ? Before::kRmsNorm : Before::kNothing);
  params.epilogue = GemvEpilogue::kRotateAppend;
  params.heads = heads;
  params.rows = rows;
  return params;
}

TEST_CASE("Gemv rotates and appends as RotateAndAppend does", "[cuda][gemv]") {
  std::mt19937_64 random(testing::Seed());
  // Heads of which tiles end in the middle; blocks with one column, and with many.
  const Case shape = GENERATE(
      Case{32, 8, 128, 4096}, Case{8, 2, 128, 4096}, Case{9, 3, 64, 576}, Case{1, 1, 64, 8},
      Case{3, 1, 80, 520, true, true}, Case{5, 5, 96, 136, false}, Case{16, 2, 256, 264},
      Case{7, 1, 18, 64, true, true}, Case{40, 40, 128, 4360, false, true}, Case{1, 1, 2, 16});
  const bool norm = GENERATE(false, true);
  CAPTURE(shape.query_heads, shape.kv_heads, shape.head_dim, shape.k, norm);
  Problem problem(shape, random);
  Workspace workspace;
  for (uint32_t rows = 1; rows <= kRows; ++rows) {
    CAPTURE(rows);
    const Result apart = Apart(shape, problem, rows, norm, {});
    std::vector<GemvTuning> tunings = {GemvTuning{}};
    if (rows == 1 || rows == 5) {
      tunings.insert(tunings.end(), std::begin(kSameBits), std::end(kSameBits));
    }
    for (const GemvTuning& tuning : tunings) {
      CAPTURE(tuning.shared_bytes, tuning.claimed_percent);
      const Result together = Run(problem, [&](const RotateAndAppendParams& heads) {
        GemvParams params = Together(problem, heads, rows, norm);
        params.dependent = rows % 2 == 0;
        params.workspace = workspace.data();
        params.next = {params.weight, params.epilogue, shape.n(), shape.k, shape.head_dim};
        WEFT_CUDA_CHECK(GemvTuned(params, tuning, nullptr));
      });
      const bool same = together == apart;
      CHECK(same);
      CHECK(workspace.IsZero());
    }
  }
  const Result half = Apart(shape, problem, 3, norm, kHalf);
  const Result half_together = Run(problem, [&](const RotateAndAppendParams& heads) {
    WEFT_CUDA_CHECK(GemvTuned(Together(problem, heads, 3, norm), kHalf, nullptr));
  });
  const bool same = half == half_together;
  CHECK(same);
}

TEST_CASE("Gemv refuses heads that it cannot rotate", "[cuda][gemv]") {
  GemvParams params;
  params.epilogue = GemvEpilogue::kRotateAppend;
  params.rows = 1;
  params.k = 64;
  params.heads.query_heads = 2;
  params.heads.kv = {nullptr, nullptr, 1, 64, DType::kBfloat16};
  float2 table = {};
  params.heads.rotary = &table;
  params.heads.rotary_dim = 64;
  params.n = 4 * 64 + 64;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.n = 4 * 64;
  params.heads.rotary_dim = 32;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.heads.rotary_dim = 64;
  params.heads.kv.type = DType::kFloat32;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
  params.heads.kv.type = DType::kBfloat16;
  params.heads.kv.head_dim = 0;
  CHECK(Gemv(params, nullptr) == cudaErrorInvalidValue);
}

}  // namespace
}  // namespace weft::kernels::cuda
