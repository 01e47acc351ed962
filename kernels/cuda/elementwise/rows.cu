#include <cuda_runtime.h>

#include "kernels/cuda/elementwise/rows.h"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/vector.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void __launch_bounds__(kThreads) GatherRow(GatherRowsParams params) {
  const uint32_t row = blockIdx.x;
  const uint32_t source = params.source == nullptr ? row : params.source[row];
  const auto* in = reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(params.in) +
                                                  source * params.in_stride_bytes);
  auto* out =
      reinterpret_cast<uint4*>(static_cast<uint8_t*>(params.out) + size_t{row} * params.row_bytes);
  for (uint32_t i = threadIdx.x; i < params.row_bytes / sizeof(uint4); i += kThreads)
    out[i] = in[i];
}

template <typename T, typename Bias>
__global__ void __launch_bounds__(kThreads) AddBiasRow(AddBiasParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint32_t i = blockIdx.y * kThreads + threadIdx.x;
  if (i >= params.columns) return;
  T* at = static_cast<T*>(params.rows) + size_t{blockIdx.x} * params.columns + i;
  *at = FromFloat<T>(ToFloat(__ldcg(at)) + ToFloat(static_cast<const Bias*>(params.bias)[i]));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) AddElements(AddToResidualParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= params.count) return;
  params.residual[i] =
      __ldcg(params.residual + i) + ToFloat(__ldcg(static_cast<const T*>(params.delta) + i));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) RoundElement(RoundElementsParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < params.count) static_cast<T*>(params.out)[i] = FromFloat<T>(__ldcg(params.in + i));
}

__global__ void __launch_bounds__(kThreads) CapElements(CapLogitsParams params) {
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < params.count) params.logits[i] = params.cap * tanhf(params.logits[i] / params.cap);
}

__global__ void __launch_bounds__(kThreads) UnpackTable(UnpackBlockTablesParams params) {
  const uint32_t sequence = blockIdx.x;
  const uint32_t begin = params.begin[sequence];
  const uint32_t count = params.begin[sequence + 1] - begin;
  uint32_t* out = params.out + size_t{sequence} * params.stride;
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) out[i] = params.ids[begin + i];
}

__global__ void __launch_bounds__(kThreads) JoinSlice(JoinSlicesParams params) {
  const uint32_t part = blockIdx.z;
  const uint32_t begin = params.column_begin[part];
  const uint32_t columns = params.column_begin[part + 1] - begin;
  const float* in = params.slices + (size_t{part} * params.rows + blockIdx.y) * params.slice_stride;
  float* out = params.out + blockIdx.y * params.out_stride + begin;
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < columns; i += gridDim.x * kThreads) {
    out[i] = in[i];
  }
}

template <typename T>
cudaError_t LaunchAddBias(const AddBiasParams& params, cudaStream_t stream) {
  const dim3 grid(params.row_count, (params.columns + kThreads - 1) / kThreads);
  const auto kernel =
      params.bias_type == DType::kFloat32 ? AddBiasRow<T, float> : AddBiasRow<T, __nv_bfloat16>;
  return LaunchKernel(kernel, grid, kThreads, 0, params.dependent, stream, params);
}

}  // namespace

cudaError_t GatherRows(const GatherRowsParams& params, cudaStream_t stream) {
  if (params.row_bytes % sizeof(uint4) != 0) return cudaErrorInvalidValue;
  if (params.rows == 0 || params.row_bytes == 0) return cudaSuccess;
  GatherRow<<<params.rows, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t AddBias(const AddBiasParams& params, cudaStream_t stream) {
  if (params.row_count == 0 || params.columns == 0) return cudaSuccess;
  return params.type == DType::kFloat32 ? LaunchAddBias<float>(params, stream)
                                        : LaunchAddBias<__nv_bfloat16>(params, stream);
}

cudaError_t AddToResidual(const AddToResidualParams& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  const auto blocks = static_cast<uint32_t>((params.count + kThreads - 1) / kThreads);
  const auto kernel =
      params.type == DType::kFloat32 ? AddElements<float> : AddElements<__nv_bfloat16>;
  return LaunchKernel(kernel, dim3(blocks), kThreads, 0, params.dependent, stream, params);
}

cudaError_t RoundElements(const RoundElementsParams& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  const auto blocks = static_cast<uint32_t>((params.count + kThreads - 1) / kThreads);
  const auto kernel =
      params.type == DType::kFloat32 ? RoundElement<float> : RoundElement<__nv_bfloat16>;
  return LaunchKernel(kernel, dim3(blocks), kThreads, 0, params.dependent, stream, params);
}

cudaError_t CapLogits(const CapLogitsParams& params, cudaStream_t stream) {
  if (params.count == 0) return cudaSuccess;
  const auto blocks = static_cast<uint32_t>((params.count + kThreads - 1) / kThreads);
  CapElements<<<blocks, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t UnpackBlockTables(const UnpackBlockTablesParams& params, cudaStream_t stream) {
  if (params.sequences == 0) return cudaSuccess;
  UnpackTable<<<params.sequences, kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

cudaError_t JoinSlices(const JoinSlicesParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.parts == 0) return cudaSuccess;
  constexpr uint32_t kColumnsOfBlock = 8 * kThreads;
  const uint32_t blocks = (params.slice_stride + kColumnsOfBlock - 1) / kColumnsOfBlock;
  JoinSlice<<<dim3(blocks, params.rows, params.parts), kThreads, 0, stream>>>(params);
  return cudaGetLastError();
}

}  // namespace weft::kernels::cuda
