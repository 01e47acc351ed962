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
  // Of a stack, the member that the parameter is. Where scales lie apart, its codes: type and shape
  // are those of the numbers, `data` has a byte a block less than they say.
  TensorView tensor;
  // Those scales, a byte a block, with the same type and shape; without a file where there are
  // none.
  TensorView scales = {};

  bool scales_apart() const { return scales.file != nullptr; }
};

// NOT_FOUND or INVALID_ARGUMENT naming file, tensor, expected and found.
absl::StatusOr<std::vector<BoundParam>> BindTensors(const ModelDescription& model,
                                                    const TensorSource& source);

}  // namespace weft::shard
