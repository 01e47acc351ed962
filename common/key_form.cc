#include "common/key_form.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr absl::string_view kPrefix = "weft-";
// 256 bits in base64url.
constexpr size_t kLetters = 43;
constexpr size_t kLettersShown = 4;

// Letters of base64url that `text` begins with.
size_t RunOf(absl::string_view text) {
  size_t count = 0;
  while (count < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[count])) ||
                                 text[count] == '-' || text[count] == '_')) {
    ++count;
  }
  return count;
}

// Where the first key begins; npos when there is none.
size_t FindKey(absl::string_view text) {
  for (size_t at = text.find(kPrefix); at != absl::string_view::npos;
       at = text.find(kPrefix, at + 1)) {
    if (RunOf(text.substr(at + kPrefix.size())) >= kLetters) return at;
  }
  return absl::string_view::npos;
}

}  // namespace

bool HoldsKey(absl::string_view text) { return FindKey(text) != absl::string_view::npos; }

std::string WithoutKeys(absl::string_view text) {
  std::string out;
  for (size_t at = FindKey(text); at != absl::string_view::npos; at = FindKey(text)) {
    const size_t shown = at + kPrefix.size();
    absl::StrAppend(&out, text.substr(0, shown + kLettersShown), "[...]");
    text.remove_prefix(shown + RunOf(text.substr(shown)));
  }
  absl::StrAppend(&out, text);
  return out;
}

}  // namespace weft
