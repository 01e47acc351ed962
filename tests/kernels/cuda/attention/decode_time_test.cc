// Decode attention's time: one launch on a cold L2 (which still has to write back what swept it),
// and a step's 32 layers in a graph, each with keys and values that are not in the L2.

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/kernels/cuda/attention/decode_attention_rig.h"
#include "tests/kernels/cuda/graph.h"

namespace weft::kernels::cuda::decode_testing {
namespace {

constexpr uint32_t kLayers = 32;
// Several times the L2.
constexpr double kRotatedBytes = 256e6;

double MedianReplayUs(testing::Graph* graph) {
  std::vector<double> times;
  for (int i = 0; i < 12; ++i) times.push_back(graph->Replay());
  // The first ones warm up.
  std::sort(times.begin() + 3, times.end());
  return times[3 + (times.size() - 3) / 2];
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
  const double bytes =
      2.0 * BytesOf(shape.kv_type) * sequences * length * shape.groups.size() * shape.head_dim;
  shape.kv_copies = std::clamp(static_cast<uint32_t>(kRotatedBytes / bytes), 1u, kLayers);
  Problem problem(shape, random);
  DeviceTensor out(shape.type, size_t{sequences} * problem.query_heads() * shape.head_dim);
  DecodeAttentionParams params = problem.params();
  params.attention.out = out.data();
  const std::string name = std::to_string(sequences) + " x " + std::to_string(length) +
                           (shape.fixed_split != 0 ? ", fixed splits" : "");
  const double schedule_us = testing::MedianUs([&](cudaStream_t stream) {
    WEFT_CUDA_CHECK(MakeDecodeSchedule(problem.schedule_params(), stream));
  });
  testing::Report("decode attention", name, testing::MedianUs([&](cudaStream_t stream) {
                    WEFT_CUDA_CHECK(DecodeAttention(params, stream));
                  }),
                  bytes);
  for (const bool dependent : {false, true}) {
    testing::Graph graph([&](cudaStream_t stream) {
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        DecodeAttentionParams one = params;
        one.attention.kv = problem.Layer(layer);
        one.dependent = dependent && layer != 0;
        WEFT_CUDA_CHECK(DecodeAttention(one, stream));
      }
    });
    testing::Report("decode attention, of 32", name + (dependent ? ", dependent" : ""),
                    MedianReplayUs(&graph) / kLayers, bytes);
  }
  if (shape.fixed_split == 0) {
    testing::Report("decode schedule", name, schedule_us, 4.0 * sequences);
  }
}

}  // namespace
}  // namespace weft::kernels::cuda::decode_testing
