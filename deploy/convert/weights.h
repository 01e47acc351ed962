// Tensors of a checkpoint into safetensors: how they are cut into parts, and the index that lists
// them. Used by `weft convert`, one thread.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/convert/checkpoint.h"
#include "deploy/convert/output_folder.h"

namespace weft::convert {

struct WeightPart {
  std::string name;
  std::vector<SourceTensor> tensors;
  // Of the tensors, without the header.
  uint64_t bytes = 0;
};

// Parts of at most `part_bytes` (a tensor larger than that alone), in the order of the checkpoint.
// INVALID_ARGUMENT, naming --part-size, when they are too many or one has too many tensors for a
// header that can be read.
absl::StatusOr<std::vector<WeightPart>> PlanParts(const Checkpoint& checkpoint,
                                                  uint64_t part_bytes);

// Writes them, with an index when they are several. `say` gets a line for each; `between` as in
// WriteSafetensors.
absl::Status WriteParts(const std::vector<WeightPart>& parts, OutputFolder* out,
                        absl::FunctionRef<void(const std::string&)> say,
                        absl::FunctionRef<absl::Status()> between);

}  // namespace weft::convert
