#include "router/text/chat_marks.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "common/log.h"
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
// Behind the escape: an open end. A user's escape is never followed by it.
constexpr absl::string_view kIsOpenEnd = "\xF0\x9D\x86\xB2";
constexpr absl::string_view kOpenEnd = "\xF0\x9D\x86\xAF\xF0\x9D\x86\xB2 ";

// Hexagrams of the Yijing, which the template engine treats alike: U+4DC0 to U+4DFF, all 64 with
// this beginning and one more byte. The first 32 are the stand-ins of kPunctuation, in its order
// (ffi/src/marks.rs has both); the others, behind the escape, say which of the first a user wrote.
constexpr absl::string_view kHexagram = "\xE4\xB7";
constexpr char kFirst = '\x80';
constexpr uint8_t kStandIns = 32;
constexpr absl::string_view kPunctuation = "!#$%&()*+,-./:;<=>?@[]^`{|}~";
static_assert(kPunctuation.size() <= kStandIns);

void Append(absl::string_view text, std::string* out) { out->append(text.data(), text.size()); }

void AppendHexagram(uint8_t index, std::string* out) {
  Append(kHexagram, out);
  out->push_back(static_cast<char>(static_cast<uint8_t>(kFirst) + index));
}

// Takes a hexagram from the front.
std::optional<uint8_t> ConsumeHexagram(absl::string_view* text) {
  if (text->size() <= kHexagram.size() || !absl::ConsumePrefix(text, kHexagram)) return {};
  const auto index = static_cast<uint8_t>(text->front() - kFirst);
  text->remove_prefix(1);
  return index;
}

// What is left as it is before the next character that may be written otherwise.
absl::string_view ConsumeOrdinary(absl::string_view* text) {
  const auto is_lead = [](char c) { return c == kHexagram.front() || c == kMark.front(); };
  const auto end = std::find_if(text->begin(), text->end(), is_lead);
  const auto size = static_cast<size_t>(end - text->begin());
  const absl::string_view ordinary = text->substr(0, size);
  text->remove_prefix(size);
  return ordinary;
}

// Escapes what marks are written with.
void AppendEscaped(absl::string_view text, std::string* out) {
  while (true) {
    Append(ConsumeOrdinary(&text), out);
    if (text.empty()) return;
    if (absl::ConsumePrefix(&text, kMark)) {
      Append(kEscape, out);
      Append(kWasMark, out);
    } else if (absl::ConsumePrefix(&text, kEscape)) {
      Append(kEscape, out);
      Append(kWasEscape, out);
    } else if (const auto index = ConsumeHexagram(&text)) {
      const bool is_stand_in = *index < kStandIns;
      if (is_stand_in) Append(kEscape, out);
      AppendHexagram(is_stand_in ? *index + kStandIns : *index, out);
    } else {
      out->push_back(text.front());
      text.remove_prefix(1);
    }
  }
}

// Writes strings with marks and stand-ins.
class Breaker {
 public:
  explicit Breaker(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    for (const char c : tokenizer.FormEdges()) has_stand_in_[static_cast<uint8_t>(c)] = true;
  }

  absl::Status Append(absl::string_view text, bool ends, std::string* out) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<uint32_t> breaks, tokenizer_.Breaks(text, ends));
    size_t done = 0;
    for (const uint32_t place : breaks) {
      // Beside a stand-in the text is broken without a mark.
      if (place > 0 && HasStandIn(text[place - 1])) continue;
      if (place < text.size() && HasStandIn(text[place])) continue;
      AppendPart(text.substr(done, place - done), out);
      out->append(kMark.data(), kMark.size());
      done = place;
    }
    AppendPart(text.substr(done), out);
    return absl::OkStatus();
  }

 private:
  bool HasStandIn(char c) const { return has_stand_in_[static_cast<uint8_t>(c)]; }

  void AppendPart(absl::string_view text, std::string* out) const {
    while (!text.empty()) {
      const auto end =
          std::find_if(text.begin(), text.end(), [this](char c) { return HasStandIn(c); });
      const auto size = static_cast<size_t>(end - text.begin());
      AppendEscaped(text.substr(0, size), out);
      if (size == text.size()) return;
      AppendHexagram(static_cast<uint8_t>(kPunctuation.find(text[size])), out);
      text.remove_prefix(size + 1);
    }
  }

  const Tokenizer& tokenizer_;
  std::array<bool, 256> has_stand_in_ = {};
};

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

// True for a literal behind `before` that is put in place of something in a string.
bool IsReplacement(absl::string_view before) {
  const size_t call = before.rfind("replace(");
  before = absl::StripTrailingAsciiWhitespace(before);
  return call != absl::string_view::npos && absl::EndsWith(before, ",") &&
         !absl::StrContains(before.substr(call), ")");
}

// Writes a template's source anew, with marks in the literals that are compared.
class Marker {
 public:
  Marker(const Tokenizer& tokenizer, absl::string_view source)
      : tokenizer_(tokenizer), breaker_(tokenizer), source_(source) {}

