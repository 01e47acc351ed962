// Keeps what users write from becoming control tokens. A chat template puts users' strings and its
// own control tokens into one text, and may change the strings as it does: take parts out, join
// them, turn them round, change their case. Before rendering, therefore, punctuation with which the
// written form of an added token begins or ends ('<', '>', '[' ...) is replaced in every string of
// a user by a stand-in: a character that no token has. The rendered text shows where the stand-ins
// went. They become the real characters again, and the places before and behind each become ones
// that no added token may span (Tokenizer::EncodeOptions::breaks). So no form that begins or ends
// with such a character is put together from a user's, whatever a template does; the ids of users'
// text are those of plain text, and the template's own tokens stay tokens.
//
// Forms that begin and end otherwise (with letters, say) are broken by a mark, another such
// character, where they occur in a string, and where an end of a string could begin, end or
// continue any form together with what stands beside it. The same holds for the letters inside a
// form whose punctuation a template writes itself ('<|' + content + '|>'). These marks do not hold
// against a template that changes the string. Tokens of white space alone are left: they are part
// of ordinary text. What a template compares users' strings with ('</think>' in content) is written
// alike, so that it still finds what it looks for. A user may write the marks' own characters: they
// are escaped, and come back as they were.
//
// All strings of a conversation are users': contents, names, arguments and results of tools, their
// schemas, documents, further variables, and the keys of their maps (ffi/src/values.rs finds a key
// by what a user wrote). But for contents, a string that is a word which the template itself writes
// as a literal ('string' of a schema's type, 'low' of an effort) is left as it is, so that the
// template finds it also in a list.
//
// Stateless, thread-safe. Costs one search through each string.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
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

// Appends a user's string with its marks and stand-ins.
absl::Status AppendMarked(const Tokenizer& tokenizer, absl::string_view text, std::string* out);

struct MarkedTemplate {
  // With marks and stand-ins in what it compares strings with.
  std::string source;
  // Its literals that are words of ASCII letters, digits and '_', and no part of an added token's
  // form that is one without punctuation.
  absl::flat_hash_set<std::string> words;
};

// INVALID_ARGUMENT when the source holds a mark's or a stand-in's character itself.
absl::StatusOr<MarkedTemplate> MarkTemplate(const Tokenizer& tokenizer, absl::string_view source);

// Stands behind a content that is left open, and shows in the rendered text where that is: with a
// blank at its end, to be seen to go when a template strips the content. Nothing that a user writes
// becomes one.
absl::string_view OpenEnd();

// Takes marks and stand-ins out of a rendered text. `open_end`, where it is wanted: the place in
// the text that is left of the last OpenEnd(), of which its blank may stay.
RenderedChat Unmark(absl::string_view rendered, std::optional<size_t>* open_end = nullptr);

// Roles that templates know by name; they are no users' strings. A template may build a control
// token of them ('<|' + role + '|>').
bool IsKnownRole(absl::string_view role);

}  // namespace weft::router
