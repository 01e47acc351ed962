#include "kernels/cuda/attention/decode_attention.h"

#include <cuda_runtime.h>

#include "kernels/cuda/attention/decode_merge.cuh"
#include "kernels/cuda/attention/decode_plain.cuh"
#include "kernels/cuda/multiprocessors.cuh"
#include "kernels/cuda/ptx/barrier.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/ptx/memory.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634f;

template <typename Shape>
__device__ __forceinline__ void TeamBarrier(uint32_t team) {
  if constexpr (Shape::kTiles == 1) {
    __syncwarp();
  } else {
    NamedBarrier(1 + team, Shape::kTeamThreads);
  }
}

// Sequences without a context have no work in the list.
template <typename Shape>
__device__ __forceinline__ void ZeroEmptySequences(const AttentionParams& attention) {
  const uint32_t quads = attention.query_heads * Shape::kDim / 4;
  for (uint32_t s = blockIdx.x; s < attention.sequences; s += gridDim.x) {
    if (__ldcg(attention.context_lengths + s) != 0) continue;
    auto* row = static_cast<__nv_bfloat16*>(attention.out) + size_t{s} * quads * 4;
    for (uint32_t i = threadIdx.x; i < quads; i += Shape::kThreads) {
      *reinterpret_cast<uint2*>(row + size_t{i} * 4) = make_uint2(0, 0);
    }
  }
}

__device__ __forceinline__ DecodeStart LoadStart(const DecodeStart* from) {
  static_assert(sizeof(DecodeStart) == 3 * sizeof(uint4));
  const auto* words = reinterpret_cast<const uint4*>(from);
  const uint4 a = __ldcg(words);
  const uint4 b = __ldcg(words + 1);
  const uint4 c = __ldcg(words + 2);
  return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, {c.x, c.y, c.z, c.w}};
}

// Teams walk through the same parts; each takes every kTeams-th slice of them.
template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    Decode(const __grid_constant__ DecodeKernelParams params) {
  extern __shared__ __align__(128) char shared[];
  const uint32_t team = threadIdx.x / Shape::kTeamThreads;
  const uint32_t thread = threadIdx.x % Shape::kTeamThreads;
  const uint32_t warp_row = thread / kWarp * 16;
  const uint32_t thread_row = warp_row + threadIdx.x % kWarp / 4;
  const uint32_t ring = SharedAddress(shared) + team * Shape::kStages * Shape::kStage;
  const uint32_t ring_end = ring + Shape::kStages * Shape::kStage;
  const DecodeMergeSpace<Shape> space(shared + Shape::kRing);

  __shared__ uint32_t begins_kept[Shape::kBegins];
  const uint32_t* begins = params.attention.kv_head_begin;
  const uint32_t kv_heads = params.attention.kv.kv_heads;

  AllowNextKernel();
  const uint32_t begin_kept =
      threadIdx.x <= kv_heads && threadIdx.x < Shape::kBegins ? __ldg(begins + threadIdx.x) : 0;
  if (!params.after_append) WaitForEarlierKernels();
  const DecodeStart start = LoadStart(params.view.starts + blockIdx.x);
  if (threadIdx.x < Shape::kBegins) begins_kept[threadIdx.x] = begin_kept;
  __syncthreads();
  if (!Shape::kFewRegisters && kv_heads < Shape::kBegins) begins = begins_kept;
  DecodeProducer<Shape> producer(params, begins, start, team);
  bool waits = params.after_append;
#pragma unroll(Shape::kFewRegisters ? 1 : Shape::kStages)
  for (uint32_t stage = ring; stage != ring_end; stage += Shape::kStage) {
    if (waits && producer.TakesLast()) {
      WaitForEarlierKernels();
      waits = false;
    }
    producer.Issue(params, stage, thread, team);
  }
  if (waits) WaitForEarlierKernels();
  if (start.empty_sequences != 0) ZeroEmptySequences<Shape>(params.attention);
  uint32_t stage = ring;
  DecodeWalk part(params.work, start);
  DecodeRows<Shape> rows;
  while (part.Next(params.work)) {
    const DecodeHeads heads = HeadsOf<Shape>(params, begins, part.head);
    rows.Start(params.attention, part.sequence, heads.begin, heads.count, warp_row);
    for (uint32_t block = part.block; block < part.block_end; ++block) {
#pragma unroll 1
      for (uint32_t slice = team; slice < Shape::kSlices; slice += Shape::kTeams) {
        const uint32_t position = block * kKvBlockTokens + slice * Shape::kSliceTokens;
        WaitForCopies<Shape::kStages - 1>();
        TeamBarrier<Shape>(team);
        if (position < part.row.length && position + Shape::kSliceTokens > part.row.first) {
          rows.Attend(params, stage, position, part.row);
        }
        TeamBarrier<Shape>(team);
        producer.Issue(params, stage, thread, team);
        stage += Shape::kStage;
        if (stage == ring_end) stage = ring;
      }
    }
    const DecodeParts parts(
        params, part, Shape::kFewRegisters ? LoadStart(params.view.starts + blockIdx.x) : start);
    FinishPart<Shape>(params, space, rows, part, parts, heads, team, thread_row);
  }
}

