#include "router/text/tokenizer.h"

#include <catch2/catch.hpp>
#include <thread>

#include "absl/strings/match.h"
#include "common/gguf.h"
#include "common/limits.h"
#include "router/errors.h"
#include "router/text/ffi/weft_text.h"
#include "tests/support/demo_model.h"
#include "text_fixture.h"

namespace weft::router {
namespace {

// Encodes and decodes every case of a golden list.
void CheckCases(const Tokenizer& tokenizer, const char* golden) {
  const boost::json::array& cases = Golden(golden).as_array();
  REQUIRE(cases.size() > 100);
  for (const boost::json::value& c : cases) {
    const std::string text = Text(c.at("text"));
    const boost::json::value* special = c.as_object().if_contains("add_special_tokens");
    INFO("text: " << c.at("text"));
    const auto encoding = tokenizer.Encode(text, special != nullptr && special->as_bool());
    REQUIRE(encoding.ok());
    CHECK(encoding->ids == Ids(c.at("ids")));
    CHECK(encoding->offsets == Offsets(c.at("offsets")));
    CHECK(tokenizer.Decode(encoding->ids, false).value() == Text(c.at("decoded")));
    CHECK(tokenizer.Decode(encoding->ids, true).value() == Text(c.at("answer")));
  }
}

void CheckRefused(const absl::StatusOr<std::unique_ptr<Tokenizer>>& result,
                  const std::vector<std::string>& parts) {
  REQUIRE_FALSE(result.ok());
  INFO(result.status().ToString());
  for (const std::string& part : parts) {
    INFO("expected: " << part);
    CHECK(absl::StrContains(result.status().message(), part));
  }
}

TEST_CASE("The demo file's tokenizer gives the ids of the same pipeline in Hugging Face tokenizers",
          "[router][text]") {
  CheckCases(DemoTokenizer(), "demo");
}

TEST_CASE("A byte-level tokenizer.json encodes and decodes as its own library does",
          "[router][text]") {
  CheckCases(*LoadSmall("byte_level"), "byte_level");
}

TEST_CASE("A SentencePiece-like tokenizer.json encodes and decodes as its own library does",
          "[router][text]") {
  const auto tokenizer = LoadSmall("sentence_piece");
  CHECK(tokenizer->decoder_kind() == Tokenizer::DecoderKind::kSentencePiece);
  CHECK(tokenizer->strip_leading_blank());
  CheckCases(*tokenizer, "sentence_piece");
}

TEST_CASE("A blank before digits is a token of its own in the demo model", "[router][text]") {
  CHECK(DemoTokenizer().Encode(" 12", true)->ids == std::vector<TokenId>{216, 33, 34});
}

TEST_CASE("The demo model knows its control tokens by name and by id", "[router][text]") {
  const Tokenizer& tokenizer = DemoTokenizer();
  CHECK(tokenizer.vocab_size() == 49152);
  CHECK(tokenizer.FindToken("<|endoftext|>") == 0);
  CHECK(tokenizer.FindToken("<|im_end|>") == 2);
  CHECK(tokenizer.FindToken("<|no such token|>") == kNoToken);
  uint32_t specials = 0;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) specials += tokenizer.IsSpecial(id);
  CHECK(specials == 17);
  CHECK(tokenizer.TokenBytes(1) == "<|im_start|>");
  CHECK(tokenizer.TokenBytes(216) == " ");
  CHECK(tokenizer.TokenBytes(49152).empty());
  CHECK_FALSE(tokenizer.IsSpecial(49152));
}

TEST_CASE("Bytes that have no token in the demo model vanish from a prompt", "[router][text]") {
  const Tokenizer& tokenizer = DemoTokenizer();
  bool seen[256] = {};
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const absl::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes.size() == 1) seen[static_cast<uint8_t>(bytes[0])] = true;
  }
  CHECK(std::count(std::begin(seen), std::end(seen), false) == 21);
  const auto ids = tokenizer
                       .Encode(
                           "a\x04"
                           "b",
                           false)
                       ->ids;
  CHECK(tokenizer.Decode(ids, true).value() == "ab");
}

