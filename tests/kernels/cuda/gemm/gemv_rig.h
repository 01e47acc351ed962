// What Gemv's tests share: inputs of a shape, workspaces, tunings.

#pragma once

#include <cmath>
#include <numeric>

#include "kernels/cuda/gemm/gemv_tuning.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::kernels::cuda::testing {

inline constexpr float kEpsilon = 1e-5f;
inline constexpr uint32_t kRows = kGemvRowsMax;

inline float Round(double x) {
  return __bfloat162float(__float2bfloat16_rn(static_cast<float>(x)));
}

// Repeats itself, but not from row to row of any weight.
inline std::vector<float> Drawn(std::mt19937_64& random, size_t count, float scale) {
  const auto tile = RandomFloats(random, std::min<size_t>(count, 500009), scale);
  std::vector<float> out(count);
  for (size_t i = 0, at = 0; i < count; ++i) {
    out[i] = tile[at];
    if (++at == tile.size()) at = 0;
  }
  return Rounded(std::move(out), DType::kBfloat16);
}

// Every other row's mean is far from zero: squares summed before it is taken away would lose most
// of their digits.
inline std::vector<float> DrawnResidual(std::mt19937_64& random, uint32_t k) {
  std::vector<float> rows = RandomFloats(random, size_t{kRows} * k, 3.0f);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] += i / k % 2 == 1 ? 2000.0f : 0.0f;
  return rows;
}

// What a product does to its input first.
enum class Before { kNothing, kRmsNorm, kLayerNorm, kLayerNormNoBias };

// All inputs of a shape, for eight rows.
struct Inputs {
  uint32_t n;
  uint32_t k;
  std::vector<float> weight;
  std::vector<float> in;
  std::vector<float> residual;
  std::vector<float> norm_weight;
  std::vector<float> norm_bias;
  std::vector<float> before;
  std::vector<float> bias;
  DeviceTensor device_weight;
  DeviceTensor device_in;
  DeviceArray<float> device_residual;
  DeviceTensor device_norm_weight;
  DeviceTensor device_norm_bias;
  DeviceTensor device_bias;

  Inputs(std::mt19937_64& random, uint32_t n_, uint32_t k_)
      : n(n_),
        k(k_),
        weight(Drawn(random, size_t{n} * k, 1 / std::sqrt(static_cast<float>(k)))),
        in(Drawn(random, size_t{kRows} * k, 1.0f)),
        residual(DrawnResidual(random, k)),
        norm_weight(Drawn(random, k, 1.0f)),
        norm_bias(Drawn(random, k, 1.0f)),
        before(RandomFloats(random, size_t{kRows} * n)),
        bias(Drawn(random, n, 1.0f)),
        device_weight(DType::kBfloat16, weight),
        device_in(DType::kBfloat16, in),
        device_residual(residual),
        device_norm_weight(DType::kBfloat16, norm_weight),
        device_norm_bias(DType::kBfloat16, norm_bias),
        device_bias(DType::kBfloat16, bias) {}

  GemvParams Params(Before before_it) {
    const bool norm = before_it != Before::kNothing;
    GemvParams params;
    params.layer_norm = norm && before_it != Before::kRmsNorm;
    params.norm_bias = before_it == Before::kLayerNorm ? device_norm_bias.data() : nullptr;
    params.weight = device_weight.data();
    params.in = norm ? nullptr : device_in.data();
    params.residual_in = norm ? device_residual.data() : nullptr;
    params.norm_weight = norm ? device_norm_weight.data() : nullptr;
    params.epsilon = kEpsilon;
    params.n = n;
    params.k = k;
    return params;
  }

  // What the products are of.
  std::vector<float> X(Before before_it) const {
    if (before_it == Before::kNothing) return in;
    const bool layer = before_it != Before::kRmsNorm;
    std::vector<float> out(residual.size());
    for (size_t r = 0; r < kRows; ++r) {
      const float* const row = residual.data() + r * k;
      const double mean = layer ? std::accumulate(row, row + k, 0.0) / k : 0;
      double squares = 0;
      for (size_t i = 0; i < k; ++i) squares += std::pow(row[i] - mean, 2);
      const double scale = 1 / std::sqrt(squares / k + kEpsilon);
      for (size_t i = 0; i < k; ++i) {
        const double bias_here = before_it == Before::kLayerNorm ? norm_bias[i] : 0;
        out[r * k + i] = Round((row[i] - mean) * scale * norm_weight[i] + bias_here);
      }
    }
    return out;
  }
};

// For launches with a workspace: counters that all of them leave at zero.
class Workspace {
 public:
  Workspace() { WEFT_CUDA_CHECK(cudaMemset(data_.data(), 0, kGemvWorkspaceBytes)); }
  void* data() { return data_.data(); }
  bool IsZero() const {
    for (const uint8_t byte : data_.Host()) {
      if (byte != 0) return false;
    }
    return true;
  }

 private:
  DeviceArray<uint8_t> data_{kGemvWorkspaceBytes};
};

// Other ways to the same bits: the order of sums is that of the product. Little shared memory takes
// more panels of the input; the last lets blocks claim most of the columns.
inline constexpr GemvTuning kSameBits[] = {
    {.shared_bytes = 160 * 1024},
    {.chunks_ahead = 9, .claimed_percent = 10, .claiming_rows = 1},
    {.shared_bytes = 140 * 1024, .chunks_ahead = 0, .claimed_percent = 90, .claiming_rows = 0},
};
// Two blocks on a multiprocessor, and another order.
inline constexpr GemvTuning kHalf = {.chunk = 512, .shared_bytes = 113 * 1024, .claiming_rows = 0};

}  // namespace weft::kernels::cuda::testing
