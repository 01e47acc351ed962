#include "deploy/launcher/chat/markdown.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "deploy/launcher/chat/markdown_inline.h"

namespace weft::launcher {
namespace {

// A longer indentation is text, as is a longer line that begins like a fence or a rule.
constexpr size_t kIndentMax = 64;
constexpr size_t kMarkerLineMax = 240;
constexpr size_t kDigitsMax = 9;
constexpr size_t kHeadingsMax = 6;
constexpr size_t kHeadingSpacesMax = 8;
// Columns of a rule.
constexpr int kRuleColumns = 40;

bool IsSpace(char byte) { return byte == ' ' || byte == '\t'; }

size_t RunBytes(absl::string_view text, size_t at) {
  return std::min(text.find_first_not_of(text[at], at), text.size()) - at;
}

// Where a rule's line ends: three or more of one marker, and blanks.
enum class Rule { kYes, kNo, kUnknown };

Rule IsRule(absl::string_view text, size_t at, bool whole, size_t* end) {
  const char marker = text[at];
  size_t markers = 0;
  for (size_t i = at; i < text.size(); ++i) {
    if (text[i] == '\n') {
      *end = i;
      return markers >= 3 ? Rule::kYes : Rule::kNo;
    }
    if (i - at > kMarkerLineMax) return Rule::kNo;
    if (text[i] == marker) {
      ++markers;
    } else if (!IsSpace(text[i])) {
      return Rule::kNo;
    }
  }
  *end = text.size();
  if (!whole) return Rule::kUnknown;
  return markers >= 3 ? Rule::kYes : Rule::kNo;
}

void AppendRule(std::string* out) {
  for (int i = 0; i < kRuleColumns; ++i) absl::StrAppend(out, "─");
}

}  // namespace

std::string Markdown::Add(absl::string_view text) {
  absl::StrAppend(&pending_, text);
  return Take(/*whole=*/false);
}

std::string Markdown::Finish() {
  std::string out = Take(/*whole=*/true);
  styles_.EndAll(&out);
  return out;
}

std::string Markdown::Take(bool whole) {
  std::string out;
  absl::string_view rest = pending_;
  while (!rest.empty()) {
    const Place place = place_;
    const size_t taken = TakeSome(rest, whole, &out);
    // Without a byte it may at least have become clear what the line is.
    if (taken == 0 && place_ == place) break;
    rest.remove_prefix(taken);
  }
  pending_ = std::string(rest);
  return out;
}

size_t Markdown::TakeSome(absl::string_view text, bool whole, std::string* out) {
  switch (place_) {
    case Place::kLineStart:
      return TakeLineStart(text, whole, out);
    case Place::kCode:
      return TakeCodeStart(text, whole, out);
    case Place::kText:
      if (text[0] != '\n') return TakeInline(text, whole, &before_, &styles_, out);
      EndLine(out);
      return 1;
    case Place::kVerbatim:
    case Place::kCodeLine:
      return TakeRestOfLine(text, out);
  }
  return 0;
}

void Markdown::EndLine(std::string* out) {
  styles_.EndAll(out);
  out->push_back('\n');
  before_ = '\n';
  place_ = place_ == Place::kCodeLine ? Place::kCode : Place::kLineStart;
}

size_t Markdown::TakeRestOfLine(absl::string_view text, std::string* out) {
  if (text[0] == '\n') {
    EndLine(out);
    return 1;
  }
  const absl::string_view line = text.substr(0, text.find('\n'));
  absl::StrAppend(out, line);
  return line.size();
}

// The line is text from here on.
size_t Markdown::TakePlain(size_t indent, absl::string_view text, std::string* out) {
  place_ = Place::kText;
  before_ = '\n';
  absl::StrAppend(out, text.substr(0, indent));
  return indent;
}

size_t Markdown::TakeLineStart(absl::string_view text, bool whole, std::string* out) {
  const size_t indent = std::min(text.find_first_not_of(" \t"), text.size());
  if (indent == text.size() && !whole && indent <= kIndentMax) return 0;
  if (indent > kIndentMax || indent == text.size()) return TakePlain(indent, text, out);
  switch (text[indent]) {
    case '\n':
      absl::StrAppend(out, text.substr(0, indent));
      EndLine(out);
      return indent + 1;
    case '#':
      return TakeHeading(text, indent, whole, out);
    case '`':
    case '~':
      return TakeFence(text, indent, whole, out);
    case '-':
    case '*':
    case '+':
    case '_':
      return TakeBullet(text, indent, whole, out);
    case '>':
      return TakeQuote(text, indent, whole, out);
    case '|':
      // Columns of a table would not stand below each other any more.
      place_ = Place::kVerbatim;
      absl::StrAppend(out, text.substr(0, indent + 1));
      return indent + 1;
    default:
      if (absl::ascii_isdigit(static_cast<unsigned char>(text[indent]))) {
        return TakeNumber(text, indent, whole, out);
      }
      return TakePlain(indent, text, out);
  }
}

size_t Markdown::TakeHeading(absl::string_view text, size_t indent, bool whole, std::string* out) {
  const size_t level = RunBytes(text, indent);
  size_t next = indent + level;
  if (next == text.size() && !whole && level <= kHeadingsMax) return 0;
  if (level > kHeadingsMax || next == text.size() || !IsSpace(text[next])) {
    place_ = Place::kText;
    absl::StrAppend(out, text.substr(0, next));
    before_ = '#';
    return next;
  }
  const size_t most = next + kHeadingSpacesMax;
  while (next < text.size() && next < most && IsSpace(text[next])) ++next;
  if (next == text.size() && next < most && !whole) return 0;
  place_ = Place::kText;
  before_ = '\n';
  styles_.Begin(Style::kBold, out);
  if (level <= 2) styles_.Begin(Style::kUnderline, out);
  return next;
}

// Three or more backticks or tildes, and what language it is; shown as it is.
size_t Markdown::TakeFence(absl::string_view text, size_t indent, bool whole, std::string* out) {
  const char marker = text[indent];
  const size_t run = RunBytes(text, indent);
  if (indent + run == text.size() && !whole && run <= kMarkerLineMax) return 0;
  if (run < 3 || run > kMarkerLineMax) return TakePlain(indent, text, out);
  const size_t end = text.find('\n', indent);
  const absl::string_view line = text.substr(0, end);
  const absl::string_view language = line.substr(indent + run);
  // With backticks behind it, it is code inside of a line.
  if (language.size() > kMarkerLineMax ||
      (marker == '`' && language.find('`') != absl::string_view::npos)) {
    return TakePlain(indent, text, out);
  }
  if (end == absl::string_view::npos && !whole) return 0;
  styles_.Begin(Style::kDim, out);
  absl::StrAppend(out, line);
  styles_.End(Style::kDim, out);
  place_ = Place::kCodeLine;
  fence_ = marker;
  fence_bytes_ = run;
  return line.size();
}

size_t Markdown::TakeBullet(absl::string_view text, size_t indent, bool whole, std::string* out) {
  const char marker = text[indent];
  if (marker != '+') {
    size_t end = 0;
    const Rule rule = IsRule(text, indent, whole, &end);
    if (rule == Rule::kUnknown) return 0;
    if (rule == Rule::kYes) {
      styles_.Begin(Style::kDim, out);
      AppendRule(out);
      styles_.End(Style::kDim, out);
      place_ = Place::kText;
      return end;
    }
  }
  if (indent + 1 == text.size() && !whole) return 0;
  if (marker == '_' || indent + 1 == text.size() || !IsSpace(text[indent + 1])) {
    return TakePlain(indent, text, out);
  }
  absl::StrAppend(out, text.substr(0, indent), "• ");
  // The place stays the beginning of a line: an item may begin with code, a quote, another item.
  return indent + 2;
}

size_t Markdown::TakeNumber(absl::string_view text, size_t indent, bool whole, std::string* out) {
  size_t next = indent;
  while (next < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[next])) &&
         next - indent <= kDigitsMax) {
    ++next;
  }
  if (next - indent > kDigitsMax) return TakePlain(indent, text, out);
  if (next + 2 > text.size() && !whole) return 0;
  const bool is_item =
      next + 1 < text.size() && (text[next] == '.' || text[next] == ')') && IsSpace(text[next + 1]);
  if (!is_item) return TakePlain(indent, text, out);
  absl::StrAppend(out, text.substr(0, next + 2));
  return next + 2;
}