TEST_CASE("Every pre-tokenizer that GGUF files name cuts text as its published form does",
          "[router][text]") {
  const auto file = GgufFile::Open(test::DemoModelOrSkip());
  REQUIRE(file.ok());
  const auto tokens = (*file)->GetStrings("tokenizer.ggml.tokens").value();
  const auto merges = (*file)->GetStrings("tokenizer.ggml.merges").value();
  const auto types = (*file)->GetInts("tokenizer.ggml.token_type").value();
  std::vector<WeftSlice> token_slices, merge_slices;
  for (const auto token : tokens) token_slices.push_back({token.data(), token.size()});
  for (const auto merge : merges) merge_slices.push_back({merge.data(), merge.size()});
  std::vector<uint8_t> kinds;
  for (const int64_t type : types) kinds.push_back(type == 3 ? WEFT_TOKEN_CONTROL : 0);

  boost::json::object published = Golden("pre").as_object();
  // StableLM 2's Arcade100k has the pattern and the composition of Qwen 2.
  published["stablelm2"] = published.at("qwen2");
  for (const auto& [pre, cases] : published) {
    const WeftBpe bpe = {token_slices.data(), kinds.data(),        token_slices.size(),
                         merge_slices.data(), merge_slices.size(), {pre.data(), pre.size()}};
    WeftTokenizer* tokenizer = nullptr;
    WeftText error = {};
    REQUIRE(weft_tokenizer_from_bpe(&bpe, &tokenizer, &error) == WEFT_TEXT_OK);
    for (const boost::json::value& c : cases.as_array()) {
      const std::string text = Text(c.at("text"));
      INFO(pre << " on " << c.at("text"));
      WeftEncodeOptions options = {};
      options.tokens_max = SIZE_MAX;
      options.piece_bytes = SIZE_MAX;
      options.control_tokens = true;
      WeftEncoding encoding = {};
      REQUIRE(weft_tokenizer_encode(tokenizer, {text.data(), text.size()}, &options, &encoding,
                                    &error) == WEFT_TEXT_OK);
      CHECK(std::vector<TokenId>(encoding.ids, encoding.ids + encoding.count) == Ids(c.at("ids")));
      weft_encoding_free(encoding);
    }
    weft_tokenizer_free(tokenizer);
  }
}

TEST_CASE("An unknown pre-tokenizer is refused by name with the known ones", "[router][text]") {
  const PatchDir dir;
  // A string in GGUF is its length in 8 bytes and its text.
  const auto named = [](absl::string_view text) {
    return std::string(1, static_cast<char>(text.size())) + std::string(7, '\0') +
           std::string(text);
  };
  const std::string path = dir.PatchDemo("pre.gguf", named("smollm"), named("smolxx"));
  CheckRefused(Tokenizer::FromModel(path),
               {path, "tokenizer.ggml.pre", "smolxx", "smollm", "llama-bpe", "qwen2"});
}

TEST_CASE("A GGUF vocabulary that is not byte-level BPE is refused with a way out",
          "[router][text]") {
  const PatchDir dir;
  const std::string path = dir.PatchDemo("model.gguf", "gpt2", "bert");
  CheckRefused(Tokenizer::FromModel(path),
               {path, "tokenizer.ggml.model", "bert", "gpt2", "tokenizer.json"});
}

TEST_CASE("A merge of tokens that do not exist is refused", "[router][text]") {
  const PatchDir dir;
  const std::string path = dir.PatchDemo("merge.gguf", "\xC4\xA0 t\x04", "\xC4\xA0 \x01\x04");
  CheckRefused(Tokenizer::FromModel(path), {path, "tokenizer.ggml.merges", "out of vocabulary"});
}

TEST_CASE("add_bos_token and add_eos_token of a GGUF file are honoured", "[router][text]") {
  const PatchDir dir;
  const std::string key = "tokenizer.ggml.add_bos_token";
  // The key, the type of a bool (7) in 4 bytes, the value.
  const std::string off = key + std::string("\x07\0\0\0\0", 5);
  const std::string on = key + std::string("\x07\0\0\0\1", 5);
  const auto tokenizer = Tokenizer::FromModel(dir.PatchDemo("bos.gguf", off, on));
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->Encode(" 12", true)->ids == std::vector<TokenId>{1, 216, 33, 34});
  CHECK((*tokenizer)->Encode(" 12", true)->offsets[0] == std::pair<uint32_t, uint32_t>(0, 0));
  CHECK((*tokenizer)->Encode(" 12", false)->ids == std::vector<TokenId>{216, 33, 34});
}

