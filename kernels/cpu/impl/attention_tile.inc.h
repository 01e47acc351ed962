// One tile of 64 positions for a group of queries (attention.inc.h): scores, online softmax, and
// the weighted sum of values.

#pragma once

#include <cstdint>
#include <cstring>

namespace weft::kernels::cpu {
namespace {

constexpr int kTileVectors = static_cast<int>(kAttentionTile / kLanes);

// One query of the group.
struct QueryState {
  const float* query;
  float* out;
  // Positions it may see: first .. limit - 1.
  int64_t first;
  int64_t limit;
  // Of its head; 0 = no bias.
  float slope;
  float max;
  Floats sum;
  // Of this tile: what the sums so far are multiplied by.
  float rescale;
  // In scratch: head_dim sums, of latent attention latent_dim times 16; scores, then probabilities
  // of the tile.
  float* acc;
  float* scores;
};

// Where the blocks of one tile are, and those of the next one, to be prefetched: blocks are
// scattered, which hardware prefetchers do not follow. Blocks beyond the last one repeat it.
struct TileBlocks {
  const uint8_t* k[kTileVectors];
  const uint8_t* v[kTileVectors];
  const uint8_t* next_k[kTileVectors];
  const uint8_t* next_v[kTileVectors];
};

// Elements 2i and 2i + 1 of 16 keys; or values of positions 2i and 2i + 1, element by element.
struct FloatPair {
  Floats even;
  Floats odd;
};

inline FloatPair SplitPairs(const Ints& pairs) {
  return FloatPair{AsFloats(ShiftLeft<16>(pairs)), AsFloats(And(pairs, SetInts(0xFFFF0000u)))};
}

constexpr int64_t ElementBytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

template <KvType kType>
inline FloatPair LoadKeyPair(const uint8_t* block, int64_t i) {
  if constexpr (kType == KvType::kBf16) return SplitPairs(LoadInts(block + i * 64));
  if constexpr (kType == KvType::kF16) {
    return FloatPair{LoadHalfs(block + i * 64), LoadHalfs(block + i * 64 + 32)};
  }
  const float* keys = reinterpret_cast<const float*>(block) + 2 * i * kLanes;
  return FloatPair{Load(keys), Load(keys + kLanes)};
}

// scores[q][16 b + t] for blocks [b, b + kBlocks) of the tile.
template <KvType kType, int kQueries, int kBlocks>
inline void ScoreBlocks(const TileBlocks& tile, int b, int64_t head_dim, float scale,
                        QueryState* queries) {
  Floats acc[kQueries][kBlocks];
  for (int q = 0; q < kQueries; ++q) {
    for (int j = 0; j < kBlocks; ++j) acc[q][j] = Zero();
  }
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    FloatPair keys[kBlocks];
    for (int j = 0; j < kBlocks; ++j) {
      keys[j] = LoadKeyPair<kType>(tile.k[b + j], i);
      Prefetch(tile.next_k[b + j] + i * 32 * ElementBytes(kType));
      if (kType == KvType::kF32) Prefetch(tile.next_k[b + j] + i * 128 + 64);
    }
    for (int q = 0; q < kQueries; ++q) {
      const Floats even = Set(queries[q].query[2 * i]);
      const Floats odd = Set(queries[q].query[2 * i + 1]);
      for (int j = 0; j < kBlocks; ++j) {
        acc[q][j] = MulAdd(even, keys[j].even, acc[q][j]);
        acc[q][j] = MulAdd(odd, keys[j].odd, acc[q][j]);
      }
    }
  }
  const Floats factor = Set(scale);
  for (int q = 0; q < kQueries; ++q) {
    for (int j = 0; j < kBlocks; ++j) {
      Store(queries[q].scores + (b + j) * kLanes, Mul(acc[q][j], factor));
    }
  }
}

// Scores of the tile behind the soft cap, and with the bias of their distance from the query.
inline void ShapeScores(int64_t tile_begin, float soft_cap, QueryState* query) {
  const Floats cap = Set(soft_cap);
  const Floats inverse = Set(soft_cap > 0 ? 1.0f / soft_cap : 0.0f);
  const Floats slope = Set(query->slope);
  for (int j = 0; j < kTileVectors; ++j) {
    float* const at = query->scores + j * kLanes;
    Floats scores = Load(at);
    if (soft_cap > 0) scores = Mul(Tanh(Mul(scores, inverse)), cap);
    const auto begin = static_cast<float>(tile_begin + j * kLanes - (query->limit - 1));
    const Floats distance = Add(ToFloats(Iota()), Set(begin));
    Store(at, query->slope != 0 ? Fma(slope, distance, scores) : scores);
  }
}

// Whether the tile lies wholly in front of what the query sees.
inline bool SeesNothing(int64_t tile_begin, const QueryState& query) {
  return query.first >= tile_begin + kAttentionTile;
}

// Hides what lies in front of the query's window, also where no score was computed.
inline void HideBelow(int64_t tile_begin, QueryState* query) {
  const int64_t below = query->first - tile_begin;
  const Floats hidden = Set(-kInfinity);
  for (int j = 0; j * kLanes < below; ++j) {
    const int64_t n = below - j * kLanes;
    float* const at = query->scores + j * kLanes;
    Store(at, n < kLanes ? Select(FirstLanes(n), hidden, Load(at)) : hidden);
  }
}

// Hides what comes after the query; its running maximum rises to that of the tile. Returns old
// maximum - new maximum.
inline float RaiseMax(int64_t tile_begin, QueryState* query) {
  const int64_t left = query->limit - tile_begin;
  const Floats hidden = Set(-kInfinity);
  Floats top = hidden;
  for (int j = 0; j < kTileVectors; ++j) {
    const int64_t n = left - j * kLanes;
    float* scores = query->scores + j * kLanes;
    if (n < kLanes) Store(scores, n > 0 ? Select(FirstLanes(n), Load(scores), hidden) : hidden);
    top = Max(top, Load(scores));
  }
  const float tile_max = MaxLanes(top);
  const float old_max = query->max;
  query->max = old_max > tile_max ? old_max : tile_max;
  return old_max - query->max;
}

// Scores -> probabilities relative to the running maximum, for all queries; updates their sums.
inline void SoftmaxTile(int64_t tile_begin, QueryState* queries, int count) {
  alignas(64) float rescale[kLanes] = {};
  for (int q = 0; q < count; ++q) {
    if (SeesNothing(tile_begin, queries[q])) continue;
    if (queries[q].first > tile_begin) HideBelow(tile_begin, &queries[q]);
    rescale[q] = RaiseMax(tile_begin, &queries[q]);
  }
  Store(rescale, Exp(Load(rescale)));
  for (int q = 0; q < count; ++q) {
    QueryState& query = queries[q];
    query.rescale = rescale[q];
    if (SeesNothing(tile_begin, query)) {
      // Its sums stay as they are, times one: there may be no maximum yet to subtract.
      for (int j = 0; j < kTileVectors; ++j) Store(query.scores + j * kLanes, Zero());
      continue;
    }
    query.sum = Mul(query.sum, Set(query.rescale));
    const Floats max = Set(query.max);
    for (int j = 0; j < kTileVectors; ++j) {
      const Floats p = Exp(Sub(Load(query.scores + j * kLanes), max));
      Store(query.scores + j * kLanes, p);
      query.sum = Add(query.sum, p);
    }
  }
}

// The first n of 16 halfs, the rest zero.
inline Floats LoadHalfsN(const uint8_t* p, int64_t n) {
  if (n >= kLanes) return LoadHalfs(p);
  uint8_t padded[2 * kLanes] = {};
  std::memcpy(padded, p, static_cast<size_t>(2 * n));
  return LoadHalfs(padded);
}

template <KvType kType>
inline FloatPair LoadValuePair(const uint8_t* block, int64_t head_dim, int64_t pair, int64_t d,
                               int64_t n, bool both) {
  if constexpr (kType == KvType::kBf16) {
    const uint8_t* at = block + (pair * head_dim + d) * 4;
    return SplitPairs(n >= kLanes ? LoadInts(at) : LoadIntsN(at, n));
  }
  if constexpr (kType == KvType::kF16) {
    const uint8_t* at = block + (2 * pair * head_dim + d) * 2;
    return FloatPair{LoadHalfsN(at, n), both ? LoadHalfsN(at + head_dim * 2, n) : Zero()};
  }
  const float* values = reinterpret_cast<const float*>(block) + 2 * pair * head_dim + d;
  return FloatPair{LoadN(values, n), both ? LoadN(values + head_dim, n) : Zero()};
}

// acc[q][d ..] = acc * rescale + sum over positions [begin, positions) of p * v, for kVectors * 16
// elements from d. `begin` is that of a block.
template <KvType kType, int kQueries, int kVectors>
inline void WeighValues(const TileBlocks& tile, int64_t begin, int64_t positions, int64_t head_dim,
                        int64_t d, QueryState* queries) {
  Floats acc[kQueries][kVectors];
  for (int q = 0; q < kQueries; ++q) {
    const Floats rescale = Set(queries[q].rescale);
    for (int j = 0; j < kVectors; ++j) {
      acc[q][j] = Mul(Load(queries[q].acc + d + j * kLanes), rescale);
    }
  }
  for (int64_t t = begin; t < positions; t += 2) {
    const bool both = t + 1 < positions;
    const uint8_t* block = tile.v[t / kKvBlockTokens];
    const uint8_t* next = tile.next_v[t / kKvBlockTokens];
    const int64_t pair_bytes = t % kKvBlockTokens * head_dim * ElementBytes(kType);
    FloatPair values[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      const int64_t at = d + j * kLanes;
      // Two positions: interleaved in kBf16, one row after the other otherwise.
      if (kType == KvType::kBf16) {
        Prefetch(next + pair_bytes + at * 4);
      } else {
        Prefetch(next + pair_bytes + at * ElementBytes(kType));
        Prefetch(next + pair_bytes + (head_dim + at) * ElementBytes(kType));
      }
      values[j] =
          LoadValuePair<kType>(block, head_dim, t % kKvBlockTokens / 2, at, head_dim - at, both);
    }
    for (int q = 0; q < kQueries; ++q) {
      const Floats p = Set(queries[q].scores[t]);
      for (int j = 0; j < kVectors; ++j) acc[q][j] = MulAdd(p, values[j].even, acc[q][j]);
    }
    // The other half of the pair may never have been written.
    if (!both) break;
    for (int q = 0; q < kQueries; ++q) {
      const Floats p = Set(queries[q].scores[t + 1]);
      for (int j = 0; j < kVectors; ++j) acc[q][j] = MulAdd(p, values[j].odd, acc[q][j]);
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int j = 0; j < kVectors; ++j) Store(queries[q].acc + d + j * kLanes, acc[q][j]);
  }
}

// The same of latent attention, where the values of 16 positions lie side by side as keys do: each
// element of acc is 16 sums, of every 16th position each, which meet at the end.
template <KvType kType, int kQueries>
inline void WeighLatents(const TileBlocks& tile, int64_t begin, int64_t positions,
                         int64_t latent_dim, QueryState* queries) {
  const int first = static_cast<int>(begin / kKvBlockTokens);
  const int last = static_cast<int>((positions - 1) / kKvBlockTokens);
  // What was never written is not multiplied.
  const int64_t written = positions - last * kKvBlockTokens;
  Floats rescale[kQueries];
  for (int q = 0; q < kQueries; ++q) rescale[q] = Set(queries[q].rescale);
  for (int64_t i = 0; i < latent_dim / 2; ++i) {
    FloatPair values[kTileVectors];
    for (int j = first; j <= last; ++j) values[j] = LoadKeyPair<kType>(tile.k[j], i);
    if (written < kLanes) {
      values[last].even = Select(FirstLanes(written), values[last].even, Zero());
      values[last].odd = Select(FirstLanes(written), values[last].odd, Zero());
    }
    for (int q = 0; q < kQueries; ++q) {
      float* const acc = queries[q].acc + 2 * i * kLanes;
      Floats even = Mul(Load(acc), rescale[q]);
      Floats odd = Mul(Load(acc + kLanes), rescale[q]);
      for (int j = first; j <= last; ++j) {
        const Floats p = Load(queries[q].scores + j * kLanes);
        even = MulAdd(p, values[j].even, even);
        odd = MulAdd(p, values[j].odd, odd);
      }
      Store(acc, even);
      Store(acc + kLanes, odd);
    }
  }
}

// One tile for kQueries queries, in ascending order of what they see. Blocks in front of all their
// windows are neither read nor multiplied by zero.
template <KvType kType, int kQueries>
void AttendTile(const AttentionWork& work, const TileBlocks& tile, int64_t tile_begin,
                QueryState* queries) {
  const int64_t head_dim = work.kv.head_dim;
  const int64_t below = queries[0].first - tile_begin;
  const int64_t begin = below > 0 ? below / kKvBlockTokens * kKvBlockTokens : 0;
  const int64_t left = queries[kQueries - 1].limit - tile_begin;
  const int64_t positions = left < kAttentionTile ? left : kAttentionTile;
  const int blocks = static_cast<int>((positions + kKvBlockTokens - 1) / kKvBlockTokens);
  for (int b = static_cast<int>(begin / kKvBlockTokens) / kScoreBlocks * kScoreBlocks; b < blocks;
       b += kScoreBlocks) {
    ScoreBlocks<kType, kQueries, kScoreBlocks>(tile, b, head_dim, work.scale, queries);
  }
  if (work.soft_cap > 0 || work.slopes != nullptr) {
    for (int q = 0; q < kQueries; ++q) ShapeScores(tile_begin, work.soft_cap, &queries[q]);
  }
  SoftmaxTile(tile_begin, queries, kQueries);
  if (work.kv.v_pool == nullptr) {
    WeighLatents<kType, kQueries>(tile, begin, positions, work.latent_dim, queries);
    return;
  }
  int64_t d = 0;
  for (; d + kScoreBlocks * kLanes <= head_dim; d += kScoreBlocks * kLanes) {
    WeighValues<kType, kQueries, kScoreBlocks>(tile, begin, positions, head_dim, d, queries);
  }
  for (; d < head_dim; d += kLanes) {
    WeighValues<kType, kQueries, 1>(tile, begin, positions, head_dim, d, queries);
  }
}

}  // namespace
}  // namespace weft::kernels::cpu
