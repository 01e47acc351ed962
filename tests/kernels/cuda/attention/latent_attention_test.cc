#include "kernels/cuda/attention/latent_attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "kernels/cuda/elementwise/rope.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;

struct Case {
  uint32_t head_dim;
  uint32_t value_dim;
  uint32_t heads;
};

constexpr Case kCases[] = {{48, 40, 6}, {576, 512, 16}, {40, 24, 5}, {8, 8, 1}, {1024, 960, 3}};
constexpr uint32_t kSequences = 3;
constexpr uint32_t kPositions = 200;
constexpr uint32_t kBlocksOfSequence = (kPositions + kKvBlockTokens - 1) / kKvBlockTokens;
constexpr float kScale = 0.1f;

// Sequences in scrambled blocks, poisoned behind their ends, and rows of random places in them; the
// last row is padding.
struct Step {
  Case shape;
  DType type;
  std::vector<uint32_t> tables;
  std::vector<float> pool, query;
  std::vector<uint32_t> positions, sequences;

  Step(std::mt19937_64& random, const Case& c, DType t, uint32_t rows) : shape(c), type(t) {
    tables.resize(size_t{kSequences} * kBlocksOfSequence);
    std::iota(tables.begin(), tables.end(), 0u);
    std::shuffle(tables.begin(), tables.end(), random);
    const size_t numbers = tables.size() * kKvBlockTokens * shape.head_dim;
    pool = testing::Rounded(testing::RandomFloats(random, numbers), type);
    for (uint32_t s = 0; s < kSequences; ++s) {
      for (uint32_t p = kPositions; p < kBlocksOfSequence * kKvBlockTokens; ++p) {
        std::fill_n(pool.begin() + static_cast<ptrdiff_t>(At(s, p)), shape.head_dim, NAN);
      }
    }
    query = testing::Rounded(
        testing::RandomFloats(random, size_t{rows} * shape.heads * shape.head_dim), type);
    for (uint32_t row = 0; row < rows; ++row) {
      positions.push_back(row == 0 ? 0 : static_cast<uint32_t>(random() % kPositions));
      sequences.push_back(static_cast<uint32_t>(random() % kSequences));
    }
    if (rows > 1) sequences.back() = kNoSequence;
  }
  uint32_t rows() const { return static_cast<uint32_t>(positions.size()); }
  // Of a token in the pool.
  size_t At(uint32_t sequence, uint32_t position) const {
    const size_t block = tables[sequence * kBlocksOfSequence + position / kKvBlockTokens];
    return (block * kKvBlockTokens + position % kKvBlockTokens) * shape.head_dim;
  }
  std::vector<double> Reference() const {
    std::vector<double> out;
    for (uint32_t row = 0; row < rows(); ++row) {
      for (uint32_t head = 0; head < shape.heads; ++head) {
        std::vector<double> sums(shape.value_dim);
        if (sequences[row] != kNoSequence) {
          Head(row, query.data() + (size_t{row} * shape.heads + head) * shape.head_dim, &sums);
        }
        out.insert(out.end(), sums.begin(), sums.end());
      }
    }
    return out;
  }
  void Head(uint32_t row, const float* q, std::vector<double>* sums) const {
    std::vector<double> p;
    for (uint32_t j = 0; j <= positions[row]; ++j) {
      const float* const key = pool.data() + At(sequences[row], j);
      double score = 0;
      for (uint32_t d = 0; d < shape.head_dim; ++d) score += double{q[d]} * key[d];
      p.push_back(score * kScale);
    }
    const double max = *std::max_element(p.begin(), p.end());
    double total = 0;
    for (double& x : p) total += x = std::exp(x - max);
    for (uint32_t j = 0; j <= positions[row]; ++j) {
      const float* const value = pool.data() + At(sequences[row], j);
      for (uint32_t d = 0; d < shape.value_dim; ++d) (*sums)[d] += p[j] / total * value[d];
    }
  }
  // Of rows [begin, end).
  std::vector<float> Run(uint32_t begin, uint32_t end) const {
    DeviceTensor keys(type, pool);
    const size_t query_row = size_t{shape.heads} * shape.head_dim;
    DeviceTensor some(type,
                      std::vector<float>(query.begin() + static_cast<ptrdiff_t>(begin * query_row),
                                         query.begin() + static_cast<ptrdiff_t>(end * query_row)));
    const DeviceArray<uint32_t> ids(tables);
    const DeviceArray<uint32_t> at(
        std::vector<uint32_t>(positions.begin() + begin, positions.begin() + end));
    const DeviceArray<uint32_t> of(
        std::vector<uint32_t>(sequences.begin() + begin, sequences.begin() + end));
    DeviceTensor out(type, size_t{end - begin} * shape.heads * shape.value_dim);
    LatentAttentionParams params;
    params.query = some.data();
    params.query_heads = shape.heads;
    params.kv = {keys.data(), nullptr, 1, shape.head_dim, type};
    params.tables = {ids.data(), kBlocksOfSequence};
    params.positions = at.data();
    params.sequences = of.data();
    params.rows = end - begin;
    params.value_dim = shape.value_dim;
    params.scale = kScale;
    params.out = out.data();
    params.type = type;
    WEFT_CUDA_CHECK(LatentAttention(params, nullptr));
    return out.Host();
  }
};

