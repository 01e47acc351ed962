// Causal attention over paged keys and values (contract: attention.h, kernels.h). Queries (a row
// and a head each) are taken in groups that share what is read of K and V; per tile of 64
// positions: scores of the group, online softmax of each query, then the weighted sum of values.
// Nothing of a query's arithmetic depends on its group (invariant num.row): a position that a query
// may not see gets probability 0 exactly, and adds 0 * (a finite value).

#pragma once

#include <cstdint>

#include "kernels/cpu/impl/attention_tile.inc.h"

namespace weft::kernels::cpu {
namespace {

template <KvType kType, int kQueries = kQueriesMax>
void AttendTileOf(int count, const AttentionWork& work, const TileBlocks& tile, int64_t tile_begin,
                  QueryState* queries) {
  if (count == kQueries) {
    AttendTile<kType, kQueries>(work, tile, tile_begin, queries);
  } else if constexpr (kQueries > 1) {
    AttendTileOf<kType, kQueries - 1>(count, work, tile, tile_begin, queries);
  }
}

// What the sums of a query are divided by in the end, of kinds with values of their own and
// without.
inline void StoreQuery(const AttentionWork& work, const QueryState& query) {
  const float sum = SumLanes(query.sum);
  const Floats total = Set(sum);
  if (work.kv.v_pool == nullptr) {
    for (int64_t d = 0; d < work.latent_dim; ++d) {
      query.out[d] = SumLanes(Load(query.acc + d * kLanes)) / sum;
    }
    return;
  }
  for (int64_t d = 0; d < work.kv.head_dim; d += kLanes) {
    StoreN(query.out + d, Div(Load(query.acc + d), total), work.kv.head_dim - d);
  }
}

// Queries in ascending order of first and limit.
template <KvType kType>
void AttendGroup(const AttentionWork& work, QueryState* queries, int count) {
  const KvBlocks& kv = work.kv;
  const int64_t head_bytes = kKvBlockTokens * kv.head_dim * ElementBytes(kType);
  const int64_t limit = queries[count - 1].limit;
  // Neighbours of a tile's blocks that no query sees are replaced by one that some query does.
  const int64_t first_block = queries[0].first / kKvBlockTokens;
  const int64_t last_block = (limit - 1) / kKvBlockTokens;
  const auto offset_of = [&](int64_t index) {
    const int64_t seen = index < first_block ? first_block : index;
    const int64_t block = kv.block_ids[(seen < last_block ? seen : last_block) - kv.first_block];
    return block * kv.block_stride_bytes + work.kv_head * head_bytes;
  };
  const uint8_t* const v_pool = kv.v_pool != nullptr ? kv.v_pool : kv.k_pool;
  const int64_t first_tile = queries[0].first / kAttentionTile * kAttentionTile;
  for (int64_t begin = first_tile; begin < limit; begin += kAttentionTile) {
    TileBlocks tile;
    for (int j = 0; j < kTileVectors; ++j) {
      const int64_t here = offset_of(begin / kKvBlockTokens + j);
      const int64_t next = offset_of(begin / kKvBlockTokens + j + kTileVectors);
      tile.k[j] = kv.k_pool + here;
      tile.v[j] = v_pool + here;
      tile.next_k[j] = kv.k_pool + next;
      tile.next_v[j] = v_pool + next;
    }
    int first = 0;
    while (queries[first].limit <= begin) ++first;
    AttendTileOf<kType>(count - first, work, tile, begin, queries + first);
  }
  for (int q = 0; q < count; ++q) StoreQuery(work, queries[q]);
}

void Attention(const AttentionWork& work, void* scratch) {
  const int64_t head_dim = work.kv.head_dim;
  const bool latent = work.kv.v_pool == nullptr;
  const int64_t value_dim = latent ? work.latent_dim : head_dim;
  const int64_t acc_floats =
      latent ? value_dim * kLanes : (head_dim + kLanes - 1) / kLanes * kLanes;
  QueryState queries[kQueriesMax];
  const int64_t total = work.rows * work.head_count;
  for (int64_t begin = 0; begin < total; begin += kQueriesMax) {
    const int64_t count = total - begin < kQueriesMax ? total - begin : kQueriesMax;
    for (int64_t q = 0; q < count; ++q) {
      const int64_t row = (begin + q) / work.head_count;
      const uint32_t head = work.heads[(begin + q) % work.head_count];
      QueryState& state = queries[q];
      state.query = work.query + row * work.query_stride + head * head_dim;
      state.out = work.out + row * work.out_stride + head * value_dim;
      state.limit = work.start + row + 1;
      state.first = work.window > 0 && work.window < state.limit ? state.limit - work.window : 0;
      state.slope = work.slopes != nullptr ? work.slopes[head] : 0.0f;
      // A sink is a score that came first and has no value.
      state.max = work.sinks != nullptr ? work.sinks[head] : -kInfinity;
      state.sum = work.sinks != nullptr ? Select(FirstLanes(1), Set(1.0f), Zero()) : Zero();
      state.acc = static_cast<float*>(scratch) + q * (acc_floats + kAttentionTile);
      state.scores = state.acc + acc_floats;
      for (int64_t d = 0; d < acc_floats; d += kLanes) Store(state.acc + d, Zero());
    }
    switch (work.kv.type) {
      case KvType::kF32:
        AttendGroup<KvType::kF32>(work, queries, static_cast<int>(count));
        break;
      case KvType::kBf16:
        AttendGroup<KvType::kBf16>(work, queries, static_cast<int>(count));
        break;
      case KvType::kF16:
        AttendGroup<KvType::kF16>(work, queries, static_cast<int>(count));
        break;
    }
  }
}

}  // namespace
}  // namespace weft::kernels::cpu
