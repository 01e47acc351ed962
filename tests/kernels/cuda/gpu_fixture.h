// What the CUDA kernels' tests share: device arrays that begin poisoned, random data from a printed
// seed, errors against a double-precision reference, and timing on a cold L2 with a table at the
// end. For one thread.

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/check.h"
#include "kernels/cuda/types.h"

namespace weft::kernels::cuda::testing {

// Aborts with the call's error.
#define WEFT_CUDA_CHECK(call)                                                                 \
  do {                                                                                        \
    const cudaError_t weft_error_ = (call);                                                   \
    WEFT_CHECK_MSG(weft_error_ == cudaSuccess, std::string(cudaGetErrorString(weft_error_))); \
  } while (false)

// Reason why nothing can run here; empty when there is a GPU of compute capability 9.0.
std::string NoGpu();

// The seed of this process, printed once: WEFT_SEED or a fixed one.
uint64_t Seed();

// Memory on the device. Starts as NaN (all bits set), so that an element nobody wrote shows.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) {
    WEFT_CUDA_CHECK(cudaMalloc(&data_, size * sizeof(T) + 16));
    WEFT_CUDA_CHECK(cudaMemset(data_, 0xff, size * sizeof(T) + 16));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    WEFT_CUDA_CHECK(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  // REQUIRES: as many as there are.
  void Set(const std::vector<T>& values) {
    WEFT_CUDA_CHECK(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  // Waits for the device.
  std::vector<T> Host() const {
    std::vector<T> out(size_);
    WEFT_CUDA_CHECK(cudaDeviceSynchronize());
    WEFT_CUDA_CHECK(cudaMemcpy(out.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

// Normal with deviation `scale`.
std::vector<float> RandomFloats(std::mt19937_64& random, size_t count, float scale = 1.0f);
// The same a million at a time, over and over: for timing, where drawing each would take longer
// than the test.
std::vector<float> RepeatedFloats(std::mt19937_64& random, size_t count, float scale = 1.0f);
// Rounded to the type and back: what a reference has to start from.
std::vector<float> Rounded(std::vector<float> values, DType type);

// An array of floats or bf16 that a kernel takes as void*.
class DeviceTensor {
 public:
  DeviceTensor(DType type, size_t size);
  DeviceTensor(DType type, const std::vector<float>& values);
  void* data();
  // Waits for the device.
  std::vector<float> Host() const;

 private:
  DType type_;
  DeviceArray<float> floats_;
  DeviceArray<__nv_bfloat16> halves_;
};

// ||out - reference|| / ||reference||; infinite when `out` holds a NaN or the sizes differ.
double RelativeError(std::span<const float> out, std::span<const double> reference);

// Bound on RelativeError for results stored in `type`, sums in float32.
constexpr double Tolerance(DType type) { return type == DType::kFloat32 ? 2e-5 : 6e-3; }

// Median time of `launch`, microseconds, each time after the L2 was swept.
double MedianUs(const std::function<void(cudaStream_t)>& launch, int repeats = 30);

// A line of the table that the process prints when its tests have ended. `bytes`: read and written
// once each; `flops` 0 when bytes are the limit.
void Report(const std::string& kernel, const std::string& shape, double us, double bytes,
            double flops = 0);

}  // namespace weft::kernels::cuda::testing