size_t Markdown::TakeQuote(absl::string_view text, size_t indent, bool whole, std::string* out) {
  size_t next = indent + 1;
  if (next == text.size() && !whole) return 0;
  if (next < text.size() && text[next] == ' ') ++next;
  absl::StrAppend(out, text.substr(0, indent));
  styles_.Begin(Style::kDim, out);
  absl::StrAppend(out, "│ ");
  styles_.End(Style::kDim, out);
  return next;
}

// The beginning of a line of code, which may be the fence that ends it.
size_t Markdown::TakeCodeStart(absl::string_view text, bool whole, std::string* out) {
  const size_t indent = std::min(text.find_first_not_of(" \t"), text.size());
  const size_t run = indent < text.size() && text[indent] == fence_ ? RunBytes(text, indent) : 0;
  const size_t blank = std::min(text.find_first_not_of(" \t", indent + run), text.size());
  if (blank == text.size() && !whole && blank <= kMarkerLineMax) return 0;
  const bool ends = run >= fence_bytes_ && blank <= kMarkerLineMax &&
                    (blank == text.size() || text[blank] == '\n');
  if (ends) {
    styles_.Begin(Style::kDim, out);
    absl::StrAppend(out, text.substr(0, blank));
    styles_.End(Style::kDim, out);
    place_ = Place::kVerbatim;
    return blank;
  }
  place_ = Place::kCodeLine;
  if (text[0] == '\n') return TakeRestOfLine(text, out);
  styles_.Begin(Style::kCode, out);
  const size_t taken = indent + run;
  if (taken == 0) return TakeRestOfLine(text, out);
  absl::StrAppend(out, text.substr(0, taken));
  return taken;
}

}  // namespace weft::launcher