TEST_CASE("Attention over latents agrees with double precision", "[cuda][attention]") {
  std::mt19937_64 random(testing::Seed());
  for (const Case& shape : kCases) {
    for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
      for (const uint32_t rows : {1u, 5u, 150u}) {
        const Step step(random, shape, type, rows);
        INFO("latents of " << shape.value_dim << ", " << rows << " rows, bf16 "
                           << (type == DType::kBfloat16));
        CHECK(testing::RelativeError(step.Run(0, rows), step.Reference()) <
              testing::Tolerance(type));
      }
    }
  }
}

TEST_CASE("A row over latents has the same bits alone and beside many", "[cuda][attention]") {
  std::mt19937_64 random(testing::Seed());
  // Enough for blocks of several heads, where one row takes one head a block.
  constexpr uint32_t kRows = 300;
  for (const Case& shape : kCases) {
    for (const DType type : {DType::kFloat32, DType::kBfloat16}) {
      const Step step(random, shape, type, kRows);
      const std::vector<float> all = step.Run(0, kRows);
      const size_t width = size_t{shape.heads} * shape.value_dim;
      for (const uint32_t row : {0u, 7u, kRows - 2}) {
        INFO("latents of " << shape.value_dim << ", row " << row);
        const std::vector<float> alone = step.Run(row, row + 1);
        CHECK(std::equal(alone.begin(), alone.end(),
                         all.begin() + static_cast<ptrdiff_t>(row * width)));
      }
    }
  }
}

TEST_CASE("Attention over latents refuses sizes beyond its limits", "[cuda][attention]") {
  DeviceTensor any(DType::kFloat32, 8192);
  LatentAttentionParams params;
  params.rows = 1;
  params.query_heads = 1;
  params.type = DType::kFloat32;
  params.kv = {any.data(), nullptr, 1, 48, DType::kFloat32};
  for (const uint32_t value_dim : {0u, 44u, 56u}) {
    params.value_dim = value_dim;
    CHECK(LatentAttention(params, nullptr) == cudaErrorInvalidValue);
  }
  params.value_dim = 40;
  for (const uint32_t head_dim : {44u, 1032u}) {
    params.kv.head_dim = head_dim;
    CHECK(LatentAttention(params, nullptr) == cudaErrorInvalidValue);
  }
  params.kv.head_dim = 48;
  params.kv.kv_heads = 2;
  CHECK(LatentAttention(params, nullptr) == cudaErrorInvalidValue);
}

}  // namespace
}  // namespace weft::kernels::cuda
