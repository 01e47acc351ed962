// One layer of prompt attention as its tests set it up: chunks of prompts with random queries, keys
// and values, NaN in all of the cache that nobody may use, the kernel's output, and the same in
// double precision on the CPU.

#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cuda/attention/prompt_attention.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda::testing {

// Rows of other sequences before and after the prompts' own: not to be written.
inline constexpr uint32_t kOtherRows = 3;

struct PromptChunk {
  uint32_t rows;
  uint32_t prefix;
};

struct PromptSetup {
  std::vector<PromptChunk> chunks;
  uint32_t head_dim = 128;
  std::vector<uint32_t> groups = {2};  // Query heads of each KV head.
  DType type = DType::kBfloat16;
  DType kv_type = DType::kBfloat16;
  uint32_t window = 0;
  float soft_cap = 0;
  bool alibi = false;
  bool sinks = false;

  // Whether tensor maps can be made: the kernel is to be tried with and without.
  bool HasMaps() const { return HasKvTensorMaps({nullptr, nullptr, 1, head_dim, kv_type}); }
};

// One layer's inputs, on the host as the device sees them, and on the device.
class PromptLayer {
 public:
  explicit PromptLayer(const PromptSetup& setup) : setup_(setup), random_(Seed()) {
    kv_heads_ = static_cast<uint32_t>(setup.groups.size());
    kv_head_begin_.push_back(0);
    for (uint32_t group : setup.groups) kv_head_begin_.push_back(kv_head_begin_.back() + group);
    query_heads_ = kv_head_begin_.back();
    // As in a fused projection: keys and values lie behind the queries of a row.
    query_stride_ = (query_heads_ + 2 * kv_heads_) * setup.head_dim;
    row_begin_.push_back(kOtherRows);
    for (const PromptChunk& chunk : setup.chunks) {
      row_begin_.push_back(row_begin_.back() + chunk.rows);
      contexts_.push_back(chunk.prefix + chunk.rows);
      stride_ = std::max(stride_, (contexts_.back() + kKvBlockTokens - 1) / kKvBlockTokens + 1);
    }
    out_rows_ = row_begin_.back() + kOtherRows;
    query_ = Rounded(RandomFloats(random_, size_t{out_rows_} * query_stride_), setup.type);
    slopes_ = RandomFloats(random_, query_heads_, 0.1f);
    // From next to nothing to most of a softmax of a few keys.
    sinks_ = RandomFloats(random_, query_heads_, 4.0f);
    FillCache();
  }

  // The kernel's output, rows of others included. `tensor_maps`: give it the maps, too. The plan is
  // made once for all launches, the output is the last one's.
  std::vector<float> Run(bool tensor_maps, uint32_t launches = 1) {
    DeviceTensor query(setup_.type, query_);
    DeviceTensor keys(setup_.kv_type, keys_);
    DeviceTensor values(setup_.kv_type, values_);
    DeviceArray<uint32_t> tables(tables_);
    DeviceArray<uint32_t> contexts(contexts_);
    DeviceArray<uint32_t> kv_head_begin(kv_head_begin_);
    DeviceArray<uint32_t> row_begin(row_begin_);
    DeviceArray<float> slopes(slopes_);
    DeviceArray<float> sinks(sinks_);
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
    params.sinks = setup_.sinks ? sinks.data() : nullptr;
    params.row_begin = row_begin.data();
    params.rows_max = row_begin_.back() - kOtherRows + 37;  // A bound, not the number.
    const uint32_t tiles_max = PromptTilesMax(params.rows_max, attention.sequences);
    DeviceArray<PromptTile> tiles(tiles_max + 1);
    params.tiles = tiles.data();
    DeviceArray<uint32_t> counters(kPromptCounters);
    params.counters = counters.data();
    KvTensorMaps maps;
    if (tensor_maps) {
      const size_t block_size = size_t{kKvBlockTokens} * kv_heads_ * setup_.head_dim;
      const auto blocks = static_cast<uint32_t>(keys_.size() / block_size);
      WEFT_CUDA_CHECK(MakeKvTensorMaps(attention.kv, blocks, &maps));
      params.tensor_maps = &maps;
    }
    WEFT_CUDA_CHECK(PlanPromptAttention(params, nullptr));
    for (uint32_t i = 0; i < launches; ++i) {
      WEFT_CUDA_CHECK(cudaMemset(out.data(), 0xff, OutSize() * BytesOf(setup_.type)));
      WEFT_CUDA_CHECK(PromptAttention(params, nullptr));
    }
    CheckTiles(tiles.Host(), counters.Host());
    return out.Host();
  }

