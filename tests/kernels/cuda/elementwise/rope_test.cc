#include "kernels/cuda/elementwise/rope.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cuda/elementwise/heads.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr uint32_t kNoBlock = 0xffffffffu;

struct Case {
  uint32_t rows;
  uint32_t sequences;
  uint32_t query_heads;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t rotary_dim;  // 0 = no table

  uint32_t heads() const { return query_heads + 2 * kv_heads; }
  uint32_t width() const { return heads() * head_dim; }
};

// How the buffers lie: alone without a bias; with a bias and strides that keep the vector accesses;
// in place with those; alone with a bias and strides that rule vectors out.
enum class Layout { kTight, kWide, kInPlace, kOdd };

// Where the rows stand, and the block tables for that.
struct Places {
  std::vector<uint32_t> sequences;
  std::vector<uint32_t> positions;
  uint32_t position_end = 0;
  std::vector<uint32_t> tables;  // kNoBlock where no row of the step goes
  uint32_t table_stride = 0;
  uint32_t blocks = 0;
};

// Each sequence takes a run of positions: from zero, over a block's border, up to a block's end, or
// anywhere. Rows come in any order; one of them may be padding.
Places DrawPlaces(std::mt19937_64& random, const Case& shape) {
  Places places;
  std::vector<std::pair<uint32_t, uint32_t>> rows;
  for (uint32_t s = 0; s < shape.sequences; ++s) {
    const uint32_t count = shape.rows / shape.sequences + (s < shape.rows % shape.sequences);
    const uint32_t to_end = (count + kKvBlockTokens - 1) / kKvBlockTokens * kKvBlockTokens - count;
    const uint32_t begins[] = {0, kKvBlockTokens - 1, to_end, kKvBlockTokens,
                               static_cast<uint32_t>(random() % 200)};
    const uint32_t begin = begins[(s + random()) % std::size(begins)];
    for (uint32_t i = 0; i < count; ++i) rows.emplace_back(s, begin + i);
  }
  std::shuffle(rows.begin(), rows.end(), random);
  for (const auto& [sequence, position] : rows) {
    places.sequences.push_back(sequence);
    places.positions.push_back(position);
    places.position_end = std::max(places.position_end, position + 1);
  }
  if (shape.rows >= 9) places.sequences[random() % shape.rows] = kNoSequence;
  places.table_stride = places.position_end / kKvBlockTokens + 3;
  places.tables.assign(size_t{shape.sequences} * places.table_stride, kNoBlock);
  std::vector<uint32_t*> used;
  for (uint32_t r = 0; r < shape.rows; ++r) {
    if (places.sequences[r] == kNoSequence) continue;
    uint32_t& id = places.tables[places.sequences[r] * places.table_stride +
                                 places.positions[r] / kKvBlockTokens];
    if (id == kNoBlock) used.push_back(&id);
    id = 0;
  }
  // A few blocks belong to nobody.
  places.blocks = used.size() + 3;
  std::vector<uint32_t> ids(places.blocks);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  for (size_t i = 0; i < used.size(); ++i) *used[i] = ids[i];
  return places;
}

// Everything the kernel may write, NaN where it must not.
struct Reference {
  std::vector<double> query;
  std::vector<double> keys;
  std::vector<double> values;
};

// One head of one row, rotated by `turns` (cos, sin) when there are any.
void RotateHead(const Case& shape, const std::vector<float>& in, const float2* turns, double* out) {
  for (uint32_t i = 0; i < shape.head_dim; ++i) out[i] = in[i];
  const uint32_t half = turns != nullptr ? shape.rotary_dim / 2 : 0;
  for (uint32_t i = 0; i < half; ++i) {
    const double cosine = turns[i].x;
    const double sine = turns[i].y;
    out[i] = in[i] * cosine - in[i + half] * sine;
    out[i + half] = in[i + half] * cosine + in[i] * sine;
  }
}

