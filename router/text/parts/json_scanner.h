// Follows one JSON value byte by byte: where it ends, and whether it is still one (RFC 8259). Keeps
// the open brackets alone. Line feeds and other control characters in strings, which models write
// and JSON forbids, are let through: whoever passes the bytes on escapes them (in_string). Pure.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/limits.h"

namespace weft::router {

// What a byte did to a value that is read.
enum class ValueStep : uint8_t {
  kMore,
  // The value ended with this byte.
  kEnd,
  // The value ended before this byte, which is not taken: a number, a word.
  kEndBefore,
  // This byte cannot follow; it is not taken.
  kBroken,
};

class JsonScanner {
 public:
  // `depth_max`: nested brackets.
  explicit JsonScanner(size_t depth_max = kToolArgumentsDepthMax) : depth_max_(depth_max) {}

  // Space before the value belongs to it. REQUIRES: no end and no break so far.
  ValueStep Take(char c);

  // The next byte stands inside of a string, or ends it: a control character has to be escaped.
  bool in_string() const { return state_ == State::kString; }
  // The bytes so far are a whole value: true of numbers, which more bytes could continue.
  bool CanEnd() const;

 private:
  enum class State : uint8_t {
    kValue,
    kFirstElement,
    kFirstKey,
    kKey,
    kColon,
    kNext,
    kString,
    kEscape,
    kHex,
    kWord,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
    kDone,
  };

  ValueStep BeginValue(char c);
  ValueStep TakeNext(char c);
  ValueStep TakeInString(char c);
  ValueStep TakeInNumber(char c);
  ValueStep TakeInWord(char c);
  ValueStep Open(char bracket);
  ValueStep Close(char bracket);
  // A value inside of others, or the whole, has ended with the byte taken.
  ValueStep EndValue();
  ValueStep To(State state) {
    state_ = state;
    return ValueStep::kMore;
  }

  State state_ = State::kValue;
  bool key_ = false;
  uint8_t hex_left_ = 0;
  // What is still to come of true, false or null.
  absl::string_view word_;
  size_t depth_max_;
  // Open brackets, '{' or '['.
  std::string open_;
};

}  // namespace weft::router
