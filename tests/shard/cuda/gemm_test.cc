#include "shard/device/cuda/gemm.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "tests/kernels/cuda/gpu_fixture.h"

namespace weft::shard {
namespace {

using kernels::cuda::BytesOf;
using kernels::cuda::DType;
using kernels::cuda::testing::DeviceArray;
using kernels::cuda::testing::DeviceTensor;
namespace gpu = kernels::cuda::testing;

constexpr size_t kWorkspaceBytes = 64u << 20;

// A few rows and columns of the product in double precision: all of it would take the CPU minutes.
std::vector<double> Sampled(const GemmShape& shape, const std::vector<float>& in,
                            const std::vector<float>& weight, const std::vector<float>& before,
                            const std::vector<size_t>& picks) {
  std::vector<double> out;
  for (size_t pick : picks) {
    const size_t row = pick / shape.n;
    const size_t column = pick % shape.n;
    double sum = shape.accumulate ? before[pick] : 0.0;
    for (size_t i = 0; i < shape.k; ++i) {
      sum += double{in[row * shape.k + i]} * weight[column * shape.k + i];
    }
    out.push_back(sum);
  }
  return out;
}

TEST_CASE("Products agree with double precision for all types", "[cuda][gemm]") {
  std::mt19937_64 random(gpu::Seed());
  GemmShape shape;
  std::tie(shape.rows, shape.n, shape.k) =
      GENERATE(table<uint32_t, uint32_t, uint32_t>({{1, 8, 8},
                                                    {1, 6144, 4096},
                                                    {3, 1536, 576},
                                                    {7, 4096, 1024},
                                                    {63, 576, 1536},
                                                    {256, 4096, 4096},
                                                    {1000, 192, 576}}));
  std::tie(shape.in, shape.out, shape.accumulate) =
      GENERATE(table<DType, DType, bool>({{DType::kFloat32, DType::kFloat32, false},
                                          {DType::kFloat32, DType::kFloat32, true},
                                          {DType::kBfloat16, DType::kBfloat16, false},
                                          {DType::kBfloat16, DType::kFloat32, false},
                                          {DType::kBfloat16, DType::kFloat32, true}}));
  CAPTURE(shape.rows, shape.n, shape.k, static_cast<int>(shape.in), static_cast<int>(shape.out),
          shape.accumulate);
  const auto in = gpu::Rounded(gpu::RandomFloats(random, size_t{shape.rows} * shape.k), shape.in);
  const auto weight = gpu::Rounded(gpu::RandomFloats(random, size_t{shape.n} * shape.k), shape.in);
  const auto before = gpu::RandomFloats(random, size_t{shape.rows} * shape.n);
  DeviceArray<uint8_t> workspace(kWorkspaceBytes);
  const auto gemm = Gemm::Create(workspace.data(), kWorkspaceBytes);
  REQUIRE(gemm.ok());
  DeviceTensor device_in(shape.in, in);
  DeviceTensor device_weight(shape.in, weight);
  DeviceTensor out =
      shape.accumulate ? DeviceTensor(shape.out, before) : DeviceTensor(shape.out, before.size());
  const absl::Status status =
      (*gemm)->Run(shape, device_in.data(), device_weight.data(), out.data(), nullptr);
  CAPTURE(status.ToString());
  REQUIRE(status.ok());
  const std::vector<float> got = out.Host();
  std::vector<size_t> picks = {0, got.size() - 1};
  for (int i = 0; i < 2000; ++i) picks.push_back(random() % got.size());
  std::vector<float> picked;
  for (size_t pick : picks) picked.push_back(got[pick]);
  const auto reference = Sampled(shape, in, weight, before, picks);
  CHECK(gpu::RelativeError(picked, reference) < gpu::Tolerance(shape.out));
}

TEST_CASE("Shapes are looked up once, and few serve many rows", "[cuda][gemm]") {
  DeviceArray<uint8_t> workspace(kWorkspaceBytes);
  const auto gemm = Gemm::Create(workspace.data(), kWorkspaceBytes);
  REQUIRE(gemm.ok());
  DeviceArray<uint16_t> in(size_t{8192} * 64);
  DeviceArray<uint16_t> weight(64 * 64);
  DeviceArray<uint16_t> out(size_t{8192} * 64);
  for (uint32_t rows = 1; rows <= 8192; rows += 13) {
    REQUIRE((*gemm)->Run({rows, 64, 64}, in.data(), weight.data(), out.data(), nullptr).ok());
  }
  CHECK((*gemm)->plans() <= 64);
}

TEST_CASE("Products: time", "[cuda][gemm][time]") {
  std::mt19937_64 random(gpu::Seed());
  const auto [name, n, k] = GENERATE(table<const char*, uint32_t, uint32_t>(
      {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate_up", 28672, 4096}, {"down", 4096, 14336}}));
  const uint32_t rows = GENERATE(1u, 4u, 16u, 64u, 256u, 2048u);
  const GemmShape shape{rows, n, k};
  DeviceArray<uint8_t> workspace(kWorkspaceBytes);
  const auto gemm = Gemm::Create(workspace.data(), kWorkspaceBytes);
  REQUIRE(gemm.ok());
  DeviceTensor in(shape.in, gpu::RepeatedFloats(random, size_t{rows} * k));
  DeviceTensor weight(shape.in, gpu::RepeatedFloats(random, size_t{n} * k));
  DeviceTensor out(shape.out, size_t{rows} * n);
  const double us = gpu::MedianUs([&](cudaStream_t stream) {
    WEFT_CHECK((*gemm)->Run(shape, in.data(), weight.data(), out.data(), stream).ok());
  });
  const double r = rows;
  gpu::Report(absl::StrCat("gemm ", name), absl::StrCat(rows, " rows"), us,
              2.0 * (r * k + 1.0 * n * k + r * n), 2.0 * r * n * k);
}

}  // namespace
}  // namespace weft::shard
