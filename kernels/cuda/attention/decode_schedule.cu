#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/attention/decode_schedule.h"
#include "kernels/cuda/attention/decode_work.cuh"
#include "kernels/cuda/ptx/dependent.cuh"
#include "kernels/cuda/reduce.cuh"

namespace weft::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 1024;

// A part of a row costs its merge about this share of a block's time, per query head: 512 bytes of
// partial sums through one CTA's L2 reads against 32 KB of keys and values at a CTA's share of the
// memory's bandwidth. The number of blocks a CTA takes at least follows from the cheapest sum.
constexpr float kMergeCostPerHead = 1.0f / 400;

// Rows of equal length are kept whole when that makes the longest range longer by no more than so
// many blocks and this share of it. A CTA with a part of a row loses more to the ticket and the
// merge, in which it asks for no more keys; and while memory is the limit, it is shared among the
// CTAs that are there.
constexpr uint32_t kWholeRowBlocks = 2;
constexpr uint32_t kWholeRowShare = 16;

// Sum over the threads before this one; `total` gets that over all. `scratch` holds kWarp words; a
// barrier must follow before it is used again.
__device__ uint32_t ExclusiveSum(uint32_t x, uint32_t* scratch, uint32_t* total) {
  const uint32_t lane = threadIdx.x % kWarp;
  uint32_t sum = x;
#pragma unroll
  for (uint32_t offset = 1; offset < kWarp; offset *= 2) {
    const uint32_t before = __shfl_up_sync(kAllLanes, sum, offset);
    if (lane >= offset) sum += before;
  }
  if (lane == kWarp - 1) scratch[threadIdx.x / kWarp] = sum;
  __syncthreads();
  uint32_t warps = scratch[lane];
#pragma unroll
  for (uint32_t offset = 1; offset < kWarp; offset *= 2) {
    const uint32_t before = __shfl_up_sync(kAllLanes, warps, offset);
    if (lane >= offset) warps += before;
  }
  *total = __shfl_sync(kAllLanes, warps, kWarp - 1);
  const uint32_t inclusive = __shfl_sync(kAllLanes, warps, threadIdx.x / kWarp);
  return inclusive - scratch[threadIdx.x / kWarp] + sum - x;
}

// Units of the rows that have any, and the sequences that have none.
struct RowUnits {
  uint32_t shortest;
  uint32_t longest;
  uint32_t empty_sequences;
};

// Fills first_units, and `rows`, which must be {0xffffffff, 0, 0}; every thread gets the number of
// units.
__device__ uint32_t ListSequences(const DecodeScheduleParams& params, const DecodeWork& work,
                                  uint32_t* first_units, RowUnits* rows) {
  __shared__ uint32_t scratch[kWarp];
  uint32_t before = 0;
  for (uint32_t base = 0; base < params.sequences; base += kThreads) {
    const uint32_t sequence = base + threadIdx.x;
    uint32_t units = 0;
    if (sequence < params.sequences) {
      const uint32_t length = __ldcg(work.context_lengths + sequence);
      units = MakeDecodeRow(length, work.window, work.unit_blocks).units;
      if (units != 0) {
        atomicMin(&rows->shortest, units);
        atomicMax(&rows->longest, units);
      } else {
        atomicAdd(&rows->empty_sequences, 1);
      }
    }
    uint32_t total;
    const uint32_t place = ExclusiveSum(units * work.heads, scratch, &total);
    if (sequence < params.sequences) first_units[sequence] = before + place;
    before += total;
    __syncthreads();
  }
  return before;
}

// How many units each CTA takes.
__device__ uint32_t UnitsPerCta(const DecodeScheduleParams& params, const DecodeWork& work,
                                uint32_t group_rows, uint32_t total, RowUnits rows) {
  const uint32_t even = max(1u, (total + params.grid - 1) / params.grid);
  if (work.fixed || total == 0) return even;
  if (rows.shortest == rows.longest) {
    const uint32_t whole = (even + rows.longest - 1) / rows.longest * rows.longest;
    if (whole - even <= kWholeRowBlocks + even / kWholeRowShare) return whole;
  }
  const float cheapest = sqrtf(static_cast<float>(rows.longest) * group_rows * kMergeCostPerHead);
  return max(even, static_cast<uint32_t>(ceilf(cheapest)));
}