  // Of the first prompt the first `rows` rows less: as if a step before had done them.
  void Cut(uint32_t rows) {
    row_begin_[0] += rows;
    setup_.chunks[0].rows -= rows;
    setup_.chunks[0].prefix += rows;
  }
  // Elements of the output before the first prompt's first row, and behind the last prompt's last.
  size_t OwnBegin() const { return size_t{row_begin_[0]} * query_heads_ * setup_.head_dim; }
  size_t OwnEnd() const { return size_t{row_begin_.back()} * query_heads_ * setup_.head_dim; }

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
    const auto begin = out.begin() + OwnBegin();
    const auto end = out.begin() + OwnEnd();
    const auto untouched = [](float x) { return std::isnan(x); };
    CHECK(std::all_of(out.begin(), begin, untouched));
    CHECK(std::all_of(end, out.end(), untouched));
    return {begin, end};
  }

 private:
  size_t OutSize() const { return size_t{out_rows_} * query_heads_ * setup_.head_dim; }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(setup_.head_dim)); }

  // Blocks in random order, twice as many as are used; NaN in all that holds no position that some
  // row sees, and table entries before and past them that no memory stands behind.
  void FillCache() {
    uint32_t used = 0;
    for (uint32_t context : contexts_) used += (context + kKvBlockTokens - 1) / kKvBlockTokens;
    std::vector<uint32_t> ids(2 * used + 1);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random_);
    const size_t head_size = size_t{kKvBlockTokens} * setup_.head_dim;
    keys_.assign(ids.size() * kv_heads_ * head_size, std::numeric_limits<float>::quiet_NaN());
    values_ = keys_;
    tables_.assign(setup_.chunks.size() * stride_, 0x7fffffffu);
    size_t next = 0;
    for (size_t s = 0; s < contexts_.size(); ++s) {
      const uint32_t prefix = setup_.chunks[s].prefix;
      const bool windowed = setup_.window != 0 && prefix >= setup_.window;
      const uint32_t seen = windowed ? prefix - setup_.window + 1 : 0;
      for (uint32_t first = seen / kKvBlockTokens * kKvBlockTokens; first < contexts_[s];
           first += kKvBlockTokens) {
        const uint32_t block = ids[next++];
        tables_[s * stride_ + first / kKvBlockTokens] = block;
        const uint32_t begin = seen > first ? seen - first : 0;
        const uint32_t end = std::min(kKvBlockTokens, contexts_[s] - first);
        for (uint32_t h = 0; h < kv_heads_; ++h) {
          const size_t at =
              (size_t{block} * kv_heads_ + h) * head_size + size_t{begin} * setup_.head_dim;
          Fill(keys_.data() + at, end - begin);
          Fill(values_.data() + at, end - begin);
        }
      }
    }
  }

  void Fill(float* to, uint32_t tokens) {
    const size_t size = size_t{tokens} * setup_.head_dim;
    const auto values = Rounded(RandomFloats(random_, size), setup_.kv_type);
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
    if (setup_.sinks) {
      top = std::max(top, double{sinks_[head]});
      sum = std::exp(sinks_[head] - top);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - top);
    const size_t at = out.size();
    out.resize(at + setup_.head_dim, 0);
    for (uint32_t key = first; key <= position; ++key) {
      const float* values = values_.data() + KvAt(sequence, key, kv_head);
      const double weight = weights[key - first] / sum;
      for (uint32_t d = 0; d < setup_.head_dim; ++d) out[at + d] += weight * values[d];
    }
  }

  // Every tile once, the end marked, nothing behind the list; counters as they were planned.
  void CheckTiles(const std::vector<PromptTile>& tiles,
                  const std::vector<uint32_t>& counters) const {
    std::vector<std::pair<uint32_t, uint32_t>> expected, planned;
    for (uint32_t s = 0; s < setup_.chunks.size(); ++s) {
      for (uint32_t first = 0; first < setup_.chunks[s].rows; first += kPromptTileRows) {
        expected.emplace_back(s, first);
      }
    }
    REQUIRE(expected.size() < tiles.size());
    CHECK(counters == std::vector<uint32_t>{0, static_cast<uint32_t>(expected.size())});
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

  PromptSetup setup_;
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
  std::vector<float> query_, keys_, values_, slopes_, sinks_;
};

}  // namespace weft::kernels::cuda::testing
