// Fuzz target: a safetensors file of any bytes is refused, or its tensors are its bytes: behind
// each other they are all that follows the header, each with the size of its shape and a name of
// its own.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "common/check.h"
#include "shard/weights/safetensors.h"
#include "tests/shard/weights/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::test::MemoryFile memory(data, size);
  const auto file = weft::shard::SafetensorsFile::Open(memory.path());
  if (!file.ok()) {
    WEFT_CHECK_MSG(absl::IsInvalidArgument(file.status()), file.status().ToString());
    return 0;
  }
  std::string contents;
  std::set<std::string> names;
  for (const weft::shard::TensorView& tensor : (*file)->tensors()) {
    WEFT_CHECK(names.insert(tensor.name).second);
    if (tensor.unknown_type.empty()) {
      uint64_t elements = 1;
      for (const uint64_t dim : tensor.shape) elements *= dim;
      WEFT_CHECK_EQ(tensor.data.size(), weft::BytesOf(tensor.type, elements));
    }
    contents.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  }
  uint64_t header = 0;
  WEFT_CHECK_GE(size, sizeof(header));
  std::memcpy(&header, data, sizeof(header));
  WEFT_CHECK_LE(header, size - sizeof(header));
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  WEFT_CHECK(contents == bytes.substr(sizeof(header) + header));
  return 0;
}
