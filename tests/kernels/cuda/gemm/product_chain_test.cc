// The product that rotates and appends and decode attention, layer into layer as in a step of few
// rows, with launches that overlap: the same bits as with launches that do not.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "kernels/cuda/gemm/gemv.h"
#include "tests/kernels/cuda/attention/decode_attention_rig.h"
#include "tests/kernels/cuda/gemm/gemv_rig.h"
#include "tests/kernels/cuda/overlap.h"

namespace weft::kernels::cuda {
namespace {

using decode_testing::Case;
using testing::DeviceArray;
using testing::DeviceTensor;
using testing::Overlap;

constexpr uint32_t kLayers = 6;
constexpr uint32_t kTimedLayers = 32;

uint32_t QueryColumns(const Case& shape) {
  return std::accumulate(shape.groups.begin(), shape.groups.end(), 0u) * shape.head_dim;
}
uint32_t AllColumns(const Case& shape) {
  return QueryColumns(shape) + 2 * static_cast<uint32_t>(shape.groups.size()) * shape.head_dim;
}

// A layer's output is the next layer's input. All write the same query and the same place of the
// cache: a kernel that does not wait for the one in front, or starts to write before it, shows.
class Chain {
 public:
  Chain(const Case& shape, uint32_t k, uint32_t layers, std::mt19937_64& random)
      : shape_(shape),
        layers_(layers),
        problem_(shape, random),
        inputs_(random, AllColumns(shape), k),
        query_(DType::kBfloat16, size_t{problem_.sequences()} * QueryColumns(shape)) {
    for (uint32_t layer = 0; layer < layers_; ++layer) {
      outs_.push_back(std::make_unique<DeviceTensor>(
          DType::kBfloat16, size_t{problem_.sequences()} * QueryColumns(shape)));
    }
    const uint32_t end = *std::max_element(shape.lengths.begin(), shape.lengths.end());
    std::vector<float2> turns;
    for (const float angle : testing::RepeatedFloats(random, size_t{end} * shape.head_dim / 2)) {
      turns.push_back({std::cos(angle), std::sin(angle)});
    }
    rotary_ = std::make_unique<DeviceArray<float2>>(turns);
    std::vector<uint32_t> positions, sequences(shape.lengths.size());
    for (const uint32_t length : shape.lengths) positions.push_back(length - 1);
    std::iota(sequences.begin(), sequences.end(), 0u);
    positions_ = std::make_unique<DeviceArray<uint32_t>>(positions);
    sequences_ = std::make_unique<DeviceArray<uint32_t>>(sequences);
  }

  // A step. The first product waits for all in front of it, as what follows a step's embedding.
  void Launch(Overlap overlap, bool first, cudaStream_t stream) {
    const bool dependent = overlap != Overlap::kNone;
    DecodeScheduleParams schedule = problem_.schedule_params();
    schedule.dependent = dependent && !first;
    WEFT_CUDA_CHECK(MakeDecodeSchedule(schedule, stream));
    DecodeAttentionParams attend = problem_.params();
    attend.attention.query = query_.data();
    attend.attention.query_stride = QueryColumns(shape_);
    attend.dependent = dependent;
    attend.after_append = overlap == Overlap::kAfterAppend;
    GemvParams product = inputs_.Params(testing::Before::kNothing);
    product.epilogue = GemvEpilogue::kRotateAppend;
    product.heads = Heads(attend.attention);
    product.rows = problem_.sequences();
    product.workspace = workspace_.data();
    product.next = {product.weight, product.epilogue, product.n, product.k, shape_.head_dim};
    for (uint32_t layer = 0; layer < layers_; ++layer) {
      product.dependent = dependent && layer != 0;
      product.heads.kv = attend.attention.kv = problem_.Layer(layer);
      attend.attention.out = outs_[layer]->data();
      WEFT_CUDA_CHECK(Gemv(product, stream));
      WEFT_CUDA_CHECK(DecodeAttention(attend, stream));
      if (product.k == QueryColumns(shape_)) product.in = outs_[layer]->data();
    }
  }

  std::vector<std::vector<float>> Host() const {
    std::vector<std::vector<float>> all;
    for (const auto& out : outs_) all.push_back(out->Host());
    return all;
  }
  void Poison() {
    for (const auto& out : outs_) {
      WEFT_CUDA_CHECK(
          cudaMemset(out->data(), 0xff, size_t{problem_.sequences()} * QueryColumns(shape_) * 2));
    }
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
  }

 private:
  RotateAndAppendParams Heads(const AttentionParams& attention) {
    RotateAndAppendParams heads;
    heads.query_heads = problem_.query_heads();
    heads.rotary = rotary_->data();
    heads.rotary_dim = shape_.head_dim;
    heads.positions = positions_->data();
    heads.sequences = sequences_->data();
    heads.query = query_.data();
    heads.query_stride = QueryColumns(shape_);
    heads.tables = attention.tables;
    return heads;
  }

  Case shape_;
  uint32_t layers_;
  decode_testing::Problem problem_;
  testing::Inputs inputs_;
  testing::Workspace workspace_;
  DeviceTensor query_;
  std::vector<std::unique_ptr<DeviceTensor>> outs_;
  std::unique_ptr<DeviceArray<float2>> rotary_;
  std::unique_ptr<DeviceArray<uint32_t>> positions_, sequences_;
};

TEST_CASE("Product chain: the bits of launches that do not overlap",
          "[cuda][gemv][decode_attention][dependent]") {
  std::mt19937_64 random(testing::Seed());
  const Case shape = GENERATE(
      Case{.lengths = {1}, .groups = {4, 4}}, Case{.lengths = {65}, .groups = {4, 4}},
      Case{.lengths = {1000}, .groups = {4, 4}}, Case{.lengths = {2500}, .groups = {3, 3, 3}},
      Case{.lengths = {127, 1, 2000, 64}, .groups = {4, 2, 7}},
      Case{.lengths = {300, 200, 2}, .groups = {4, 4}, .head_dim = 64, .fixed_split = 128});
  CAPTURE(shape.lengths, shape.groups, shape.fixed_split);
  Chain chain(shape, QueryColumns(shape), kLayers, random);
  testing::CheckOverlaps(chain);
}

// Llama-3.1-8B, whole and a quarter of it: what a layer's product and attention add to a step. The
// weights stay in the L2, the keys do not.
TEST_CASE("Product chain: time", "[cuda][gemv][decode_attention][dependent][time]") {
  std::mt19937_64 random(testing::Seed());
  const uint32_t groups = GENERATE(2u, 8u);
  const uint32_t length = GENERATE(128u, 1024u);
  Case shape = {.lengths = {length}, .groups = {}, .timed = true};
  shape.groups.assign(groups, 4);
  shape.kv_copies = kTimedLayers;
  Chain chain(shape, 4096, kTimedLayers, random);
  for (const Overlap overlap : {Overlap::kDependent, Overlap::kAfterAppend}) {
    testing::Report(
        "qkv + decode, of 32",
        std::to_string(groups) + " KV heads, " + std::to_string(length) + testing::NameOf(overlap),
        testing::LayerUs(chain, overlap, kTimedLayers),
        2.0 * AllColumns(shape) * 4096 + 512.0 * groups * length);
  }
}

}  // namespace
}  // namespace weft::kernels::cuda
