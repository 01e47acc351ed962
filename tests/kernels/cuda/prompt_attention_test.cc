#include "kernels/cuda/prompt_attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// Rows of other sequences before and after the prompts' own: not to be written.
constexpr uint32_t kOtherRows = 3;

struct Chunk {
  uint32_t rows;
  uint32_t prefix;
};

struct Setup {
  std::vector<Chunk> chunks;
  uint32_t head_dim = 128;
  std::vector<uint32_t> groups = {2};  // Query heads of each KV head.
  DType type = DType::kBfloat16;
  DType kv_type = DType::kBfloat16;
  uint32_t window = 0;
  float soft_cap = 0;
  bool alibi = false;
};

// One layer's inputs, on the host as the device sees them, and on the device.
class Layer {
 public:
  explicit Layer(const Setup& setup) : setup_(setup), random_(testing::Seed()) {
    kv_heads_ = static_cast<uint32_t>(setup.groups.size());
    kv_head_begin_.push_back(0);
    for (uint32_t group : setup.groups) kv_head_begin_.push_back(kv_head_begin_.back() + group);
    query_heads_ = kv_head_begin_.back();
    // As in a fused projection: keys and values lie behind the queries of a row.
    query_stride_ = (query_heads_ + 2 * kv_heads_) * setup.head_dim;
    row_begin_.push_back(kOtherRows);
    for (const Chunk& chunk : setup.chunks) {
      row_begin_.push_back(row_begin_.back() + chunk.rows);
      contexts_.push_back(chunk.prefix + chunk.rows);
      stride_ = std::max(stride_, (contexts_.back() + kKvBlockTokens - 1) / kKvBlockTokens + 1);
    }
    out_rows_ = row_begin_.back() + kOtherRows;
    query_ = testing::Rounded(testing::RandomFloats(random_, size_t{out_rows_} * query_stride_),
                              setup.type);
    slopes_ = testing::RandomFloats(random_, query_heads_, 0.1f);
    FillCache();
  }

  // The kernel's output, rows of others included.
  std::vector<float> Run() {
    DeviceTensor query(setup_.type, query_);
    DeviceTensor keys(setup_.kv_type, keys_);
    DeviceTensor values(setup_.kv_type, values_);
    DeviceArray<uint32_t> tables(tables_);
    DeviceArray<uint32_t> contexts(contexts_);
    DeviceArray<uint32_t> kv_head_begin(kv_head_begin_);
    DeviceArray<uint32_t> row_begin(row_begin_);
    DeviceArray<float> slopes(slopes_);
    DeviceTensor out(setup_.type, OutSize());
    PromptAttentionParams params;
    AttentionParams& attention = params.attention;
    attention.query = query.data();
    attention.query_stride = query_stride_;
    attention.query_heads = query_heads_;
    attention.kv = {keys.data(), values.data(), kv_heads_, setup_.head_dim, setup_.kv_type};
    attention.tables = {tables.data(), stride_};
    attention.context_lengths = contexts.data();
    attention.sequences = static_cast<uint32_t>(setup_.chunks.size());
    attention.kv_head_begin = kv_head_begin.data();
    attention.group_max = *std::max_element(setup_.groups.begin(), setup_.groups.end());
    attention.alibi_slopes = setup_.alibi ? slopes.data() : nullptr;
    attention.scale = Scale();
    attention.soft_cap = setup_.soft_cap;
    attention.window = setup_.window;
    attention.out = out.data();
    attention.type = setup_.type;
    params.row_begin = row_begin.data();
    params.rows_max = row_begin_.back() - kOtherRows + 37;  // A bound, not the number.
    const uint32_t tiles_max = PromptTilesMax(params.rows_max, attention.sequences);
    DeviceArray<PromptTile> tiles(tiles_max + 1);
    params.tiles = tiles.data();
    WEFT_CUDA_CHECK(PlanPromptAttention(params, nullptr));
    WEFT_CUDA_CHECK(PromptAttention(params, nullptr));
    CheckTiles(tiles.Host());
    return out.Host();
  }

