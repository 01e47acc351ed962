// Turns the text of one parameter, as formats with tags write it, into a JSON value. Text says no
// type, so the tool's schema does: what may only be a string is one, and streams; anything else is
// held until it ends (at most kToolCallHeldBytesMax) and is JSON if it reads as JSON, else a
// string. Where the schema has no string, a literal of Python counts as well ('a', True).
// Owned by one reader.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "router/text/parts/json_scanner.h"
#include "router/text/parts/part_writer.h"

namespace weft::router {

class ParameterWriter {
 public:
  void Begin(JsonTypes types, PartWriter* writer);
  // False when the value was handed out as JSON for its length and is none: it ends here.
  bool Take(absl::string_view text, PartWriter* writer);
  void End(PartWriter* writer);
  // The answer ends here: hands out what is held if it is JSON so far.
  void Cut(PartWriter* writer);

 private:
  enum class Mode : uint8_t { kString, kHeld, kJson };

  bool TakeByte(char c, std::string* out);
  // What is held cannot be anything but a string.
  void BecomeString(std::string* out);

  Mode mode_ = Mode::kString;
  JsonTypes types_ = kJsonAny;
  // The bytes so far may be JSON, a whole value of it.
  bool json_ = true;
  bool json_ended_ = false;
  // Within the object of arguments.
  JsonScanner scanner_{kToolArgumentsDepthMax - 1};
  std::string held_;
  // The same with control characters in strings escaped.
  std::string held_json_;
};

}  // namespace weft::router
