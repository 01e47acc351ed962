// Decode attention over the paged KV cache: one query row a sequence (row s belongs to sequence s),
// whose position is the last of its context. Grouped, multi-query and multi-head attention, groups
// of unequal size, ALiBi, soft cap and window as in attention.h.
//
// bf16 queries over a bf16 cache run on tensor cores, with the cache's blocks dealt out evenly over
// a grid of fixed size by MakeDecodeSchedule; reads K and V of what is in sight once (once a slice
// of the group, decode_schedule.h). Results split over CTAs meet in the workspace, 4 bytes an
// element, and are summed in order: the same inputs give the same bits. The last CTA to come sums
// small groups, and with fixed_split_tokens all, when a row's result depends on its own sequence
// alone. Others are summed by all CTAs whose last work the row is; these wait for each other, so
// that a grid may have no more CTAs than the device holds at once (DecodeGrid). Other types run on
// a plain kernel, one CTA a query head (K and V read once a query head, from L2 at best), without
// schedule and workspace.
//
// A CTA's first keys are requested one dependent load after it starts (decode_schedule.h); rows
// that one CTA holds as a whole touch neither workspace nor tickets.
//
// Limits: head_dim 64, 80, 96, 128 or 256 (else cudaErrorInvalidValue); at most 65,535 sequences.
// Nothing past a context is read, neither table nor cache, except that the rest of a 128-byte line
// may be fetched; blocks before the window are not touched.

#pragma once

#include <cstddef>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/decode_schedule.h"

namespace weft::kernels::cuda {

struct DecodeAttentionParams {
  // context_lengths of 0: zeros.
  AttentionParams attention;
  // Made by MakeDecodeSchedule with these lengths, window, grid and fixed_split_tokens.
  void* schedule = nullptr;
  uint32_t grid = 0;
  uint32_t fixed_split_tokens = 0;
  // DecodeWorkspaceBytes, 16-byte aligned; needs no initial value. Launches that share it must not
  // overlap.
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  // May start before the kernel in front of it ends. Until that end only kv_head_begin is read:
  // no kernel in flight may write it.
  bool dependent = false;
  // Only with `dependent`: the kernel in front is RotateAndAppend or a Gemv that does its work, and
  // of what is read here it writes nothing but the query and each sequence's last position of the
  // cache. All else, the schedule and the keys before, is read while it runs. RotateAndAppend
  // without head norms lets the next kernel start only when everything in front of itself is
  // complete; in front of one with them, or of a Gemv, a kernel that is not launched as dependent
  // has to stand behind whatever writes those.
  bool after_append = false;
  // [query_heads], or null: attention.h. bf16 serves groups of up to kDecodeSinkGroupMax with them.
  const float* sinks = nullptr;
};

inline constexpr uint32_t kDecodeSinkGroupMax = 16;

// What the workspace must hold at most.
struct DecodeLimits {
  uint32_t sequences = 0;
  uint32_t kv_heads = 0;
  uint32_t group_max = 0;
  uint32_t head_dim = 0;
  uint32_t grid = 0;
  // With fixed splits also the largest sum of context lengths over a batch.
  uint32_t fixed_split_tokens = 0;
  uint64_t tokens = 0;
};

// CTAs that the current device holds at once. Ask at load: it is no call for a step.
cudaError_t DecodeGrid(uint32_t head_dim, uint32_t group_max, uint32_t* grid);

size_t DecodeWorkspaceBytes(const DecodeLimits& limits);

cudaError_t DecodeAttention(const DecodeAttentionParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda
