// A tokenizer of two pages: one id for each byte, in an order that has nothing to do with the
// bytes' values, so that a text on the shard wire would not look like ids by accident (invariant
// wire.ids); one end id; and some ids of several bytes, which only a model says. Immutable.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "router/text/tokenizer.h"

namespace weft::router::sim {

inline constexpr TokenId kEndId = 256;
inline constexpr uint32_t kVocabulary = 300;
// What the model says: ids of letters, of parts of characters and of short words.
inline constexpr TokenId kFirstSaid = 240;
inline constexpr uint32_t kSaid = 60;

// All texts of clients begin with it, as far as they go.
inline constexpr char kMark[] = "weft?";

// The id of a byte.
TokenId IdOfByte(uint8_t byte);
// The bytes of an id.
absl::string_view BytesOf(TokenId id);

std::unique_ptr<Tokenizer> MakeFakeTokenizer();

}  // namespace weft::router::sim
