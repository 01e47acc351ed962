#include "router/text/chat_marks.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/status.h"

namespace weft::router {
namespace {

// Musical symbols: printed as they are by every function of the template engine, without case, no
// white space, never composed. ffi/src/marks.rs has them as well.
constexpr absl::string_view kMark = "\xF0\x9D\x86\xAE";    // U+1D1AE
constexpr absl::string_view kEscape = "\xF0\x9D\x86\xAF";  // U+1D1AF
// Behind the escape: which of the two characters above a user wrote.
constexpr absl::string_view kWasMark = "\xF0\x9D\x86\xB0";
constexpr absl::string_view kWasEscape = "\xF0\x9D\x86\xB1";
// What all four begin with.
constexpr absl::string_view kPrefix = "\xF0\x9D\x86";

void Append(absl::string_view text, std::string* out) { out->append(text.data(), text.size()); }

void AppendEscaped(absl::string_view text, std::string* out) {
  while (true) {
    const size_t at = text.find(kPrefix);
    if (at == absl::string_view::npos) break;
    Append(text.substr(0, at), out);
    text.remove_prefix(at);
    if (absl::ConsumePrefix(&text, kMark)) {
      Append(kEscape, out);
      Append(kWasMark, out);
    } else if (absl::ConsumePrefix(&text, kEscape)) {
      Append(kEscape, out);
      Append(kWasEscape, out);
    } else {
      Append(text.substr(0, kPrefix.size()), out);
      text.remove_prefix(kPrefix.size());
    }
  }
  Append(text, out);
}

absl::Status AppendBroken(const Tokenizer& tokenizer, absl::string_view text, bool ends,
                          std::string* out) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<uint32_t> breaks, tokenizer.Breaks(text, ends));
  size_t done = 0;
  for (const uint32_t place : breaks) {
    AppendEscaped(text.substr(done, place - done), out);
    Append(kMark, out);
    done = place;
  }
  AppendEscaped(text.substr(done), out);
  return absl::OkStatus();
}

// -- Templates -----------------------------------------------------------------------------------

// Methods and filters whose first argument is looked for in a string.
constexpr absl::string_view kSearches[] = {
    "split",     "rsplit",  "startswith", "endswith",   "find",         "rfind",       "index",
    "partition", "replace", "count",      "rpartition", "removeprefix", "removesuffix"};

bool EndsWithWord(absl::string_view text, absl::string_view word) {
  if (!absl::EndsWith(text, word)) return false;
  text.remove_suffix(word.size());
  return text.empty() || !(absl::ascii_isalnum(text.back()) || text.back() == '_');
}

bool StartsWithWord(absl::string_view text, absl::string_view word) {
  if (!absl::ConsumePrefix(&text, word)) return false;
  return text.empty() || !(absl::ascii_isalnum(text.front()) || text.front() == '_');
}

// True for a literal that stands between `before` and `behind`, parts of one expression, and is
// compared with a string or looked for in one.
bool IsCompared(absl::string_view before, absl::string_view behind) {
  before = absl::StripTrailingAsciiWhitespace(before);
  behind = absl::StripLeadingAsciiWhitespace(behind);
  if (absl::EndsWith(before, "==") || absl::EndsWith(before, "!=")) return true;
  if (absl::StartsWith(behind, "==") || absl::StartsWith(behind, "!=")) return true;
  if (EndsWithWord(before, "in") || StartsWithWord(behind, "in")) return true;
  if (absl::ConsumePrefix(&behind, "not") &&
      StartsWithWord(absl::StripLeadingAsciiWhitespace(behind), "in")) {
    return true;
  }
  if (!absl::ConsumeSuffix(&before, "(")) return false;
  return std::any_of(std::begin(kSearches), std::end(kSearches),
                     [before](absl::string_view name) { return EndsWithWord(before, name); });
}

