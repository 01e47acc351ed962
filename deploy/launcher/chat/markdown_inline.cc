#include "deploy/launcher/chat/markdown_inline.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace weft::launcher {
namespace {

constexpr absl::string_view kSpecial = "\n*_`~\\";
constexpr int kNestedMax = 4;

bool IsWord(char byte) { return absl::ascii_isalnum(static_cast<unsigned char>(byte)); }
bool IsBlank(char byte) { return absl::ascii_isspace(static_cast<unsigned char>(byte)); }

size_t RunBytes(absl::string_view text, size_t at) {
  return std::min(text.find_first_not_of(text[at], at), text.size()) - at;
}

// Where a marker's end is.
struct Closing {
  enum class Kind { kFound, kNone, kUnknown } kind;
  // kFound: where the marker at the end begins.
  size_t at = 0;
};

constexpr Closing kNone = {Closing::Kind::kNone};
constexpr Closing kUnknown = {Closing::Kind::kUnknown};

// The run of exactly `length` backticks that ends what begins at `from`.
Closing FindCodeEnd(absl::string_view text, size_t from, size_t length, bool whole) {
  for (size_t i = from; i < text.size();) {
    if (text[i] == '\n' || i - from > kHeldBytesMax) return kNone;
    if (text[i] != '`') {
      ++i;
      continue;
    }
    const size_t run = RunBytes(text, i);
    if (i + run == text.size() && !whole) return kUnknown;
    if (run == length) return {Closing::Kind::kFound, i};
    i += run;
  }
  return whole || text.size() - from > kHeldBytesMax ? kNone : kUnknown;
}

// Whether the run of `run` markers at `i` ends an emphasis of `length`: it touches the text in
// front of it and no word behind it. "**a *b***" ends with three.
bool EndsEmphasis(absl::string_view text, size_t i, size_t run, size_t length) {
  if (IsBlank(text[i - 1])) return false;
  if (i + run < text.size() && IsWord(text[i + run])) return false;
  return run == length || (length == 2 && run == 3);
}

Closing FindEmphasisEnd(absl::string_view text, size_t from, char marker, size_t length,
                        bool whole) {
  bool code = false;
  for (size_t i = from; i < text.size();) {
    if (text[i] == '\n' || i - from > kHeldBytesMax) return kNone;
    if (text[i] == '`') code = !code;
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] != '\n') {
      i += 2;
      continue;
    }
    if (text[i] != marker || code) {
      ++i;
      continue;
    }
    const size_t run = RunBytes(text, i);
    if (i + run == text.size() && !whole) return kUnknown;
    if (i > from && EndsEmphasis(text, i, run, length)) {
      return {Closing::Kind::kFound, i + run - length};
    }
    i += run;
  }
  return whole || text.size() - from > kHeldBytesMax ? kNone : kUnknown;
}

class Inline {
 public:
  Inline(char* before, Styles* styles, std::string* out)
      : before_(before), styles_(styles), out_(out) {}

  size_t Take(absl::string_view text, bool whole, int nested) {
    switch (text[0]) {
      case '\n':
        return 0;
      case '\\':
        return TakeEscape(text, whole);
      case '`':
        return TakeCode(text, whole);
      case '*':
      case '_':
      case '~':
        return TakeEmphasis(text, whole, nested);
      default:
        return Emit(text.substr(0, text.find_first_of(kSpecial)));
    }
  }

 private:
  size_t Emit(absl::string_view text) {
    absl::StrAppend(out_, text);
    *before_ = text.back();
    return text.size();
  }

  // Only markers are escaped: formulas are full of other backslashes.
  size_t TakeEscape(absl::string_view text, bool whole) {
    if (text.size() == 1 && !whole) return 0;
    if (text.size() > 1 && absl::string_view("*_`~#").find(text[1]) != absl::string_view::npos) {
      return 1 + Emit(text.substr(1, 1));
    }
    return Emit(text.substr(0, 1));
  }

  size_t TakeCode(absl::string_view text, bool whole) {
    const size_t length = RunBytes(text, 0);
    if (length == text.size() && !whole) return 0;
    const Closing end = FindCodeEnd(text, length, length, whole);
    if (end.kind == Closing::Kind::kUnknown) return 0;
    if (end.kind == Closing::Kind::kNone) return Emit(text.substr(0, length));
    absl::string_view code = text.substr(length, end.at - length);
    if (code.size() > 2 && code.front() == ' ' && code.back() == ' ') {
      code = code.substr(1, code.size() - 2);
    }
    styles_->Begin(Style::kCode, out_);
    absl::StrAppend(out_, code);
    styles_->End(Style::kCode, out_);
    *before_ = '`';
    return end.at + length;
  }

  size_t TakeEmphasis(absl::string_view text, bool whole, int nested) {
    const char marker = text[0];
    const size_t length = RunBytes(text, 0);
    if (length == text.size() && !whole) return 0;
    const bool may_begin = length < text.size() && !IsBlank(text[length]) && !IsWord(*before_) &&
                           (marker == '~' ? length == 2 : length <= 3);
    if (!may_begin || nested >= kNestedMax) return Emit(text.substr(0, length));
    const Closing end = FindEmphasisEnd(text, length, marker, length, whole);
    if (end.kind == Closing::Kind::kUnknown) return 0;
    if (end.kind == Closing::Kind::kNone) return Emit(text.substr(0, length));
    Switch(marker, length, /*on=*/true);
    TakeAll(text.substr(length, end.at - length), marker, nested + 1);
    Switch(marker, length, /*on=*/false);
    *before_ = marker;
    return end.at + length;
  }

  void Switch(char marker, size_t length, bool on) {
    const auto one = [this, on](Style style) {
      on ? styles_->Begin(style, out_) : styles_->End(style, out_);
    };
    if (marker == '~') return one(Style::kStrike);
    if (length != 2) one(Style::kItalic);
    if (length >= 2) one(Style::kBold);
  }

  void TakeAll(absl::string_view text, char marker, int nested) {
    *before_ = marker;
    while (!text.empty()) text.remove_prefix(Take(text, /*whole=*/true, nested));
  }

  char* const before_;
  Styles* const styles_;
  std::string* const out_;
};

}  // namespace

size_t TakeInline(absl::string_view text, bool whole, char* before, Styles* styles,
                  std::string* out) {
  return Inline(before, styles, out).Take(text, whole, 0);
}

}  // namespace weft::launcher