  std::vector<double> Reference() const {
    std::vector<double> out;
    out.reserve(size_t{row_begin_.back() - kOtherRows} * query_heads_ * setup_.head_dim);
    for (size_t s = 0; s < setup_.chunks.size(); ++s) {
      for (uint32_t i = 0; i < setup_.chunks[s].rows; ++i) {
        for (uint32_t head = 0; head < query_heads_; ++head) AppendRow(out, s, i, head);
      }
    }
    return out;
  }

  // Of the prompts' own rows; everything else must still be as it was.
  std::vector<float> OwnRows(const std::vector<float>& out) const {
    const size_t row = size_t{query_heads_} * setup_.head_dim;
    const auto begin = out.begin() + kOtherRows * row;
    const auto end = out.begin() + row_begin_.back() * row;
    const auto untouched = [](float x) { return std::isnan(x); };
    CHECK(std::all_of(out.begin(), begin, untouched));
    CHECK(std::all_of(end, out.end(), untouched));
    return {begin, end};
  }

 private:
  size_t OutSize() const { return size_t{out_rows_} * query_heads_ * setup_.head_dim; }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(setup_.head_dim)); }

  // Blocks in random order, twice as many as are used; NaN in all that holds no position, and table
  // entries past the end that no memory stands behind.
  void FillCache() {
    uint32_t used = 0;
    for (uint32_t context : contexts_) used += (context + kKvBlockTokens - 1) / kKvBlockTokens;
    std::vector<uint32_t> ids(2 * used + 1);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random_);
    const size_t head_size = size_t{kKvBlockTokens} * setup_.head_dim;
    keys_.assign(ids.size() * kv_heads_ * head_size, kNaN);
    values_ = keys_;
    tables_.assign(setup_.chunks.size() * stride_, 0x7fffffffu);
    size_t next = 0;
    for (size_t s = 0; s < contexts_.size(); ++s) {
      for (uint32_t first = 0; first < contexts_[s]; first += kKvBlockTokens) {
        const uint32_t block = ids[next++];
        tables_[s * stride_ + first / kKvBlockTokens] = block;
        const uint32_t tokens = std::min(kKvBlockTokens, contexts_[s] - first);
        for (uint32_t h = 0; h < kv_heads_; ++h) {
          const size_t at = (size_t{block} * kv_heads_ + h) * head_size;
          Fill(keys_.data() + at, tokens);
          Fill(values_.data() + at, tokens);
        }
      }
    }
  }

  void Fill(float* to, uint32_t tokens) {
    const size_t size = size_t{tokens} * setup_.head_dim;
    const auto values = testing::Rounded(testing::RandomFloats(random_, size), setup_.kv_type);
    std::copy(values.begin(), values.end(), to);
  }

  size_t KvAt(size_t sequence, uint32_t position, uint32_t kv_head) const {
    const size_t block = tables_[sequence * stride_ + position / kKvBlockTokens];
    return ((block * kv_heads_ + kv_head) * kKvBlockTokens + position % kKvBlockTokens) *
           setup_.head_dim;
  }

  void AppendRow(std::vector<double>& out, size_t sequence, uint32_t i, uint32_t head) const {
    const uint32_t position = setup_.chunks[sequence].prefix + i;
    const auto after = std::upper_bound(kv_head_begin_.begin(), kv_head_begin_.end(), head);
    const auto kv_head = static_cast<uint32_t>(after - kv_head_begin_.begin() - 1);
    const float* query = query_.data() + size_t{row_begin_[sequence] + i} * query_stride_ +
                         size_t{head} * setup_.head_dim;
    const bool windowed = setup_.window != 0 && position >= setup_.window;
    const uint32_t first = windowed ? position - setup_.window + 1 : 0;
    std::vector<double> weights;
    double top = -std::numeric_limits<double>::infinity();
    for (uint32_t key = first; key <= position; ++key) {
      const float* keys = keys_.data() + KvAt(sequence, key, kv_head);
      double score = 0;
      for (uint32_t d = 0; d < setup_.head_dim; ++d) score += double{query[d]} * keys[d];
      score *= Scale();
      if (setup_.soft_cap > 0) score = setup_.soft_cap * std::tanh(score / setup_.soft_cap);
      if (setup_.alibi) score += double{slopes_[head]} * (double{0} + key - position);
      weights.push_back(score);
      top = std::max(top, score);
    }
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - top);
    const size_t at = out.size();
    out.resize(at + setup_.head_dim, 0);
    for (uint32_t key = first; key <= position; ++key) {
      const float* values = values_.data() + KvAt(sequence, key, kv_head);
      const double weight = weights[key - first] / sum;
      for (uint32_t d = 0; d < setup_.head_dim; ++d) out[at + d] += weight * values[d];
    }
  }

  // Every tile once, the end marked, nothing behind the list.
  void CheckTiles(const std::vector<PromptTile>& tiles) const {
    std::vector<std::pair<uint32_t, uint32_t>> expected, planned;
    for (uint32_t s = 0; s < setup_.chunks.size(); ++s) {
      for (uint32_t first = 0; first < setup_.chunks[s].rows; first += kPromptTileRows) {
        expected.emplace_back(s, first);
      }
    }
    REQUIRE(expected.size() < tiles.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      planned.emplace_back(tiles[i].sequence, tiles[i].first_row);
    }
    std::sort(planned.begin(), planned.end());
    CHECK(planned == expected);
    for (size_t i = expected.size(); i < tiles.size(); ++i) {
      CHECK(tiles[i].sequence == PromptTile::kNone);
    }
    for (size_t i = expected.size(); i + 1 < tiles.size(); ++i) CHECK(tiles[i].first_row == 0);
    CHECK(tiles.back().first_row == UINT32_MAX);
  }

  Setup setup_;
  std::mt19937_64 random_;
  uint32_t kv_heads_ = 0;
  uint32_t query_heads_ = 0;
  uint32_t query_stride_ = 0;
  uint32_t stride_ = 1;
  uint32_t out_rows_ = 0;
  std::vector<uint32_t> kv_head_begin_;
  std::vector<uint32_t> row_begin_;
  std::vector<uint32_t> contexts_;
  std::vector<uint32_t> tables_;
  std::vector<float> query_, keys_, values_, slopes_;
};

