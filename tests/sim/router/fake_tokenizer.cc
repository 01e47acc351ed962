#include "tests/sim/router/fake_tokenizer.h"

#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace weft::router::sim {
namespace {

// Bytes by id. The first 256 are single bytes, rotated so that the ids from kFirstSaid on, which
// the model says, are letters and the parts of two-byte characters.
struct Words {
  std::string bytes;
  std::vector<uint32_t> starts = {0};
  std::vector<uint8_t> special;
  std::array<TokenId, 256> id_of_byte{};

  Words() {
    // What stands at kFirstSaid .. 255.
    const std::string said = "abcdefghijk \xC3\xA9\xBC\xC3";
    std::vector<bool> taken(256);
    for (size_t i = 0; i < said.size(); ++i) taken[static_cast<uint8_t>(said[i])] = true;
    std::vector<uint8_t> others;
    // 77 has no common factor with 256: each byte once.
    for (int i = 0; i < 256; ++i) {
      const auto byte = static_cast<uint8_t>(i * 77 + 13);
      if (!taken[byte]) others.push_back(byte);
    }
    size_t next_said = 0;
    std::vector<bool> placed(256);
    for (TokenId id = 0; id < 256; ++id) {
      uint8_t byte = 0;
      bool from_said = false;
      while (id >= kFirstSaid && next_said < said.size() && !from_said) {
        byte = static_cast<uint8_t>(said[next_said++]);
        from_said = !placed[byte];
      }
      if (!from_said) {
        byte = others.back();
        others.pop_back();
      }
      placed[byte] = true;
      id_of_byte[byte] = id;
      Add(std::string(1, static_cast<char>(byte)), 0);
    }
    Add("<end>", 1);
    for (TokenId id = kEndId + 1; id < kVocabulary; ++id) {
      Add(absl::StrCat(id % 3 == 0 ? "\xC3\xA9" : "", std::string(1, 'a' + id % 7),
                       std::string(1, 'a' + id % 5)),
          0);
    }
  }
  void Add(const std::string& word, uint8_t is_special) {
    bytes += word;
    starts.push_back(static_cast<uint32_t>(bytes.size()));
    special.push_back(is_special);
  }
};

const Words& TheWords() {
  static const Words* const words = new Words;
  return *words;
}

class FakeTokenizer : public Tokenizer {
 public:
  FakeTokenizer() : Tokenizer(TableOfWords()) {}

  using Tokenizer::Encode;
  absl::StatusOr<Encoding> Encode(absl::string_view text,
                                  const EncodeOptions& options) const override {
    if (options.cancelled != nullptr && options.cancelled->load()) {
      return absl::CancelledError("nobody waits for the prompt");
    }
    if (text.size() > options.tokens_max) return TooMany(text.size(), text.size(), options);
    Encoding encoding;
    encoding.ids.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
      encoding.ids.push_back(IdOfByte(static_cast<uint8_t>(text[i])));
      if (options.offsets) encoding.offsets.emplace_back(i, i + 1);
    }
    return encoding;
  }
  size_t EncodeBytesMax(absl::string_view text) const override { return 4 * text.size(); }
  size_t EncodeBytesMax(size_t text_bytes) const override { return 4 * text_bytes; }
  absl::StatusOr<std::vector<uint32_t>> Breaks(absl::string_view, bool) const override {
    return std::vector<uint32_t>();
  }
  absl::string_view FormEdges() const override { return "<>"; }
  size_t TokensMin(absl::string_view text) const override { return text.size(); }
  TokenId FindToken(absl::string_view token) const override {
    return token == "<end>" ? kEndId : kNoToken;
  }

 private:
  static Table TableOfWords() {
    const Words& words = TheWords();
    Table table;
    table.bytes = words.bytes.data();
    table.starts = words.starts;
    table.special = words.special;
    return table;
  }
};

}  // namespace

TokenId IdOfByte(uint8_t byte) { return TheWords().id_of_byte[byte]; }

absl::string_view BytesOf(TokenId id) {
  const Words& words = TheWords();
  return absl::string_view(words.bytes)
      .substr(words.starts[id], words.starts[id + 1] - words.starts[id]);
}

std::unique_ptr<Tokenizer> MakeFakeTokenizer() { return std::make_unique<FakeTokenizer>(); }

}  // namespace weft::router::sim
