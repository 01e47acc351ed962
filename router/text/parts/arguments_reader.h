// Reads the JSON value that a call has for arguments and hands out what a client gets of it: an
// object, list or number as it stands (control characters in its strings escaped), the inside of a
// string (models write the object as a string of JSON at times), nothing of null. Owned by one
// reader; pure.

#pragma once

#include <cstdint>
#include <string>

#include "router/text/parts/json_scanner.h"
#include "router/text/parts/json_text.h"

namespace weft::router {

class ArgumentsReader {
 public:
  // Appends to `out` what became certain. REQUIRES: no end and no break so far.
  ValueStep Take(char c, std::string* out);
  // For an answer that ends in the middle.
  void Cut(std::string* out) { string_.Finish(out); }

 private:
  enum class Form : uint8_t { kUnknown, kPlain, kString, kNull };

  JsonScanner scanner_;
  JsonStringReader string_;
  Form form_ = Form::kUnknown;
};

}  // namespace weft::router
