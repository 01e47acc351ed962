#include "kernels/cuda/elementwise/embedding.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kSlots = 300;
constexpr uint32_t kPositions = 90;
// Rows of NaN on both sides of the table. A multiple of eight, which keeps it aligned.
constexpr uint32_t kGuardRows = 8;

struct Case {
  uint32_t rows;
  uint32_t hidden;
  uint32_t vocab_begin;
  uint32_t vocab_end;
};

// What the rows ask for, on the host.
struct Rows {
  std::vector<uint32_t> ids;
  std::vector<uint32_t> slot;
  std::vector<uint32_t> last_sampled;
  std::vector<uint32_t> positions;
};

// An id on either side of a border of the slice, far outside or anywhere inside.
uint32_t DrawId(std::mt19937_64& random, const Case& shape) {
  switch (random() % 8) {
    case 0:
      return shape.vocab_begin;
    case 1:
      return shape.vocab_end - 1;
    case 2:
      return shape.vocab_end;
    case 3:
      return shape.vocab_begin > 0 ? shape.vocab_begin - 1 : shape.vocab_end;
    case 4:
      return random() % 2 == 0 ? 0 : kTakeLastSample - 1;
    default:
      return shape.vocab_begin + random() % (shape.vocab_end - shape.vocab_begin);
  }
}

Rows DrawRows(std::mt19937_64& random, const Case& shape) {
  Rows rows;
  for (uint32_t s = 0; s < kSlots; ++s) rows.last_sampled.push_back(DrawId(random, shape));
  for (uint32_t r = 0; r < shape.rows; ++r) {
    const bool sampled = random() % 3 == 0;
    rows.ids.push_back(sampled ? kTakeLastSample : DrawId(random, shape));
    // Rows with an id of their own have no slot that could be read.
    rows.slot.push_back(sampled ? random() % kSlots : 0xffffffffu);
    rows.positions.push_back(random() % kPositions);
  }
  return rows;
}

// In double precision, on what the device was given.
std::vector<double> Compute(const Case& shape, const Rows& rows, const std::vector<float>& table,
                            const std::vector<float>* position_table, float scale) {
  const size_t hidden = shape.hidden;
  std::vector<double> reference;
  for (uint32_t r = 0; r < shape.rows; ++r) {
    uint32_t id = rows.ids[r];
    if (id == kTakeLastSample) id = rows.last_sampled[rows.slot[r]];
    const bool held = id >= shape.vocab_begin && id < shape.vocab_end;
    for (size_t i = 0; i < hidden; ++i) {
      double sum = held ? double{scale} * table[(id - shape.vocab_begin) * hidden + i] : 0.0;
      if (position_table != nullptr) sum += (*position_table)[rows.positions[r] * hidden + i];
      reference.push_back(sum);
    }
  }
  return reference;
}

