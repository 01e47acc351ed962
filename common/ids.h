// Names for the numbers that travel between the parts of weft. Plain integers on purpose: they
// index arrays and go into protobuf fields without conversion.

#pragma once

#include <cstdint>

namespace weft {

// Vocabulary id.
using TokenId = uint32_t;
// Place of a sequence in the shards' tables; chosen by the scheduler, < running_max.
using Slot = uint32_t;
// Number of a sequence, never used twice in a router's life.
using SequenceId = uint64_t;
// KV block, < kv_blocks of its group.
using BlockId = uint32_t;
// Index of a token in its sequence, from 0.
using Position = uint32_t;
// Index of a shard in its group, from 0.
using Rank = uint32_t;
// Life of one shard group; grows by one each time a group forms.
using Epoch = uint64_t;
// Step of an epoch, from 1, without gaps.
using StepNumber = uint64_t;

inline constexpr Slot kNoSlot = ~Slot{0};
inline constexpr TokenId kNoToken = ~TokenId{0};

}  // namespace weft
