#include "shard/weights/row_convert.h"

#include "common/check.h"
#include "shard/weights/kernel_type.h"

namespace weft::shard {

void RowToFloat(TensorType type, const uint8_t* row, int64_t count, float* out) {
  WEFT_CHECK(count % static_cast<int64_t>(FormatOf(type).elements) == 0);
  kernels::UnpackToFloat(KernelType(type), row, count, out);
}

void RowToBf16(TensorType type, const uint8_t* row, int64_t count, uint16_t* out) {
  WEFT_CHECK(count % static_cast<int64_t>(FormatOf(type).elements) == 0);
  kernels::UnpackToBf16(KernelType(type), row, count, out);
}

}  // namespace weft::shard
