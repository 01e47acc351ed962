// Keeps what users write from becoming control tokens. A chat template puts users' strings and its
// own control tokens into one text, so before rendering every string of a user is broken wherever
// it could be taken for an added token of the tokenizer, by a mark: a character that no token has.
// The rendered text shows where the marks went; they are taken out again and become places that no
// added token may span (Tokenizer::EncodeOptions::breaks), so that the ids of users' text are those
// of plain text, and the template's own tokens stay tokens.
//
// Broken are whole written forms, and ends of a string that could begin, end or continue one
// together with what the template or another string puts beside it. Tokens of white space alone are
// left: they are part of ordinary text. What a template compares users' strings with ('</think>' in
// content) is broken alike, so that it still finds what it looks for. A user may write the mark's
// own character: it is escaped, and comes back as it was.
//
// Stateless, thread-safe. Costs one search through each string.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/text/tokenizer.h"

namespace weft::router {

struct RenderedChat {
  // To be encoded without special tokens (templates write their own).
  std::string text;
  // Byte offsets in `text` that no added token may span, ascending.
  std::vector<uint32_t> breaks;
};

// Appends a user's string with its marks.
absl::Status AppendMarked(const Tokenizer& tokenizer, absl::string_view text, std::string* out);

// The source of a template, with marks in what it compares strings with. INVALID_ARGUMENT when it
// holds the mark's character itself.
absl::StatusOr<std::string> MarkTemplate(const Tokenizer& tokenizer, absl::string_view source);

// Takes the marks out of a rendered text.
RenderedChat Unmark(absl::string_view rendered);

// Roles that templates know by name; they are no users' strings. A template may build a control
// token of them ('<|' + role + '|>').
bool IsKnownRole(absl::string_view role);

}  // namespace weft::router
