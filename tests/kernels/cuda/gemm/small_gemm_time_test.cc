#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "kernels/cuda/gemm/small_gemm.h"
#include "tests/kernels/cuda/gemm/small_gemm_rig.h"
#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/kernels/cuda/graph.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::Half;
using testing::RandomHalves;

struct Layer {
  const char* name;
  uint32_t n;
  uint32_t k;
  SmallGemmEpilogue epilogue;
};

constexpr Layer kLayers[] = {{"qkv", 6144, 4096, SmallGemmEpilogue::kStore},
                             {"o", 4096, 4096, SmallGemmEpilogue::kStore},
                             {"gate_up", 28672, 4096, SmallGemmEpilogue::kStore},
                             {"gate_up gated", 28672, 4096, SmallGemmEpilogue::kGatedSilu},
                             {"down", 4096, 14336, SmallGemmEpilogue::kStore},
                             {"lm_head", 128256, 4096, SmallGemmEpilogue::kStore}};

// Copies of a layer's weights, together far more than L2 holds, used in turn.
class Rotation {
 public:
  Rotation(std::mt19937_64& random, const Layer& layer)
      : layer_(layer),
        maps_(std::max<size_t>(2, kBytes / Bytes() + 1)),
        weights_(maps_.size() * size_t{layer.n} * layer.k),
        in_(RandomHalves(random, size_t{kSmallGemmRowsMax} * layer.k)),
        out_(size_t{kSmallGemmRowsMax} * layer.n) {
    const std::vector<Half> tile = RandomHalves(random, std::min<size_t>(weights_.size(), 1 << 22));
    for (size_t at = 0; at < weights_.size(); at += tile.size()) {
      WEFT_CUDA_CHECK(cudaMemcpy(weights_.data() + at, tile.data(),
                                 std::min(tile.size(), weights_.size() - at) * sizeof(Half),
                                 cudaMemcpyHostToDevice));
    }
    for (size_t i = 0; i < maps_.size(); ++i) {
      WEFT_CUDA_CHECK(MakeSmallGemmMap(weights_.data() + i * size_t{layer.n} * layer.k, layer.n,
                                       layer.k, &maps_[i]));
    }
  }

  size_t Bytes() const { return size_t{layer_.n} * layer_.k * sizeof(Half); }

  // Median of a few replays, microseconds a launch.
  double Us(const SmallGemmParams& given) {
    SmallGemmParams params = given;
    params.in = in_.data();
    params.out = out_.data();
    params.n = layer_.n;
    params.k = layer_.k;
    params.out_stride = layer_.n;
    params.epilogue = layer_.epilogue;
    const bool dependent = params.dependent;
    // Loads the kernel, which a capture should not.
    params.weight = maps_[0];
    params.dependent = false;
    WEFT_CUDA_CHECK(SmallGemm(params, nullptr));
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
    const size_t launches = std::max<size_t>(60, maps_.size());
    testing::Graph graph([&](cudaStream_t stream) {
      for (size_t i = 0; i < launches; ++i) {
        params.weight = maps_[i % maps_.size()];
        params.dependent = dependent && i > 0;
        WEFT_CUDA_CHECK(SmallGemm(params, stream));
      }
    });
    std::vector<double> times;
    for (int i = 0; i < 7; ++i) times.push_back(graph.Replay() / launches);
    std::nth_element(times.begin(), times.begin() + 3, times.end());
    return times[3];
  }

  void Measure(const std::string& kernel, const SmallGemmParams& params,
               const std::string& variant) {
    const double out_elements = layer_.epilogue == SmallGemmEpilogue::kGatedSilu ? 0.5 : 1.0;
    const double us = Us(params);
    testing::Report(kernel,
                    std::string(layer_.name) + " " + std::to_string(params.rows) + " x " +
                        std::to_string(layer_.n) + " x " + std::to_string(layer_.k) + variant,
                    us, Bytes() + 2.0 * params.rows * (layer_.k + out_elements * layer_.n),
                    2.0 * params.rows * layer_.n * layer_.k);
  }

 private:
  static constexpr size_t kBytes = 240u << 20;

  Layer layer_;
  std::vector<CUtensorMap> maps_;
  DeviceArray<Half> weights_;
  DeviceArray<Half> in_;
  DeviceArray<Half> out_;
};

TEST_CASE("Products with few rows: time", "[cuda][small_gemm][time]") {
  std::mt19937_64 random(testing::Seed());
  for (const Layer& layer : kLayers) {
    Rotation rotation(random, layer);
    for (uint32_t rows : {1, 8, 16, 32, 64}) {
      SmallGemmParams params;
      params.rows = rows;
      rotation.Measure("small GEMM", params, "");
      params.dependent = true;
      rotation.Measure("small GEMM, dependent", params, "");
    }
  }
}

// Not run unless named: what the choices of splits and sharers cost.
TEST_CASE("Products with few rows: splits", "[.][small_gemm_splits]") {
  std::mt19937_64 random(testing::Seed());
  for (const Layer& layer : kLayers) {
    Rotation rotation(random, layer);
    for (uint32_t rows : {8, 32, 64}) {
      for (uint32_t sharers : {1, 2}) {
        if (sharers > 1 && rows < 25) continue;
        for (uint32_t splits = 1; splits * sharers <= 8; ++splits) {
          SmallGemmParams params;
          params.rows = rows;
          params.splits = static_cast<uint8_t>(splits);
          params.sharers = static_cast<uint8_t>(sharers);
          const std::string variant =
              ", " + std::to_string(splits) + " splits, " + std::to_string(sharers) + " sharers";
          rotation.Measure("small GEMM", params, variant);
          params.dependent = true;
          rotation.Measure("small GEMM, dependent", params, variant);
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels::cuda
