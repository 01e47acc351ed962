#include "tests/kernels/cuda/gpu_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <utility>

#include "tests/support/seed.h"

namespace weft::kernels::cuda::testing {
namespace {

// One H200: measured reads and bf16 products on random data (docs/PERFORMANCE.md).
constexpr double kReadGbPerS = 4550;
constexpr double kBf16TflopPerS = 790;
// More than the 60 MB of L2.
constexpr size_t kSweepBytes = 256u << 20;

struct Row {
  std::string kernel;
  std::string shape;
  double us;
  double bytes;
  double flops;
};

// Prints at the end of the process.
class Table {
 public:
  ~Table() {
    if (rows_.empty()) return;
    std::printf("\n%-28s %-44s %9s %9s %9s %6s\n", "kernel", "shape", "us", "GB/s", "TFLOP/s",
                "limit");
    for (const Row& row : rows_) {
      const double gb_per_s = row.bytes / row.us * 1e-3;
      const double tflop_per_s = row.flops / row.us * 1e-6;
      const double share = std::max(gb_per_s / kReadGbPerS, tflop_per_s / kBf16TflopPerS);
      std::printf("%-28s %-44s %9.2f %9.0f %9.1f %5.0f%%\n", row.kernel.c_str(), row.shape.c_str(),
                  row.us, gb_per_s, tflop_per_s, 100 * share);
    }
  }
  void Add(Row row) { rows_.push_back(std::move(row)); }

 private:
  std::vector<Row> rows_;
};

std::vector<__nv_bfloat16> ToHalves(const std::vector<float>& values) {
  std::vector<__nv_bfloat16> out;
  out.reserve(values.size());
  for (float value : values) out.push_back(__float2bfloat16_rn(value));
  return out;
}

}  // namespace

std::string NoGpu() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    return std::string("no GPU: ") + cudaGetErrorString(error);
  }
  cudaDeviceProp properties;
  WEFT_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  if (properties.major == 9 && properties.minor == 0) return "";
  return std::string(properties.name) + " is not of compute capability 9.0";
}

uint64_t Seed() {
  static const uint64_t seed = test::Seed(20261120);
  return seed;
}

std::vector<float> RandomFloats(std::mt19937_64& random, size_t count, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

std::vector<float> RepeatedFloats(std::mt19937_64& random, size_t count, float scale) {
  const std::vector<float> tile = RandomFloats(random, std::min<size_t>(count, 1u << 20), scale);
  std::vector<float> out(count);
  for (size_t at = 0; at < count; at += tile.size()) {
    std::copy_n(tile.begin(), std::min(tile.size(), count - at), out.begin() + at);
  }
  return out;
}

std::vector<float> Rounded(std::vector<float> values, DType type) {
  if (type == DType::kBfloat16) {
    for (float& value : values) value = __bfloat162float(__float2bfloat16_rn(value));
  }
  return values;
}

DeviceTensor::DeviceTensor(DType type, size_t size)
    : type_(type),
      floats_(type == DType::kFloat32 ? size : 0),
      halves_(type == DType::kBfloat16 ? size : 0) {}

DeviceTensor::DeviceTensor(DType type, const std::vector<float>& values)
    : type_(type),
      floats_(type == DType::kFloat32 ? values : std::vector<float>()),
      halves_(type == DType::kBfloat16 ? ToHalves(values) : std::vector<__nv_bfloat16>()) {}

void* DeviceTensor::data() {
  if (type_ == DType::kFloat32) return floats_.data();
  return halves_.data();
}

std::vector<float> DeviceTensor::Host() const {
  if (type_ == DType::kFloat32) return floats_.Host();
  std::vector<float> out;
  for (__nv_bfloat16 value : halves_.Host()) out.push_back(__bfloat162float(value));
  return out;
}

double RelativeError(std::span<const float> out, std::span<const double> reference) {
  if (out.size() != reference.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double d = out[i] - reference[i];
    if (!std::isfinite(d)) return std::numeric_limits<double>::infinity();
    difference += d * d;
    norm += reference[i] * reference[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

double MedianUs(const std::function<void(cudaStream_t)>& launch, int repeats) {
  static DeviceArray<uint8_t>& sweep =
      *std::make_unique<DeviceArray<uint8_t>>(kSweepBytes).release();  // outlives the driver
  cudaStream_t stream;
  cudaEvent_t begin, end;
  WEFT_CUDA_CHECK(cudaStreamCreate(&stream));
  WEFT_CUDA_CHECK(cudaEventCreate(&begin));
  WEFT_CUDA_CHECK(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) launch(stream);
  std::vector<float> times_ms;
  for (int i = 0; i < repeats; ++i) {
    WEFT_CUDA_CHECK(cudaMemsetAsync(sweep.data(), i, kSweepBytes, stream));
    WEFT_CUDA_CHECK(cudaEventRecord(begin, stream));
    launch(stream);
    WEFT_CUDA_CHECK(cudaEventRecord(end, stream));
    WEFT_CUDA_CHECK(cudaEventSynchronize(end));
    WEFT_CUDA_CHECK(cudaEventElapsedTime(&times_ms.emplace_back(), begin, end));
  }
  WEFT_CUDA_CHECK(cudaGetLastError());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
  std::nth_element(times_ms.begin(), times_ms.begin() + repeats / 2, times_ms.end());
  return 1e3 * times_ms[repeats / 2];
}

void Report(const std::string& kernel, const std::string& shape, double us, double bytes,
            double flops) {
  static Table table;
  table.Add({kernel, shape, us, bytes, flops});
}

}  // namespace weft::kernels::cuda::testing
