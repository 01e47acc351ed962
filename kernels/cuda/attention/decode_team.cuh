// The inner part of decode attention on tensor cores. A team of warps takes slices of 16 tokens
// through a ring of shared memory of its own, so that no barrier of the whole CTA stands in the
// loop; each warp of it has 16 of the head row's query heads. Device code only.

#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/decode_work.cuh"
#include "kernels/cuda/ptx/memory.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/reduce.cuh"

namespace weft::kernels::cuda {

// What the launch works out for the kernel.
struct DecodeKernelParams {
  AttentionParams attention;
  DecodeWork work;
  DecodeScheduleView view;
  // Head rows of a KV head.
  uint32_t slices;
  // See DecodeAttentionParams.
  bool after_append;
  // Without a soft cap a score in powers of two is product * score_scale; with one it is
  // cap_scale * tanh, where 2^(product * score_scale) = e^(2 x) of tanh's argument x.
  float score_scale;
  float cap_scale;
  // Of partial results: [slots, group rows] maxima (powers of two) and sums, and [slots, group
  // rows, head_dim] sums of weighted values.
  float2* part_stats;
  float* part_sums;
  // [query heads], read by shapes with sinks alone.
  const float* sinks;
};

template <int kHeadDim, int kWarpTiles>
struct DecodeShape {
  static constexpr int kDim = kHeadDim;
  static constexpr bool kSinks = false;
  // Query heads of a head row, padded; 16 a warp.
  static constexpr int kTiles = kWarpTiles;
  static constexpr int kRows = 16 * kTiles;
  static constexpr int kSliceTokens = 16;
  static constexpr int kSlices = kKvBlockTokens / kSliceTokens;
  // Two teams where the registers of four do not fit.
  static constexpr int kTeams = kDim > 128 && kTiles > 1 ? 2 : 4;
  static constexpr int kTeamThreads = kWarp * kTiles;
  static constexpr int kThreads = kTeamThreads * kTeams;
  // Two CTAs share a multiprocessor where their registers allow it.
  static constexpr int kBlocks = kDim <= 128 && kTiles == 1 ? 2 : 1;
  // Sums that a score is made of; one where registers are scarce.
  static constexpr int kChains = kDim > 128 || kTiles == 3 ? 1 : 2;

  // What could be kept for the length of the kernel is looked up again.
  static constexpr bool kFewRegisters = kDim > 128;
  // Blocks whose ids come with the CTA's start, and parts of a row that are summed at a time; fewer
  // where registers are scarce.
  static constexpr int kStartIds = kFewRegisters ? 1 : kDecodeStartIds;
  static constexpr int kMergeBatch = kFewRegisters ? 4 : 16;

  // Sixteen bytes more than a row: eight rows of a matrix load lie in different banks.
  static constexpr int kPitch = 2 * kDim + 16;
  static constexpr int kHalfStage = kSliceTokens * kPitch;
  static constexpr int kStage = 2 * kHalfStage;
  static constexpr int kRingMax = kBlocks == 2 ? 104448 : kTiles == 1 ? 202752 : 180224;
  static constexpr int kStagesFit = kRingMax / (kStage * kTeams);
  static constexpr int kStages = kStagesFit < 6 ? kStagesFit : 6;
  static constexpr int kRing = kStage * kStages * kTeams;

