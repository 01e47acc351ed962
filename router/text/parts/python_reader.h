// Turns a Python literal into JSON, byte by byte: strings with their escapes, numbers, True, False,
// None (and JSON's own words), lists, tuples (which become lists) and dictionaries with strings for
// keys. Keeps the open brackets, and one number or word. Pure.

#pragma once

#include <cstdint>
#include <string>

#include "router/text/parts/json_scanner.h"

namespace weft::router {

class PythonReader {
 public:
  // Appends to `out` what became certain. REQUIRES: no end and no break so far.
  ValueStep Take(char c, std::string* out);

 private:
  enum class State : uint8_t {
    kValue,
    // A value or the closing bracket.
    kElement,
    kKey,
    kColon,
    kNext,
    kString,
    kEscape,
    kHex,
    // A number or a word.
    kWord,
    kDone,
  };

  ValueStep TakeEscaped(char c, std::string* out);
  ValueStep TakeHex(char c, std::string* out);
  ValueStep BeginValue(char c, std::string* out);
  ValueStep TakeNext(char c, std::string* out);
  ValueStep Close(char c, std::string* out);
  ValueStep EndWord(char c, std::string* out);
  ValueStep EndValue();
  ValueStep To(State state) {
    state_ = state;
    return ValueStep::kMore;
  }

  State state_ = State::kValue;
  bool key_ = false;
  // A comma is due before the next element.
  bool comma_ = false;
  char quote_ = 0;
  uint8_t hex_left_ = 0;
  bool unit_is_half_ = false;
  uint32_t code_point_ = 0;
  std::string word_;
  std::string open_;
};

}  // namespace weft::router