constexpr uint32_t GroupTiles(uint32_t group_max) {
  return group_max > 32 ? 3 : group_max > 16 ? 2 : 1;
}

// Calls `use` with the shape of the kernel for these; cudaErrorInvalidValue without one.
template <int kDim, typename Use>
cudaError_t WithTiles(uint32_t group_max, const Use& use) {
  switch (GroupTiles(group_max)) {
    case 1:
      return use(DecodeShape<kDim, 1>());
    case 2:
      return use(DecodeShape<kDim, 2>());
    default:
      return use(DecodeShape<kDim, 3>());
  }
}
template <typename Use>
cudaError_t WithShape(uint32_t head_dim, uint32_t group_max, const Use& use) {
  switch (head_dim) {
    case 64:
      return WithTiles<64>(group_max, use);
    case 80:
      return WithTiles<80>(group_max, use);
    case 96:
      return WithTiles<96>(group_max, use);
    case 128:
      return WithTiles<128>(group_max, use);
    case 256:
      return WithTiles<256>(group_max, use);
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename Shape>
cudaError_t AllowSharedMemory() {
  return cudaFuncSetAttribute(Decode<Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              Shape::kSharedBytes);
}

uint64_t WorkspaceSlots(const DecodeLimits& limits) {
  if (limits.fixed_split_tokens == 0) return 2 * uint64_t{limits.grid};
  const uint64_t heads =
      uint64_t{limits.kv_heads} *
      DecodeGroups::Of(limits.group_max, limits.sequences, limits.kv_heads, true).slices;
  // A sequence has at most one split that it does not fill at its end, and with a window another.
  return heads * (limits.tokens / limits.fixed_split_tokens + 2 * uint64_t{limits.sequences});
}

DecodeGroups GroupsOf(const DecodeAttentionParams& params) {
  const AttentionParams& attention = params.attention;
  return DecodeGroups::Of(attention.group_max, attention.sequences, attention.kv.kv_heads,
                          params.fixed_split_tokens != 0);
}

DecodeKernelParams MakeKernelParams(const DecodeAttentionParams& params, uint64_t slots,
                                    uint32_t group_rows) {
  const AttentionParams& attention = params.attention;
  const bool fixed = params.fixed_split_tokens != 0;
  const uint32_t slices = GroupsOf(params).slices;
  const DecodeWork work = {attention.context_lengths, attention.kv.kv_heads * slices,
                           attention.window, fixed ? params.fixed_split_tokens / kKvBlockTokens : 1,
                           fixed};
  const bool capped = attention.soft_cap != 0;
  auto* stats = static_cast<float2*>(params.workspace);
  return {attention,
          work,
          DecodeScheduleView(params.schedule, attention.sequences, params.grid),
          slices,
          params.after_append,
          capped ? 2 * kLog2E * attention.scale / attention.soft_cap : kLog2E * attention.scale,
          capped ? kLog2E * attention.soft_cap : 0.0f,
          stats,
          reinterpret_cast<float*>(stats + slots * group_rows),
          params.sinks};
}

template <typename Shape>
cudaError_t LaunchShape(const DecodeAttentionParams& params, cudaStream_t stream) {
  // As many slots as the workspace has room for.
  constexpr size_t kSlotBytes = size_t{Shape::kRows} * (Shape::kDim * 4 + sizeof(float2));
  const uint64_t slots = params.workspace_bytes / kSlotBytes / 2 * 2;
  if (params.fixed_split_tokens == 0 && slots < 2 * uint64_t{params.grid}) {
    return cudaErrorInvalidValue;
  }
  if (const cudaError_t error = AllowSharedMemory<Shape>(); error != cudaSuccess) return error;
  return LaunchKernel(Decode<Shape>, dim3(params.grid), Shape::kThreads, Shape::kSharedBytes,
                      params.dependent, stream, MakeKernelParams(params, slots, Shape::kRows));
}

cudaError_t LaunchOnTensorCores(const DecodeAttentionParams& params, cudaStream_t stream) {
  if (params.grid == 0 || params.fixed_split_tokens % kKvBlockTokens != 0) {
    return cudaErrorInvalidValue;
  }
  if (params.after_append && !params.dependent) return cudaErrorInvalidValue;
  // Models with sinks have small groups: larger ones would double the kernels for nobody.
  if (params.sinks != nullptr && params.attention.group_max > kDecodeSinkGroupMax) {
    return cudaErrorInvalidValue;
  }
  return WithShape(params.attention.kv.head_dim, GroupsOf(params).rows, [&](auto shape) {
    using Shape = decltype(shape);
    if (params.sinks == nullptr) return LaunchShape<Shape>(params, stream);
    if constexpr (Shape::kTiles == 1) return LaunchShape<WithSinks<Shape>>(params, stream);
    return cudaErrorInvalidValue;
  });
}

template <typename T, typename Kv, bool kSinks>
cudaError_t LaunchPlainOf(const DecodeAttentionParams& params, cudaStream_t stream) {
  const AttentionParams& attention = params.attention;
  const auto launch = [&](void (*kernel)(AttentionParams, const float*)) {
    return LaunchKernel(kernel, dim3(attention.query_heads, attention.sequences), kPlainThreads, 0,
                        params.dependent, stream, attention, params.sinks);
  };
  switch (attention.kv.head_dim) {
    case 64:
      return launch(PlainDecode<T, Kv, 64, kSinks>);
    case 80:
      return launch(PlainDecode<T, Kv, 80, kSinks>);
    case 96:
      return launch(PlainDecode<T, Kv, 96, kSinks>);
    case 128:
      return launch(PlainDecode<T, Kv, 128, kSinks>);
    case 256:
      return launch(PlainDecode<T, Kv, 256, kSinks>);
    default:
      return cudaErrorInvalidValue;
  }
}

template <typename T, typename Kv>
cudaError_t LaunchPlain(const DecodeAttentionParams& params, cudaStream_t stream) {
  return params.sinks != nullptr ? LaunchPlainOf<T, Kv, true>(params, stream)
                                 : LaunchPlainOf<T, Kv, false>(params, stream);
}

}  // namespace

cudaError_t DecodeGrid(uint32_t head_dim, uint32_t group_max, uint32_t* grid) {
  uint32_t multiprocessors = 0;
  const cudaError_t error = CountMultiprocessors(&multiprocessors);
  if (error != cudaSuccess) return error;
  return WithShape(head_dim, group_max, [&](auto shape) {
    using Shape = decltype(shape);
    int blocks = 0;
    cudaError_t error = AllowSharedMemory<Shape>();
    if (error != cudaSuccess) return error;
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Decode<Shape>, Shape::kThreads,
                                                          Shape::kSharedBytes);
    *grid = multiprocessors * static_cast<uint32_t>(blocks);
    return error;
  });
}

size_t DecodeWorkspaceBytes(const DecodeLimits& limits) {
  const size_t rows = 16 * GroupTiles(limits.group_max);
  // Slots in pairs: what follows their statistics stays aligned.
  const uint64_t slots = (WorkspaceSlots(limits) + 1) / 2 * 2;
  return slots * rows * (limits.head_dim * 4 + sizeof(float2));
}

cudaError_t DecodeAttention(const DecodeAttentionParams& params, cudaStream_t stream) {
  const AttentionParams& attention = params.attention;
  if (attention.sequences == 0) return cudaSuccess;
  if (attention.type == DType::kBfloat16 && attention.kv.type == DType::kBfloat16) {
    return LaunchOnTensorCores(params, stream);
  }
  if (attention.type == DType::kBfloat16) return LaunchPlain<__nv_bfloat16, float>(params, stream);
  if (attention.kv.type == DType::kFloat32) return LaunchPlain<float, float>(params, stream);
  return LaunchPlain<float, __nv_bfloat16>(params, stream);
}

}  // namespace weft::kernels::cuda
