#include "common/gguf_format.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::gguf {
namespace {

constexpr const char* kValueTypeNames[kValueTypes] = {
    "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
    "bool",  "string", "array",  "uint64", "int64",  "float64"};
// Bytes of one element; 0 where they vary.
constexpr uint64_t kValueBytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

}  // namespace

const char* NameOf(ValueType type) { return kValueTypeNames[static_cast<uint32_t>(type)]; }
uint64_t BytesOf(ValueType type) { return kValueBytes[static_cast<uint32_t>(type)]; }

bool LoadInteger(ValueType type, const uint8_t* data, Integer* out) {
  const auto set_signed = [out](int64_t value) {
    *out = {value < 0, static_cast<uint64_t>(value)};
    return true;
  };
  const auto set_unsigned = [out](uint64_t value) {
    *out = {false, value};
    return true;
  };
  switch (type) {
    case ValueType::kU8:
      return set_unsigned(LoadAs<uint8_t>(data));
    case ValueType::kI8:
      return set_signed(LoadAs<int8_t>(data));
    case ValueType::kU16:
      return set_unsigned(LoadAs<uint16_t>(data));
    case ValueType::kI16:
      return set_signed(LoadAs<int16_t>(data));
    case ValueType::kU32:
      return set_unsigned(LoadAs<uint32_t>(data));
    case ValueType::kI32:
      return set_signed(LoadAs<int32_t>(data));
    case ValueType::kU64:
      return set_unsigned(LoadAs<uint64_t>(data));
    case ValueType::kI64:
      return set_signed(LoadAs<int64_t>(data));
    default:
      return false;
  }
}

const TensorFormat* FindFormat(uint32_t number) {
  for (const TensorFormat& format : kTensorFormats) {
    if (format.gguf_number == number) return &format;
  }
  return nullptr;
}

std::string FormatNames() {
  return absl::StrJoin(kTensorFormats, ", ", [](std::string* out, const TensorFormat& format) {
    absl::StrAppend(out, format.name);
  });
}

std::string UnsupportedTypeName(uint32_t number) {
  static constexpr const char* kNames[] = {
      "",      "",           "",           "",           "Q4_2",     "Q4_3",     "Q5_0",
      "Q5_1",  "",           "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
      "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
      "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
      "F64",   "IQ1_M",      "",           "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
      "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4"};
  if (number < std::size(kNames)) return absl::StrCat(kNames[number], " (", number, ")");
  return absl::StrCat("number ", number);
}

}  // namespace weft::gguf