void CheckAgainstReference(const Setup& setup) {
  Layer layer(setup);
  const std::vector<float> out = layer.OwnRows(layer.Run());
  // Weights are rounded to the type of the values: bf16 in the cache bounds float32 results too.
  const bool exact = setup.type == DType::kFloat32 && setup.kv_type == DType::kFloat32;
  const double tolerance = testing::Tolerance(exact ? DType::kFloat32 : DType::kBfloat16);
  const std::vector<double> reference = layer.Reference();
  CHECK(testing::RelativeError(out, reference) < tolerance);
  // Row by row too: one bad row of many would be lost in the norm of all. Rows over one key are as
  // exact as the others; 2 for the spread over rows of 64 elements.
  double worst = 0;
  for (size_t at = 0; at < out.size(); at += setup.head_dim) {
    const double error = testing::RelativeError(std::span(out).subspan(at, setup.head_dim),
                                                std::span(reference).subspan(at, setup.head_dim));
    worst = std::max(worst, error);
  }
  CHECK(worst < 2 * tolerance);
}

// All lengths with all prefixes, and sequences without rows first, between and last.
std::vector<Chunk> ManyChunks() {
  std::vector<Chunk> chunks = {{0, 0}};
  for (uint32_t rows : {1u, 2u, 63u, 64u, 65u, 200u}) {
    for (uint32_t prefix : {0u, 1u, 63u, 64u, 500u}) chunks.push_back({rows, prefix});
    chunks.push_back({0, 70});
  }
  return chunks;
}

TEST_CASE("Prompt attention: lengths, prefixes and head sizes", "[cuda][prompt_attention]") {
  Setup setup;
  setup.chunks = ManyChunks();
  setup.head_dim = GENERATE(64, 80, 96, 128, 256);
  CAPTURE(setup.head_dim);
  CheckAgainstReference(setup);
}

