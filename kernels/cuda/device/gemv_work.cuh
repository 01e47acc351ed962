// How Gemv divides its work and how the weights arrive. Device code, and the plan that the host
// makes.
//
// A block owns neighbouring columns (elements of a row of `out`), a warp neighbouring ones of
// those. A warp takes two rows of the weight at a time (a unit: two neighbours, or a gate and its
// up), 256 elements of each a step. A step's weights go into the warp's ring in shared memory,
// where every lane reads only the 16 bytes that it copied itself: no barrier, the thread's own
// groups of copies order everything.
//
// Sums are made per segment of at most 4096 elements: in each lane over its elements, then over the
// lanes, then over the segments. The input lies in shared memory a panel at a time, as many
// segments as fit; where it takes several panels, a warp goes through a few units panel by panel
// and keeps their sums in shared memory in between. So the order of a sum depends on k alone.

#pragma once

#include <algorithm>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/gemv.h"

namespace weft::kernels::cuda {

struct GemvShape {
  static constexpr uint32_t kWarps = 8;
  static constexpr uint32_t kThreads = kWarps * kWarp;
  // Elements that a 16-byte access holds.
  static constexpr uint32_t kVector = 8;
  static constexpr uint32_t kStepElements = kWarp * kVector;
  static constexpr uint32_t kStepBytes = kStepElements * sizeof(__nv_bfloat16);
  static constexpr uint32_t kSlotBytes = 2 * kStepBytes;
  // Steps under way.
  static constexpr uint32_t kDepth = 10;
  // Steps that a dependent also has brought into the L2 while it waits: what the ring holds is too
  // little to keep the memory busy from the end of the kernel before to the first products.
  static constexpr uint32_t kLaterSteps = 6;
  static constexpr uint32_t kSegmentStepsMax = 16;
  // Steps of the input, over all rows, that a panel holds: four rows of a segment.
  static constexpr uint32_t kPanelRowSteps = kGemvRowsMax * kSegmentStepsMax;
  // Units whose sums a warp keeps from panel to panel.
  static constexpr uint32_t kCarriedUnits = 3;

  static constexpr uint32_t kRing = kWarps * kDepth * kSlotBytes;
  static constexpr uint32_t kCarriedFloats = kCarriedUnits * 2 * kGemvRowsMax;
  // Carried sums of the warps, the norm's sums of the warps, the norm's factors.
  static constexpr uint32_t kFixed =
      kRing +
      (kWarps * kCarriedFloats + kWarps * kGemvRowsMax + kGemvRowsMax) * uint32_t{sizeof(float)};
  // Two blocks must fit into 228 KB, of which the system takes 1 KB a block.
  static constexpr uint32_t kSharedMax = kFixed + kPanelRowSteps * kStepBytes;
  static_assert(kSharedMax <= 113 * 1024);
  static_assert(kFixed % 16 == 0);
};

struct GemvPlan {
  bool gated;
  // Elements of a row of `out`.
  uint32_t columns;
  // From a unit's first row of the weight to its second.
  uint32_t second_row;
  // Of k, of a segment and of a panel; the last ones may be shorter.
  uint32_t steps;
  uint32_t segment_steps;
  uint32_t panel_steps;
  uint32_t panels;
  // Units that a warp takes through all panels together.
  uint32_t block_units;

  static GemvPlan Of(const GemvParams& params) {
    GemvPlan plan;
    plan.gated = params.epilogue == GemvEpilogue::kGatedSilu;
    plan.columns = plan.gated ? params.n / 2 : params.n;
    plan.second_row = plan.gated ? plan.columns : 1;
    plan.steps = params.k / GemvShape::kStepElements + (params.k % GemvShape::kStepElements != 0);
    const uint32_t segments =
        (plan.steps + GemvShape::kSegmentStepsMax - 1) / GemvShape::kSegmentStepsMax;
    plan.segment_steps = (plan.steps + segments - 1) / segments;
    plan.panel_steps =
        plan.segment_steps *
        std::min(segments, GemvShape::kPanelRowSteps / (params.rows * plan.segment_steps));
    plan.panels = (plan.steps + plan.panel_steps - 1) / plan.panel_steps;
    plan.block_units = plan.panels == 1 ? UINT32_MAX / 4 : GemvShape::kCarriedUnits;
    return plan;
  }
  uint32_t SharedBytes(uint32_t rows) const {
    return GemvShape::kFixed + rows * panel_steps * GemvShape::kStepBytes;
  }
};

// Columns of a warp. The first warp of a block has the most.
struct GemvRange {
  uint32_t begin;
  uint32_t count;