TEST_CASE("Embedding rows of this rank's slice, zeros for the others", "[cuda][embedding]") {
  std::mt19937_64 random(testing::Seed());
  const auto shape =
      GENERATE(Case{1, 1, 0, 1}, Case{3, 7, 5, 40}, Case{1, 4096, 100, 150}, Case{64, 576, 0, 77},
               Case{33, 1023, 9, 10}, Case{5, 2052, 64, 128}, Case{256, 4096, 50, 100},
               Case{256, 65, 1000, 1300}, Case{17, 5120, 0, 30}, Case{4, 8196, 3, 20});
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  const bool with_positions = GENERATE(false, true);
  const float scale = GENERATE(1.0f, 23.75f);
  CAPTURE(shape.rows, shape.hidden, static_cast<int>(type), with_positions, scale);
  const size_t hidden = shape.hidden;
  const Rows rows = DrawRows(random, shape);
  const size_t table_size = (shape.vocab_end - shape.vocab_begin) * hidden;
  const auto table = testing::Rounded(testing::RandomFloats(random, table_size), type);
  const auto position_table =
      testing::Rounded(testing::RandomFloats(random, kPositions * hidden), type);
  std::vector<float> guarded(table_size + 2 * kGuardRows * hidden, kNan);
  std::copy(table.begin(), table.end(), guarded.begin() + kGuardRows * hidden);
  DeviceTensor device_table(type, guarded);
  DeviceTensor device_position_table(type, position_table);
  DeviceArray<uint32_t> ids(rows.ids), slot(rows.slot), last_sampled(rows.last_sampled),
      positions(rows.positions);
  DeviceArray<float> residual((shape.rows + 1) * hidden);  // a row that stays as it is
  EmbedParams params;
  params.ids = ids.data();
  params.slot = slot.data();
  params.last_sampled = last_sampled.data();
  params.table = static_cast<char*>(device_table.data()) + kGuardRows * hidden * BytesOf(type);
  params.vocab_begin = shape.vocab_begin;
  params.vocab_end = shape.vocab_end;
  if (with_positions) {
    params.position_table = device_position_table.data();
    params.positions = positions.data();
  }
  params.scale = scale;
  params.residual = residual.data();
  params.rows = shape.rows;
  params.hidden = shape.hidden;
  params.type = type;
  WEFT_CUDA_CHECK(Embed(params, nullptr));

  const std::vector<double> reference =
      Compute(shape, rows, table, with_positions ? &position_table : nullptr, scale);
  const std::vector<float> out = residual.Host();
  size_t wrong = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    // Two roundings of numbers below 256, 8e-6 each; to the bit, zeros included, where there is
    // one.
    const double bound = with_positions ? 4e-5 : 0.0;
    const double expected = with_positions ? reference[i] : static_cast<float>(reference[i]);
    wrong += !(std::abs(out[i] - expected) <= bound);
  }
  CHECK(wrong == 0);
  CHECK(testing::RelativeError({out.data(), reference.size()}, reference) < 1e-6);
  size_t touched = 0;
  for (size_t i = reference.size(); i < out.size(); ++i) touched += !std::isnan(out[i]);
  CHECK(touched == 0);
}

TEST_CASE("Positions are added to what the rows are", "[cuda][embedding]") {
  std::mt19937_64 random(testing::Seed());
  const auto [row_count, hidden] =
      GENERATE(table<uint32_t, uint32_t>({{1, 1}, {3, 7}, {64, 576}, {33, 1023}, {5, 2052}}));
  const DType type = GENERATE(DType::kFloat32, DType::kBfloat16);
  CAPTURE(row_count, hidden, static_cast<int>(type));
  const Rows rows = DrawRows(random, {row_count, hidden, 0, 1});
  const auto table =
      testing::Rounded(testing::RandomFloats(random, size_t{kPositions} * hidden), type);
  // One row more, which stays as it is.
  const auto before = testing::RandomFloats(random, size_t{row_count + 1} * hidden);
  DeviceTensor device_table(type, table);
  DeviceArray<uint32_t> positions(rows.positions);
  DeviceArray<float> residual(before);
  EmbedParams params;
  params.adds_positions = true;
  params.position_table = device_table.data();
  params.positions = positions.data();
  params.residual = residual.data();
  params.rows = row_count;
  params.hidden = hidden;
  params.type = type;
  WEFT_CUDA_CHECK(Embed(params, nullptr));
  std::vector<float> expected = before;
  for (size_t r = 0; r < row_count; ++r) {
    for (size_t i = 0; i < hidden; ++i) {
      expected[r * hidden + i] += table[rows.positions[r] * hidden + i];
    }
  }
  CHECK(residual.Host() == expected);
}

TEST_CASE("Embedding: time", "[cuda][embedding][time]") {
  constexpr uint32_t kVocabulary = 128256;
  constexpr uint32_t kHidden = 4096;
  std::mt19937_64 random(testing::Seed());
  const uint32_t rows = GENERATE(1u, 64u, 8192u);
  std::vector<uint32_t> drawn;
  for (uint32_t r = 0; r < rows; ++r) drawn.push_back(random() % kVocabulary);
  DeviceArray<uint32_t> ids(drawn);
  // Its contents do not matter for the time.
  DeviceTensor table(DType::kBfloat16, size_t{kVocabulary} * kHidden);
  DeviceArray<float> residual(size_t{rows} * kHidden);
  EmbedParams params;
  params.ids = ids.data();
  params.table = table.data();
  params.vocab_end = kVocabulary;
  params.residual = residual.data();
  params.rows = rows;
  params.hidden = kHidden;
  const double us =
      testing::MedianUs([&](cudaStream_t stream) { WEFT_CUDA_CHECK(Embed(params, stream)); });
  testing::Report("embedding", std::to_string(rows) + " x " + std::to_string(kHidden), us,
                  6.0 * rows * kHidden);
}

}  // namespace
}  // namespace weft::kernels::cuda