// `reference.query` comes filled with what lies there before.
void Compute(const Case& shape, const Places& places, const std::vector<float>& qkv,
             uint32_t qkv_stride, const std::vector<float>* bias, const std::vector<float2>& rotary,
             uint32_t query_stride, Reference* reference) {
  const size_t pool = size_t{places.blocks} * shape.kv_heads * kKvBlockTokens * shape.head_dim;
  reference->keys.assign(pool, kNan);
  reference->values.assign(pool, kNan);
  std::vector<float> in(shape.head_dim);
  for (size_t r = 0; r < shape.rows; ++r) {
    const uint32_t position = places.positions[r];
    for (uint32_t h = 0; h < shape.heads(); ++h) {
      for (uint32_t i = 0; i < shape.head_dim; ++i) {
        in[i] = qkv[r * qkv_stride + h * shape.head_dim + i];
        if (bias != nullptr) in[i] += (*bias)[h * shape.head_dim + i];
      }
      const bool is_value = h >= shape.query_heads + shape.kv_heads;
      const float2* turns =
          shape.rotary_dim > 0 && !is_value ? &rotary[position * (shape.rotary_dim / 2)] : nullptr;
      if (h < shape.query_heads) {
        RotateHead(shape, in, turns, &reference->query[r * query_stride + h * shape.head_dim]);
        continue;
      }
      if (places.sequences[r] == kNoSequence) continue;
      const size_t block =
          places.tables[places.sequences[r] * places.table_stride + position / kKvBlockTokens];
      const uint32_t kv_head = (h - shape.query_heads) % shape.kv_heads;
      const size_t token =
          (block * shape.kv_heads + kv_head) * kKvBlockTokens + position % kKvBlockTokens;
      auto& cache = is_value ? reference->values : reference->keys;
      RotateHead(shape, in, turns, &cache[token * shape.head_dim]);
    }
  }
}

// Elements of `out` that are not what they should be: off by more than the rounding and what
// float32 loses of numbers below 16, or touched where NaN was. Each by itself: one wrong element
// among a million would vanish in a norm.
size_t CountWrong(const std::vector<float>& out, const std::vector<double>& expected, DType type) {
  if (out.size() != expected.size()) return std::max(out.size(), expected.size());
  const double relative = type == DType::kFloat32 ? 1e-6 : 1.0 / 256;
  size_t wrong = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    if (std::isnan(expected[i])) {
      wrong += !std::isnan(out[i]);
    } else {
      wrong += !(std::abs(out[i] - expected[i]) <= relative * std::abs(expected[i]) + 4e-6);
    }
  }
  return wrong;
}

std::vector<float2> RotaryTable(uint32_t positions, uint32_t rotary_dim) {
  std::vector<float2> table;
  for (uint32_t p = 0; p < positions; ++p) {
    for (uint32_t i = 0; i < rotary_dim / 2; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / rotary_dim);
      table.push_back({static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))});
    }
  }
  return table;
}

// Rows of `width` numbers in rows of `stride`, NaN between them.
std::vector<float> Spread(const std::vector<float>& values, size_t width, size_t stride) {
  std::vector<float> out(values.size() / width * stride, static_cast<float>(kNan));
  for (size_t i = 0; i < values.size(); ++i) out[i / width * stride + i % width] = values[i];
  return out;
}

