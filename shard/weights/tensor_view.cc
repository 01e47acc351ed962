#include "shard/weights/tensor_view.h"

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace weft::shard {

TensorView MemberOfStack(const TensorView& stack, uint64_t index) {
  const size_t dims = stack.shape.size();
  WEFT_CHECK((dims == 2 || dims == 3) && index < stack.shape[0]);
  const uint64_t bytes = stack.data.size() / stack.shape[0];
  TensorView member = stack;
  member.name = absl::StrCat(stack.name, "[", index, "]");
  member.shape.erase(member.shape.begin());
  member.data = stack.data.subspan(index * bytes, bytes);
  return member;
}

}  // namespace weft::shard
