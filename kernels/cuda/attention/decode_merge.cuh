// How the partial results of decode attention come together: those of a CTA's teams in shared
// memory, those of a head row's parts in the workspace, always in order. Device code only.

#pragma once

#include "kernels/cuda/attention/decode_team.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/mma.cuh"

namespace weft::kernels::cuda {

// Where the parts of a head row keep their results. A CTA has a slot for the row that it found
// begun and one for the row that it leaves unfinished; with fixed splits every unit has one.
struct DecodeParts {
  uint32_t count;
  // Of this CTA's own part.
  uint32_t slot;
  uint32_t first;
  bool fixed;

  __device__ __forceinline__ DecodeParts(const DecodeKernelParams& params, const DecodeWalk& part,
                                         const DecodeStart& start) {
    const uint32_t range_end = blockIdx.x * start.units_per_cta + start.units;
    // Of the row.
    const uint32_t place = range_end - part.left - part.part_units - part.part_unit;
    fixed = params.work.fixed;
    if (fixed) {
      count = part.row.units;
      first = place;
      slot = place + part.part_unit;
    } else {
      first = place / start.units_per_cta;
      count = (place + part.row.units - 1) / start.units_per_cta - first + 1;
      slot = 2 * blockIdx.x + (part.part_unit == 0 ? 1 : 0);
    }
  }

  __device__ __forceinline__ uint32_t Slot(uint32_t i) const {
    if (fixed) return first + i;
    return i == 0 ? 2 * first + 1 : 2 * (first + i);
  }
};

__device__ __forceinline__ float4 Scaled(float4 x, float by) {
  return {x.x * by, x.y * by, x.z * by, x.w * by};
}
__device__ __forceinline__ void AddScaled(float4* sum, float4 x, float by) {
  sum->x += x.x * by;
  sum->y += x.y * by;
  sum->z += x.z * by;
  sum->w += x.w * by;
}

// Four columns of one query head's output.
template <typename Shape>
__device__ __forceinline__ void StoreOut(const AttentionParams& attention, uint32_t sequence,
                                         uint32_t head, uint32_t column, float4 x) {
  const size_t row = size_t{sequence} * attention.query_heads + head;
  auto* to = static_cast<__nv_bfloat16*>(attention.out) + row * Shape::kDim + column;
  *reinterpret_cast<uint2*>(to) = make_uint2(PackBfloat16(x.x, x.y), PackBfloat16(x.z, x.w));
}

// The denominator of a query head's softmax, of weights 2^(score - maximum).
template <typename Shape>
__device__ __forceinline__ float Denominator(const DecodeKernelParams& params, uint32_t head,
                                             float maximum, float sum) {
  if constexpr (Shape::kSinks) {
    constexpr float kLog2E = 1.4426950408889634f;
    // Infinite where the sink is all there is: the output is zero then.
    return sum + Exp2(__ldg(params.sinks + head) * kLog2E - maximum);
  }
  return sum;
}

// Sums the row's parts in order and writes a share of the output: of `shares` equal ones, number
// `share`. All threads of the CTA, after all parts have come.
template <typename Shape>
__device__ __forceinline__ void MergeParts(const DecodeKernelParams& params, const DecodeWalk& part,
                                           const DecodeParts& parts, DecodeHeads heads,
                                           uint32_t share, uint32_t shares) {
  // Parts whose loads are in flight together.
  constexpr uint32_t kBatch = Shape::kMergeBatch;
  constexpr uint32_t kQuads = Shape::kDim / 4;
  const uint32_t quads = heads.count * kQuads;
  const uint32_t end = quads * (share + 1) / shares;
  for (uint32_t e = quads * share / shares + threadIdx.x; e < end; e += Shape::kThreads) {
    const uint32_t row = e / kQuads;
    const uint32_t column = e % kQuads * 4;
    float maximum = -INFINITY;
    float sum = 0;
    float4 out = {0, 0, 0, 0};
    for (uint32_t base = 0; base < parts.count; base += kBatch) {
      float2 stats[kBatch];
      float4 sums[kBatch];
      float highest = maximum;
#pragma unroll
      for (uint32_t i = 0; i < kBatch; ++i) {
        stats[i] = {-INFINITY, 0};
        sums[i] = {0, 0, 0, 0};
        if (base + i >= parts.count) continue;
        const size_t at = size_t{parts.Slot(base + i)} * Shape::kRows + row;
        // Written by other multiprocessors: not through this one's L1.
        stats[i] = __ldcg(params.part_stats + at);
        sums[i] =
            __ldcg(reinterpret_cast<const float4*>(params.part_sums + at * Shape::kDim + column));
      }
#pragma unroll
      for (uint32_t i = 0; i < kBatch; ++i) highest = fmaxf(highest, stats[i].x);
      const float old = Rescale(maximum, highest);
      maximum = highest;
      sum *= old;
      out = Scaled(out, old);
#pragma unroll
      for (uint32_t i = 0; i < kBatch; ++i) {
        const float factor = Rescale(stats[i].x, highest);
        sum += stats[i].y * factor;
        AddScaled(&out, sums[i], factor);
      }
    }
    StoreOut<Shape>(
        params.attention, part.sequence, heads.begin + row, column,
        Scaled(out, 1.0f / Denominator<Shape>(params, heads.begin + row, maximum, sum)));
  }
}

// The CTA's shared memory after the ring.
template <typename Shape>
struct DecodeMergeSpace {
  float* columns;
  // [team, row] and [row]: maximum and sum.
  float2* team_stats;
  float2* stats;