void CheckCase(const Case& shape, DType type, DType kv_type, Layout layout) {
  std::mt19937_64 random(testing::Seed());
  const Places places = DrawPlaces(random, shape);
  const uint32_t padding = layout == Layout::kTight ? 0 : layout == Layout::kOdd ? 3 : 8;
  const bool in_place = layout == Layout::kInPlace;
  const uint32_t qkv_stride = shape.width() + padding;
  const uint32_t query_stride =
      in_place ? qkv_stride : shape.query_heads * shape.head_dim + padding;
  const std::vector<float> qkv = Spread(
      testing::Rounded(testing::RandomFloats(random, size_t{shape.rows} * shape.width()), type),
      shape.width(), qkv_stride);
  const auto bias = testing::Rounded(testing::RandomFloats(random, shape.width()), type);
  const bool with_bias = layout != Layout::kTight;
  const std::vector<float2> rotary = RotaryTable(places.position_end, shape.rotary_dim);
  Reference reference;
  if (in_place) {
    reference.query.assign(qkv.begin(), qkv.end());
  } else {
    reference.query.assign(size_t{shape.rows} * query_stride, kNan);
  }
  Compute(shape, places, qkv, qkv_stride, with_bias ? &bias : nullptr, rotary, query_stride,
          &reference);

  DeviceTensor device_qkv(type, qkv);
  DeviceTensor device_bias(type, bias);
  DeviceTensor query(type, reference.query.size());
  DeviceTensor keys(kv_type, reference.keys.size());
  DeviceTensor values(kv_type, reference.values.size());
  DeviceArray<float2> device_rotary(rotary);
  DeviceArray<uint32_t> positions(places.positions), sequences(places.sequences),
      tables(places.tables);
  RotateAndAppendParams params;
  params.qkv = device_qkv.data();
  params.qkv_stride = qkv_stride;
  params.bias = with_bias ? device_bias.data() : nullptr;
  params.query_heads = shape.query_heads;
  params.rotary = shape.rotary_dim > 0 ? device_rotary.data() : nullptr;
  params.rotary_dim = shape.rotary_dim;
  params.positions = positions.data();
  params.sequences = sequences.data();
  params.query = in_place ? device_qkv.data() : query.data();
  params.query_stride = query_stride;
  params.kv = {keys.data(), values.data(), shape.kv_heads, shape.head_dim, kv_type};
  params.tables = {tables.data(), places.table_stride};
  params.rows = shape.rows;
  params.type = type;
  WEFT_CUDA_CHECK(RotateAndAppend(params, nullptr));
  CHECK(CountWrong(in_place ? device_qkv.Host() : query.Host(), reference.query, type) == 0);
  CHECK(CountWrong(keys.Host(), reference.keys, kv_type) == 0);
  CHECK(CountWrong(values.Host(), reference.values, kv_type) == 0);
}

TEST_CASE("Rotation and append agree with double precision and touch nothing else",
          "[cuda][rope]") {
  const auto shape = GENERATE(
      Case{1, 1, 1, 1, 64, 64}, Case{256, 256, 4, 1, 64, 64}, Case{256, 3, 9, 3, 64, 64},
      Case{1, 1, 32, 8, 128, 128}, Case{33, 2, 32, 8, 128, 128}, Case{40, 40, 8, 2, 128, 0},
      Case{70, 1, 2, 2, 80, 80}, Case{65, 5, 3, 3, 80, 32}, Case{20, 4, 6, 2, 96, 96},
      Case{130, 2, 2, 1, 96, 24}, Case{19, 3, 4, 1, 256, 256}, Case{12, 2, 4, 2, 80, 20},
      Case{17, 2, 5, 5, 33, 10}, Case{9, 3, 3, 1, 7, 6}, Case{11, 1, 1, 1, 8, 0},
      Case{5, 2, 3, 1, 1, 0}, Case{256, 7, 48, 1, 16, 16}, Case{3, 3, 5, 2, 36, 36});
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const DType kv_type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const Layout layout = GENERATE(Layout::kTight, Layout::kWide, Layout::kInPlace, Layout::kOdd);
  CAPTURE(shape.rows, shape.sequences, shape.query_heads, shape.kv_heads, shape.head_dim,
          shape.rotary_dim, static_cast<int>(type), static_cast<int>(kv_type),
          static_cast<int>(layout));
  CheckCase(shape, type, kv_type, layout);
}

