// A fuzz target's bytes as a script: numbers and pieces taken off the front, zeros and nothing
// where they have ended. Made by a target for one input.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace weft::test {

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  // Little-endian, in two bytes.
  uint16_t Short() {
    const uint8_t low = Byte();
    return static_cast<uint16_t>(low | Byte() << 8);
  }
  // A piece with its size before it, in two bytes; what is there when that is less.
  absl::string_view Piece() {
    const size_t size = Short();
    const absl::string_view piece = rest_.substr(0, size);
    rest_.remove_prefix(piece.size());
    return piece;
  }
  absl::string_view rest() const { return rest_; }

 private:
  absl::string_view rest_;
};

}  // namespace weft::test
