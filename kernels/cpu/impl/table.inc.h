// The table of one instruction set, from what the other *.inc.h files define.

#pragma once

#include "kernels/cpu/kernels.h"

namespace weft::kernels::cpu {
namespace {

constexpr Kernels MakeTable(Isa isa, decltype(Kernels::prepare_activations) prepare,
                            decltype(Kernels::linear) linear) {
  return Kernels{.isa = isa,
                 .prepare_activations = prepare,
                 .linear = linear,
                 .rms_norm = RmsNorm,
                 .layer_norm = LayerNorm,
                 .rotary = Rotary,
                 .silu_multiply = SiluMultiply,
                 .clamped_swiglu = ClampedSwiglu,
                 .activate = Activate,
                 .multiply = MultiplyRows,
                 .clip = Clip,
                 .soft_cap = SoftCap,
                 .add = AddRows,
                 .to_bf16 = ToBf16,
                 .from_bf16 = FromBf16,
                 .exp = ExpRow,
                 .log = LogRow,
                 .kv_append = KvAppend,
                 .attention = Attention,
                 .arg_max = ArgMax,
                 .gumbel_arg_max = GumbelArgMax,
                 .gumbel_noise = GumbelNoiseRow,
                 .all_below_infinity = AllBelowInfinity,
                 .max = MaxRow,
                 .exp_sum = ExpSum,
                 .top_n = TopN};
}

}  // namespace
}  // namespace weft::kernels::cpu
