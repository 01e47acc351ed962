// The time of sums over ranks, loaded and by mail, each rank on a GPU of its own.

#include <algorithm>
#include <barrier>
#include <catch2/catch.hpp>
#include <string>

#include "tests/kernels/cuda/comm/peer_rig.h"
#include "tests/kernels/cuda/graph.h"
#include "tests/support/skip.h"

namespace weft::kernels::cuda {
namespace {

using testing::PeerRank;
using testing::PeerRig;
using testing::WithoutMail;

// Of one call in graphs of 64, the slowest rank's, the median of many replays.
double UsPerCall(PeerRig& rig, uint32_t rows, bool dependent, bool mails, uint32_t ctas) {
  constexpr uint32_t kCalls = 64;
  constexpr uint32_t kReplays = 31;
  std::vector<std::unique_ptr<testing::Graph>> graphs;
  rig.ForEachRank([&](PeerRank& rank) {
    graphs.push_back(std::make_unique<testing::Graph>([&](cudaStream_t stream) {
      for (uint32_t call = 0; call < kCalls; ++call) {
        AllReduceParams params = rig.Params(rank.rank, call, rows);
        if (!mails) params = WithoutMail(params);
        params.dependent = dependent;
        params.ctas_per_row = ctas;
        WEFT_CUDA_CHECK(AllReduceAddNorm(params, stream));
      }
    }));
  });
  std::vector<std::vector<double>> us(rig.world(), std::vector<double>(kReplays));
  std::barrier together(rig.world());
  rig.OnEachRank([&](PeerRank& rank) {
    for (uint32_t i = 0; i < kReplays; ++i) {
      together.arrive_and_wait();
      us[rank.rank][i] = graphs[rank.rank]->Replay() / kCalls;
    }
  });
  std::vector<double> slowest(kReplays, 0.0);
  for (uint32_t i = 0; i < kReplays; ++i) {
    for (const auto& of_rank : us) slowest[i] = std::max(slowest[i], of_rank[i]);
  }
  std::nth_element(slowest.begin(), slowest.begin() + kReplays / 2, slowest.end());
  return slowest[kReplays / 2];
}

TEST_CASE("All-reduce: time", "[cuda][all_reduce][time]") {
  const uint32_t world = GENERATE(2u, 4u, 8u);
  if (const std::string reason = testing::NoPeers(world); !reason.empty()) {
    return test::LeaveOut("peers", std::to_string(world) + " ranks not timed: " + reason);
  }
  const uint32_t hidden = GENERATE(4096u, 8192u);
  PeerRig rig(world, 64, hidden);
  const auto measure = [&](uint32_t rows, bool dependent, bool mails, uint32_t ctas) {
    const double us = UsPerCall(rig, rows, dependent, mails, ctas);
    const double bytes = 2.0 * rows * hidden;
    testing::Report("all-reduce, residual, norm",
                    std::to_string(world) + " ranks, " + std::to_string(rows) + " x " +
                        std::to_string(hidden) + ", " +
                        std::to_string(static_cast<int>(bytes / 1024)) + " KB" +
                        (dependent ? ", dependent" : "") + (mails ? ", by mail" : "") +
                        (ctas != 0 ? ", " + std::to_string(ctas) + " CTAs" : ""),
                    us, bytes);
  };
  for (const uint32_t kilobytes : {8, 16, 32, 64, 256}) {
    const uint32_t rows = kilobytes * 1024 / 2 / hidden;
    if (rows == 0) continue;
    for (const bool dependent : {false, true}) measure(rows, dependent, false, 0);
    if (AllReduceGoesByMail(world, rows, hidden)) measure(rows, true, true, 0);
  }
  for (const uint32_t ctas : {1, 2, 4, 8}) measure(1, true, false, ctas);
  for (const uint32_t ctas : {1, 2, 4, 8}) measure(32768 / hidden, true, false, ctas);
  rig.ForEachRank([](PeerRank& rank) { CHECK(rank.host.Status() == kAllReduceOk); });
}

}  // namespace
}  // namespace weft::kernels::cuda
