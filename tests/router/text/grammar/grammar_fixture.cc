#include "grammar_fixture.h"

#include <bit>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "common/check.h"
#include "tests/support/demo_model.h"

namespace weft::router {
namespace {

// Tokens given one by one; it reads no text.
class PlainTokenizer : public Tokenizer {
 public:
  struct Data {
    std::string bytes;
    std::vector<uint32_t> starts = {0};
    std::vector<uint8_t> special;

    void Add(absl::string_view token, bool is_special) {
      bytes.append(token.data(), token.size());
      starts.push_back(static_cast<uint32_t>(bytes.size()));
      special.push_back(is_special ? 1 : 0);
    }
  };

  explicit PlainTokenizer(std::unique_ptr<Data> data)
      : Tokenizer(TableOf(*data)), data_(std::move(data)) {}

  using Tokenizer::Encode;
  absl::StatusOr<Encoding> Encode(absl::string_view text, const EncodeOptions&) const override {
    Encoding encoding;
    for (const char c : text) encoding.ids.push_back(static_cast<uint8_t>(c));
    return encoding;
  }
  size_t EncodeBytesMax(absl::string_view text) const override { return text.size(); }
  size_t EncodeBytesMax(size_t text_bytes) const override { return text_bytes; }
  absl::StatusOr<std::vector<uint32_t>> Breaks(absl::string_view, bool) const override {
    return std::vector<uint32_t>();
  }
  absl::string_view FormEdges() const override { return {}; }
  size_t TokensMin(absl::string_view) const override { return 0; }
  TokenId FindToken(absl::string_view) const override { return kNoToken; }

 private:
  static Table TableOf(const Data& data) {
    Table table;
    table.bytes = data.bytes.data();
    table.starts = data.starts;
    table.special = data.special;
    return table;
  }

  const std::unique_ptr<Data> data_;
};

// By first bytes: tokens of a text's next bytes, longest first.
const std::map<std::string, TokenId, std::less<>>& ByBytes(const Tokenizer& tokenizer) {
  static auto& all = *new std::map<const Tokenizer*, std::map<std::string, TokenId, std::less<>>>();
  auto& map = all[&tokenizer];
  if (map.empty()) {
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
      const absl::string_view bytes = tokenizer.TokenBytes(id);
      if (!bytes.empty() && !tokenizer.IsSpecial(id)) map.emplace(std::string(bytes), id);
    }
  }
  return map;
}

}  // namespace

const Tokenizer& DemoTokens() {
  static const std::string path = test::DemoModelOrSkip();
  static const auto& tokenizer = *new std::unique_ptr<Tokenizer>(*Tokenizer::FromModel(path));
  return *tokenizer;
}

TokenId DemoEos() { return DemoTokens().FindToken("<|im_end|>"); }

GrammarEngine& DemoGrammars() {
  static auto& engine =
      *new std::unique_ptr<GrammarEngine>(*GrammarEngine::Create(DemoTokens(), {DemoEos()}));
  return *engine;
}

std::unique_ptr<Tokenizer> PlainTokens(const std::vector<std::string>& more) {
  auto data = std::make_unique<PlainTokenizer::Data>();
  for (int byte = 0; byte < 256; ++byte) data->Add(std::string(1, static_cast<char>(byte)), false);
  for (const std::string& token : more) data->Add(token, false);
  data->Add("<|tool|>", true);
  data->Add("<|end|>", true);
  return std::make_unique<PlainTokenizer>(std::move(data));
}

const std::vector<SchemaCase>& Schemas() {
  static const auto& schemas = *[] {
    auto* const out = new std::vector<SchemaCase>();
    std::ifstream file(WEFT_GRAMMAR_TEST_DIR "/schemas.json");
    std::stringstream text;
    text << file.rdbuf();
    const boost::json::value entries = boost::json::parse(text.str());
    for (const boost::json::value& entry : entries.as_array()) {
      SchemaCase schema;
      schema.name = std::string(entry.at("name").as_string());
      schema.schema = boost::json::serialize(entry.at("schema"));
      for (const boost::json::value& instance : entry.at("instances").as_array()) {
        schema.instances.emplace_back(instance.as_string());
      }
      out->push_back(std::move(schema));
    }
    return out;
  }();
  return schemas;
}

