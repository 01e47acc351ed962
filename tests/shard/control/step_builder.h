// Short ways to write step requests in tests.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

inline void SetHeader(v1::StepHeader* header, uint64_t epoch, uint64_t step,
                      std::initializer_list<uint32_t> drops = {}) {
  header->set_epoch(epoch);
  header->set_step(step);
  for (const uint32_t slot : drops) header->add_drop_slots(slot);
}

inline v1::BlockDelta* AddBlocks(v1::StepHeader* header, uint32_t slot,
                                 std::initializer_list<uint32_t> blocks, uint32_t group = 0) {
  v1::BlockDelta* delta = header->add_block_deltas();
  delta->set_slot(slot);
  delta->set_group(group);
  for (const uint32_t block : blocks) delta->add_blocks(block);
  return delta;
}

// Parameters at their neutral values: greedy, nothing filtered.
inline void SetNeutral(v1::SamplingParams* sampling) {
  sampling->set_top_p(1.0f);
  sampling->set_typical_p(1.0f);
  sampling->set_repetition_penalty(1.0f);
}

inline v1::Chunk* AddChunk(v1::PrefillRequest* request, uint32_t slot, uint64_t sequence,
                           uint32_t start, const std::vector<uint32_t>& ids, bool last) {
  v1::Chunk* chunk = request->add_chunks();
  chunk->set_slot(slot);
  chunk->set_sequence(sequence);
  chunk->set_start(start);
  chunk->mutable_ids()->Add(ids.begin(), ids.end());
  chunk->set_last(last);
  return chunk;
}

// A first chunk of a sequence with a prompt of `prompt_len` ids and neutral sampling.
inline v1::Chunk* AddFirstChunk(v1::PrefillRequest* request, uint32_t slot, uint64_t sequence,
                                const std::vector<uint32_t>& ids, bool last, uint32_t prompt_len) {
  v1::Chunk* chunk = AddChunk(request, slot, sequence, 0, ids, last);
  chunk->set_first(true);
  chunk->set_prompt_len(prompt_len);
  SetNeutral(chunk->mutable_sampling());
  return chunk;
}

}  // namespace weft::shard
