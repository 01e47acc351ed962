// What Info says of a loaded model: its spec and hash, its types, and the memory that it holds.
// Pure; called by main's loader thread when the model is there.

#pragma once

#include <cstdint>

#include "shard/kv/memory_plan.h"
#include "shard/weights/loader.h"
#include "weft/shard/v1/shard.pb.h"

namespace weft::shard {

// Fills in what `files` and `plan` tell; leaves all other fields of `facts` as they are.
void AddModelFacts(const ModelFiles& files, const MemoryPlan& plan, uint32_t block_tokens,
                   v1::InfoResponse* facts);

}  // namespace weft::shard