  // The teams' results meet a few columns at a time. Eight columns more: see kPitch.
  static constexpr int kMergeColumns = kDim % 32 == 0 ? 32 : 16;
  static constexpr int kMergePitch = kMergeColumns + 8;
  static constexpr int kMergeFloats = kTeams * kRows * kMergePitch;
  static constexpr int kSharedBytes =
      kRing + 4 * kMergeFloats + static_cast<int>(sizeof(float2)) * kRows * (kTeams + 1);
  // Entries of kv_head_begin that a CTA keeps beside that, if those are all.
  static constexpr int kBegins = 33;
  // In what memory is given out by. A multiprocessor has 228 KB, and takes 1 KB a CTA for itself.
  static constexpr int kShare = (kSharedBytes + 127) / 128 * 128 + (4 * kBegins + 127) / 128 * 128;
  static_assert(kStages >= 2 && kShare <= 227 * 1024 && kBlocks * (kShare + 1024) <= 228 * 1024);
};

// The same with a sink for every query head.
template <typename Shape>
struct WithSinks : Shape {
  static constexpr bool kSinks = true;
};

// The query heads of a head row.
struct DecodeHeads {
  uint32_t begin;
  uint32_t count;
};

// `begins`: kv_head_begin, or a copy.
template <typename Shape>
__device__ __forceinline__ DecodeHeads HeadsOf(const DecodeKernelParams& params,
                                               const uint32_t* begins, uint32_t row) {
  const uint32_t kv_head = params.slices == 1 ? row : row / params.slices;
  const uint32_t slice = params.slices == 1 ? 0 : row % params.slices;
  const uint32_t begin = begins[kv_head] + slice * Shape::kRows;
  const uint32_t end = begins[kv_head + 1];
  return {begin, begin < end ? min(end - begin, uint32_t{Shape::kRows}) : 0};
}

// Fills a team's ring, ahead of the arithmetic.
template <typename Shape>
struct DecodeProducer {
  // See HeadsOf.
  const uint32_t* begins;
  DecodeWalk walk;
  uint32_t slice;
  // Of the block that is to be copied next, read one step before it is needed, and of those after
  // it that the schedule knew.
  uint32_t ids[Shape::kStartIds];
  uint32_t known_ids;
  bool live;

  __device__ __forceinline__ DecodeProducer(const DecodeKernelParams& params,
                                            const uint32_t* begins, const DecodeStart& start,
                                            uint32_t team)
      : begins(begins),
        walk(params.work, start),
        slice(team),
        known_ids(min(start.known_ids, uint32_t{Shape::kStartIds})),
        live(walk.Next(params.work)) {
#pragma unroll
    for (uint32_t i = 0; i < Shape::kStartIds; ++i) ids[i] = start.ids[i];
    if (live && known_ids == 0) LoadBlockId(params);
  }

  __device__ __forceinline__ void LoadBlockId(const DecodeKernelParams& params) {
    const BlockTables& tables = params.attention.tables;
    ids[0] = __ldcg(tables.ids + size_t{walk.sequence} * tables.stride + walk.block);
  }

  __device__ __forceinline__ void NextBlockId(const DecodeKernelParams& params) {
    if (Shape::kStartIds == 1 || known_ids <= 1) {
      LoadBlockId(params);
      return;
    }
    --known_ids;
#pragma unroll
    for (uint32_t i = 0; i + 1 < Shape::kStartIds; ++i) ids[i] = ids[i + 1];
  }

  // The query of the part that comes a ring's length later: its heads lie side by side. Into the
  // L2, where the keys that went through since may have left nothing of it.
  __device__ __forceinline__ void PrefetchQuery(const DecodeKernelParams& params, uint32_t thread,
                                                uint32_t team) const {
    if (Shape::kFewRegisters || team != 0) return;
    constexpr uint32_t kLine = 128 / sizeof(__nv_bfloat16);
    const AttentionParams& attention = params.attention;
    const DecodeHeads heads = HeadsOf<Shape>(params, begins, walk.head);
    const auto* query = static_cast<const __nv_bfloat16*>(attention.query) +
                        size_t{walk.sequence} * attention.query_stride +
                        size_t{heads.begin} * Shape::kDim;
    for (uint32_t i = thread * kLine; i < heads.count * Shape::kDim;
         i += Shape::kTeamThreads * kLine) {
      PrefetchToL2(query + i);
    }
  }

  __device__ __forceinline__ void Advance(const DecodeKernelParams& params, uint32_t thread,
                                          uint32_t team) {
    slice += Shape::kTeams;
    if (slice < Shape::kSlices) return;
    slice = team;
    if (++walk.block == walk.block_end) {
      live = walk.Next(params.work);
      if (live) PrefetchQuery(params, thread, team);
    }
    if (live) NextBlockId(params);
  }

