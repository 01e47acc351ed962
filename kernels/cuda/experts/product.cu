#include "kernels/cuda/experts/product.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/gemm/box_map.h"
#include "kernels/cuda/gemm/small_gemm_tile.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kSplitsMax = 8;
// Two on each of 132 multiprocessors.
constexpr uint32_t kCtasAtOnce = 264;
// Twice the parts cost about so much of the time.
constexpr double kShareGained = 0.04;
// A part of k shorter than this many steps of 64 costs more than it gains.
constexpr uint32_t kSplitStepsMin = 16;
constexpr uint32_t kTileRowsMax = 64;
constexpr int kGroups = 2;

constexpr uint32_t DivideUp(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// Tiles of places in device memory.
struct ExpertTiles {
  const ExpertTile* tiles;
  const uint32_t* count;
  // Rows of an expert's matrix.
  uint32_t matrix_rows;
  // Of each place, where the input has rows instead of places; or null.
  const uint32_t* row_of_place;
};

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    MultiplyExperts(const __grid_constant__ CUtensorMap weight,
                    const __grid_constant__ CUtensorMap in, const SmallGemmWork work,
                    const ExpertTiles experts) {
  AllowNextKernel();
  WaitForEarlierKernels();
  // The same for all of a cluster.
  if (blockIdx.y >= __ldcg(experts.count)) return;
  const auto* tile = reinterpret_cast<const uint32_t*>(experts.tiles + blockIdx.y);
  SmallGemmPart part = SmallGemmPart::Of(work);
  part.weight_row = __ldcg(tile) * experts.matrix_rows;
  part.first_row = __ldcg(tile + 1);
  part.rows = __ldcg(tile + 2);
  if (experts.row_of_place == nullptr) {
    part.first_token = part.first_row;
  } else {
    part.token_of_row = experts.row_of_place + part.first_row;
  }
  RunSmallGemm<Shape>(weight, in, work, part);
}

// A warp for each number.
constexpr uint32_t kPlainThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kPlainThreads) MultiplyPlainly(const ExpertProductParams params) {
  AllowNextKernel();
  WaitForEarlierKernels();
  constexpr uint32_t kWidth = Vector<T>::kSize;
  const uint32_t lane = threadIdx.x % kWarp;
  const uint32_t column = blockIdx.x * (kPlainThreads / kWarp) + threadIdx.x / kWarp;
  const uint32_t place = blockIdx.y;
  if (column >= params.n) return;
  const size_t row = size_t{__ldcg(params.expert_of_place + place)} * params.n + column;
  const T* weight = static_cast<const T*>(params.weight) + row * params.k;
  const T* in = static_cast<const T*>(params.in) + size_t{place} * params.k;
  float sum = 0.0f;
  for (uint32_t i = lane * kWidth; i < params.k; i += kWarp * kWidth) {
    const Vector<T> w = Load(weight + i);
    const Vector<T> x = LoadFresh(in + i);
#pragma unroll
    for (uint32_t j = 0; j < kWidth; ++j) sum += ToFloat(w.at[j]) * ToFloat(x.at[j]);
  }
  sum = WarpSum(sum);
  if (lane != 0) return;
  if (params.bias != nullptr) sum += ToFloat(static_cast<const T*>(params.bias)[row]);
  static_cast<T*>(params.out)[size_t{place} * params.n + column] = FromFloat<T>(sum);
}

// By n, k and per_token alone: a row's bits depend on it. The fewest parts of k of which one row's
// CTAs keep the multiprocessors busy until the last of them ends, or nearly so.
uint32_t ChooseSplits(uint32_t n, uint32_t k, uint32_t per_token) {
  const uint32_t tiles = DivideUp(n, kGroups * kSmallGemmGroupRows) * per_token;
  uint32_t best = 1;
  double best_share = 0;
  for (uint32_t splits = 1; splits <= kSplitsMax; splits *= 2) {
    if (splits > 1 && k / kSmallGemmStep < splits * kSplitStepsMin) break;
    const uint32_t ctas = tiles * splits;
    const double share = static_cast<double>(ctas) / (DivideUp(ctas, kCtasAtOnce) * kCtasAtOnce);
    if (share > best_share + kShareGained) {
      best = splits;
      best_share = share;
    }
  }
  return best;
}

