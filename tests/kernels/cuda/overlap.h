// Chains of launches as in the layers of a step: whether launches that overlap give the bits of
// launches that do not, and how long a layer takes.

#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/kernels/cuda/graph.h"

namespace weft::kernels::cuda::testing {

// How launches follow each other: one after the other, each waiting before it reads, or attention
// reading what the kernel in front of it does not write.
enum class Overlap { kNone, kDependent, kAfterAppend };

inline std::string NameOf(Overlap overlap) {
  return overlap == Overlap::kNone        ? ""
         : overlap == Overlap::kDependent ? ", dependent"
                                          : ", after append";
}

// Chain has Poison(), Launch(Overlap, bool first, cudaStream_t), where `first` says that there is
// no kernel in front of it, and Host(), the layers' outputs.
template <typename Chain>
void CheckOverlaps(Chain& chain) {
  chain.Poison();
  chain.Launch(Overlap::kNone, true, nullptr);
  const std::vector<std::vector<float>> expected = chain.Host();
  for (const std::vector<float>& out : expected) {
    CHECK(std::none_of(out.begin(), out.end(), [](float x) { return std::isnan(x); }));
  }
  // The layers differ, or nothing would show.
  const bool differ = expected[0] != expected[1];
  CHECK(differ);
  cudaStream_t stream;
  WEFT_CUDA_CHECK(cudaStreamCreate(&stream));
  for (const Overlap overlap : {Overlap::kDependent, Overlap::kAfterAppend}) {
    // Two steps: the schedule of the second against the last layer of the first.
    const auto launch = [&](cudaStream_t to) {
      chain.Launch(overlap, true, to);
      chain.Launch(overlap, false, to);
    };
    const Graph graph(launch);
    for (int repeat = 0; repeat < 12; ++repeat) {
      CAPTURE(static_cast<int>(overlap), repeat);
      chain.Poison();
      repeat % 2 == 0 ? launch(stream) : graph.Launch(stream);
      WEFT_CUDA_CHECK(cudaStreamSynchronize(stream));
      const bool same = chain.Host() == expected;
      CHECK(same);
    }
  }
  WEFT_CUDA_CHECK(cudaStreamDestroy(stream));
}

// Of one of `layers` layers, the median of replays of a graph.
template <typename Chain>
double LayerUs(Chain& chain, Overlap overlap, uint32_t layers) {
  Graph graph([&](cudaStream_t capturing) { chain.Launch(overlap, true, capturing); });
  std::vector<double> times;
  for (int i = 0; i < 12; ++i) times.push_back(graph.Replay());
  std::nth_element(times.begin(), times.begin() + 5, times.end());
  return times[5] / layers;
}

}  // namespace weft::kernels::cuda::testing
