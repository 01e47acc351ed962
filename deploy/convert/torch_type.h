// Number formats of torch's storages: what a checkpoint calls them and what safetensors does. One
// row each; a storage of any other kind is refused by the name it has. Plain data, any thread.

#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::convert {

struct TorchType {
  // The class of module `torch` in a pickle.
  const char* storage_class;
  const char* safetensors_name;
  uint64_t bytes;
};

inline constexpr TorchType kTorchTypes[] = {
    {"FloatStorage", "F32", 4},  {"HalfStorage", "F16", 2}, {"BFloat16Storage", "BF16", 2},
    {"DoubleStorage", "F64", 8}, {"LongStorage", "I64", 8}, {"IntStorage", "I32", 4},
    {"ShortStorage", "I16", 2},  {"CharStorage", "I8", 1},  {"ByteStorage", "U8", 1},
    {"BoolStorage", "BOOL", 1},
};

}  // namespace weft::convert
