// Writes GGUF bytes piece by piece, right or wrong on purpose. Independent of common/gguf: the
// format as its specification states it.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::test {

template <typename T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline std::string RawString(absl::string_view text) {
  return Raw(uint64_t{text.size()}) + std::string(text);
}

class GgufBuilder {
 public:
  // Value types by number.
  enum : uint32_t {
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kF32,
    kBool,
    kString,
    kArray,
    kU64,
    kI64,
    kF64
  };

  // A key with a value of `type`, already in bytes.
  GgufBuilder& Key(absl::string_view key, uint32_t type, const std::string& value) {
    keys_ += RawString(key) + Raw(type) + value;
    ++key_count;
    return *this;
  }
  GgufBuilder& Uint(absl::string_view key, uint32_t value) { return Key(key, kU32, Raw(value)); }
  GgufBuilder& Float(absl::string_view key, float value) { return Key(key, kF32, Raw(value)); }
  GgufBuilder& String(absl::string_view key, absl::string_view value) {
    return Key(key, kString, RawString(value));
  }

  // A tensor's entry without data.
  GgufBuilder& Entry(absl::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                     uint64_t offset) {
    entries_ += RawString(name) + Raw(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) entries_ += Raw(dim);
    entries_ += Raw(type) + Raw(offset);
    ++tensor_count;
    return *this;
  }
  // A tensor with its bytes behind those of the one before, aligned to 32.
  GgufBuilder& Tensor(absl::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                      absl::string_view bytes) {
    data_.resize((data_.size() + 31) / 32 * 32);
    Entry(name, dims, type, data_.size());
    data_.append(bytes.data(), bytes.size());
    return *this;
  }
  // Bytes of the data section that belong to no entry yet.
  GgufBuilder& Data(absl::string_view bytes) {
    data_.append(bytes.data(), bytes.size());
    return *this;
  }

  std::string Build() const {
    std::string out = magic + Raw(version) + Raw(tensor_count) + Raw(key_count) + keys_ + entries_;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;
  // Grow by themselves; a test may set them wrong.
  uint64_t tensor_count = 0;
  uint64_t key_count = 0;

 private:
  std::string keys_;
  std::string entries_;
  std::string data_;
};

}  // namespace weft::test
