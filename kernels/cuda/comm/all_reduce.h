// The sum of all ranks' partial products, added to the residual, and the norm after it, in one
// kernel on each rank's GPU (one-shot pull, for the few rows of a decode step):
//
//   residual[r, i] += partial_0[r, i] + partial_1[r, i] + ...      (float32, in rank order)
//   out[r, i] = residual * rsqrt(mean(residual^2) + epsilon) * weight[i]      (with a weight)
//
// or LayerNorm of it, as norm.h has it. Rows are bf16 in every rank's memory, mapped into this
// rank's; the residual is float32 and each rank has its own copy. All ranks make the same calls in
// the same order and get the same bits; a row's bits do not depend on the other rows nor on the
// grid. Reads (world - 1) * rows * hidden * 2 bytes over NVLink. hidden: a multiple of 8, at most
// 16,384; any number of rows, meant for 1..128: beyond about 0.5 MB (8 ranks) to 2 MB (2 ranks) a
// two-step sum moves less.
//
// The fewest rows (AllReduceGoesByMail) go by mail instead, where the ranks have mailboxes: each
// rank stores its partial sums into a place of its own in every other rank's mailbox, four bytes at
// a time with the number of the call beside them, and each waits for the others' in its own memory.
// That is twice the bytes, but one way over NVLink and not a flag and then a load there and back.
// The same bits.
//
// What the ranks agree on. Every CTA tells the same CTA of every other rank that its rank's partial
// sums are complete, waits until all have said so to it, and reads. No second meeting follows the
// reads, so a buffer may be overwritten only when the others are known to have read it:
//   CONSECUTIVE CALLS MUST NOT USE THE SAME BUFFER. Two buffers in turn are enough: whoever passes
//   call k + 1 knows that every rank has begun call k + 1, so its call k had ended, and with it all
//   reads of k's buffer; the product in front of call k + 2 may then write it.
// Captured steps keep to that when the number of calls in a step is even and the first always takes
// the same buffer (attention's output product: 0, the MLP's: 1): then steps of all kinds may follow
// each other, graphs of different shapes and steps that made no call at all among them. A call with
// 0 rows is no call. The count of calls itself (`state`) lies on the device, so that graphs may be
// replayed.
//
// With `dependent`, everything between two calls on the stream that was launched as dependent must
// itself wait for its predecessor before it ends (griddepcontrol.wait), as all of weft's do: the
// argument above needs "my call k + 1 waits" to mean "my call k has ended".
//
// A peer that does not come. Whoever waits looks at *abort every few microseconds and at the clock,
// and gives up with *status set; later calls on this state then neither wait nor touch other
// ranks' memory. The kernels end, their results are garbage. Going on takes zeroed flags and state
// on all ranks, with no call in flight on any.

#pragma once

#include <cstddef>

#include "kernels/cuda/types.h"

namespace weft::kernels::cuda {

inline constexpr uint32_t kAllReduceRanksMax = 8;
inline constexpr uint32_t kAllReduceHiddenMax = 16384;
// At most this many CTAs a call, all resident at once: less than an H200 has multiprocessors.
inline constexpr uint32_t kAllReduceCtasMax = 128;

// In memory that all ranks map: word [c][p] is where rank p tells CTA c of the owner that it has
// come. Zeroed before any rank's first call; 16-byte aligned.
inline constexpr uint32_t kAllReduceFlags = kAllReduceCtasMax * kAllReduceRanksMax;

// What goes by mail: so many rows at most, and so many bytes from one rank to all others, beyond
// which loads are faster (docs/PERFORMANCE.md).
inline constexpr uint32_t kAllReduceMailRows = 8;
inline constexpr uint64_t kAllReduceMailBytesMax = 128 * 1024;
inline constexpr bool AllReduceGoesByMail(uint32_t world, uint32_t rows, uint32_t hidden) {
  return rows <= kAllReduceMailRows &&
         uint64_t{world - 1} * rows * hidden * 4 <= kAllReduceMailBytesMax;
}
// Bytes of a mailbox: [ranks, rows, hidden] of four bytes. In memory that all ranks map, zeroed
// before any rank's first call; 32-byte aligned.
inline constexpr size_t AllReduceMailBytes(uint32_t hidden) {
  return size_t{kAllReduceRanksMax} * kAllReduceMailRows * hidden * 4;
}

// Of one rank, in its own memory; zeroed before its first call.
struct AllReduceState {
  // An AllReduceStatus: once set, calls no longer wait.
  uint32_t stopped;
  uint32_t unused[7];
  // Calls that CTA c was part of.
  uint32_t calls[kAllReduceCtasMax];
};

enum AllReduceStatus : uint32_t {
  kAllReduceOk = 0,
  kAllReduceAborted = 1,
  kAllReduceTimedOut = 2,
};

struct AllReduceParams {
  // Of each rank [rows, hidden] bf16, 16-byte aligned, as mapped here; own included. All ranks pass
  // the same buffer (of the two) in the same call.
  const void* partial[kAllReduceRanksMax] = {};
  // Of each rank kAllReduceFlags words, as mapped here; own included.
  uint32_t* flags[kAllReduceRanksMax] = {};
  // Of each rank a mailbox, as mapped here, own included: the one of the two that goes with
  // `partial`. Or all null: nothing goes by mail. Calls of as many rows as may go by mail have one
  // ctas_per_row between them.
  void* mail[kAllReduceRanksMax] = {};
  AllReduceState* state = nullptr;
  uint32_t rank = 0;
  uint32_t world = 0;

  // [rows, hidden], 16-byte aligned.
  float* residual = nullptr;
  // [hidden] bf16, 16-byte aligned, or null for no norm.
  const void* weight = nullptr;
  // LayerNorm instead of RMSNorm, and then [hidden] bf16, 16-byte aligned, or null.
  bool layer_norm = false;
  const void* bias = nullptr;
  // [rows, hidden] bf16, 16-byte aligned; only with a weight.
  void* out = nullptr;
  uint32_t rows = 0;
  uint32_t hidden = 0;
  float epsilon = 0;

  // Host memory mapped for this device, or null: nonzero ends all waits.
  const uint32_t* abort = nullptr;
  // Host memory mapped for this device, or null: an AllReduceStatus, written only when a wait
  // failed.
  uint32_t* status = nullptr;
  // The longest wait for a peer.
  uint64_t wait_max_ns = 10'000'000'000;

  // May start while the kernel before it ends.
  bool dependent = false;
  // 1, 2, 4, 8 (a cluster), or 0 for as many as are worth it. The same on all ranks.
  uint32_t ctas_per_row = 0;
};

cudaError_t AllReduceAddNorm(const AllReduceParams& params, cudaStream_t stream);

}  // namespace weft::kernels::cuda
