// How many threads a CPU shard computes with: its share of the cores that this process may use.
// Pure but for UsableCores; main thread.

#pragma once

#include <cstdint>

#include "common/cgroup.h"
#include "shard/kv/memory_plan.h"

namespace weft::shard {

// Cores this process may run on.
uint32_t UsableCores();

// What one of so many groups of this host may take of its memory.
MemoryLimit ShareMemory(MemoryLimit host, uint32_t groups);

// Sets threads and the sentence that says why so many: `asked`, or without it (0) what `limits`
// pays for of `cores`, divided among `shards`.
void ShareCores(uint32_t asked, uint32_t shards, uint32_t cores, const CgroupLimits& limits,
                MemoryFlags* memory);

}  // namespace weft::shard
