// Which of the GPUs that a process sees is a shard's own: a matter of its host, and not of its rank
// in a group that may span several. Pure; knows nothing of CUDA, so that it is the same in every
// build.

#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

namespace weft::shard {

// What a shard says of its GPU.
struct GpuChoice {
  // --device-index: among those that the process sees.
  std::optional<uint32_t> index;
  uint32_t rank = 0;
};

// The index of the shard's GPU among `visible` ones: the one asked for; else the only one; else
// that of its rank, counted around, so that ranks of one host that see all its GPUs take different
// ones. NOT_FOUND with the way out when there is no such GPU.
absl::StatusOr<uint32_t> LocalGpu(const GpuChoice& choice, uint32_t visible);

}  // namespace weft::shard
