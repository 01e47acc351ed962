// The third part of all_reduce.cu: how a thread's vector of a row gets to the other ranks and
// theirs to it, by mail. Device code only.

#pragma once

#include "kernels/cuda/comm/all_reduce_work.cuh"
#include "kernels/cuda/ptx/peer.cuh"

namespace weft::kernels::cuda {

// One call's mail; for all threads of a CTA.
template <int kWorldMax>
class Mail {
 public:
  // After the wait for earlier kernels. `place`: of the thread's vector, the same on all ranks.
  __device__ __forceinline__ Mail(const AllReduceParams& params, uint32_t place) : place_(place) {
    going_ = LoadWord(&params.state->stopped) == kAllReduceOk;
    call_ = LoadWord(&params.state->calls[blockIdx.x]) + 1;
  }

  // `bits`: this rank's vector, to all others.
  __device__ __forceinline__ void Send(const AllReduceParams& params, uint4 bits) const {
    if (!going_) return;
#pragma unroll
    for (uint32_t i = 1; i < kWorldMax; ++i) {
      if (i >= params.world) break;
      // Each begins with the next rank: not all with the same.
      const uint32_t peer =
          params.rank + i < params.world ? params.rank + i : params.rank + i - params.world;
      char* const to = Place(params, peer, params.rank);
      StoreMail(to, Word(bits.x), Word(bits.y));
      StoreMail(to + kPairBytes, Word(bits.z), Word(bits.w));
    }
  }

  // The other ranks' vectors. False when this rank no longer waits for them.
  __device__ __forceinline__ bool Receive(const AllReduceParams& params,
                                          uint4 (&bits)[kWorldMax]) const {
    if (!going_) return false;
    Patience patience;
    for (uint32_t polls = 1; !Look(params, bits); ++polls) {
      if (polls % kPollsPerLook == 0 && patience.IsOver(params)) return false;
    }
    return true;
  }

  // By one thread of the CTA, when all have made their Mail. The next launch reads it.
  __device__ __forceinline__ void Count(const AllReduceParams& params) const {
    params.state->calls[blockIdx.x] = call_;
  }

 private:
  static constexpr uint32_t kPairBytes = 16;

  __device__ __forceinline__ uint64_t Word(uint32_t bits) const {
    return uint64_t{call_} << 32 | bits;
  }
  __device__ __forceinline__ bool IsNew(ulonglong2 pair) const {
    return pair.x >> 32 == call_ && pair.y >> 32 == call_;
  }
  __device__ __forceinline__ char* Place(const AllReduceParams& params, uint32_t owner,
                                         uint32_t from) const {
    const uint32_t vectors = kAllReduceMailRows * (params.hidden / kRowVector);
    return static_cast<char*>(params.mail[owner]) +
           (size_t{from} * vectors + place_) * (2 * kPairBytes);
  }

  // Whether all have come; then they are in `bits`.
  __device__ __forceinline__ bool Look(const AllReduceParams& params,
                                       uint4 (&bits)[kWorldMax]) const {
    ulonglong2 low[kWorldMax];
    ulonglong2 high[kWorldMax];
    // All loads first.
#pragma unroll
    for (uint32_t p = 0; p < kWorldMax; ++p) {
      if (p >= params.world || p == params.rank) continue;
      const char* const from = Place(params, params.rank, p);
      low[p] = LoadMail(from);
      high[p] = LoadMail(from + kPairBytes);
    }
    bool all = true;
#pragma unroll
    for (uint32_t p = 0; p < kWorldMax; ++p) {
      if (p >= params.world || p == params.rank) continue;
      all = all && IsNew(low[p]) && IsNew(high[p]);
      bits[p] = make_uint4(low[p].x, low[p].y, high[p].x, high[p].y);
    }
    return all;
  }

  uint32_t place_;
  uint32_t call_;
  bool going_;
};

}  // namespace weft::kernels::cuda
