// Rotation with append and decode attention, one after the other as in the layers of a step, with
// launches that overlap: the same bits as with launches that do not.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <string>

#include "kernels/cuda/elementwise/rope.h"
#include "tests/kernels/cuda/attention/decode_attention_rig.h"
#include "tests/kernels/cuda/overlap.h"

namespace weft::kernels::cuda::decode_testing {
namespace {

using testing::Overlap;

constexpr uint32_t kLayers = 6;
constexpr uint32_t kTimedLayers = 32;

uint32_t Sum(const std::vector<uint32_t>& values) {
  return std::accumulate(values.begin(), values.end(), 0u);
}

// All layers write the same query and the same place of the cache: a kernel that does not wait for
// the one in front, or starts to write before it, shows. With `linked` and one sequence, a layer's
// output is the query columns of the next layer's input.
class Chain {
 public:
  Chain(const Case& shape, bool linked, uint32_t layers, std::mt19937_64& random);

  // A step. `first`: there is no kernel in front that its first one could overlap.
  void Launch(Overlap overlap, bool first, cudaStream_t stream) const;
  // The rows that hold the layers' outputs.
  std::vector<std::vector<float>> Host() const;
  void Poison();

 private:
  Case shape_;
  bool linked_;
  uint32_t layers_;
  Problem problem_;
  // Columns of a row: all heads, and the query's.
  uint32_t width_, query_width_;
  std::unique_ptr<DeviceTensor> query_;
  std::vector<std::unique_ptr<DeviceTensor>> qkv_, out_;
  std::unique_ptr<DeviceArray<float2>> rotary_;
  std::unique_ptr<DeviceArray<uint32_t>> positions_, sequences_;
};

Chain::Chain(const Case& shape, bool linked, uint32_t layers, std::mt19937_64& random)
    : shape_(shape), linked_(linked), layers_(layers), problem_(shape, random) {
  const auto rows = static_cast<uint32_t>(shape.lengths.size());
  query_width_ = Sum(shape.groups) * shape.head_dim;
  width_ = query_width_ + 2 * static_cast<uint32_t>(shape.groups.size()) * shape.head_dim;
  query_ = std::make_unique<DeviceTensor>(shape.type, size_t{rows} * query_width_);
  for (uint32_t layer = 0; layer <= layers_; ++layer) {
    qkv_.push_back(std::make_unique<DeviceTensor>(
        shape.type, testing::RepeatedFloats(random, size_t{rows} * width_)));
    out_.push_back(std::make_unique<DeviceTensor>(shape.type, size_t{rows} * query_width_));
  }
  const uint32_t end = *std::max_element(shape.lengths.begin(), shape.lengths.end());
  const std::vector<float> angles =
      testing::RepeatedFloats(random, size_t{end} * shape.head_dim / 2);
  std::vector<float2> turns;
  for (float angle : angles) turns.push_back({std::cos(angle), std::sin(angle)});
  rotary_ = std::make_unique<DeviceArray<float2>>(turns);
  std::vector<uint32_t> positions, sequences(rows);
  for (uint32_t length : shape.lengths) positions.push_back(length - 1);
  std::iota(sequences.begin(), sequences.end(), 0u);
  positions_ = std::make_unique<DeviceArray<uint32_t>>(positions);
  sequences_ = std::make_unique<DeviceArray<uint32_t>>(sequences);
}

void Chain::Launch(Overlap overlap, bool first, cudaStream_t stream) const {
  const bool dependent = overlap != Overlap::kNone;
  DecodeScheduleParams schedule = problem_.schedule_params();
  schedule.dependent = dependent && !first;
  RotateAndAppendParams rotate;
  rotate.qkv_stride = width_;
  rotate.query_heads = problem_.query_heads();
  rotate.rotary = rotary_->data();
  rotate.rotary_dim = shape_.head_dim;
  rotate.positions = positions_->data();
  rotate.sequences = sequences_->data();
  rotate.query = query_->data();
  rotate.query_stride = query_width_;
  rotate.tables = problem_.params().attention.tables;
  rotate.rows = problem_.sequences();
  rotate.type = shape_.type;
  rotate.dependent = dependent;
  DecodeAttentionParams attend = problem_.params();
  attend.attention.query = query_->data();
  attend.attention.query_stride = query_width_;
  attend.dependent = dependent;
  attend.after_append = overlap == Overlap::kAfterAppend;
  if (shape_.type == DType::kBfloat16) WEFT_CUDA_CHECK(MakeDecodeSchedule(schedule, stream));
  for (uint32_t layer = 0; layer < layers_; ++layer) {
    rotate.qkv = qkv_[layer]->data();
    rotate.kv = attend.attention.kv = problem_.Layer(layer);
    attend.attention.out = linked_ ? qkv_[layer + 1]->data() : out_[layer]->data();
    WEFT_CUDA_CHECK(RotateAndAppend(rotate, stream));
    WEFT_CUDA_CHECK(DecodeAttention(attend, stream));
  }
}

std::vector<std::vector<float>> Chain::Host() const {
  std::vector<std::vector<float>> all;
  for (uint32_t layer = 0; layer < layers_; ++layer) {
    all.push_back(linked_ ? qkv_[layer + 1]->Host() : out_[layer]->Host());
  }
  return all;
}

void Chain::Poison() {
  for (uint32_t layer = 0; layer < layers_; ++layer) {
    void* out = linked_ ? qkv_[layer + 1]->data() : out_[layer]->data();
    const size_t size = size_t{problem_.sequences()} * query_width_ * BytesOf(shape_.type);
    WEFT_CUDA_CHECK(cudaMemset(out, 0xff, size));
  }
  WEFT_CUDA_CHECK(cudaDeviceSynchronize());
}

void CheckChain(const Case& shape, bool linked) {
  std::mt19937_64 random(testing::Seed());
  CAPTURE(shape.lengths, shape.groups, shape.fixed_split, static_cast<int>(shape.type), linked);
  Chain chain(shape, linked, kLayers, random);
  testing::CheckOverlaps(chain);
}

TEST_CASE("Decode chain: one sequence, layer into layer", "[cuda][decode_attention][dependent]") {
  const uint32_t length = GENERATE(1, 65, 1000, 2500);
  const uint32_t fixed_split = GENERATE(0, 256);
  CheckChain({.lengths = {length}, .groups = {4, 4}, .fixed_split = fixed_split}, true);
}

TEST_CASE("Decode chain: batches", "[cuda][decode_attention][dependent]") {
  const uint32_t fixed_split = GENERATE(0, 128);
  CheckChain({.lengths = {127, 1, 2000, 64}, .groups = {4, 2, 7}, .fixed_split = fixed_split},
             false);
  CheckChain({.lengths = std::vector<uint32_t>(64, 200),
              .groups = {4, 4},
              .head_dim = 64,
              .fixed_split = fixed_split},
             false);
}

TEST_CASE("Decode chain: float32", "[cuda][decode_attention][dependent]") {
  CheckChain(
      {.lengths = {700}, .groups = {3, 3}, .type = DType::kFloat32, .kv_type = DType::kFloat32},
      true);
}

// Llama-3.1-8B: what a layer adds to a step between the product and the output projection.
TEST_CASE("Decode chain: time", "[cuda][decode_attention][dependent][time]") {
  std::mt19937_64 random(testing::Seed());
  const auto [sequences, length] =
      GENERATE(std::pair(1u, 1024u), std::pair(1u, 4096u), std::pair(64u, 512u));
  Case shape = {.lengths = std::vector<uint32_t>(sequences, length), .groups = {}, .timed = true};
  shape.groups.assign(8, 4);
  const double bytes = 4096.0 * sequences * length;
  shape.kv_copies = static_cast<uint32_t>(std::clamp(256e6 / bytes, 1.0, 32.0));
  Chain chain(shape, false, kTimedLayers, random);
  for (const Overlap overlap : {Overlap::kNone, Overlap::kDependent, Overlap::kAfterAppend}) {
    testing::Report(
        "rotate + decode, of 32",
        std::to_string(sequences) + " x " + std::to_string(length) + testing::NameOf(overlap),
        testing::LayerUs(chain, overlap, kTimedLayers), bytes);
  }
}

TEST_CASE("Decode attention refuses to run ahead on its own", "[cuda][decode_attention]") {
  std::mt19937_64 random(testing::Seed());
  const Problem problem({.lengths = {100}, .groups = {4}}, random);
  DecodeAttentionParams params = problem.params();
  params.after_append = true;
  CHECK(DecodeAttention(params, nullptr) == cudaErrorInvalidValue);
}

}  // namespace
}  // namespace weft::kernels::cuda::decode_testing
