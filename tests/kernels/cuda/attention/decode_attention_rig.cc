#include "tests/kernels/cuda/attention/decode_attention_rig.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

namespace weft::kernels::cuda::decode_testing {
namespace {

// Elements after the output that must stay as they were.
constexpr size_t kGuard = 64;

uint32_t Blocks(uint32_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

uint32_t First(const Case& shape, uint32_t length) {
  return shape.window != 0 && length > shape.window ? length - shape.window : 0;
}

}  // namespace

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
  const size_t size =
      size_t{shape_.kv_copies} * pool_blocks_ * kv_heads_ * kKvBlockTokens * shape_.head_dim;
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
  // From next to nothing to most of a softmax of a few keys.
  for (uint32_t h = 0; h < query_heads_; ++h) sinks_.push_back(1.5f * (h % 7) - 4.0f);
  FillCache(random);
  query_tensor_ = std::make_unique<DeviceTensor>(shape.type, query_);
  device_lengths_ = std::make_unique<DeviceArray<uint32_t>>(shape.lengths);
  device_table_ = std::make_unique<DeviceArray<uint32_t>>(table_);
  device_begins_ = std::make_unique<DeviceArray<uint32_t>>(begins_);
  device_slopes_ = std::make_unique<DeviceArray<float>>(slopes_);
  device_sinks_ = std::make_unique<DeviceArray<float>>(sinks_);
  uint32_t grid = 0;
  WEFT_CUDA_CHECK(DecodeGrid(shape.head_dim, group_max, &grid));
  const uint64_t tokens = std::accumulate(shape.lengths.begin(), shape.lengths.end(), uint64_t{0});
  schedule_ = std::make_unique<DeviceArray<uint8_t>>(
      DecodeScheduleBytes(sequences_, kv_heads_, group_max, grid));
  workspace_ = std::make_unique<DeviceArray<uint8_t>>(DecodeWorkspaceBytes(
      {sequences_, kv_heads_, group_max, shape.head_dim, grid, shape.fixed_split, tokens}));
  schedule_params_ = {
      device_lengths_->data(), sequences_,        kv_heads_, group_max, shape.window, grid,
      shape.fixed_split,       schedule_->data(), {},        false};
  schedule_params_.tables = {device_table_->data(), table_stride_};
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
  if (shape.sinks) params_.sinks = device_sinks_->data();
  params_.schedule = schedule_->data();
  params_.grid = grid;
  params_.fixed_split_tokens = shape.fixed_split;
  params_.workspace = workspace_->data();
  params_.workspace_bytes = workspace_->size();
}

KvLayer Problem::Layer(uint32_t layer) const {
  KvLayer kv = params_.attention.kv;
  const size_t bytes = size_t{layer % shape_.kv_copies} * pool_blocks_ * kv_heads_ *
                       kKvBlockTokens * shape_.head_dim * BytesOf(shape_.kv_type);
  kv.keys = static_cast<uint8_t*>(kv.keys) + bytes;
  kv.values = static_cast<uint8_t*>(kv.values) + bytes;
  return kv;
}

std::vector<float> Problem::LaunchWith(DecodeAttentionParams params,
                                       const DecodeScheduleParams* schedule, cudaStream_t stream) {
  const size_t size = size_t{params.attention.sequences} * query_heads_ * shape_.head_dim;
  DeviceTensor out(shape_.type, size + kGuard);
  params.attention.out = out.data();
  if (schedule != nullptr) WEFT_CUDA_CHECK(MakeDecodeSchedule(*schedule, stream));
  WEFT_CUDA_CHECK(DecodeAttention(params, stream));
  std::vector<float> host = out.Host();
  CHECK(std::all_of(host.begin() + size, host.end(), [](float x) { return std::isnan(x); }));
  host.resize(size);
  return host;
}

std::vector<float> Problem::LaunchWithoutIds() {
  DecodeScheduleParams schedule = schedule_params_;
  schedule.tables = {};
  WEFT_CUDA_CHECK(MakeDecodeSchedule(schedule, nullptr));
  return LaunchWith(params_);
}

std::vector<float> Problem::LaunchOverlapping() {
  cudaStream_t stream;
  WEFT_CUDA_CHECK(cudaStreamCreate(&stream));
  DecodeAttentionParams params = params_;
  params.dependent = true;
  // What the schedule held before would lead astray.
  WEFT_CUDA_CHECK(cudaMemset(schedule_->data(), 0, schedule_->size()));
  WEFT_CUDA_CHECK(cudaDeviceSynchronize());
  std::vector<float> out = LaunchWith(params, &schedule_params_, stream);
  WEFT_CUDA_CHECK(cudaStreamDestroy(stream));
  return out;
}

std::vector<float> Problem::LaunchAlone(uint32_t s) {
  DecodeScheduleParams schedule = schedule_params_;
  schedule.context_lengths += s;
  schedule.tables.ids += size_t{s} * table_stride_;
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
  if (shape_.sinks && !scores.empty()) {
    highest = std::max(highest, static_cast<double>(sinks_[head]));
    total = std::exp(sinks_[head] - highest);
  }
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

}  // namespace weft::kernels::cuda::decode_testing