  // Whether the next slice has the sequence's last position.
  __device__ __forceinline__ bool TakesLast() const {
    const uint32_t end = walk.block * kKvBlockTokens + (slice + 1) * Shape::kSliceTokens;
    return live && end >= walk.row.length;
  }

  // Starts the copies of the next slice, and always ends a group of copies. Tokens out of sight
  // become zeros: their weight is zero too, but zero times a stale NaN would not be.
  __device__ __forceinline__ void Issue(const DecodeKernelParams& params, uint32_t stage,
                                        uint32_t thread, uint32_t team) {
    if (live) {
      const uint32_t position = walk.block * kKvBlockTokens + slice * Shape::kSliceTokens;
      const uint32_t begin = walk.row.first > position ? walk.row.first - position : 0;
      const uint32_t end = walk.row.length > position ? walk.row.length - position : 0;
      if (begin < min(end, uint32_t{Shape::kSliceTokens})) {
        CopySlice(params, stage, thread, begin, end);
      }
      Advance(params, thread, team);
    }
    CommitCopies();
  }

  __device__ __forceinline__ void CopySlice(const DecodeKernelParams& params, uint32_t stage,
                                            uint32_t thread, uint32_t begin, uint32_t end) {
    constexpr uint32_t kRowChunks = Shape::kDim / 8;
    constexpr uint32_t kChunks = Shape::kSliceTokens * kRowChunks;
    constexpr uint32_t kSteps = (kChunks + Shape::kTeamThreads - 1) / Shape::kTeamThreads;
    const KvLayer& kv = params.attention.kv;
    const uint32_t head = params.slices == 1 ? walk.head : walk.head / params.slices;
    const size_t first_token = (size_t{ids[0]} * kv.kv_heads + head) * kKvBlockTokens +
                               slice * uint32_t{Shape::kSliceTokens};
    const size_t offset = first_token * Shape::kDim * sizeof(__nv_bfloat16);
    const char* keys = static_cast<const char*>(kv.keys) + offset;
    const char* values = static_cast<const char*>(kv.values) + offset;
#pragma unroll
    for (uint32_t i = 0; i < kSteps; ++i) {
      const uint32_t chunk = thread + i * Shape::kTeamThreads;
      if (kChunks % Shape::kTeamThreads != 0 && chunk >= kChunks) break;
      const uint32_t token = chunk / kRowChunks;
      // A row's padding is one chunk.
      const uint32_t to = stage + (chunk + token) * 16;
      const uint32_t bytes = token - begin < end - begin ? 16 : 0;
      CopyAsync(to, keys + chunk * 16, bytes);
      CopyAsync(to + Shape::kHalfStage, values + chunk * 16, bytes);
    }
  }
};

// What a warp knows of 16 query heads: rows lane / 4 and lane / 4 + 8 of them are in this thread.
template <typename Shape>
struct DecodeRows {
  uint32_t query[Shape::kDim / 16][4];
  float slope[2];
  // In powers of two. The sum is over this thread's own tokens.
  float maximum[2];
  float sum[2];
  float out[Shape::kDim / 8][4];

  // `row`: the warp's first head in the head row, whose `count` heads begin at query head `begin`.
  __device__ __forceinline__ void Start(const AttentionParams& attention, uint32_t sequence,
                                        uint32_t begin, uint32_t count, uint32_t row) {
    constexpr float kLog2E = 1.4426950408889634f;
    const uint32_t lane = threadIdx.x % kWarp;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t head = row + lane / 4 + 8 * half;
      const bool real = head < count;
      const auto* from = static_cast<const __nv_bfloat16*>(attention.query) +
                         size_t{sequence} * attention.query_stride +
                         size_t{begin + (real ? head : 0)} * Shape::kDim + lane % 4 * 2;
#pragma unroll
      for (int k = 0; k < Shape::kDim / 16; ++k) {
        const auto* pair = reinterpret_cast<const uint32_t*>(from + 16 * k);
        query[k][half] = real ? __ldcg(pair) : 0;
        query[k][half + 2] = real ? __ldcg(pair + 4) : 0;
      }
      slope[half] = real && attention.alibi_slopes != nullptr
                        ? __ldg(attention.alibi_slopes + begin + head) * kLog2E
                        : 0.0f;
      maximum[half] = -INFINITY;
      sum[half] = 0;
    }
#pragma unroll
    for (int n = 0; n < Shape::kDim / 8; ++n) {
      out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
    }
  }

