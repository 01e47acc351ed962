// Fuzz target: a checkpoint of any bytes is refused or gives tensors whose elements all lie in it,
// none of them twice.

#include <cstddef>
#include <cstdint>

#include "common/check.h"
#include "deploy/convert/torch_file.h"
#include "tests/shard/weights/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::test::MemoryFile memory(data, size);
  const auto file = weft::convert::TorchFile::Open(memory.path());
  if (!file.ok()) return 0;
  uint64_t sum = 0;
  for (const weft::convert::TorchTensor& tensor : (*file)->tensors()) {
    uint64_t bytes = 0;
    const absl::Status status = weft::convert::VisitElements(tensor.view, tensor.storage, 4096,
                                                             [&](absl::Span<const uint8_t> piece) {
                                                               for (const uint8_t byte : piece)
                                                                 sum += byte;
                                                               bytes += piece.size();
                                                               return absl::OkStatus();
                                                             });
    WEFT_CHECK(status.ok());
    WEFT_CHECK_EQ(bytes, tensor.view.bytes());
    WEFT_CHECK_LE(bytes, size);
  }
  WEFT_CHECK_LE(sum, 255 * size * (*file)->tensors().size());
  return 0;
}