// Query, keys and values behind the rotation of heads that are normalised, in one launch or two.
std::vector<std::vector<float>> NormedAndRotated(const Case& shape, DType type, DType kv_type,
                                                 uint64_t seed, bool in_one) {
  std::mt19937_64 random(seed);
  const Places places = DrawPlaces(random, shape);
  const uint32_t stride = shape.width() + 8;
  DeviceTensor qkv(type, testing::RandomFloats(random, size_t{shape.rows} * stride));
  DeviceTensor query_norm(type, testing::RandomFloats(random, shape.head_dim));
  DeviceTensor key_norm(type, testing::RandomFloats(random, shape.head_dim));
  const size_t pool = size_t{places.blocks} * shape.kv_heads * kKvBlockTokens * shape.head_dim;
  DeviceTensor keys(kv_type, std::vector<float>(pool));
  DeviceTensor values(kv_type, std::vector<float>(pool));
  const DeviceArray<float2> rotary(RotaryTable(places.position_end, shape.rotary_dim));
  const DeviceArray<uint32_t> positions(places.positions), sequences(places.sequences),
      tables(places.tables);
  const HeadNorm norm = {query_norm.data(), key_norm.data(), 1.0f, 1e-6f};
  RotateAndAppendParams params;
  params.qkv = params.query = qkv.data();
  params.qkv_stride = params.query_stride = stride;
  params.query_heads = shape.query_heads;
  params.rotary = shape.rotary_dim > 0 ? rotary.data() : nullptr;
  params.rotary_dim = shape.rotary_dim;
  params.positions = positions.data();
  params.sequences = sequences.data();
  params.kv = {keys.data(), values.data(), shape.kv_heads, shape.head_dim, kv_type};
  params.tables = {tables.data(), places.table_stride};
  params.rows = shape.rows;
  params.type = type;
  if (in_one) {
    params.head_norm = norm;
  } else {
    WEFT_CUDA_CHECK(
        NormHeads({qkv.data(), stride, norm.query, norm.key, norm.weight_offset, shape.query_heads,
                   shape.kv_heads, shape.head_dim, shape.head_dim, shape.rows, norm.epsilon, type},
                  nullptr));
  }
  WEFT_CUDA_CHECK(RotateAndAppend(params, nullptr));
  // What is left of the keys beside the queries nobody reads.
  std::vector<float> queries;
  const std::vector<float> all = qkv.Host();
  for (size_t row = 0; row < shape.rows; ++row) {
    const auto begin = all.begin() + row * stride;
    queries.insert(queries.end(), begin, begin + shape.query_heads * shape.head_dim);
  }
  return {queries, keys.Host(), values.Host()};
}

TEST_CASE("Heads that are normalised on the way have the bits of two launches", "[cuda][rope]") {
  const auto shape =
      GENERATE(Case{1, 1, 1, 1, 64, 64}, Case{1, 1, 32, 4, 128, 128}, Case{33, 2, 16, 8, 128, 128},
               Case{20, 3, 8, 4, 256, 256}, Case{9, 2, 5, 1, 64, 0});
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const DType kv_type = GENERATE(DType::kFloat32, DType::kBfloat16);
  CAPTURE(shape.rows, shape.query_heads, shape.head_dim, shape.rotary_dim, static_cast<int>(type));
  const uint64_t seed = testing::Seed();
  const auto in_one = NormedAndRotated(shape, type, kv_type, seed, true);
  const auto in_two = NormedAndRotated(shape, type, kv_type, seed, false);
  const bool same_queries = in_one[0] == in_two[0];
  CHECK(same_queries);
  const bool same_cache = in_one[1] == in_two[1] && in_one[2] == in_two[2];
  CHECK(same_cache);
  const bool appends = in_one[1] != std::vector<float>(in_one[1].size());
  CHECK(appends);
}

