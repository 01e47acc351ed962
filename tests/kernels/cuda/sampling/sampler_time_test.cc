// Times of the sampler: a call alone with cold caches, and calls one behind the other in a graph.

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/kernels/cuda/graph.h"
#include "tests/kernels/cuda/sampling/sampler_rig.h"

namespace weft::kernels::cuda::testing {
namespace {

constexpr uint32_t kVocabulary = 128256;
// Rows with logits of their own; the others repeat them.
constexpr uint32_t kDistinctRows = 8;
constexpr uint32_t kCalls = 16;

struct TimeCase {
  const char* name;
  float temperature;
  uint32_t top_k = 0;
  float typical_p = 1;
  float top_p = 1;
  float min_p = 0;
};
constexpr TimeCase kCases[] = {
    {"greedy", 0},
    {"temperature", 0.8f},
    {"temperature 1.5", 1.5f},
    {"top-k 50, top-p 0.9", 0.8f, 50, 1, 0.9f},
    {"top-k 50", 0.8f, 50},
    {"top-k 1000", 0.8f, 1000},
    {"top-p 0.9", 0.5f, 0, 1, 0.9f},
    {"top-p 0.9, wide", 0.8f, 0, 1, 0.9f},
    {"min-p 0.05", 0.8f, 0, 1, 1, 0.05f},
    {"typical 0.9 (whole row)", 0.8f, 0, 0.9f},
};

Batch TimeBatch(uint32_t rows, std::mt19937_64& random) {
  Batch batch = MakeBatch(kVocabulary, rows, random);
  batch.features = kSamplerFilters;
  const uint64_t stride = batch.stride();
  for (uint32_t r = 0; r < rows; ++r) {
    if (r < kDistinctRows) {
      FillLogits(&batch, r, Shape::kWide, random);
    } else {
      std::copy_n(batch.logits.data() + r % kDistinctRows * stride, stride,
                  batch.logits.data() + r * stride);
    }
  }
  return batch;
}

double MedianReplayUs(Graph* graph) {
  std::vector<double> times(13);
  for (double& us : times) us = graph->Replay();
  // The first ones warm up.
  std::sort(times.begin() + 3, times.end());
  return times[3 + (times.size() - 3) / 2];
}

TEST_CASE("Sampler: time", "[cuda][sampler][time]") {
  std::mt19937_64 random(Seed());
  const uint32_t rows = GENERATE(1u, 64u, 256u);
  const Batch batch = TimeBatch(rows, random);
  DeviceBatch device(batch);
  const double bytes = 4.0 * rows * kVocabulary;
  for (const TimeCase& one : kCases) {
    std::vector<SamplingRow> row_params = batch.rows;
    for (SamplingRow& row : row_params) {
      row.temperature = one.temperature;
      row.top_k = one.top_k;
      row.typical_p = one.typical_p;
      row.top_p = one.top_p;
      row.min_p = one.min_p;
    }
    DeviceArray<SamplingRow> device_rows(row_params);
    SamplerParams params = device.params;
    params.row_params = device_rows.data();
    const bool filtered = one.top_k > 0 || one.typical_p < 1 || one.top_p < 1 || one.min_p > 0;
    params.features = filtered ? uint32_t{kSamplerFilters} : 0;
    const std::string shape = std::to_string(rows) + " x 128256";
    const double us =
        MedianUs([&](cudaStream_t stream) { WEFT_CUDA_CHECK(Sample(params, stream)); });
    Report(std::string("sample: ") + one.name, shape, us, bytes);
    for (const bool dependent : {false, true}) {
      Graph graph([&](cudaStream_t stream) {
        for (uint32_t i = 0; i < kCalls; ++i) {
          params.dependent = dependent && i > 0;
          WEFT_CUDA_CHECK(Sample(params, stream));
        }
      });
      Report(std::string("sample, of 16: ") + one.name, shape + (dependent ? ", dependent" : ""),
             MedianReplayUs(&graph) / kCalls, bytes);
    }
  }
}

}  // namespace
}  // namespace weft::kernels::cuda::testing
