// Numbers and pieces taken from the front of bytes that somebody else wrote: torch's archives and
// pickles, and SentencePiece's models. Reading past the end is an answer and not a crash. Plain
// values, any thread; never reads outside the bytes it was given.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft::convert {

// The number in the first bytes of `bytes`. REQUIRES: enough of them.
template <typename T>
T LittleEndian(const uint8_t* bytes) {
  static_assert(std::is_arithmetic_v<T>);
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

inline absl::string_view AsText(absl::Span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ByteCursor {
 public:
  explicit ByteCursor(absl::Span<const uint8_t> bytes, size_t at = 0) : bytes_(bytes), at_(at) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  template <typename T>
  std::optional<T> Number() {
    if (left() < sizeof(T)) return std::nullopt;
    const T value = LittleEndian<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return value;
  }

  std::optional<absl::Span<const uint8_t>> Bytes(uint64_t count) {
    if (left() < count) return std::nullopt;
    const absl::Span<const uint8_t> piece = bytes_.subspan(at_, count);
    at_ += count;
    return piece;
  }

  // What comes before the next line feed, which is taken with it.
  std::optional<absl::string_view> Line() {
    const absl::string_view rest = AsText(bytes_.subspan(at_));
    const size_t end = rest.find('\n');
    if (end == absl::string_view::npos) return std::nullopt;
    at_ += end + 1;
    return rest.substr(0, end);
  }

 private:
  absl::Span<const uint8_t> bytes_;
  size_t at_;
};

}  // namespace weft::convert
