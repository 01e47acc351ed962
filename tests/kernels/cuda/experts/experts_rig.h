// What the tests of experts' kernels share: a routing computed on the host in double precision.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cuda/experts/route.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda::testing {

// The choices of all rows, as RouteRows orders them.
struct HostRoutes {
  std::vector<uint32_t> experts;
  std::vector<double> weights;
  std::vector<uint32_t> places;
  std::vector<uint32_t> row_of_place;
  std::vector<uint32_t> expert_of_place;
};

// numbers [rows, stride], finite.
inline HostRoutes RouteOnHost(const std::vector<float>& numbers, uint32_t rows, uint32_t stride,
                              uint32_t experts, uint32_t per_token, bool renormalised) {
  HostRoutes out;
  for (uint32_t row = 0; row < rows; ++row) {
    const float* const x = numbers.data() + size_t{row} * stride;
    std::vector<uint32_t> order(experts);
    for (uint32_t i = 0; i < experts; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [x](uint32_t a, uint32_t b) { return x[a] > x[b]; });
    double all = 0;
    double chosen = 0;
    for (uint32_t i = 0; i < experts; ++i) {
      const double share = std::exp(double{x[order[i]]} - x[order[0]]);
      all += share;
      if (i < per_token) chosen += share;
    }
    std::vector<uint32_t> taken(order.begin(), order.begin() + per_token);
    std::sort(taken.begin(), taken.end());
    for (const uint32_t expert : taken) {
      out.experts.push_back(expert);
      out.weights.push_back(std::exp(double{x[expert]} - x[order[0]]) /
                            (renormalised ? chosen : all));
    }
  }
  out.places.resize(out.experts.size());
  for (uint32_t expert = 0; expert < experts; ++expert) {
    for (size_t i = 0; i < out.experts.size(); ++i) {
      if (out.experts[i] != expert) continue;
      out.places[i] = static_cast<uint32_t>(out.row_of_place.size());
      out.row_of_place.push_back(static_cast<uint32_t>(i / per_token));
      out.expert_of_place.push_back(expert);
    }
  }
  return out;
}

// Device memory of a routing.
class DeviceRoutes {
 public:
  DeviceRoutes(uint32_t rows, uint32_t experts, uint32_t per_token)
      : weights_(size_t{rows} * per_token),
        places_(weights_.size()),
        row_of_place_(weights_.size()),
        expert_of_place_(weights_.size()),
        tiles_(ExpertTilesMax(rows, experts, per_token, kExpertTileRowsMin)),
        tile_count_(1),
        workspace_(RouteWorkspaceBytes(rows, experts, per_token)) {}

  ExpertRoutes routes() {
    return {weights_.data(),         places_.data(), row_of_place_.data(),
            expert_of_place_.data(), tiles_.data(),  tile_count_.data()};
  }
  void* workspace() { return workspace_.data(); }
  std::vector<float> weights() const { return weights_.Host(); }
  std::vector<uint32_t> places() const { return places_.Host(); }
  std::vector<uint32_t> row_of_place() const { return row_of_place_.Host(); }
  std::vector<uint32_t> expert_of_place() const { return expert_of_place_.Host(); }
  std::vector<ExpertTile> tiles() const {
    std::vector<ExpertTile> all = tiles_.Host();
    all.resize(std::min<size_t>(all.size(), tile_count_.Host()[0]));
    return all;
  }

 private:
  DeviceArray<float> weights_;
  DeviceArray<uint32_t> places_;
  DeviceArray<uint32_t> row_of_place_;
  DeviceArray<uint32_t> expert_of_place_;
  DeviceArray<ExpertTile> tiles_;
  DeviceArray<uint32_t> tile_count_;
  DeviceArray<uint8_t> workspace_;
};

}  // namespace weft::kernels::cuda::testing