template <int kTokens>
cudaError_t Launch(const ExpertProductParams& params, const SmallGemmWork& work,
                   cudaStream_t stream) {
  using Shape = SmallGemmShape<kTokens, kGroups>;
  CUtensorMap in;
  const uint32_t in_rows = params.row_of_place == nullptr ? params.places : params.in_rows;
  cudaError_t error = MakeBoxMap(params.in, in_rows, params.k, kTokens, &in);
  if (error != cudaSuccess) return error;
  const auto kernel = MultiplyExperts<Shape>;
  error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Shape::kSharedBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = work.splits;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(DivideUp(work.columns, work.tile_columns) * work.splits, params.tiles_max);
  config.blockDim = dim3(Shape::kThreads);
  config.dynamicSmemBytes = Shape::kSharedBytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = params.dependent ? 2 : 1;
  const ExpertTiles experts = {params.tiles, params.tile_count, params.n, params.row_of_place};
  return cudaLaunchKernelEx(&config, kernel, params.map, in, work, experts);
}

}  // namespace

bool ServesExpertGemm(uint32_t n, uint32_t k, DType type) {
  return type == DType::kBfloat16 && n % kSmallGemmGroupRows == 0 && k % kSmallGemmStep == 0;
}

uint32_t ExpertTileRows(uint32_t rows, uint32_t experts, uint32_t per_token) {
  // Twice the average, so that most experts have one tile; an expert's places are no more than the
  // rows. Rounded up to a size that there is a kernel for.
  const uint32_t wanted = std::min(rows, 2 * DivideUp(rows * per_token, experts));
  uint32_t tile_rows = 8;
  while (tile_rows < kTileRowsMax && tile_rows < wanted) tile_rows *= 2;
  return tile_rows;
}

cudaError_t MakeExpertMap(const void* weight, uint32_t experts, uint32_t n, uint32_t k,
                          CUtensorMap* map) {
  if (!ServesExpertGemm(n, k, DType::kBfloat16)) return cudaErrorInvalidValue;
  return MakeBoxMap(weight, experts * n, k, kSmallGemmGroupRows, map);
}

cudaError_t ExpertGemm(const ExpertProductParams& params, cudaStream_t stream) {
  if (params.places == 0) return cudaSuccess;
  const bool gated = params.epilogue == ExpertEpilogue::kGatedSilu;
  if (!ServesExpertGemm(gated ? params.n / 2 : params.n, params.k, params.type) ||
      params.bias != nullptr || params.per_token == 0 ||
      (params.row_of_place != nullptr && params.in_rows > params.tile_rows)) {
    return cudaErrorInvalidValue;
  }
  SmallGemmWork work = {};
  work.out = params.out;
  work.columns = gated ? params.n / 2 : params.n;
  work.out_stride = work.columns;
  work.tile_columns = gated ? kSmallGemmGroupRows : kGroups * kSmallGemmGroupRows;
  work.group_step = gated ? work.columns : kSmallGemmGroupRows;
  work.k_steps = params.k / kSmallGemmStep;
  work.splits = ChooseSplits(params.n, params.k, params.per_token);
  work.sharers = 1;
  work.out_type = DType::kBfloat16;
  work.epilogue = gated ? SmallGemmEpilogue::kGatedSilu : SmallGemmEpilogue::kStore;
  switch (params.tile_rows) {
    case 8:
      return Launch<8>(params, work, stream);
    case 16:
      return Launch<16>(params, work, stream);
    case 32:
      return Launch<32>(params, work, stream);
    case 64:
      return Launch<64>(params, work, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t ExpertProduct(const ExpertProductParams& params, cudaStream_t stream) {
  if (params.places == 0) return cudaSuccess;
  if (params.epilogue != ExpertEpilogue::kStore || params.k % 8 != 0) return cudaErrorInvalidValue;
  // The grid's second dimension has 16 bits.
  constexpr uint32_t kPlacesMax = 65535;
  const uint32_t columns = DivideUp(params.n, kPlainThreads / kWarp);
  for (uint32_t begin = 0; begin < params.places; begin += kPlacesMax) {
    ExpertProductParams part = params;
    const size_t bytes = BytesOf(params.type);
    part.in = static_cast<const char*>(params.in) + size_t{begin} * params.k * bytes;
    part.out = static_cast<char*>(params.out) + size_t{begin} * params.n * bytes;
    part.expert_of_place = params.expert_of_place + begin;
    const dim3 grid(columns, std::min(params.places - begin, kPlacesMax));
    const cudaError_t error = params.type == DType::kFloat32
                                  ? LaunchKernel(MultiplyPlainly<float>, grid, kPlainThreads, 0,
                                                 params.dependent, stream, part)
                                  : LaunchKernel(MultiplyPlainly<__nv_bfloat16>, grid,
                                                 kPlainThreads, 0, params.dependent, stream, part);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace weft::kernels::cuda
