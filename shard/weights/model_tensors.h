// A model's parameter table bound to the tensors of its files: every parameter found, its shape and
// type checked, nothing left over. Made by ModelFiles::Open; read-only afterwards.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "shard/model/param_table.h"
#include "shard/weights/tensor_source.h"

namespace weft::shard {

struct BoundParam {
  ParamTensor param;
  // Of a stack, the member that the parameter is.
  TensorView tensor;
};

// NOT_FOUND or INVALID_ARGUMENT naming file, tensor, expected and found.
absl::StatusOr<std::vector<BoundParam>> BindTensors(const ModelDescription& model,
                                                    const TensorSource& source);

}  // namespace weft::shard
