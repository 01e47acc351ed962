// Fuzz target: a grammar of any kind, in the first byte, from any text. It is refused with its
// field, or its masks and tokens agree, within times that only a grammar that is too complex comes
// near.

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/limits.h"
#include "router/errors.h"
#include "router/text/grammar/engine.h"

namespace weft::router {
namespace {

// Sanitizers and coverage cost up to so many times.
constexpr double kSlower = 10;

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

// All bytes, some texts of several, two special tokens.
class Bytes : public Tokenizer {
 public:
  static std::unique_ptr<Bytes> Make() {
    auto data = std::make_unique<Data>();
    const auto add = [&data](absl::string_view token, uint8_t special) {
      data->bytes.append(token.data(), token.size());
      data->starts.push_back(static_cast<uint32_t>(data->bytes.size()));
      data->special.push_back(special);
    };
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)), 0);
    for (const absl::string_view text :
         {"\": \"", "{\"", "\"}", "null", "true", "the", " the", "ing", "\",", "},", "12", "aaaa",
          "    ", "\n\n", "[[", "]]", "\\u", "ab", "</think>"}) {
      add(text, 0);
    }
    add("<|tool|>", 1);
    add("<|end|>", 1);
    return std::unique_ptr<Bytes>(new Bytes(std::move(data)));
  }

  using Tokenizer::Encode;
  absl::StatusOr<Encoding> Encode(absl::string_view, const EncodeOptions&) const override {
    return absl::UnimplementedError("not needed here");
  }
  size_t EncodeBytesMax(absl::string_view) const override { return 0; }
  size_t EncodeBytesMax(size_t) const override { return 0; }
  absl::StatusOr<std::vector<uint32_t>> Breaks(absl::string_view, bool) const override {
    return std::vector<uint32_t>();
  }
  absl::string_view FormEdges() const override { return {}; }
  size_t TokensMin(absl::string_view) const override { return 0; }
  TokenId FindToken(absl::string_view) const override { return kNoToken; }

 private:
  struct Data {
    std::string bytes;
    std::vector<uint32_t> starts = {0};
    std::vector<uint8_t> special;
  };
  explicit Bytes(std::unique_ptr<Data> data) : Tokenizer(TableOf(*data)), data_(std::move(data)) {}
  static Table TableOf(const Data& data) {
    Table table;
    table.bytes = data.bytes.data();
    table.starts = data.starts;
    table.special = data.special;
    return table;
  }

  const std::unique_ptr<Data> data_;
};

struct World {
  std::unique_ptr<Bytes> tokenizer = Bytes::Make();
  TokenId eos = tokenizer->vocab_size() - 1;
  std::unique_ptr<GrammarEngine> engine = [this] {
    GrammarOptions options;
    options.cache_bytes = 0;
    return *GrammarEngine::Create(*tokenizer, {eos}, options);
  }();
};

World& TheWorld() {
  static World& world = *new World();
  return world;
}

GrammarSpec SpecOf(absl::string_view input) {
  GrammarSpec spec;
  spec.kind = static_cast<GrammarSpec::Kind>(static_cast<uint8_t>(input.front()) % 6);
  spec.closed_objects = (static_cast<uint8_t>(input.front()) & 0x40) != 0;
  input.remove_prefix(1);
  if (spec.kind == GrammarSpec::Kind::kChoice) {
    while (!input.empty()) {
      const size_t end = std::min(input.find('\n'), input.size());
      spec.texts.emplace_back(input.substr(0, end));
      input.remove_prefix(std::min(end + 1, input.size()));
    }
  } else if (spec.kind != GrammarSpec::Kind::kJsonObject) {
    spec.texts.emplace_back(input);
  }
  return spec;
}

// True while it goes on: a token is chosen by `draw` of those that the mask allows.
bool Step(GrammarMatcher& matcher, uint64_t draw) {
  World& world = TheWorld();
  std::vector<uint32_t> mask((world.tokenizer->vocab_size() + 31) / 32);
  const double start = CpuSeconds();
  const absl::Status status = matcher.ComputeMask(absl::MakeSpan(mask));
  WEFT_CHECK_LT(CpuSeconds() - start, kSlower * kGrammarMaskUsMax / 1e6);
  if (!status.ok()) {
    WEFT_CHECK_MSG(absl::IsResourceExhausted(status), status.ToString());
    return false;
  }
  std::vector<TokenId> allowed;
  for (TokenId id = 0; id < world.tokenizer->vocab_size(); ++id) {
    if ((mask[id / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
  }
  const auto may_stop = matcher.MayStop();
  WEFT_CHECK_MSG(may_stop.ok(), may_stop.status().ToString());
  WEFT_CHECK_EQ(*may_stop, (mask[world.eos / 32] >> (world.eos % 32) & 1) != 0);
  WEFT_CHECK(!allowed.empty());
  const TokenId id = allowed[draw % allowed.size()];
  const auto fits = matcher.Consume(id);
  if (!fits.ok()) {
    WEFT_CHECK_MSG(absl::IsResourceExhausted(fits.status()), fits.status().ToString());
    return false;
  }
  WEFT_CHECK(*fits);
  return id != world.eos;
}

void Walk(GrammarMatcher& matcher, uint64_t draw) {
  int taken = 0;
  for (; taken < 24; ++taken) {
    draw = draw * 6364136223846793005u + 1442695040888963407u;
    if (!Step(matcher, draw >> 33)) break;
    if (taken % 8 == 7) WEFT_CHECK(matcher.Rollback(3).ok());
  }
}

void One(absl::string_view input) {
  const GrammarSpec spec = SpecOf(input);
  const double start = CpuSeconds();
  auto grammar = TheWorld().engine->Compile(spec, "grammar");
  WEFT_CHECK_LT(CpuSeconds() - start, kSlower * kGrammarCompileUsMax / 1e6);
  if (!grammar.ok()) {
    WEFT_CHECK_EQ(ErrorField(grammar.status()).value_or(""), "grammar");
    // A bug in the library below, whatever the grammar says.
    const absl::string_view words = grammar.status().message();
    WEFT_CHECK_MSG(words.find("cannot be compiled") == absl::string_view::npos, std::string(words));
    return;
  }
  uint64_t draw = input.size();
  for (const char c : input) draw = draw * 31 + static_cast<uint8_t>(c);
  for (int walk = 0; walk < 2; ++walk) {
    auto matcher = TheWorld().engine->NewMatcher(*grammar);
    WEFT_CHECK(matcher.ok());
    Walk(**matcher, draw + walk);
  }
}

}  // namespace
}  // namespace weft::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) weft::router::One({reinterpret_cast<const char*>(data), size});
  return 0;
}