  absl::StatusOr<MarkedTemplate> Run() {
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
    return MarkedTemplate{std::move(out_), std::move(words_)};
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
    WEFT_RETURN_IF_ERROR(AddWord(text));
    if (IsReplacement(source_.substr(block, at_ - block))) {
      WEFT_RETURN_IF_ERROR(WarnOfParts(text));
    }
    const bool compared =
        !IsKnownRole(text) && IsCompared(source_.substr(block, at_ - block),
                                         source_.substr(std::min(end + 1, source_.size()), 64));
    Copy(at_ + 1);
    if (compared) {
      WEFT_RETURN_IF_ERROR(breaker_.Append(text, /*ends=*/false, &out_));
      at_ = end;
    }
    Copy(std::min(end + 1, source_.size()));
    return absl::OkStatus();
  }

  absl::Status AddWord(absl::string_view text) {
    const auto is_letter = [](char c) { return absl::ascii_isalnum(c) || c == '_'; };
    if (text.empty() || !std::all_of(text.begin(), text.end(), is_letter)) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const auto breaks, tokenizer_.Breaks(text, /*ends=*/false));
    if (breaks.empty()) words_.emplace(text);
    return absl::OkStatus();
  }

  // Whole forms that a template puts in are its own; parts of one complete what a user wrote.
  absl::Status WarnOfParts(absl::string_view text) const {
    const absl::string_view edges = tokenizer_.FormEdges();
    if (text.find_first_of(edges) == absl::string_view::npos) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const auto breaks, tokenizer_.Breaks(text, /*ends=*/false));
    if (!breaks.empty()) return absl::OkStatus();
    WEFT_LOG_WARN(
        "the chat template puts \"{}\" in place of what users write (replace): they can write the "
        "rest of a control token around it",
        std::string(text));
    return absl::OkStatus();
  }

  const Tokenizer& tokenizer_;
  const Breaker breaker_;
  const absl::string_view source_;
  size_t at_ = 0;
  std::string out_;
  absl::flat_hash_set<std::string> words_;
};

// What a user wrote that stands behind an escape, which has been taken. It stands alone only where
// a template cut the text between the two.
void AppendUnescaped(absl::string_view* text, std::string* out) {
  absl::string_view rest = *text;
  if (absl::ConsumePrefix(text, kWasMark)) return Append(kMark, out);
  if (absl::ConsumePrefix(text, kWasEscape)) return Append(kEscape, out);
  const auto index = ConsumeHexagram(&rest);
  if (!index.has_value() || *index < kStandIns) return Append(kEscape, out);
  AppendHexagram(*index - kStandIns, out);
  *text = rest;
}

}  // namespace

absl::Status AppendMarked(const Tokenizer& tokenizer, absl::string_view text, std::string* out) {
  return Breaker(tokenizer).Append(text, /*ends=*/true, out);
}

absl::StatusOr<MarkedTemplate> MarkTemplate(const Tokenizer& tokenizer, absl::string_view source) {
  const bool has_symbol = absl::StrContains(source, kMark) || absl::StrContains(source, kEscape) ||
                          absl::StrContains(source, kWasMark) ||
                          absl::StrContains(source, kWasEscape);
  if (has_symbol || absl::StrContains(source, kHexagram)) {
    return absl::InvalidArgumentError(
        "the model's chat template holds a musical symbol of U+1D1AE to U+1D1B1 or a hexagram of "
        "U+4DC0 to U+4DFF, which mark users' text here; take it out of the template");
  }
  return Marker(tokenizer, source).Run();
}

absl::string_view OpenEnd() { return kOpenEnd; }

RenderedChat Unmark(absl::string_view rendered, std::optional<size_t>* open_end) {
  RenderedChat chat;
  chat.text.reserve(rendered.size());
  const auto add_break = [&chat] {
    const auto place = static_cast<uint32_t>(chat.text.size());
    if (chat.breaks.empty() || chat.breaks.back() != place) chat.breaks.push_back(place);
  };
  while (true) {
    Append(ConsumeOrdinary(&rendered), &chat.text);
    if (rendered.empty()) return chat;
    if (absl::ConsumePrefix(&rendered, kMark)) {
      add_break();
    } else if (absl::ConsumePrefix(&rendered, kEscape)) {
      if (open_end != nullptr && absl::ConsumePrefix(&rendered, kIsOpenEnd)) {
        *open_end = chat.text.size();
      } else {
        AppendUnescaped(&rendered, &chat.text);
      }
    } else if (const auto index = ConsumeHexagram(&rendered)) {
      if (*index >= kPunctuation.size()) {
        AppendHexagram(*index, &chat.text);
        continue;
      }
      add_break();
      chat.text.push_back(kPunctuation[*index]);
      add_break();
    } else {
      chat.text.push_back(rendered.front());
      rendered.remove_prefix(1);
    }
  }
}

bool IsKnownRole(absl::string_view role) {
  constexpr absl::string_view kRoles[] = {"system", "user",     "assistant", "developer",  "tool",
                                          "model",  "function", "ipython",   "observation"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

}  // namespace weft::router
