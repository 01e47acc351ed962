// Markdown as a terminal shows it, while it arrives: headings, lists, quotes, rules and fenced code
// by line, and what is inside of lines (markdown_inline.h). Pure; used by the thread that prints an
// answer, one for each answer.
//
// Lines are never broken or joined: the terminal wraps them, also after its window has changed.
// Tables and links stay as they were written. What is printed depends on the whole text alone, not
// on the pieces that it came in.

#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "deploy/launcher/chat/style.h"

namespace weft::launcher {

class Markdown {
 public:
  // `text` is what TerminalText (terminal_text.h) let through. Returns what can be printed of it
  // now.
  std::string Add(absl::string_view text);
  // The rest. No style is on behind it.
  std::string Finish();

 private:
  enum class Place { kLineStart, kText, kVerbatim, kCode, kCodeLine };

  std::string Take(bool whole);
  // Each takes something of the beginning of `text`, appends it to *out and returns its bytes. 0 =
  // more has to come, unless place_ is another one now.
  size_t TakeSome(absl::string_view text, bool whole, std::string* out);
  size_t TakeLineStart(absl::string_view text, bool whole, std::string* out);
  size_t TakeHeading(absl::string_view text, size_t indent, bool whole, std::string* out);
  size_t TakeFence(absl::string_view text, size_t indent, bool whole, std::string* out);
  size_t TakeBullet(absl::string_view text, size_t indent, bool whole, std::string* out);
  size_t TakeNumber(absl::string_view text, size_t indent, bool whole, std::string* out);
  size_t TakeQuote(absl::string_view text, size_t indent, bool whole, std::string* out);
  size_t TakeCodeStart(absl::string_view text, bool whole, std::string* out);
  size_t TakeRestOfLine(absl::string_view text, std::string* out);
  size_t TakePlain(size_t indent, absl::string_view text, std::string* out);
  void EndLine(std::string* out);

  Place place_ = Place::kLineStart;
  std::string pending_;
  // The byte that was last taken inside of a line.
  char before_ = '\n';
  // Of the fence that is open.
  char fence_ = '`';
  size_t fence_bytes_ = 0;
  Styles styles_;
};

}  // namespace weft::launcher