__device__ DecodeStart FindStart(const DecodeScheduleParams& params, const DecodeWork& work,
                                 const uint32_t* first_units, uint32_t place) {
  // The last sequence that begins at or before it: among those that begin together only the last
  // has units.
  uint32_t low = 0;
  uint32_t high = params.sequences;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (first_units[middle] <= place) {
      low = middle;
    } else {
      high = middle;
    }
  }
  DecodeStart start = {};
  start.sequence = low;
  start.length = __ldcg(work.context_lengths + low);
  const uint32_t units = MakeDecodeRow(start.length, work.window, work.unit_blocks).units;
  const uint32_t within = place - first_units[low];
  start.head = within / units;
  start.unit = within % units;
  return start;
}

// Walks as the CTA will.
__device__ void FindIds(const DecodeScheduleParams& params, const DecodeWork& work,
                        DecodeStart* start) {
  const BlockTables& tables = params.tables;
  if (tables.ids == nullptr) return;
  DecodeWalk walk(work, *start);
#pragma unroll
  for (uint32_t i = 0; i < kDecodeStartIds; ++i) {
    if (walk.block == walk.block_end && !walk.Next(work)) return;
    start->ids[i] = __ldcg(tables.ids + size_t{walk.sequence} * tables.stride + walk.block);
    start->known_ids = i + 1;
    ++walk.block;
  }
}

__global__ void __launch_bounds__(kThreads)
    Schedule(DecodeScheduleParams params, DecodeWork work, uint32_t group_rows) {
  __shared__ RowUnits rows;
  __shared__ uint32_t few_first_units[kThreads];
  AllowNextKernel();
  WaitForEarlierKernels();
  const DecodeScheduleView view(params.schedule, params.sequences, params.grid);
  if (threadIdx.x == 0) rows = {0xffffffffu, 0, 0};
  for (uint32_t i = threadIdx.x; i < params.sequences * work.heads; i += kThreads) {
    view.tickets[i] = 0;
  }
  __syncthreads();
  // A binary search in shared memory where they fit.
  uint32_t* first_units = params.sequences <= kThreads ? few_first_units : view.first_units;
  const uint32_t total = ListSequences(params, work, first_units, &rows);
  const uint32_t per_cta = UnitsPerCta(params, work, group_rows, total, rows);
  for (uint32_t cta = threadIdx.x; cta < params.grid; cta += kThreads) {
    DecodeStart start = {};
    const uint64_t place = uint64_t{cta} * per_cta;
    if (place < total) {
      start = FindStart(params, work, first_units, static_cast<uint32_t>(place));
      start.units = min(per_cta, total - static_cast<uint32_t>(place));
      FindIds(params, work, &start);
    }
    start.units_per_cta = per_cta;
    start.empty_sequences = rows.empty_sequences;
    view.starts[cta] = start;
  }
}

}  // namespace

size_t DecodeScheduleBytes(uint32_t sequences, uint32_t kv_heads, uint32_t group_max,
                           uint32_t grid) {
  // The most tickets of any launch: of many sequences, or of the few whose groups are sliced.
  const auto tickets = [&](uint32_t count) {
    return size_t{count} * kv_heads * DecodeGroups::Of(group_max, count, kv_heads, false).slices;
  };
  const uint32_t sliced = kv_heads == 0 ? 0 : std::min(sequences, kDecodeSlicedRowsMax / kv_heads);
  return sizeof(DecodeStart) * grid +
         sizeof(uint32_t) * (sequences + std::max(tickets(sequences), tickets(sliced)));
}

cudaError_t MakeDecodeSchedule(const DecodeScheduleParams& params, cudaStream_t stream) {
  if (params.sequences == 0) return cudaSuccess;
  if (params.grid == 0 || params.fixed_split_tokens % kKvBlockTokens != 0) {
    return cudaErrorInvalidValue;
  }
  const bool fixed = params.fixed_split_tokens != 0;
  const DecodeGroups groups =
      DecodeGroups::Of(params.group_max, params.sequences, params.kv_heads, fixed);
  const DecodeWork work = {params.context_lengths, params.kv_heads * groups.slices, params.window,
                           fixed ? params.fixed_split_tokens / kKvBlockTokens : 1, fixed};
  return LaunchKernel(Schedule, dim3(1), kThreads, 0, params.dependent, stream, params, work,
                      groups.rows);
}

}  // namespace weft::kernels::cuda