TEST_CASE("Prompt attention: types and other head sizes", "[cuda][prompt_attention]") {
  Setup setup;
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
  Setup setup;
  setup.chunks = {{200, 64}, {1, 500}, {65, 1}, {0, 0}, {63, 63}, {2, 126}};
  setup.head_dim = GENERATE(64, 128, 256);
  setup.window = GENERATE(0, 1, 17, 100);
  setup.soft_cap = GENERATE(0.0f, 2.0f);
  setup.alibi = GENERATE(false, true);
  setup.groups = {1, 2};
  CAPTURE(setup.head_dim, setup.window, setup.soft_cap, setup.alibi);
  CheckAgainstReference(setup);
}

TEST_CASE("Prompt attention: groups of query heads", "[cuda][prompt_attention]") {
  Setup setup;
  setup.chunks = {{65, 64}, {1, 100}};
  setup.groups = GENERATE(std::vector<uint32_t>{1, 1, 1}, std::vector<uint32_t>{3, 3},
                          std::vector<uint32_t>{4, 4}, std::vector<uint32_t>{8},
                          std::vector<uint32_t>{1, 4, 2}, std::vector<uint32_t>(40, 1));
  setup.type = GENERATE(DType::kFloat32, DType::kBfloat16);
  CAPTURE(setup.groups, static_cast<int>(setup.type));
  CheckAgainstReference(setup);
}

TEST_CASE("Prompt attention: equal bits from run to run", "[cuda][prompt_attention]") {
  Setup setup;
  setup.chunks = ManyChunks();
  setup.alibi = GENERATE(false, true);
  setup.kv_type = GENERATE(DType::kFloat32, DType::kBfloat16);
  Layer layer(setup);
  const std::vector<float> first = layer.OwnRows(layer.Run());
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> again = layer.OwnRows(layer.Run());
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
}

// Drawing a hundred million numbers would take longer than all the kernels.
DeviceTensor RandomHalves(std::mt19937_64& random, size_t size) {
  const std::vector<float> period = testing::RandomFloats(random, (1u << 20) + 7);
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = period[i % period.size()];
  return DeviceTensor(DType::kBfloat16, values);
}

TEST_CASE("Prompt attention: time", "[cuda][prompt_attention][time]") {
  constexpr uint32_t kQueryHeads = 32, kKvHeads = 8, kHeadDim = 128;
  const uint32_t rows = GENERATE(2048, 8192, 16384);
  std::mt19937_64 random(testing::Seed());
  const size_t query_size = size_t{rows} * kQueryHeads * kHeadDim;
  const size_t kv_size = size_t{rows} * kKvHeads * kHeadDim;
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
  params.attention.query_stride = kQueryHeads * kHeadDim;
  params.attention.query_heads = kQueryHeads;
  params.attention.kv = {keys.data(), values.data(), kKvHeads, kHeadDim, DType::kBfloat16};
  params.attention.tables = {tables.data(), static_cast<uint32_t>(ids.size())};
  params.attention.context_lengths = contexts.data();
  params.attention.sequences = 1;
  params.attention.kv_head_begin = kv_head_begin.data();
  params.attention.group_max = 4;
  params.attention.scale = 0.088388f;
  params.attention.out = out.data();
  params.row_begin = row_begin.data();
  params.rows_max = rows;
  params.tiles = tiles.data();
  const double plan_us = testing::MedianUs(
      [&](cudaStream_t stream) { WEFT_CUDA_CHECK(PlanPromptAttention(params, stream)); });
  const double us = testing::MedianUs(
      [&](cudaStream_t stream) { WEFT_CUDA_CHECK(PromptAttention(params, stream)); }, 10);
  const double pairs = 0.5 * rows * rows;
  const std::string shape = std::to_string(rows) + " rows, 32/8 heads of 128";
  testing::Report("prompt attention", shape, us, 4.0 * query_size + 4.0 * kv_size,
                  4.0 * kHeadDim * kQueryHeads * pairs);
  testing::Report("prompt attention: plan", shape, plan_us, 8.0 * tiles.size());
}

}  // namespace
}  // namespace weft::kernels::cuda