TEST_CASE("A missing or broken tokenizer is refused with file and reason", "[router][text]") {
  const PatchDir dir;
  CheckRefused(Tokenizer::FromModel(dir.path()), {dir.path(), "tokenizer.json"});
  CheckRefused(Tokenizer::FromModel(dir.path() + "/none.gguf"), {"none.gguf"});
  CheckRefused(Tokenizer::FromModel(dir.path() + "/model.bin"), {"model.bin", ".gguf"});
  for (const absl::string_view contents :
       {"{", "[]", "{}", "{\"model\": {\"type\": \"NoSuchModel\"}}", "\xFF\xFE", "null"}) {
    INFO(contents);
    const std::string path = dir.Write("tokenizer.json", contents);
    CheckRefused(Tokenizer::FromModel(dir.path()), {path});
  }
}

TEST_CASE("A tokenizer.json with a decoder that is not understood is refused by name",
          "[router][text]") {
  const PatchDir dir;
  const std::string model = R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []})";
  const auto refused = [&](const std::string& decoder, const std::vector<std::string>& parts) {
    INFO(decoder);
    dir.Write("tokenizer.json", "{\"version\": \"1.0\", \"added_tokens\": [], \"decoder\": " +
                                    decoder + ", " + model + "}");
    CheckRefused(Tokenizer::FromModel(dir.path()), parts);
  };
  refused("null", {"decoder", "ByteLevel"});
  refused(R"({"type": "WordPiece", "prefix": "##", "cleanup": true})", {"WordPiece", "ByteLevel"});
  refused(R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true})",
          {"Metaspace"});
  refused(R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteLevel",)"
          R"( "add_prefix_space": true, "trim_offsets": true, "use_regex": true}]})",
          {"Fuse+ByteLevel"});
  refused(R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "_"},)"
          R"( "content": " "}, {"type": "Fuse"}]})",
          {"Replace+Fuse"});
}

TEST_CASE("Ids of a tokenizer.json are bounded", "[router][text]") {
  const PatchDir dir;
  dir.Write("tokenizer.json",
            R"({"version": "1.0", "added_tokens": [], "decoder": {"type": "ByteLevel",
            "add_prefix_space": true, "trim_offsets": true, "use_regex": true}, "model":
            {"type": "BPE", "vocab": {"a": 0, "b": 4294967295}, "merges": []}})");
  CheckRefused(Tokenizer::FromModel(dir.path()), {"4294967295", "1048576"});
}

TEST_CASE("Text that is no UTF-8 or too long is a user error that names the field",
          "[router][text]") {
  const auto broken = DemoTokenizer().Encode("abc\xFF", false);
  CHECK(broken.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ErrorField(broken.status()) == "prompt");
  CHECK(absl::StrContains(broken.status().message(), "byte 3"));
  const auto large = DemoTokenizer().Encode(std::string(kTemplateOutputBytesMax + 1, 'a'), false);
  CHECK(ErrorField(large.status()) == "prompt");
  const auto unknown = DemoTokenizer().Decode({1, 49152}, false);
  CHECK(ErrorField(unknown.status()) == "ids");
}

TEST_CASE("Very long runs of one kind of character are cut as short ones are",
          "[router][text][long]") {
  const Tokenizer& tokenizer = DemoTokenizer();
  for (const absl::string_view unit : {" ", "\n", "a", "7", "é", "!", "\xF0\x9F\x98\x80", " a"}) {
    // Regex engines count backtracks in runs of white space; their limits are near a million.
    const size_t bytes = unit == " " || unit == "\n" ? 1'500'000 : 300'000;
    std::string text;
    while (text.size() < bytes) text.append(unit.data(), unit.size());
    text += "x";
    INFO("a run of \"" << unit << "\"");
    const auto encoding = tokenizer.Encode(text, false);
    REQUIRE(encoding.ok());
    CHECK(tokenizer.Decode(encoding->ids, true).value() == text);
    // A regex engine that gave up would leave the tail in one piece: it ends as a short run does.
    const std::string tail = text.substr(text.size() - 20 * unit.size() - 1);
    const auto short_run = tokenizer.Encode(tail, false);
    CHECK(encoding->ids.back() == short_run->ids.back());
  }
}

// TokensMin never says more than Encode gives.
void CheckBound(const Tokenizer& tokenizer, const std::string& text) {
  const auto encoding = tokenizer.Encode(text, false);
  REQUIRE(encoding.ok());
  CHECK(tokenizer.TokensMin(text) <= encoding->ids.size());
}

