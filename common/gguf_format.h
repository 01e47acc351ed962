// The numbers of the GGUF format: value types of metadata, tensor formats, and how an element is
// read from unaligned bytes. Used by common/gguf.cc only; holds no state.

#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "common/tensor_type.h"

namespace weft::gguf {

// Value types of metadata by their number in the file.
enum class ValueType : uint32_t {
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
  kF64,
};
inline constexpr uint32_t kValueTypes = 13;

const char* NameOf(ValueType type);
// Bytes of one element; 0 for strings and arrays, where they vary.
uint64_t BytesOf(ValueType type);

template <typename T>
T LoadAs(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof(T));
  return value;
}

// An integer of any width and sign: the value's low 64 bits in two's complement.
struct Integer {
  bool negative = false;
  uint64_t bits = 0;
};

// Reads one element; false when `type` is no integer type.
bool LoadInteger(ValueType type, const uint8_t* data, Integer* out);

// Null for a number that weft does not read.
const TensorFormat* FindFormat(uint32_t number);
// "F32, F16, …" for messages.
std::string FormatNames();
// ggml's name and number of a type that weft does not read, so that a refusal says what the file
// holds.
std::string UnsupportedTypeName(uint32_t number);

}  // namespace weft::gguf
