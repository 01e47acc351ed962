#include "deploy/launcher/chat/style.h"

#include "absl/strings/str_cat.h"

namespace weft::launcher {
namespace {

struct Codes {
  int on;
  int off;
};

// In the order of Style. Bold and dim share their end, so neither is used inside the other.
constexpr Codes kCodes[] = {{1, 22}, {3, 23}, {4, 24}, {9, 29}, {36, 39}, {2, 22}};

void AppendCode(int code, std::string* out) { absl::StrAppend(out, "\x1b[", code, "m"); }

}  // namespace

void Styles::Begin(Style style, std::string* out) {
  const size_t i = static_cast<size_t>(style);
  if (depth_[i]++ == 0) AppendCode(kCodes[i].on, out);
}

void Styles::End(Style style, std::string* out) {
  const size_t i = static_cast<size_t>(style);
  if (depth_[i] > 0 && --depth_[i] == 0) AppendCode(kCodes[i].off, out);
}

void Styles::EndAll(std::string* out) {
  for (size_t i = 0; i < kStyles; ++i) {
    if (depth_[i] > 0) AppendCode(kCodes[i].off, out);
    depth_[i] = 0;
  }
}

}  // namespace weft::launcher
