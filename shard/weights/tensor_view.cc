#include "shard/weights/tensor_view.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace weft::shard {

TensorView MatrixOfStack(const TensorView& stack, uint64_t index) {
  WEFT_CHECK(stack.shape.size() == 3 && index < stack.shape[0]);
  const uint64_t bytes = stack.shape[1] * BytesOf(stack.type, stack.shape[2]);
  TensorView matrix = stack;
  matrix.name = absl::StrCat(stack.name, "[", index, "]");
  matrix.shape = {stack.shape[1], stack.shape[2]};
  matrix.data = stack.data.subspan(index * bytes, bytes);
  return matrix;
}

}  // namespace weft::shard
