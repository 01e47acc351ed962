// Fuzz target: a safetensors file of any bytes is refused or gives tensors that lie in the file and
// have the bytes of their shape.

#include <cstddef>
#include <cstdint>

#include "common/check.h"
#include "shard/weights/safetensors.h"
#include "tests/shard/weights/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::test::MemoryFile memory(data, size);
  const auto file = weft::shard::SafetensorsFile::Open(memory.path());
  if (!file.ok()) return 0;
  uint64_t sum = 0;
  uint64_t bytes = 0;
  for (const weft::shard::TensorView& tensor : (*file)->tensors()) {
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.shape) elements *= dim;
    if (tensor.unknown_type.empty()) {
      WEFT_CHECK_EQ(tensor.data.size(), weft::BytesOf(tensor.type, elements));
    }
    for (const uint8_t byte : tensor.data) sum += byte;
    bytes += tensor.data.size();
  }
  WEFT_CHECK_LE(bytes, size);
  WEFT_CHECK_LE(sum, 255 * bytes);
  return 0;
}
