#include <catch2/catch.hpp>

#include "kernels/cuda/gemm/gemv_tuning.h"
#include "tests/kernels/cuda/gpu_fixture.h"
#include "tests/kernels/cuda/graph.h"

namespace weft::kernels::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceTensor;
using testing::Graph;

// Copies of a weight, so that those of one product after the other have left the L2 long before
// their turn comes again.
class Weights {
 public:
  Weights(std::mt19937_64& random, size_t count)
      : count_(count), copies_((300u << 20) / (count * 2) + 1), data_(count * copies_) {
    const auto tile = testing::RandomFloats(random, 500009, 0.02f);
    std::vector<__nv_bfloat16> halves(tile.size());
    for (size_t i = 0; i < tile.size(); ++i) halves[i] = __float2bfloat16_rn(tile[i]);
    size_t filled = std::min(halves.size(), data_.size());
    WEFT_CUDA_CHECK(cudaMemcpy(data_.data(), halves.data(), filled * sizeof(__nv_bfloat16),
                               cudaMemcpyHostToDevice));
    while (filled < data_.size()) {
      const size_t more = std::min(filled, data_.size() - filled);
      WEFT_CUDA_CHECK(cudaMemcpy(data_.data() + filled, data_.data(), more * sizeof(__nv_bfloat16),
                                 cudaMemcpyDeviceToDevice));
      filled += more;
    }
  }
  const void* Copy(size_t i) const { return data_.data() + i % copies_ * count_; }

 private:
  size_t count_;
  size_t copies_;
  DeviceArray<__nv_bfloat16> data_;
};

struct Timed {
  const char* name;
  uint32_t n;
  uint32_t k;
  bool norm;
  GemvEpilogue epilogue;
  DType type;
};

struct Variant {
  const char* name;
  // Says what comes next; has a workspace.
  bool next;
  bool claims;
  GemvTuning tuning;
};
constexpr Variant kVariants[] = {
    {"", false, false, {}},
    {", next", true, false, {}},
    {", next 2 chunks", true, false, {.chunks_ahead = 2}},
    {", next 5 chunks", true, false, {.chunks_ahead = 5}},
    {", next, claims 10 %", true, true, {}},
    {", claims 10 %", false, true, {}},
    {", claims 20 %, all", false, true, {.claimed_percent = 20, .claiming_rows = 32}},
    {", chunks of 512", false, false, {.chunk = 512}},
    {", two blocks", false, false, {.chunk = 512, .shared_bytes = 113 * 1024}},
    {", two blocks, next",
     true,
     false,
     {.chunk = 512, .shared_bytes = 113 * 1024, .chunks_ahead = 6}},
};

TEST_CASE("Gemv: time", "[cuda][gemv][time]") {
  std::mt19937_64 random(testing::Seed());
  const auto shape =
      GENERATE(Timed{"qkv", 6144, 4096, true, GemvEpilogue::kStore, DType::kBfloat16},
               Timed{"o", 4096, 4096, false, GemvEpilogue::kAccumulate, DType::kFloat32},
               Timed{"gate, up", 28672, 4096, true, GemvEpilogue::kGated, DType::kBfloat16},
               Timed{"down", 4096, 14336, false, GemvEpilogue::kAccumulate, DType::kFloat32},
               Timed{"head", 128256, 4096, true, GemvEpilogue::kStore, DType::kFloat32});
  const Weights weights(random, size_t{shape.n} * shape.k);
  DeviceTensor in(DType::kBfloat16, testing::RandomFloats(random, size_t{kGemvRowsMax} * shape.k));
  DeviceArray<float> residual(testing::RandomFloats(random, size_t{kGemvRowsMax} * shape.k));
  DeviceTensor norm_weight(DType::kBfloat16, testing::RandomFloats(random, shape.k));
  DeviceArray<float> out(size_t{kGemvRowsMax} * shape.n);
  WEFT_CUDA_CHECK(cudaMemset(out.data(), 0, out.size() * sizeof(float)));
  DeviceArray<uint8_t> workspace(kGemvWorkspaceBytes);
  WEFT_CUDA_CHECK(cudaMemset(workspace.data(), 0, kGemvWorkspaceBytes));
  GemvParams params;
  params.residual_in = shape.norm ? residual.data() : nullptr;
  params.in = in.data();
  params.norm_weight = norm_weight.data();
  params.epsilon = 1e-5f;
  params.out = out.data();
  params.out_stride = shape.n;
  params.out_type = shape.type;
  params.epilogue = shape.epilogue;
  params.n = shape.n;
  params.k = shape.k;
  constexpr int kLaunches = 40;
  for (const Variant& variant : kVariants) {
    params.workspace = variant.claims ? workspace.data() : nullptr;
    for (const auto& [dependent, rows] :
         {std::pair{true, 1u}, {true, 4u}, {true, 8u}, {false, 1u}, {false, 4u}}) {
      params.rows = rows;
      params.dependent = false;
      params.weight = weights.Copy(0);
      params.next = {};
      // Loads the kernel, outside of the capture.
      WEFT_CUDA_CHECK(GemvTuned(params, variant.tuning, nullptr));
      const Graph graph([&](cudaStream_t stream) {
        for (int i = 0; i < kLaunches; ++i) {
          params.weight = weights.Copy(i);
          if (variant.next) params.next = {weights.Copy(i + 1), shape.epilogue, shape.n, shape.k};
          params.dependent = dependent && i != 0;
          WEFT_CUDA_CHECK(GemvTuned(params, variant.tuning, stream));
        }
      });
      const double us =
          testing::MedianUs([&](cudaStream_t stream) { graph.Launch(stream); }, 10) / kLaunches;
      testing::Report(dependent ? "Gemv, dependent" : "Gemv",
                      std::string(shape.name) + " " + std::to_string(shape.n) + " x " +
                          std::to_string(shape.k) + ", rows " + std::to_string(rows) + variant.name,
                      us, 2.0 * shape.n * shape.k);
    }
  }
}

}  // namespace
}  // namespace weft::kernels::cuda
