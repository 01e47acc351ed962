// Bold, italics and so on as a terminal takes them (SGR of ECMA-48), nested: a style ends where the
// outermost that asked for it does. Pure.

#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace weft::launcher {

enum class Style { kBold, kItalic, kUnderline, kStrike, kCode, kDim };

class Styles {
 public:
  // Append what turns `style` on or off, where that changes anything.
  void Begin(Style style, std::string* out);
  void End(Style style, std::string* out);
  // Ends all that is on.
  void EndAll(std::string* out);

 private:
  static constexpr size_t kStyles = 6;
  std::array<int, kStyles> depth_ = {};
};

}  // namespace weft::launcher