  __device__ __forceinline__ explicit DecodeMergeSpace(char* after_ring)
      : columns(reinterpret_cast<float*>(after_ring)),
        team_stats(reinterpret_cast<float2*>(columns + Shape::kMergeFloats)),
        stats(team_stats + Shape::kTeams * Shape::kRows) {}
};

// Leaves every team's maxima and sums, and the CTA's, in shared memory. The CTA's can be read after
// the next barrier.
template <typename Shape>
__device__ __forceinline__ void ShareStats(const DecodeMergeSpace<Shape>& space,
                                           DecodeRows<Shape>& rows, uint32_t team, uint32_t row) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows.sum[half] += __shfl_xor_sync(kAllLanes, rows.sum[half], 1);
    rows.sum[half] += __shfl_xor_sync(kAllLanes, rows.sum[half], 2);
    if (threadIdx.x % 4 == 0) {
      space.team_stats[team * Shape::kRows + row + 8 * half] = {rows.maximum[half], rows.sum[half]};
    }
  }
  __syncthreads();
  if (threadIdx.x < Shape::kRows) {
    float2 all = space.team_stats[threadIdx.x];
    for (int t = 1; t < Shape::kTeams; ++t) {
      const float2 next = space.team_stats[t * Shape::kRows + threadIdx.x];
      const float highest = fmaxf(all.x, next.x);
      all.y = all.y * Rescale(all.x, highest) + next.y * Rescale(next.x, highest);
      all.x = highest;
    }
    space.stats[threadIdx.x] = all;
  }
}

// Columns of the results that are in shared memory, in rows of `pitch`: a team's heads, team by
// team.
struct DecodeColumns {
  uint32_t first;
  uint32_t count;
  uint32_t pitch;
};

// To the output when the part is the whole row, else to the part's slot.
template <typename Shape>
__device__ __forceinline__ void AddTeams(const DecodeKernelParams& params,
                                         const DecodeMergeSpace<Shape>& space,
                                         const DecodeWalk& part, DecodeHeads heads, bool whole,
                                         uint32_t slot, DecodeColumns columns) {
  const uint32_t quads = columns.count / 4;
  for (uint32_t e = threadIdx.x; e < heads.count * quads; e += Shape::kThreads) {
    const uint32_t r = e / quads;
    const uint32_t column = e % quads * 4;
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int t = 0; t < Shape::kTeams; ++t) {
      AddScaled(&sum,
                *reinterpret_cast<const float4*>(space.columns +
                                                 (t * heads.count + r) * columns.pitch + column),
                1.0f);
    }
    if (whole) {
      StoreOut<Shape>(params.attention, part.sequence, heads.begin + r, columns.first + column,
                      Scaled(sum, 1.0f / Denominator<Shape>(params, heads.begin + r,
                                                            space.stats[r].x, space.stats[r].y)));
    } else {
      const size_t at = size_t{slot} * Shape::kRows + r;
      *reinterpret_cast<float4*>(params.part_sums + at * Shape::kDim + columns.first + column) =
          sum;
      if (columns.first == 0 && column == 0) params.part_stats[at] = space.stats[r];
    }
  }
}

