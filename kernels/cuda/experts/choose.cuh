// A row's experts, chosen by a warp from the router's numbers as route.h says. Device code only.

#pragma once

#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/reduce.cuh"

namespace weft::kernels::cuda {

// A number as an integer of the same order, more than 0 also for NaN, so that 0 is free to say that
// there is no number.
__device__ __forceinline__ uint32_t OrderOf(float number) {
  // Zeros of both signs are equal.
  const uint32_t bits = __float_as_uint(number + 0.0f);
  return max((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u, 1u);
}
__device__ __forceinline__ float FromOrder(uint32_t order) {
  return __uint_as_float((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

inline constexpr float kRouteInfinity = __builtin_inff();

// As transformers computes them, against a sum of 0.
inline constexpr float kSigmoidSumMin = 1e-20f;

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// A warp: how good group `group` is. x as in ChooseExperts.
template <int kPerLane>
__device__ __forceinline__ float WorthOf(const RouteParams& params, uint32_t group,
                                         const float (&x)[kPerLane]) {
  const uint32_t size = params.experts / params.groups;
  float first = -kRouteInfinity;
  float second = -kRouteInfinity;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const uint32_t expert = i * kWarp + threadIdx.x % kWarp;
    if (expert >= params.experts || expert / size != group) continue;
    second = fmaxf(second, fminf(first, x[i]));
    first = fmaxf(first, x[i]);
  }
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, first, offset);
    const float next = __shfl_xor_sync(kAllLanes, second, offset);
    second = fmaxf(fmaxf(second, next), fminf(first, other));
    first = fmaxf(first, other);
  }
  return params.group_best == 1 ? first : first + second;
}

// A warp: hides the experts of groups that are not taken.
template <int kPerLane>
__device__ __forceinline__ void HideGroups(const RouteParams& params, float (&x)[kPerLane]) {
  const uint32_t lane = threadIdx.x % kWarp;
  // Lane g keeps what group g is worth.
  float worth = -kRouteInfinity;
  for (uint32_t group = 0; group < params.groups; ++group) {
    const float of_group = WorthOf<kPerLane>(params, group, x);
    if (lane == group) worth = of_group;
  }
  uint32_t better = 0;
  for (uint32_t group = 0; group < params.groups; ++group) {
    const float other = __shfl_sync(kAllLanes, worth, group);
    better += other > worth || (other == worth && group < lane) ? 1 : 0;
  }
  const unsigned taken = __ballot_sync(kAllLanes, better < params.groups_taken);
  const uint32_t size = params.experts / params.groups;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const uint32_t expert = i * kWarp + lane;
    if (expert < params.experts && (taken >> (expert / size) & 1) == 0) x[i] = -kRouteInfinity;
  }
}

// Lane i < per_token has choice i.
struct RouteChoice {
  uint32_t expert;
  float weight;
  // Among the choices, by their experts' numbers.
  uint32_t order;
};

// A warp: the choices of a row. number_of(expert): what the router says of it; each lane asks for
// the experts l, l + 32, ...
template <int kPerLane, typename NumberOf>
__device__ __forceinline__ RouteChoice ChooseExperts(const RouteParams& params,
                                                     const NumberOf& number_of) {
  const uint32_t lane = threadIdx.x % kWarp;
  float x[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const uint32_t expert = i * kWarp + lane;
    x[i] = expert < params.experts ? number_of(expert) : -kRouteInfinity;
  }
  bool finite = true;
  float largest = -kRouteInfinity;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    finite = finite && (i * kWarp + lane >= params.experts || isfinite(x[i]));
    largest = fmaxf(largest, x[i]);
  }
  finite = __all_sync(kAllLanes, finite);
  largest = WarpMax(largest);
  float all = 0.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) all += __expf(x[i] - largest);
  all = params.sigmoid ? 1.0f : WarpSum(all);
  if (params.sigmoid) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const uint32_t expert = i * kWarp + lane;
      if (expert >= params.experts) continue;
      x[i] = Sigmoid(x[i]);
      if (params.choice_bias != nullptr) x[i] += params.choice_bias[expert];
    }
  }
  if (params.groups > 1) HideGroups<kPerLane>(params, x);
  uint32_t orders[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    orders[i] = i * kWarp + lane < params.experts ? OrderOf(x[i]) : 0;
  }
  // Of an expert that was chosen by a number of this order.
  const auto score_of = [&](uint32_t expert, uint32_t order) {
    return params.sigmoid ? Sigmoid(number_of(expert)) : __expf(FromOrder(order) - largest);
  };
  uint32_t mine = lane;
  uint32_t mine_order = 0;
  float chosen = 0.0f;
  for (uint32_t choice = 0; choice < params.per_token && finite; ++choice) {
    uint32_t best = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) best = max(best, orders[i]);
    best = __reduce_max_sync(kAllLanes, best);
    uint32_t expert = UINT32_MAX;
#pragma unroll
    for (int i = kPerLane - 1; i >= 0; --i) {
      if (orders[i] == best) expert = i * kWarp + lane;
    }
    expert = __reduce_min_sync(kAllLanes, expert);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (expert == i * kWarp + lane) orders[i] = 0;
    }
    chosen += score_of(expert, best);
    if (lane == choice) {
      mine = expert;
      mine_order = best;
    }
  }
  if (params.sigmoid) chosen += kSigmoidSumMin;
  const float sum = params.renormalised ? chosen : all;
  const bool has_weight = finite && lane < params.per_token;
  RouteChoice out = {mine, __builtin_nanf(""), 0};
  if (has_weight) out.weight = score_of(mine, mine_order) / sum * params.scale;
  for (uint32_t choice = 0; choice < params.per_token; ++choice) {
    out.order += __shfl_sync(kAllLanes, mine, choice) < mine ? 1 : 0;
  }
  return out;
}

}  // namespace weft::kernels::cuda