TEST_CASE("The least number of tokens that bytes tell is never above the true one",
          "[router][text]") {
  const auto byte_level = LoadSmall("byte_level");
  const auto sentence_piece = LoadSmall("sentence_piece");
  const Tokenizer* const tokenizers[] = {&DemoTokenizer(), byte_level.get(), sentence_piece.get()};
  // The bytes of the demo model's longest tokens, of tokens it lacks, and of characters that
  // composition shortens.
  std::vector<std::string> units = {" ",
                                    "7",
                                    "a",
                                    "\x04",
                                    "\x04 ",
                                    "\n",
                                    "\xe2\x96\x81",
                                    "<|im_start|>",
                                    "e\xcc\x81",
                                    "\xe1\xbe\xbe\xcc\x88\xcc\x81"};
  for (TokenId id = 0; id < DemoTokenizer().vocab_size(); ++id) {
    const absl::string_view bytes = DemoTokenizer().TokenBytes(id);
    if (bytes.size() > 24 && DemoTokenizer().Encode(bytes, false).ok()) units.emplace_back(bytes);
  }
  for (const Tokenizer* tokenizer : tokenizers) {
    for (const std::string& unit : units) {
      for (const size_t count : {1, 2, 500}) {
        std::string text;
        for (size_t i = 0; i < count; ++i) text += unit;
        INFO(count << " times \"" << unit << "\"");
        CheckBound(*tokenizer, text);
      }
    }
    for (const boost::json::value& c : Golden("demo").as_array()) {
      CheckBound(*tokenizer, Text(c.at("text")));
    }
  }
}

TEST_CASE("Megabytes of text are known to be thousands of tokens without encoding them",
          "[router][text]") {
  CHECK(DemoTokenizer().TokensMin(std::string(4 << 20, '7')) > 8192);
  // A byte without a token counts for nothing: text of it has no tokens at all.
  CHECK(DemoTokenizer().TokensMin(std::string(4 << 20, '\x04')) == 0);
}

TEST_CASE("A tokenizer that may drop text has no least number of tokens", "[router][text]") {
  const auto tokens_min = [](absl::string_view normalizer, absl::string_view pre_tokenizer,
                             absl::string_view added) {
    const PatchDir dir;
    std::string vocab;
    for (char c = 'a'; c <= 'z'; ++c) {
      absl::StrAppend(&vocab, c == 'a' ? "" : ",", "\"", std::string(1, c), "\":", c - 'a');
    }
    dir.Write("tokenizer.json",
              absl::StrCat(R"({"version": "1.0", "added_tokens": [)", added, R"(], "normalizer": )",
                           normalizer, R"(, "pre_tokenizer": )", pre_tokenizer,
                           R"(, "decoder": {"type": "ByteLevel", "add_prefix_space": true,
                           "trim_offsets": true, "use_regex": true}, "model": {"type": "BPE",
                           "vocab": {)",
                           vocab, R"(}, "merges": []}})"));
    return Tokenizer::FromModel(dir.path()).value()->TokensMin("abcabc");
  };
  const std::string byte_level =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
          "use_regex": true})";
  const auto split = [&](absl::string_view behavior) {
    return absl::StrCat(R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern":
                        {"String": "a"}, "invert": false, "behavior": ")",
                        behavior, "\"}, ", byte_level, "]}");
  };
  const auto added = [](bool lstrip) {
    return absl::StrCat(R"({"id": 30, "content": "<x>", "single_word": false, "rstrip": false,
                        "normalized": false, "special": true, "lstrip": )",
                        lstrip ? "true}" : "false}");
  };
  CHECK(tokens_min("null", byte_level, "") == 6);
  CHECK(tokens_min("null", split("Isolated"), "") == 6);
  CHECK(tokens_min("null", byte_level, added(false)) == 2);
  CHECK(tokens_min("null", byte_level, added(true)) == 0);
  CHECK(tokens_min("null", split("Removed"), "") == 0);
  CHECK(tokens_min(R"({"type": "Lowercase"})", byte_level, "") == 0);
  CHECK(tokens_min(R"({"type": "NFC"})", byte_level, "") == 0);  // not all bytes have tokens
  CHECK(tokens_min("null", "null", "") == 0);
}

TEST_CASE("One tokenizer serves many threads at once", "[router][text]") {
  const Tokenizer& tokenizer = DemoTokenizer();
  const boost::json::array& cases = Golden("demo").as_array();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < cases.size(); ++i) {
        const boost::json::value& c = cases[(i * 7 + t * 31) % cases.size()];
        wrong += tokenizer.Encode(Text(c.at("text")), false)->ids != Ids(c.at("ids"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace weft::router