TEST_CASE("Rotation refuses norms of heads that it has no kernel for", "[cuda][rope]") {
  RotateAndAppendParams params;
  params.rows = params.query_heads = params.kv.kv_heads = 1;
  params.kv.head_dim = 96;
  const DeviceArray<float> norm(256);
  params.head_norm = {norm.data(), norm.data(), 0, 1e-6f};
  CHECK(RotateAndAppend(params, nullptr) == cudaErrorInvalidValue);
  params.kv.head_dim = 128;
  params.bias = norm.data();
  CHECK(RotateAndAppend(params, nullptr) == cudaErrorInvalidValue);
}

TEST_CASE("Rotation refuses a size that no head has", "[cuda][rope]") {
  RotateAndAppendParams params;
  params.rows = 1;
  params.query_heads = 1;
  params.kv.kv_heads = 1;
  params.kv.head_dim = 8;
  DeviceArray<float2> table(4);
  params.rotary = table.data();
  params.rotary_dim = 7;  // odd
  CHECK(RotateAndAppend(params, nullptr) == cudaErrorInvalidValue);
  params.rotary_dim = 10;  // more than the head has
  CHECK(RotateAndAppend(params, nullptr) == cudaErrorInvalidValue);
  params.rotary_dim = 8;
  params.rows = 0;
  CHECK(RotateAndAppend(params, nullptr) == cudaSuccess);
}

TEST_CASE("Rotation and append: time", "[cuda][rope][time]") {
  constexpr Case kLlama{0, 0, 32, 8, 128, 128};
  std::mt19937_64 random(testing::Seed());
  // Decoding sequences, and a prompt of 8192 tokens.
  const uint32_t rows = GENERATE(1u, 64u, 256u, 8192u);
  const bool decode = rows <= 256;
  const uint32_t blocks = decode ? rows : rows / kKvBlockTokens;
  std::vector<uint32_t> row_sequences(rows, 0), row_positions(rows), ids(blocks);
  std::iota(row_positions.begin(), row_positions.end(), 0);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  if (decode) {
    row_positions.assign(rows, 40);
    std::iota(row_sequences.begin(), row_sequences.end(), 0);
  }
  const size_t query_size = size_t{rows} * kLlama.query_heads * kLlama.head_dim;
  const size_t pool = size_t{blocks} * kLlama.kv_heads * kKvBlockTokens * kLlama.head_dim;
  DeviceTensor device_qkv(DType::kBfloat16,
                          testing::RepeatedFloats(random, size_t{rows} * kLlama.width()));
  DeviceTensor query(DType::kBfloat16, query_size);
  DeviceTensor keys(DType::kBfloat16, pool), values(DType::kBfloat16, pool);
  DeviceArray<float2> rotary(RotaryTable(rows > 256 ? rows : 256, kLlama.rotary_dim));
  DeviceArray<uint32_t> positions(row_positions), sequences(row_sequences), tables(ids);
  RotateAndAppendParams params;
  params.qkv = device_qkv.data();
  params.qkv_stride = kLlama.width();
  params.query_heads = kLlama.query_heads;
  params.rotary = rotary.data();
  params.rotary_dim = kLlama.rotary_dim;
  params.positions = positions.data();
  params.sequences = sequences.data();
  params.query = query.data();
  params.query_stride = kLlama.query_heads * kLlama.head_dim;
  params.kv = {keys.data(), values.data(), kLlama.kv_heads, kLlama.head_dim, DType::kBfloat16};
  params.tables = {tables.data(), decode ? 1 : blocks};
  params.rows = rows;
  const double us = testing::MedianUs(
      [&](cudaStream_t stream) { WEFT_CUDA_CHECK(RotateAndAppend(params, stream)); });
  const double table_bytes = (decode ? 1.0 : rows) * kLlama.rotary_dim / 2 * sizeof(float2);
  testing::Report("rotate + append", std::to_string(rows) + " rows, 32 + 2 x 8 heads of 128", us,
                  4.0 * rows * kLlama.width() + table_bytes);
}

}  // namespace
}  // namespace weft::kernels::cuda
