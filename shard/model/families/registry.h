// The model families that weft knows, by config.json's model_type or GGUF's general.architecture.
// Called once while a model is opened. A family is one file beside this one and a line in
// registry.cc.

#pragma once

#include "absl/status/statusor.h"
#include "common/gguf.h"
#include "shard/model/hf_config.h"
#include "shard/model/param_table.h"

namespace weft::shard {

// UNIMPLEMENTED naming the family and those that are known, or a feature that the family's code
// does not have; INVALID_ARGUMENT or NOT_FOUND with file and key when the description is wrong.
absl::StatusOr<ModelDescription> DescribeHfModel(const HfConfig& config);
absl::StatusOr<ModelDescription> DescribeGgufModel(const GgufFile& file);

}  // namespace weft::shard