GrammarSpec SchemaSpec(std::string schema) {
  return TextSpec(GrammarSpec::Kind::kJsonSchema, std::move(schema));
}

GrammarSpec TextSpec(GrammarSpec::Kind kind, std::string text) {
  return {kind, {std::move(text)}, false};
}

std::vector<uint32_t> MaskOf(GrammarMatcher& matcher, const Tokenizer& tokenizer) {
  std::vector<uint32_t> mask((tokenizer.vocab_size() + 31) / 32 + 2, ~uint32_t{0});
  const absl::Status status = matcher.ComputeMask(absl::MakeSpan(mask));
  WEFT_CHECK_MSG(status.ok(), status.ToString());
  WEFT_CHECK_EQ(mask[mask.size() - 1], 0u);
  WEFT_CHECK_EQ(mask[mask.size() - 2], 0u);
  return mask;
}

bool Allows(const std::vector<uint32_t>& mask, TokenId id) {
  return (mask[id / 32] >> (id % 32) & 1) != 0;
}

bool Accepts(GrammarMatcher& matcher, const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
             bool with_masks) {
  for (const TokenId id : ids) {
    const bool allowed = !with_masks || Allows(MaskOf(matcher, tokenizer), id);
    const auto fits = matcher.Consume(id);
    WEFT_CHECK_MSG(fits.ok(), fits.status().ToString());
    if (with_masks) WEFT_CHECK_EQ(*fits, allowed);
    if (!*fits) return false;
  }
  return *matcher.MayStop();
}

std::vector<TokenId> Canonical(const Tokenizer& tokenizer, absl::string_view text) {
  return tokenizer.Encode(text, false)->ids;
}

std::vector<TokenId> RandomCut(const Tokenizer& tokenizer, absl::string_view text,
                               std::mt19937_64& random) {
  const auto& map = ByBytes(tokenizer);
  std::vector<TokenId> ids;
  while (!text.empty()) {
    std::vector<TokenId> fits;
    for (size_t length = 1; length <= std::min<size_t>(text.size(), 12); ++length) {
      const auto found = map.find(std::string(text.substr(0, length)));
      if (found != map.end()) fits.push_back(found->second);
    }
    WEFT_CHECK(!fits.empty());
    const TokenId id = fits[random() % fits.size()];
    ids.push_back(id);
    text.remove_prefix(tokenizer.TokenBytes(id).size());
  }
  return ids;
}

Walk RandomWalk(GrammarMatcher& matcher, const Tokenizer& tokenizer, std::mt19937_64& random,
                int tokens_max) {
  // What brings texts to their ends, one of which is taken where it may come.
  constexpr absl::string_view kEnds[] = {"\"", "}", "]", "\"}", "}]"};
  Walk walk;
  for (int i = 0; i < tokens_max; ++i) {
    std::vector<uint32_t> mask((tokenizer.vocab_size() + 31) / 32);
    const absl::Status status = matcher.ComputeMask(absl::MakeSpan(mask));
    if (!status.ok()) {
      walk.error = status.ToString();
      return walk;
    }
    if (*matcher.MayStop() && (*matcher.MustStop() || random() % 3 == 0)) {
      walk.ended = true;
      return walk;
    }
    std::vector<TokenId> allowed;
    std::vector<TokenId> ends;
    for (size_t word = 0; word < mask.size(); ++word) {
      for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
        const TokenId id = static_cast<TokenId>(word * 32 + std::countr_zero(bits));
        if (tokenizer.IsSpecial(id)) continue;
        allowed.push_back(id);
        for (const absl::string_view end : kEnds) {
          if (tokenizer.TokenBytes(id) == end) ends.push_back(id);
        }
      }
    }
    if (allowed.empty()) {
      walk.error = "no token is allowed";
      return walk;
    }
    const bool to_end = !ends.empty() && random() % 100 < (i < 60 ? 40u : 90u);
    const std::vector<TokenId>& from = to_end ? ends : allowed;
    const TokenId id = from[random() % from.size()];
    const auto fits = matcher.Consume(id);
    if (!fits.ok() || !*fits) {
      walk.error = fits.ok() ? "an allowed token does not fit" : fits.status().ToString();
      return walk;
    }
    walk.text += std::string(tokenizer.TokenBytes(id));
  }
  return walk;
}

}  // namespace weft::router