  // Takes in the slice of keys and values at `stage`, whose first token is at `position`.
  __device__ __forceinline__ void Attend(const DecodeKernelParams& params, uint32_t stage,
                                         uint32_t position, const DecodeRow& seen) {
    float scores[2][4];
    Multiply(stage, scores);
    Transform(params, position, seen, scores);
    UpdateMaximum(scores);
    uint32_t weights[4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float low = Exp2(scores[n][2 * half] - maximum[half]);
        const float high = Exp2(scores[n][2 * half + 1] - maximum[half]);
        sum[half] += low + high;
        weights[2 * n + half] = PackBfloat16(low, high);
      }
    }
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t values = stage + Shape::kHalfStage + lane % 16 * Shape::kPitch + lane / 16 * 16;
#pragma unroll
    for (int n = 0; n < Shape::kDim / 16; ++n) {
      uint32_t b[4];
      LoadMatricesTransposed(b, values + n * 32);
      MultiplyAdd(out[2 * n], weights, b[0], b[1]);
      MultiplyAdd(out[2 * n + 1], weights, b[2], b[3]);
    }
  }

  // Products of the queries with 16 keys: scores[n] are those with keys 8 n to 8 n + 7.
  __device__ __forceinline__ void Multiply(uint32_t stage, float (&scores)[2][4]) {
    const uint32_t lane = threadIdx.x % kWarp;
    const uint32_t keys = stage + (lane / 16 * 8 + lane % 8) * Shape::kPitch + lane / 8 % 2 * 16;
    // Even and odd steps apart: shorter chains of dependent products.
    float parts[Shape::kChains][2][4] = {};
#pragma unroll
    for (int k = 0; k < Shape::kDim / 16; ++k) {
      uint32_t b[4];
      LoadMatrices(b, keys + k * 32);
      MultiplyAdd(parts[k % Shape::kChains][0], query[k], b[0], b[1]);
      MultiplyAdd(parts[k % Shape::kChains][1], query[k], b[2], b[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] =
            parts[0][n][i] + (Shape::kChains == 2 ? parts[Shape::kChains - 1][n][i] : 0.0f);
      }
    }
  }

  // Scale, soft cap, ALiBi and masks.
  __device__ __forceinline__ void Transform(const DecodeKernelParams& params, uint32_t position,
                                            const DecodeRow& seen, float (&scores)[2][4]) {
    const uint32_t first = position + threadIdx.x % kWarp % 4 * 2;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t at = first + 8 * n + i % 2;
        float score = scores[n][i] * params.score_scale;
        if (params.cap_scale != 0) {
          score = params.cap_scale * (1.0f - __fdividef(2.0f, Exp2(score) + 1.0f));
        }
        const float distance = static_cast<float>(static_cast<int>(at - (seen.length - 1)));
        score += slope[i / 2] * distance;
        scores[n][i] = at >= seen.first && at < seen.length ? score : -INFINITY;
      }
    }
  }

  // The slice holds a token in sight, so that the new maxima are finite.
  __device__ __forceinline__ void UpdateMaximum(const float (&scores)[2][4]) {
    bool grew = false;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = fmaxf(fmaxf(scores[0][2 * half], scores[0][2 * half + 1]),
                            fmaxf(scores[1][2 * half], scores[1][2 * half + 1]));
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 2));
      highest = fmaxf(highest, maximum[half]);
      grew = grew || highest > maximum[half];
      factor[half] = Rescale(maximum[half], highest);
      maximum[half] = highest;
    }
    if (!__any_sync(kAllLanes, grew)) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] *= factor[half];
#pragma unroll
      for (int n = 0; n < Shape::kDim / 8; ++n) {
        out[n][2 * half] *= factor[half];
        out[n][2 * half + 1] *= factor[half];
      }
    }
  }
};

}  // namespace weft::kernels::cuda