// Sums the teams' results. Ends with a barrier.
template <typename Shape>
__device__ __forceinline__ void MergeTeams(const DecodeKernelParams& params,
                                           const DecodeMergeSpace<Shape>& space,
                                           DecodeRows<Shape>& rows, const DecodeWalk& part,
                                           DecodeHeads heads, bool whole, uint32_t slot,
                                           uint32_t team, uint32_t row) {
  constexpr int kColumns = Shape::kMergeColumns;
  constexpr int kPasses = Shape::kDim / kColumns;
  ShareStats<Shape>(space, rows, team, row);
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float highest = -INFINITY;
    for (int t = 0; t < Shape::kTeams; ++t) {
      highest = fmaxf(highest, space.team_stats[t * Shape::kRows + row + 8 * half].x);
    }
    factor[half] = Rescale(rows.maximum[half], highest);
  }
  const uint32_t count = max(heads.count, 1u);
  // The fewer rows, the more columns there is room for at a time.
  const uint32_t together =
      Shape::kFewRegisters ? 1 : (Shape::kRows * Shape::kMergePitch / count - 8) / kColumns;
  const uint32_t pitch = min(together, uint32_t{kPasses}) * kColumns + 8;
  float* own = space.columns + (team * count + row) * pitch + threadIdx.x % 4 * 2;
  uint32_t filled = 0;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= heads.count) continue;
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        const float* out = rows.out[pass * kColumns / 8 + n] + 2 * half;
        *reinterpret_cast<float2*>(own + 8 * half * pitch + filled * kColumns + 8 * n) = {
            out[0] * factor[half], out[1] * factor[half]};
      }
    }
    ++filled;
    if (filled < together && pass + 1 < kPasses) continue;
    __syncthreads();
    AddTeams<Shape>(params, space, part, heads, whole, slot,
                    {(pass + 1 - filled) * kColumns, filled * kColumns, pitch});
    __syncthreads();
    filled = 0;
  }
}

// Counts a part as arrived and returns how many were there before: what the CTA wrote before its
// last barrier comes before it, and what those before wrote is seen after the CTA's next one.
__device__ __forceinline__ uint32_t TakeTicket(uint32_t* ticket) { return CountUp(ticket); }

// Ends a part: all threads of the CTA. `row`: this thread's first row.
template <typename Shape>
__device__ __forceinline__ void FinishPart(const DecodeKernelParams& params,
                                           const DecodeMergeSpace<Shape>& space,
                                           DecodeRows<Shape>& rows, const DecodeWalk& part,
                                           const DecodeParts& parts, DecodeHeads heads,
                                           uint32_t team, uint32_t row) {
  const bool whole = part.part_units == part.row.units;
  MergeTeams<Shape>(params, space, rows, part, heads, whole, parts.slot, team, row);
  if (whole) return;
  uint32_t* ticket = params.view.tickets + size_t{part.sequence} * params.work.heads + part.head;
  // What one CTA sums in one go is not worth waiting for: the multiprocessors of those that have
  // ended are the next kernel's.
  const bool small = heads.count * (Shape::kDim / 4) <= Shape::kThreads;
  if (parts.fixed || small) {
    __shared__ bool last;
    if (threadIdx.x == 0) last = TakeTicket(ticket) + 1 == parts.count;
    __syncthreads();
    if (!last) return;
    MergeParts<Shape>(params, part, parts, heads, 0, 1);
    // Nobody else comes: ready for the next launch.
    if (threadIdx.x == 0) *ticket = 0;
    return;
  }
  // A row's last part is the first that its CTA works on, perhaps with more behind it: that CTA
  // goes on. For the others the row is the last work: nobody waits for them any more.
  const uint32_t share = blockIdx.x - parts.first;
  const uint32_t shares = parts.count - 1;
  if (threadIdx.x == 0) {
    TakeTicket(ticket);
    if (share != shares) AwaitCount(ticket, parts.count);
  }
  if (share == shares) return;
  // What was written before the parts' tickets is seen after this.
  __syncthreads();
  MergeParts<Shape>(params, part, parts, heads, share, shares);
  if (threadIdx.x == 0) LeaveCount(ticket, parts.count, shares);
}

}  // namespace weft::kernels::cuda
