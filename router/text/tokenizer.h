// Text to token ids and the bytes behind each id, for a Hugging Face tokenizer.json or the
// tokenizer inside a GGUF file. Made once at start-up and shared by all text workers; every method
// is const and thread-safe. Never holds per-request state (that is Detokenizer) and never guesses:
// a pre-tokenizer or decoder it does not know is refused by name at load. The way from text to ids
// is an interface: FromModel gives the one of the model's files (tokenizer_ffi.h), a simulation
// brings a small one of its own; the way back is a table that all have.

#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace weft::router {

class Tokenizer {
 public:
  // What stands between the ids' bytes and text.
  enum class DecoderKind : uint8_t {
    // GPT-2's byte alphabet: text = the concatenated bytes of the tokens, each maximal invalid part
    // of UTF-8 replaced by one U+FFFD.
    kByteLevel,
    // SentencePiece models: U+2581 is a blank, <0xNN> a byte, and one leading blank of the whole
    // text is dropped when strip_leading_blank(). Each byte of an invalid part gives a U+FFFD of
    // its own, as byte fallback is defined.
    kSentencePiece,
  };

  struct Encoding {
    std::vector<TokenId> ids;
    // Byte range of each token in the text, as the model's own tokenizer reports it. A token that
    // holds a part of a character has the range of the whole character; a token that a
    // post-processor added (BOS) has (0, 0).
    std::vector<std::pair<uint32_t, uint32_t>> offsets;
  };

  // Time does not depend on it between 4 and 64 KB.
  static constexpr size_t kPieceBytes = 16u << 10;

  struct EncodeOptions {
    // Adds what the model's post-processor adds (BOS for some, nothing for others).
    bool add_special_tokens = false;
    // Added tokens written out in the text (<|im_start|>) become their ids. False: they stay text,
    // but for blank ones (white space alone), which are part of ordinary text.
    bool control_tokens = true;
    // Places that no added token may span: RenderedChat::breaks.
    absl::Span<const uint32_t> breaks;
    bool offsets = false;
    // Above so many ids the text is refused, as early as that is known (TooManyTokens).
    size_t tokens_max = std::numeric_limits<size_t>::max();
    // A longer text is encoded in pieces of about so many bytes, which changes no id: it is cut
    // only where the pre-tokenizer proves a boundary (ffi/src/cuts.rs), else it runs whole.
    size_t piece_bytes = kPieceBytes;
    // Encoding ends with CANCELLED within a piece after this becomes true. Null = never.
    const std::atomic<bool>* cancelled = nullptr;
  };

  // `path` is a directory with tokenizer.json or a .gguf file. Errors name the file, what was
  // found and what would work: NOT_FOUND, INVALID_ARGUMENT (broken or unknown contents).
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromModel(const std::string& path);
  virtual ~Tokenizer() = default;

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids of `text`, the same whether it was cut into pieces or not. INVALID_ARGUMENT with the field
  // "prompt" for invalid UTF-8, for more than kTemplateOutputBytesMax bytes and for more than
  // tokens_max ids; CANCELLED.
  virtual absl::StatusOr<Encoding> Encode(absl::string_view text,
                                          const EncodeOptions& options) const = 0;
  // With offsets, control tokens parsed, no limits.
  absl::StatusOr<Encoding> Encode(absl::string_view text, bool add_special_tokens) const;

  // Of an error for more than tokens_max ids: how many are known to be there, in a part of the text
  // or by TokensMin; nothing for other errors.
  static std::optional<size_t> TooManyTokens(const absl::Status& status);

  // Bytes of memory that Encode(text) needs at most, the result included. Reads the text once where
  // it has no place to be cut, else some thousands of bytes of it.
  virtual size_t EncodeBytesMax(absl::string_view text) const = 0;
  // The same for any text of so many bytes: what a text needs that cannot be cut.
  virtual size_t EncodeBytesMax(size_t text_bytes) const = 0;

  // Places at which `text` must be broken so that no added token is found in it, nor together with
  // text beside it when `ends` is set (chat_marks.h); blank tokens aside.
  virtual absl::StatusOr<std::vector<uint32_t>> Breaks(absl::string_view text, bool ends) const = 0;

  // The punctuation with which written forms of added tokens begin or end, each character once; no
  // quotes, no backslash, no '_' (chat_marks.h). Lives as long as the Tokenizer.
  virtual absl::string_view FormEdges() const = 0;

  // Encode(text) has at least so many ids. A sound bound from the bytes alone, milliseconds where
  // encoding megabytes takes seconds; 0 for tokenizers that might drop bytes (ffi/src/bound.rs).
  virtual size_t TokensMin(absl::string_view text) const = 0;

  // Text of `ids`, special tokens left out when `skip_special`: what a Detokenizer gives for the
  // same ids in one go. INVALID_ARGUMENT with the field "ids" for an id >= vocab_size() and as soon
  // as the text has more than `bytes_max` bytes.
  absl::StatusOr<std::string> Decode(absl::Span<const TokenId> ids, bool skip_special,
                                     size_t bytes_max = std::numeric_limits<size_t>::max()) const;
  // Bytes of all tokens of `ids`: about what their text has, known before it is made.
  size_t TokensBytes(absl::Span<const TokenId> ids) const;

  // Raw bytes of the token alone; may be a part of a character; a SentencePiece blank is ' '.
  // Empty for an id outside the vocabulary or in a gap of it. Lives as long as the Tokenizer.
  absl::string_view TokenBytes(TokenId id) const {
    if (id >= vocab_size()) return {};
    return absl::string_view(bytes_ + starts_[id], starts_[id + 1] - starts_[id]);
  }
  // A control token: skipped in answers, never part of a stop string.
  bool IsSpecial(TokenId id) const { return id < special_.size() && special_[id] != 0; }
  // The id of a token by its exact written form ("<|im_end|>"); kNoToken when there is none.
  virtual TokenId FindToken(absl::string_view token) const = 0;

  // Largest id + 1, added tokens included.
  uint32_t vocab_size() const { return static_cast<uint32_t>(special_.size()); }
  DecoderKind decoder_kind() const { return decoder_kind_; }
  bool strip_leading_blank() const { return strip_leading_blank_; }

 protected:
  // What each id stands for; lives as long as the Tokenizer.
  struct Table {
    // Of all tokens one after another; token i is [starts[i], starts[i + 1]).
    const char* bytes = nullptr;
    absl::Span<const uint32_t> starts;
    // 1 for a control token.
    absl::Span<const uint8_t> special;
    DecoderKind decoder_kind = DecoderKind::kByteLevel;
    bool strip_leading_blank = false;
  };
  explicit Tokenizer(const Table& table)
      : bytes_(table.bytes),
        starts_(table.starts),
        special_(table.special),
        decoder_kind_(table.decoder_kind),
        strip_leading_blank_(table.strip_leading_blank) {}

  // The error of a text with at least `tokens` ids, which are too many.
  static absl::Status TooMany(size_t tokens, size_t text_bytes, const EncodeOptions& options);

 private:
  const char* const bytes_;
  const absl::Span<const uint32_t> starts_;
  const absl::Span<const uint8_t> special_;
  const DecoderKind decoder_kind_;
  const bool strip_leading_blank_;
};

}  // namespace weft::router
