// The Tokenizer of a model's own files: the Rust library of ffi/ behind the C++ interface. Made by
// Tokenizer::FromModel (tokenizer_load.cc), known by no other file; thread-safe.

#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "router/text/tokenizer.h"

struct WeftTokenizer;  // router/text/ffi/weft_text.h

namespace weft::router {

class FfiTokenizer : public Tokenizer {
 public:
  struct Deleter {
    void operator()(WeftTokenizer* tokenizer) const;
  };
  using Handle = std::unique_ptr<WeftTokenizer, Deleter>;

  explicit FfiTokenizer(Handle handle);

  // What add_special_tokens puts around a text, for GGUF files; a tokenizer.json does it by itself.
  void SetEnds(std::optional<TokenId> bos, std::optional<TokenId> eos) {
    bos_ = bos;
    eos_ = eos;
  }

  using Tokenizer::Encode;
  absl::StatusOr<Encoding> Encode(absl::string_view text,
                                  const EncodeOptions& options) const override;
  size_t EncodeBytesMax(absl::string_view text) const override;
  size_t EncodeBytesMax(size_t text_bytes) const override;
  absl::StatusOr<std::vector<uint32_t>> Breaks(absl::string_view text, bool ends) const override;
  absl::string_view FormEdges() const override;
  size_t TokensMin(absl::string_view text) const override;
  TokenId FindToken(absl::string_view token) const override;

 private:
  static Table TableOf(const WeftTokenizer* tokenizer);

  const Handle handle_;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
};

}  // namespace weft::router
