#include "kernels/cuda/decode_attention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;

// Elements after the output that must stay as they were.
constexpr size_t kGuard = 64;

struct Case {
  std::vector<uint32_t> lengths;
  // Query heads of each KV head.
  std::vector<uint32_t> groups;
  uint32_t head_dim = 128;
  uint32_t window = 0;
  float soft_cap = 0;
  bool alibi = false;
  uint32_t fixed_split = 0;
  DType type = DType::kBfloat16;
  DType kv_type = DType::kBfloat16;
  // The cache holds one number, and the host has no copy of it.
  bool timed = false;
};

uint32_t Blocks(uint32_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

uint32_t First(const Case& shape, uint32_t length) {
  return shape.window != 0 && length > shape.window ? length - shape.window : 0;
}

// Everything a launch needs, with the host's copy of it. What no row may see is NaN: blocks that
// are in no table, tokens after a context and before a window.
class Problem {
 public:
  Problem(const Case& shape, std::mt19937_64& random);

  // The answer in double precision.
  std::vector<double> Reference() const;
  void Schedule() { WEFT_CUDA_CHECK(MakeDecodeSchedule(schedule_params_, nullptr)); }
  // Into a new output; checks that nothing after it was written.
  std::vector<float> Launch() { return LaunchWith(params_); }
  // Sequence `s` of the batch as a batch of its own.
  std::vector<float> LaunchAlone(uint32_t s);
  // Reports the schedule's and the attention's time.
  void Time();

 private:
  void FillCache(std::mt19937_64& random);
  void* DeviceCache(const std::vector<float>& cache);
  std::vector<float> LaunchWith(DecodeAttentionParams params);
  void ReferenceRow(size_t s, uint32_t head, uint32_t kv_head, double* out) const;
  const float* Token(const std::vector<float>& cache, size_t s, uint32_t kv_head, uint32_t p) const;

  Case shape_;
  uint32_t sequences_, kv_heads_, query_heads_, query_stride_, table_stride_, pool_blocks_;
  std::vector<uint32_t> begins_, table_;
  std::vector<float> query_, keys_, values_, slopes_;
  float scale_;

  std::unique_ptr<DeviceTensor> query_tensor_;
  std::vector<std::unique_ptr<DeviceTensor>> tensors_;
  std::unique_ptr<DeviceArray<uint32_t>> device_lengths_, device_table_, device_begins_;
  std::unique_ptr<DeviceArray<float>> device_slopes_;
  std::unique_ptr<DeviceArray<uint8_t>> schedule_, workspace_;
  DecodeScheduleParams schedule_params_;
  DecodeAttentionParams params_;
};

void Problem::FillCache(std::mt19937_64& random) {
  // Numbers from a table: big caches are filled in no time.
  const std::vector<float> numbers = testing::RandomFloats(random, 100'003);
  size_t number = 0;
  uint32_t used = 0;
  table_stride_ = 2;
  for (uint32_t length : shape_.lengths) {
    used += Blocks(length);
    table_stride_ = std::max(table_stride_, Blocks(length) + 2);
  }
  pool_blocks_ = used + 3;
  std::vector<uint32_t> order(pool_blocks_);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  uint32_t next = 0;
  // What is not used names a block of NaN.
  table_.assign(size_t{sequences_} * table_stride_, order.back());
  for (size_t s = 0; s < sequences_; ++s) {
    for (uint32_t b = 0; b < Blocks(shape_.lengths[s]); ++b) {
      table_[s * table_stride_ + b] = order[next++];
    }
  }
  if (shape_.timed) return;
  const size_t size = size_t{pool_blocks_} * kv_heads_ * kKvBlockTokens * shape_.head_dim;
  keys_.assign(size, std::numeric_limits<float>::quiet_NaN());
  values_ = keys_;
  for (size_t s = 0; s < sequences_; ++s) {
    const uint32_t length = shape_.lengths[s];
    for (uint32_t head = 0; head < kv_heads_; ++head) {
      for (uint32_t p = First(shape_, length); p < length; ++p) {
        auto* key = const_cast<float*>(Token(keys_, s, head, p));
        auto* value = const_cast<float*>(Token(values_, s, head, p));
        for (uint32_t i = 0; i < shape_.head_dim; ++i) {
          key[i] = numbers[number++ % numbers.size()];
          value[i] = numbers[number++ % numbers.size()];
        }
      }
    }
  }
  keys_ = testing::Rounded(std::move(keys_), shape_.kv_type);
  values_ = testing::Rounded(std::move(values_), shape_.kv_type);
}

const float* Problem::Token(const std::vector<float>& cache, size_t s, uint32_t kv_head,
                            uint32_t p) const {
  const size_t block = table_[s * table_stride_ + p / kKvBlockTokens];
  const size_t row = (block * kv_heads_ + kv_head) * kKvBlockTokens + p % kKvBlockTokens;
  return cache.data() + row * shape_.head_dim;
}

void* Problem::DeviceCache(const std::vector<float>& cache) {
  auto& out = tensors_.emplace_back();
  if (!shape_.timed) {
    out = std::make_unique<DeviceTensor>(shape_.kv_type, cache);
    return out->data();
  }
  const size_t size = size_t{pool_blocks_} * kv_heads_ * kKvBlockTokens * shape_.head_dim;
  out = std::make_unique<DeviceTensor>(shape_.kv_type, size);
  WEFT_CUDA_CHECK(cudaMemset(out->data(), 0x3c, size * BytesOf(shape_.kv_type)));
  return out->data();
}

Problem::Problem(const Case& shape, std::mt19937_64& random)
    : shape_(shape),
      sequences_(static_cast<uint32_t>(shape.lengths.size())),
      kv_heads_(static_cast<uint32_t>(shape.groups.size())),
      begins_(1, 0) {
  for (uint32_t group : shape.groups) begins_.push_back(begins_.back() + group);
  query_heads_ = begins_.back();
  const uint32_t group_max = *std::max_element(shape.groups.begin(), shape.groups.end());
  // Rows with something between them.
  query_stride_ = query_heads_ * shape.head_dim + 32;
  // Weights of some spread.
  scale_ = 1.5f / std::sqrt(static_cast<float>(shape.head_dim));
  query_ = testing::Rounded(testing::RandomFloats(random, size_t{sequences_} * query_stride_),
                            shape.type);
  for (uint32_t h = 0; h < query_heads_; ++h) slopes_.push_back(std::exp2(-0.5f * (h % 12 + 1)));
  FillCache(random);
  query_tensor_ = std::make_unique<DeviceTensor>(shape.type, query_);
  device_lengths_ = std::make_unique<DeviceArray<uint32_t>>(shape.lengths);
  device_table_ = std::make_unique<DeviceArray<uint32_t>>(table_);
  device_begins_ = std::make_unique<DeviceArray<uint32_t>>(begins_);
  device_slopes_ = std::make_unique<DeviceArray<float>>(slopes_);
  uint32_t grid = 0;
  WEFT_CUDA_CHECK(DecodeGrid(shape.head_dim, group_max, &grid));
  const uint64_t tokens = std::accumulate(shape.lengths.begin(), shape.lengths.end(), uint64_t{0});
  schedule_ = std::make_unique<DeviceArray<uint8_t>>(
      DecodeScheduleBytes(sequences_, kv_heads_, group_max, grid));
  workspace_ = std::make_unique<DeviceArray<uint8_t>>(DecodeWorkspaceBytes(
      {sequences_, kv_heads_, group_max, shape.head_dim, grid, shape.fixed_split, tokens}));
  schedule_params_ = {
      device_lengths_->data(), sequences_,       kv_heads_, group_max, shape.window, grid,
      shape.fixed_split,       schedule_->data()};
  AttentionParams& attention = params_.attention;
  attention.kv = {DeviceCache(keys_), DeviceCache(values_), kv_heads_, shape.head_dim,
                  shape.kv_type};
  attention.query = query_tensor_->data();
  attention.query_stride = query_stride_;
  attention.query_heads = query_heads_;
  attention.tables = {device_table_->data(), table_stride_};
  attention.context_lengths = device_lengths_->data();
  attention.sequences = sequences_;
  attention.kv_head_begin = device_begins_->data();
  attention.group_max = group_max;
  if (shape.alibi) attention.alibi_slopes = device_slopes_->data();
  attention.scale = scale_;
  attention.soft_cap = shape.soft_cap;
  attention.window = shape.window;
  attention.type = shape.type;
  params_.schedule = schedule_->data();
  params_.grid = grid;
  params_.fixed_split_tokens = shape.fixed_split;
  params_.workspace = workspace_->data();
  params_.workspace_bytes = workspace_->size();
}

std::vector<float> Problem::LaunchWith(DecodeAttentionParams params) {
  const size_t size = size_t{params.attention.sequences} * query_heads_ * shape_.head_dim;
  DeviceTensor out(shape_.type, size + kGuard);
  params.attention.out = out.data();
  WEFT_CUDA_CHECK(DecodeAttention(params, nullptr));
  std::vector<float> host = out.Host();
  CHECK(std::all_of(host.begin() + size, host.end(), [](float x) { return std::isnan(x); }));
  host.resize(size);
  return host;
}

std::vector<float> Problem::LaunchAlone(uint32_t s) {
  DecodeScheduleParams schedule = schedule_params_;
  schedule.context_lengths += s;
  schedule.sequences = 1;
  WEFT_CUDA_CHECK(MakeDecodeSchedule(schedule, nullptr));
  DecodeAttentionParams params = params_;
  params.attention.query = static_cast<const uint8_t*>(params.attention.query) +
                           size_t{s} * query_stride_ * BytesOf(shape_.type);
  params.attention.tables.ids += size_t{s} * table_stride_;
  params.attention.context_lengths += s;
  params.attention.sequences = 1;
  return LaunchWith(params);
}

void Problem::Time() {
  const uint32_t length = shape_.lengths[0];
  const double schedule_us = testing::MedianUs(
      [&](cudaStream_t stream) { WEFT_CUDA_CHECK(MakeDecodeSchedule(schedule_params_, stream)); });
  DeviceTensor out(shape_.type, size_t{sequences_} * query_heads_ * shape_.head_dim);
  params_.attention.out = out.data();
  const double us = testing::MedianUs(
      [&](cudaStream_t stream) { WEFT_CUDA_CHECK(DecodeAttention(params_, stream)); });
  const std::string name = std::to_string(sequences_) + " x " + std::to_string(length) +
                           (shape_.fixed_split != 0 ? ", fixed splits" : "");
  testing::Report(
      "decode attention", name, us,
      2.0 * BytesOf(shape_.kv_type) * sequences_ * length * kv_heads_ * shape_.head_dim);
  if (shape_.fixed_split != 0) return;
  testing::Report("decode schedule", name, schedule_us, 4.0 * sequences_);
}

void Problem::ReferenceRow(size_t s, uint32_t head, uint32_t kv_head, double* out) const {
  const uint32_t length = shape_.lengths[s];
  const uint32_t first = First(shape_, length);
  const float* query = query_.data() + s * query_stride_ + size_t{head} * shape_.head_dim;
  std::vector<double> scores;
  double highest = -std::numeric_limits<double>::infinity();
  for (uint32_t p = first; p < length; ++p) {
    const float* key = Token(keys_, s, kv_head, p);
    double score = 0;
    for (uint32_t i = 0; i < shape_.head_dim; ++i) score += static_cast<double>(query[i]) * key[i];
    score *= scale_;
    if (shape_.soft_cap != 0) score = shape_.soft_cap * std::tanh(score / shape_.soft_cap);
    if (shape_.alibi)
      score += static_cast<double>(slopes_[head]) * (static_cast<double>(p) - (length - 1));
    scores.push_back(score);
    highest = std::max(highest, score);
  }
  double total = 0;
  for (double& score : scores) total += score = std::exp(score - highest);
  for (uint32_t p = first; p < length; ++p) {
    const float* value = Token(values_, s, kv_head, p);
    const double weight = scores[p - first] / total;
    for (uint32_t i = 0; i < shape_.head_dim; ++i) out[i] += weight * value[i];
  }
}

std::vector<double> Problem::Reference() const {
  std::vector<double> out(size_t{sequences_} * query_heads_ * shape_.head_dim);
  for (size_t s = 0; s < sequences_; ++s) {
    for (uint32_t kv_head = 0; kv_head < kv_heads_; ++kv_head) {
      for (uint32_t head = begins_[kv_head]; head < begins_[kv_head + 1]; ++head) {
        ReferenceRow(s, head, kv_head, out.data() + (s * query_heads_ + head) * shape_.head_dim);
      }
    }
  }
  return out;
}

// bf16 values meet weights rounded to bf16, each off by up to 2^-9: that is seen in a float32
// output, and random from weight to weight.
double Bound(const Case& shape) {
  if (shape.kv_type == DType::kBfloat16) return testing::Tolerance(DType::kBfloat16);
  return testing::Tolerance(shape.type);
}

void Check(const Case& shape) {
  std::mt19937_64 random(testing::Seed());
  CAPTURE(shape.lengths, shape.groups, shape.head_dim, shape.window, shape.soft_cap, shape.alibi,
          shape.fixed_split, static_cast<int>(shape.type), static_cast<int>(shape.kv_type));
  Problem problem(shape, random);
  problem.Schedule();
  const std::vector<float> out = problem.Launch();
  const std::vector<double> reference = problem.Reference();
  CHECK(testing::RelativeError(out, reference) < Bound(shape));
  // A wrong row among many hides in the norm over all: the worst row counts too.
  const size_t row = reference.size() / shape.lengths.size();
  double worst = 0;
  for (size_t begin = 0; begin < out.size(); begin += row) {
    if (shape.lengths[begin / row] == 0) continue;
    worst = std::max(worst, testing::RelativeError(std::span(out).subspan(begin, row),
                                                   std::span(reference).subspan(begin, row)));
  }
  CHECK(worst < 2 * Bound(shape));
  // The same schedule serves every layer.
  const bool repeats = problem.Launch() == out;
  CHECK(repeats);
}

// Many short contexts and a very long one.
std::vector<uint32_t> MixedLengths(uint32_t sequences, uint32_t longest) {
  std::vector<uint32_t> lengths;
  for (uint32_t s = 0; s < sequences; ++s) lengths.push_back(1 + s * 37 % 300);
  lengths[sequences / 2] = longest;
  return lengths;
}

TEST_CASE("Decode attention: contexts", "[cuda][decode_attention]") {
  const uint32_t length = GENERATE(1, 63, 64, 65, 127, 1000, 4097);
  const uint32_t head_dim = GENERATE(64, 128);
  const uint32_t fixed_split = GENERATE(0, 256);
  Check({.lengths = {length}, .groups = {4, 4}, .head_dim = head_dim, .fixed_split = fixed_split});
}

TEST_CASE("Decode attention: batches", "[cuda][decode_attention]") {
  const uint32_t fixed_split = GENERATE(0, 128);
  Check({.lengths = {127, 1, 4097}, .groups = {4, 4, 4, 4}, .fixed_split = fixed_split});
  Check({.lengths = MixedLengths(64, 9000), .groups = {4, 4}, .fixed_split = fixed_split});
  Check({.lengths = MixedLengths(256, 5000), .groups = {3, 3}, .fixed_split = fixed_split});
  Check({.lengths = {20'000, 3}, .groups = {48}, .fixed_split = 8 * fixed_split});
  Check({.lengths = {0, 70, 0, 0, 300, 0}, .groups = {4, 4}, .fixed_split = fixed_split});
}

TEST_CASE("Decode attention: groups and head sizes", "[cuda][decode_attention]") {
  const uint32_t head_dim = GENERATE(64, 80, 96, 128, 256);
  const uint32_t group = GENERATE(1, 3, 4, 7, 8, 16, 17, 32, 48, 71);
  const std::vector<uint32_t> groups(group < 16 ? 3 : 1, group);
  Check({.lengths = {700, 65, 1}, .groups = groups, .head_dim = head_dim});
}

TEST_CASE("Decode attention: groups of unequal size", "[cuda][decode_attention]") {
  using Groups = std::vector<uint32_t>;
  const uint32_t head_dim = GENERATE(64, 128);
  const auto groups = GENERATE(Groups({5, 1, 3}), Groups({2, 20, 7}), Groups({49, 3}));
  Check({.lengths = {700, 65, 1}, .groups = groups, .head_dim = head_dim});
}

TEST_CASE("Decode attention: windows, soft cap and ALiBi", "[cuda][decode_attention]") {
  Case shape = {.lengths = {1, 99, 101, 127, 1000, 4500}, .groups = {4, 2}, .head_dim = 64};
  shape.window = GENERATE(0, 1, 100, 4096);
  shape.soft_cap = GENERATE(0.0f, 3.0f);
  shape.alibi = GENERATE(false, true);
  shape.fixed_split = GENERATE(0, 192);
  Check(shape);
}

TEST_CASE("Decode attention: other types", "[cuda][decode_attention]") {
  Case shape = {.lengths = {1, 64, 65, 700, 0}, .groups = {3, 1, 5}};
  std::tie(shape.type, shape.kv_type) = GENERATE(std::pair(DType::kFloat32, DType::kFloat32),
                                                 std::pair(DType::kFloat32, DType::kBfloat16),
                                                 std::pair(DType::kBfloat16, DType::kFloat32));
  shape.head_dim = GENERATE(64, 80, 96, 128, 256);
  shape.window = GENERATE(0, 100);
  if (shape.window != 0) shape.soft_cap = 5.0f;
  shape.alibi = shape.window != 0;
  Check(shape);
}

TEST_CASE("Decode attention with fixed splits: neighbours do not matter",
          "[cuda][decode_attention]") {
  std::mt19937_64 random(testing::Seed());
  const Case shape = {.lengths = {1000, 63, 4097, 512, 3000}, .groups = {4, 4}, .fixed_split = 512};
  Problem problem(shape, random);
  problem.Schedule();
  const std::vector<float> together = problem.Launch();
  const size_t row = together.size() / shape.lengths.size();
  for (uint32_t s = 0; s < shape.lengths.size(); ++s) {
    const std::vector<float> alone = problem.LaunchAlone(s);
    const bool same = std::equal(alone.begin(), alone.end(), together.begin() + s * row);
    CHECK(same);
  }
}

TEST_CASE("Decode attention refuses other head sizes", "[cuda][decode_attention]") {
  uint32_t grid = 0;
  CHECK(DecodeGrid(72, 4, &grid) == cudaErrorInvalidValue);
}

// Llama-3.1-8B.
TEST_CASE("Decode attention: time", "[cuda][decode_attention][time]") {
  std::mt19937_64 random(testing::Seed());
  const auto [sequences, length] =
      GENERATE(std::pair(1u, 1024u), std::pair(1u, 4096u), std::pair(1u, 32768u),
               std::pair(32u, 4096u), std::pair(64u, 512u));
  Case shape = {.lengths = std::vector<uint32_t>(sequences, length), .groups = {}, .timed = true};
  shape.groups.assign(8, 4);
  shape.fixed_split = GENERATE(0u, 1024u);
  Problem(shape, random).Time();
}

}  // namespace
}  // namespace weft::kernels::cuda