  __device__ __forceinline__ GemvRange(const GemvPlan& plan, uint32_t warp) {
    const auto first = static_cast<uint32_t>(uint64_t{plan.columns} * blockIdx.x / gridDim.x);
    const auto last = static_cast<uint32_t>(uint64_t{plan.columns} * (blockIdx.x + 1) / gridDim.x);
    const uint32_t each = (last - first) / GemvShape::kWarps;
    const uint32_t more = (last - first) % GemvShape::kWarps;
    begin = first + warp * each + min(warp, more);
    count = each + (warp < more ? 1 : 0);
  }
  __device__ __forceinline__ uint32_t Units(const GemvPlan& plan) const {
    return plan.gated ? count : (count + 1) / 2;
  }
};

// Until all kernels in front are complete and what they wrote is visible.
__device__ __forceinline__ void WaitForPredecessors() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void LaunchDependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// What earlier kernels wrote: past the L1, which may hold lines from before they did, and never
// moved ahead of the wait for them.
__device__ __forceinline__ uint4 LoadWritten(const void* from) {
  uint4 out;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(from)
               : "memory");
  return out;
}
__device__ __forceinline__ float LoadWritten(const float* from) {
  float out;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(out) : "l"(from) : "memory");
  return out;
}

// Goes through the weights of a warp in the order in which they are used, kDepth steps ahead.
struct GemvStream {
  const char* source;
  size_t to_second;
  uint64_t policy;
  // This lane's next element of k.
  uint32_t element;
  // Steps before the next unit or panel; 0 for good at the end.
  uint32_t left;
  // Of all units and panels.
  uint32_t left_of_all;
  bool has_second;
  uint32_t units;
  uint32_t unit;
  uint32_t block;
  uint32_t panel;

  __device__ __forceinline__ GemvStream(const GemvParams& params, const GemvPlan& plan,
                                        const GemvRange& range)
      : to_second(size_t{plan.second_row} * params.k * sizeof(__nv_bfloat16)),
        left(0),
        left_of_all(range.Units(plan) * plan.steps),
        units(range.Units(plan)),
        unit(0),
        block(0),
        panel(0) {
    // Used once: what is in the L2 for longer stays there.
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    Start(params, plan, range);
  }

  // The warp's next step into the ring at `slot`. An empty group at the end keeps the count.
  __device__ __forceinline__ void Issue(const GemvParams& params, const GemvPlan& plan,
                                        const GemvRange& range, uint32_t slot) {
    if (left == 0) Advance(params, plan, range);
    if (left != 0) {
      const uint32_t bytes = element < params.k ? 16 : 0;
      Copy(slot, source, bytes);
      Copy(slot + GemvShape::kStepBytes, source + to_second, has_second ? bytes : 0);
      source += GemvShape::kStepBytes;
      element += GemvShape::kStepElements;
      --left;
      --left_of_all;
    }
    CommitCopies();
  }

  // Steps behind those in the ring into the L2.
  __device__ __forceinline__ void PrefetchLater(const GemvParams& params) const {
    constexpr uint32_t kLineLanes = 8;  // lanes to 128 bytes
    if (threadIdx.x % kLineLanes != 0) return;
    const uint32_t count = min(left, GemvShape::kLaterSteps);
    for (uint32_t i = 0; i < count; ++i) {
      if (element + i * GemvShape::kStepElements >= params.k) break;
      const char* from = source + i * GemvShape::kStepBytes;
      asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
      if (has_second) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + to_second));
    }
  }

 private:
  __device__ __forceinline__ void Copy(uint32_t to, const char* from, uint32_t bytes) const {
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
        "l"(from), "r"(bytes), "l"(policy)
        : "memory");
  }

  __device__ __forceinline__ void Start(const GemvParams& params, const GemvPlan& plan,
                                        const GemvRange& range) {
    if (unit >= units) return;
    const uint32_t first_step = panel * plan.panel_steps;
    const uint32_t column = plan.gated ? unit : 2 * unit;
    element = first_step * GemvShape::kStepElements + threadIdx.x % kWarp * GemvShape::kVector;
    source = static_cast<const char*>(params.weight) +
             (size_t{range.begin + column} * params.k + element) * sizeof(__nv_bfloat16);
    left = min(plan.panel_steps, plan.steps - first_step);
    has_second = plan.gated || column + 1 < range.count;
  }

  __device__ __forceinline__ void Advance(const GemvParams& params, const GemvPlan& plan,
                                          const GemvRange& range) {
    if (left_of_all == 0) return;
    if (++unit >= min(block + plan.block_units, units)) {
      if (++panel == plan.panels) {
        panel = 0;
        block += plan.block_units;
      }
      unit = block;
    }
    Start(params, plan, range);
  }
};

}  // namespace weft::kernels::cuda