// Writes a template's source anew, with marks in the literals that are compared.
class Marker {
 public:
  Marker(const Tokenizer& tokenizer, absl::string_view source)
      : tokenizer_(tokenizer), source_(source) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < source_.size()) {
      const size_t open = source_.find('{', at_);
      Copy(std::min(open, source_.size()));
      if (at_ == source_.size()) break;
      const absl::string_view rest = source_.substr(at_);
      if (absl::StartsWith(rest, "{#")) {
        Copy(End("#}", at_ + 2));
      } else if (absl::StartsWith(rest, "{{")) {
        WEFT_RETURN_IF_ERROR(Block("}}"));
      } else if (absl::StartsWith(rest, "{%")) {
        const size_t begin = at_ + 2;
        WEFT_RETURN_IF_ERROR(Block("%}"));
        if (IsRaw(source_.substr(begin, at_ - begin))) Copy(End("endraw", at_));
      } else {
        Copy(at_ + 1);
      }
    }
    return std::move(out_);
  }

 private:
  static bool IsRaw(absl::string_view tag) {
    tag = absl::StripLeadingAsciiWhitespace(tag);
    if (!absl::ConsumePrefix(&tag, "-")) absl::ConsumePrefix(&tag, "+");
    return StartsWithWord(absl::StripLeadingAsciiWhitespace(tag), "raw");
  }

  // The place behind the next `word`, or the end.
  size_t End(absl::string_view word, size_t from) const {
    const size_t found = source_.find(word, from);
    return found == absl::string_view::npos ? source_.size() : found + word.size();
  }

  void Copy(size_t end) {
    Append(source_.substr(at_, end - at_), &out_);
    at_ = end;
  }

  // An expression or a tag, up to `close` outside of its literals.
  absl::Status Block(absl::string_view close) {
    const size_t begin = at_;
    Copy(at_ + 2);
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (c == '\'' || c == '"') {
        WEFT_RETURN_IF_ERROR(Literal(begin, c));
      } else if (absl::StartsWith(source_.substr(at_), close)) {
        Copy(at_ + close.size());
        return absl::OkStatus();
      } else {
        Copy(at_ + 1);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Literal(size_t block, char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    end = std::min(end, source_.size());
    const absl::string_view text = source_.substr(at_ + 1, end - at_ - 1);
    const bool compared =
        !IsKnownRole(text) && IsCompared(source_.substr(block, at_ - block),
                                         source_.substr(std::min(end + 1, source_.size()), 64));
    Copy(at_ + 1);
    if (compared) {
      WEFT_RETURN_IF_ERROR(AppendBroken(tokenizer_, text, /*ends=*/false, &out_));
      at_ = end;
    }
    Copy(std::min(end + 1, source_.size()));
    return absl::OkStatus();
  }

  const Tokenizer& tokenizer_;
  const absl::string_view source_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

absl::Status AppendMarked(const Tokenizer& tokenizer, absl::string_view text, std::string* out) {
  return AppendBroken(tokenizer, text, /*ends=*/true, out);
}

absl::StatusOr<std::string> MarkTemplate(const Tokenizer& tokenizer, absl::string_view source) {
  for (const absl::string_view mark : {kMark, kEscape, kWasMark, kWasEscape}) {
    if (absl::StrContains(source, mark)) {
      return absl::InvalidArgumentError(
          "the model's chat template holds a musical symbol of U+1D1AE to U+1D1B1, which mark "
          "users' text here; take it out of the template");
    }
  }
  return Marker(tokenizer, source).Run();
}

RenderedChat Unmark(absl::string_view rendered) {
  RenderedChat chat;
  chat.text.reserve(rendered.size());
  while (true) {
    const size_t at = rendered.find(kPrefix);
    if (at == absl::string_view::npos) break;
    Append(rendered.substr(0, at), &chat.text);
    rendered.remove_prefix(at);
    if (absl::ConsumePrefix(&rendered, kMark)) {
      const auto place = static_cast<uint32_t>(chat.text.size());
      if (chat.breaks.empty() || chat.breaks.back() != place) chat.breaks.push_back(place);
    } else if (absl::ConsumePrefix(&rendered, kEscape)) {
      // Alone only where a template cut the text between the two.
      const bool was_mark = absl::ConsumePrefix(&rendered, kWasMark);
      if (!was_mark) absl::ConsumePrefix(&rendered, kWasEscape);
      Append(was_mark ? kMark : kEscape, &chat.text);
    } else {
      Append(rendered.substr(0, kPrefix.size()), &chat.text);
      rendered.remove_prefix(kPrefix.size());
    }
  }
  Append(rendered, &chat.text);
  return chat;
}

bool IsKnownRole(absl::string_view role) {
  constexpr absl::string_view kRoles[] = {"system", "user",     "assistant", "developer",  "tool",
                                          "model",  "function", "ipython",   "observation"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

}  // namespace weft::router
