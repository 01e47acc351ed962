// Numbers in bytes: what recordings are made of. Encoder and Decoder have the same functions, so
// that one template says how a struct is laid out and serves both ways: whole numbers as LEB128
// (signed ones folded first, so that small negative ones are short), hashes and doubles as 8 bytes
// little endian, lists behind their count. A Decoder takes bytes from outside: it reads nothing
// beyond them, takes no number that does not fit and no list longer than what is left, and says so
// by ok(). Stateless but for the bytes; one thread.

#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::router::recording {

class Encoder {
 public:
  explicit Encoder(std::string* out) : out_(*out) {}

  template <typename T>
  void Number(const T& value) {
    static_assert(std::is_unsigned_v<T> || std::is_enum_v<T>);
    uint64_t rest = static_cast<uint64_t>(value);
    for (; rest >= 0x80; rest >>= 7) out_.push_back(static_cast<char>(rest | 0x80));
    out_.push_back(static_cast<char>(rest));
  }
  void Signed(int64_t value) {
    Number((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  void Signed32(int32_t value) { Signed(value); }
  void Fixed(uint64_t value) {
    char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
    out_.append(bytes, sizeof(bytes));
  }
  void Double(double value) { Fixed(std::bit_cast<uint64_t>(value)); }
  void Text(const std::string& text) {
    Number(text.size());
    out_ += text;
  }
  // `each` codes one item.
  template <typename T, typename F>
  void List(const std::vector<T>& items, F each) {
    Number(items.size());
    for (const T& item : items) each(item);
  }

 private:
  std::string& out_;
};

class Decoder {
 public:
  explicit Decoder(absl::string_view bytes) : rest_(bytes) {}

  // All that was asked for so far was there.
  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

  // `most`: for enums, the last one.
  template <typename T>
  void Number(T& value) {
    static_assert(std::is_unsigned_v<T> || std::is_enum_v<T>);
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t byte = Byte();
      const uint64_t part = byte & 0x7f;
      if (shift > 63 || (shift == 63 && part > 1)) return Fail();
      number |= part << shift;
      if ((byte & 0x80) == 0) break;
    }
    if constexpr (std::is_enum_v<T>) {
      if (number > std::numeric_limits<std::underlying_type_t<T>>::max()) return Fail();
    } else {
      if (number > std::numeric_limits<T>::max()) return Fail();
    }
    value = static_cast<T>(number);
  }
  void Signed(int64_t& value) {
    uint64_t folded = 0;
    Number(folded);
    value = static_cast<int64_t>((folded >> 1) ^ (~(folded & 1) + 1));
  }
  void Signed32(int32_t& value) {
    int64_t wide = 0;
    Signed(wide);
    if (wide != static_cast<int32_t>(wide)) return Fail();
    value = static_cast<int32_t>(wide);
  }
  void Fixed(uint64_t& value) {
    value = 0;
    for (int i = 0; i < 8; ++i) value |= uint64_t{Byte()} << (8 * i);
  }
  void Double(double& value) {
    uint64_t bits = 0;
    Fixed(bits);
    value = std::bit_cast<double>(bits);
  }
  void Text(std::string& text) {
    const size_t bytes = Count();
    text.assign(rest_.substr(0, bytes).data(), bytes);
    rest_.remove_prefix(bytes);
  }
  template <typename T, typename F>
  void List(std::vector<T>& items, F each) {
    items.clear();
    // Not reserved: the count is only as good as the items that follow.
    for (size_t left = Count(); left > 0 && ok_; --left) each(items.emplace_back());
  }

  void Fail() {
    ok_ = false;
    rest_ = {};
  }

 private:
  uint8_t Byte() {
    if (rest_.empty()) {
      ok_ = false;
      return 0;
    }
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  // A number of things of a byte or more each.
  size_t Count() {
    uint64_t count = 0;
    Number(count);
    if (count > rest_.size()) Fail();
    return ok_ ? static_cast<size_t>(count) : 0;
  }

  absl::string_view rest_;
  bool ok_ = true;
};

}  // namespace weft::router::recording
