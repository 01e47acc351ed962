#include "shard/device/cuda/gemm.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "shard/device/cuda/gemm_tuner.h"
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
  CHECK((*gemm)->shapes() <= 64);
}

// A product on random data, with the plans of a table.
class Product {
 public:
  Product(const GemmShape& shape, std::mt19937_64& random)
      : shape_(shape),
        in_(shape.in, gpu::RandomFloats(random, size_t{shape.rows} * shape.k)),
        weight_(shape.in, gpu::RandomFloats(random, size_t{shape.n} * shape.k)),
        before_(gpu::RandomFloats(random, size_t{shape.rows} * shape.n)),
        workspace_(kWorkspaceBytes) {}

  std::unique_ptr<Gemm> MakeGemm(const std::string& table_text) {
    auto table = GemmPlanTable::Parse(table_text);
    CAPTURE(table.status().ToString());
    REQUIRE(table.ok());
    auto gemm = Gemm::Create(workspace_.data(), kWorkspaceBytes, *std::move(table));
    REQUIRE(gemm.ok());
    return *std::move(gemm);
  }

  std::vector<float> Run(Gemm& gemm) {
    DeviceTensor out(shape_.out, before_);
    const absl::Status status = gemm.Run(shape_, in_.data(), weight_.data(), out.data(), nullptr);
    CAPTURE(status.ToString());
    REQUIRE(status.ok());
    return out.Host();
  }

 private:
  const GemmShape shape_;
  DeviceTensor in_;
  DeviceTensor weight_;
  const std::vector<float> before_;
  DeviceArray<uint8_t> workspace_;
};

TEST_CASE("A plan from a table gives the numbers that cuBLASLt's choice gives", "[cuda][gemm]") {
  std::mt19937_64 random(gpu::Seed());
  GemmShape shape;
  shape.n = 1536;
  shape.k = 4096;
  shape.rows = GENERATE(1u, 2u, 3u, 16u, 33u, 64u, 300u);
  std::tie(shape.out, shape.accumulate) = GENERATE(table<DType, bool>(
      {{DType::kBfloat16, false}, {DType::kFloat32, false}, {DType::kFloat32, true}}));
  Product product(shape, random);
  const auto first = product.MakeGemm("");
  const std::vector<float> result = product.Run(*first);
  CHECK(first->planned() == 0);
  const std::vector<double> expected(result.begin(), result.end());

  GemmPlan plan;
  plan.shape = shape;
  plan.shape.rows = RoundedGemmRows(shape.rows, shape.in);
  std::vector<GemmKernel> kernels = {GemvChoice{}, SmallGemmChoice{1, 1}, SmallGemmChoice{4, 1},
                                     SmallGemmChoice{2, 2}};
  const auto algorithms = first->library().Suggest(plan.shape, 8);
  REQUIRE(algorithms.ok());
  for (const cublasLtMatmulAlgo_t& algorithm : *algorithms) {
    const auto choice = first->library().Describe(plan.shape, algorithm);
    REQUIRE(choice.ok());
    kernels.push_back(*choice);
  }
  for (const GemmKernel& kernel : kernels) {
    if (!ServesGemm(kernel, plan.shape)) continue;
    plan.kernel = kernel;
    CAPTURE(FormatGemmPlan(plan));
    const auto gemm = product.MakeGemm(FormatGemmPlan(plan));
    const std::vector<float> got = product.Run(*gemm);
    CHECK(gemm->planned() == 1);
    // Both differ from the exact result.
    CHECK(gpu::RelativeError(got, expected) < 2 * gpu::Tolerance(shape.out));
    // The second time from what was kept.
    CHECK(product.Run(*gemm) == got);
    CHECK(gemm->shapes() == 1);
  }
}

TEST_CASE("A plan that does not work here falls back to cuBLASLt's choice", "[cuda][gemm]") {
  std::mt19937_64 random(gpu::Seed());
  const GemmShape shape{40, 1536, 4096, DType::kBfloat16, DType::kBfloat16, false};
  Product product(shape, random);
  const auto first = product.MakeGemm("");
  const std::vector<float> expected = product.Run(*first);
  const std::string kernel = GENERATE(
      as<std::string>{}, "gemv", "small splits=8 sharers=2",
      "cublaslt id=9999 tile=1 stages=1 splits=1 reduction=0 swizzle=0 custom=0 inner=0 cluster=0",
      "cublaslt id=66 tile=60000 stages=60000 splits=77 reduction=9 swizzle=5 custom=99 inner=77 "
      "cluster=999");
  CAPTURE(kernel);
  const auto gemm = product.MakeGemm(
      absl::StrCat("n=1536 k=4096 in=bf16 out=bf16 rows=33-40 use=", kernel, "\n"));
  CHECK(product.Run(*gemm) == expected);
  CHECK(gemm->planned() == 0);
}

TEST_CASE("Rows are rounded to few numbers, never down", "[cuda][gemm]") {
  for (uint32_t rows = 1; rows <= 16384; ++rows) {
    const uint32_t rounded = RoundedGemmRows(rows, DType::kBfloat16);
    CAPTURE(rows, rounded);
    REQUIRE(rounded >= rows);
    REQUIRE((rounded <= 8 || 4 * rounded <= 5 * (rows + 7)));
    REQUIRE(RoundedGemmRows(rounded, DType::kBfloat16) == rounded);
  }
  CHECK(RoundedGemmRows(1, DType::kBfloat16) == 1);
  CHECK(RoundedGemmRows(2, DType::kBfloat16) == 2);
  CHECK(RoundedGemmRows(3, DType::kBfloat16) == 4);
  CHECK(RoundedGemmRows(57, DType::kBfloat16) == 64);
  CHECK(RoundedGemmRows(65, DType::kBfloat16) == 80);
  CHECK(RoundedGemmRows(65, DType::kFloat32) == 65);
}

TEST_CASE("The tuner finds a kernel that is no slower than cuBLASLt's choice", "[cuda][gemm]") {
  GemmShape shape;
  shape.n = 1536;
  shape.k = 1024;
  shape.rows = GENERATE(1u, 64u, 700u);
  std::tie(shape.out, shape.accumulate) =
      GENERATE(table<DType, bool>({{DType::kBfloat16, false}, {DType::kFloat32, true}}));
  CAPTURE(shape.rows);
  const auto tuner = GemmTuner::Create({shape});
  REQUIRE(tuner.ok());
  const auto tuned = (*tuner)->Tune(shape);
  CAPTURE(tuned.status().ToString());
  REQUIRE(tuned.ok());
  CHECK(tuned->candidates > 1);
  CHECK(tuned->wrong == 0);
  CHECK(tuned->best_us > 0.5);
  CHECK(tuned->best_us <= tuned->first_us);
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
