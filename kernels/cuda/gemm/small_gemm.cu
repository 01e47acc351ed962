#include "kernels/cuda/gemm/small_gemm.h"

#include <cuda_runtime.h>

#include "kernels/cuda/gemm/box_map.h"
#include "kernels/cuda/gemm/small_gemm_tile.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kClusterMax = 8;
// About as many CTAs as fill the 132 SMs.
constexpr uint32_t kEnoughCtas = 120;
// A split shorter than this many steps of 64 costs more than it gains.
constexpr uint32_t kSplitStepsMin = 4;
// From here on the loads of `in` weigh half as much as those of the weights.
constexpr uint32_t kTokensToShare = 48;

uint32_t PaddedTokens(uint32_t rows) {
  for (uint32_t tokens : {8, 16, 24, 32, 48}) {
    if (rows <= tokens) return tokens;
  }
  return kSmallGemmRowsMax;
}

constexpr uint32_t DivideUp(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// By n and k alone: a row's bits depend on it.
uint32_t ChooseSplits(uint32_t n, uint32_t k) {
  const uint32_t tiles = DivideUp(n, 2 * kSmallGemmGroupRows);
  uint32_t splits = 1;
  while (splits < kClusterMax && tiles * splits < kEnoughCtas &&
         k / kSmallGemmStep >= 2 * splits * kSplitStepsMin) {
    splits *= 2;
  }
  return splits;
}

struct Plan {
  uint32_t tokens;
  uint32_t groups;
  uint32_t tiles;
  SmallGemmWork work;
};

Plan MakePlan(const SmallGemmParams& params) {
  const bool gated = params.epilogue == SmallGemmEpilogue::kGatedSilu;
  Plan plan;
  plan.tokens = PaddedTokens(params.rows);
  // Two warpgroups share the tokens' loads; with one there are more CTAs.
  const bool small = DivideUp(params.n, 2 * kSmallGemmGroupRows) * kClusterMax < kEnoughCtas;
  plan.groups = small && !gated ? 1 : 2;
  SmallGemmWork& work = plan.work;
  work.out = params.out;
  work.rows = params.rows;
  work.columns = gated ? params.n / 2 : params.n;
  work.out_stride = params.out_stride;
  work.tile_columns = gated ? kSmallGemmGroupRows : plan.groups * kSmallGemmGroupRows;
  work.group_step = gated ? work.columns : kSmallGemmGroupRows;
  work.k_steps = params.k / kSmallGemmStep;
  work.splits = params.splits != 0 ? params.splits : ChooseSplits(params.n, params.k);
  work.sharers = params.sharers;
  work.out_type = params.out_type;
  work.epilogue = params.epilogue;
  plan.tiles = DivideUp(work.columns, work.tile_columns);
  if (work.sharers == 0) {
    const bool share =
        plan.tokens >= kTokensToShare && plan.tiles > 1 && 2 * work.splits <= kClusterMax;
    work.sharers = share ? 2 : 1;
  }
  return plan;
}

bool Valid(const SmallGemmParams& params) {
  const bool gated = params.epilogue == SmallGemmEpilogue::kGatedSilu;
  const bool accumulate = params.epilogue == SmallGemmEpilogue::kAccumulate;
  const auto misaligned = [](const void* pointer) {
    return pointer == nullptr || reinterpret_cast<uintptr_t>(pointer) % 16 != 0;
  };
  if (params.rows > kSmallGemmRowsMax || params.k == 0 || params.k % kSmallGemmStep != 0 ||
      params.n % (gated ? 16 : 8) != 0 || misaligned(params.in) || misaligned(params.out) ||
      params.out_stride % 8 != 0 || params.out_stride < (gated ? params.n / 2 : params.n)) {
    return false;
  }
  if (accumulate && params.out_type != DType::kFloat32) return false;
  if (gated && params.out_type != DType::kBfloat16) return false;
  const uint32_t sharers = params.sharers == 0 ? 1 : params.sharers;
  return sharers <= 2 && (sharers == 1 || PaddedTokens(params.rows) >= 32) &&
         sharers * params.splits <= kClusterMax;
}

template <typename Shape>
cudaError_t Launch(const SmallGemmParams& params, const Plan& plan, const CUtensorMap& in,
                   cudaStream_t stream) {
  const auto kernel = SmallGemmTiles<Shape>;
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
  if (error != cudaSuccess) return error;
  const uint32_t sharers = plan.work.sharers;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = plan.work.splits * sharers;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  // The last sharer may have nothing but zeros to multiply.
  config.gridDim = dim3(DivideUp(plan.tiles, sharers) * sharers * plan.work.splits);
  config.blockDim = dim3(Shape::kThreads);
  config.dynamicSmemBytes = Shape::kSharedBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = params.dependent ? 2 : 1;
  return cudaLaunchKernelEx(&config, kernel, params.weight, in, plan.work);
}

template <int kGroups>
cudaError_t LaunchGroups(const SmallGemmParams& params, const Plan& plan, const CUtensorMap& in,
                         cudaStream_t stream) {
  switch (plan.tokens) {
    case 8:
      return Launch<SmallGemmShape<8, kGroups>>(params, plan, in, stream);
    case 16:
      return Launch<SmallGemmShape<16, kGroups>>(params, plan, in, stream);
    case 24:
      return Launch<SmallGemmShape<24, kGroups>>(params, plan, in, stream);
    case 32:
      return Launch<SmallGemmShape<32, kGroups>>(params, plan, in, stream);
    case 48:
      return Launch<SmallGemmShape<48, kGroups>>(params, plan, in, stream);
    default:
      return Launch<SmallGemmShape<64, kGroups>>(params, plan, in, stream);
  }
}

}  // namespace

cudaError_t MakeSmallGemmMap(const void* weight, uint32_t n, uint32_t k, CUtensorMap* map) {
  if (weight == nullptr || n == 0 || k == 0 || k % kSmallGemmStep != 0) {
    return cudaErrorInvalidValue;
  }
  return MakeBoxMap(weight, n, k, kSmallGemmGroupRows, map);
}

cudaError_t SmallGemm(const SmallGemmParams& params, cudaStream_t stream) {
  if (params.rows == 0 || params.n == 0) return cudaSuccess;
  if (!Valid(params)) return cudaErrorInvalidValue;
  const Plan plan = MakePlan(params);
  CUtensorMap in;
  const cudaError_t error =
      MakeBoxMap(params.in, params.rows, params.k, plan.tokens / plan.work.sharers, &in);
  if (error != cudaSuccess) return error;
  return plan.groups == 1 ? LaunchGroups<1>(params, plan, in, stream)
                          : LaunchGroups<2>(params, plan, in, stream);
}

}  // namespace weft::kernels::cuda
