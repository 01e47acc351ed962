// Variants of the small models: other normalizers, pre-tokenizers, post-processors, added tokens.

#include <fstream>
#include <sstream>

#include "text_fixture.h"

namespace weft::router {
namespace {

namespace json = boost::json;

constexpr char kByteLevel[] = R"({"type": "ByteLevel", "add_prefix_space": false,
    "trim_offsets": true, "use_regex": true})";
constexpr char kAlphabet[] = R"({"type": "ByteLevel", "add_prefix_space": false,
    "trim_offsets": true, "use_regex": false})";

// The patterns as published files write them; adjacent literals are one.
constexpr char kLlama3[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                           R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                          R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kCl100k[] = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}|)"
                           R"( ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr char kO200k[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json::value Read(const std::string& name) {
  std::ifstream file(ModelPath(name) + "/tokenizer.json");
  std::stringstream text;
  text << file.rdbuf();
  return json::parse(text.str());
}

json::value Split(const char* pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

json::value Sequence(const char* list, json::array steps) {
  return json::object{{"type", "Sequence"}, {list, std::move(steps)}};
}

json::value PreTokenizers(json::array steps) { return Sequence("pretokenizers", std::move(steps)); }

json::value Added(int id, const char* content, bool normalized, bool lstrip = false,
                  bool rstrip = false, bool single_word = false) {
  return {{"id", id},         {"content", content}, {"single_word", single_word},
          {"lstrip", lstrip}, {"rstrip", rstrip},   {"normalized", normalized},
          {"special", false}};
}

json::value Metaspace(const char* scheme, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", "\xE2\x96\x81"},
          {"prepend_scheme", scheme},
          {"split", split}};
}

}  // namespace

std::vector<TokenizerVariant> TokenizerVariants() {
  std::vector<TokenizerVariant> variants;
  const auto add = [&variants](const char* name, const char* model, auto change) {
    json::value value = Read(model);
    change(value.as_object());
    variants.push_back({name, json::serialize(value)});
  };
  const auto words = [&add](const char* name, json::array steps, json::value normalizer = nullptr) {
    add(name, "byte_level", [&](json::object& t) {
      t["pre_tokenizer"] = PreTokenizers(std::move(steps));
      t["normalizer"] = normalizer;
    });
  };
  const json::value alphabet = json::parse(kAlphabet), byte_level = json::parse(kByteLevel);
  const json::value nfc = {{"type", "NFC"}};
  words("llama 3", {Split(kLlama3), alphabet});
  words("qwen 2", {Split(kQwen2), alphabet}, nfc);
  words("llama 3 behind composition", {Split(kLlama3), alphabet}, nfc);
  words("cl100k", {Split(kCl100k), alphabet});
  words("o200k", {Split(kO200k), alphabet});
  words("unknown split", {Split(R"(\p{L}{1,5}|.)"), alphabet});
  words("falcon", {json::object{{"type", "Punctuation"}, {"behavior", "Contiguous"}}, byte_level,
                   Split("[0-9][0-9][0-9]")});
  words("digits", {json::object{{"type", "Digits"}, {"individual_digits", true}}, byte_level});
  words("runs of digits",
        {json::object{{"type", "Digits"}, {"individual_digits", false}}, byte_level});

  const auto tokens = [&add](const char* name, const char* model, std::vector<json::value> more) {
    add(name, model, [&](json::object& t) {
      for (json::value& token : more) t["added_tokens"].as_array().push_back(std::move(token));
    });
  };
  tokens("stripping added tokens", "byte_level",
         {Added(601, "<t>", false, true, true), Added(602, "[w]", false, false, true),
          Added(603, "    ", false)});
  tokens("single words", "byte_level", {Added(601, "the", false, false, false, true)});
  tokens("normalized added tokens", "byte_level",
         {Added(601, "<t>", true), Added(602, "[w]", true), Added(603, "12", true)});
  tokens("normalized added token with a blank", "byte_level", {Added(601, "a b", true)});
  tokens("reasoning", "byte_level", {Added(601, "<think>", false), Added(602, "</think>", false)});
  tokens("normalized indentation", "byte_level",
         {Added(601, "  ", true), Added(602, "   ", true), Added(603, "\n\n", false)});
  tokens("sentence piece with added tokens", "sentence_piece",
         {Added(600, "<t>", false), Added(601, "\xE2\x96\x81\xE2\x96\x81", false)});
  add("sentence piece that drops characters", "sentence_piece", [](json::object& t) {
    t["model"].as_object()["unk_token"] = nullptr;
    t["model"].as_object()["byte_fallback"] = false;
  });
  add("trimmed offsets", "byte_level", [&](json::object& t) {
    json::value trimming = byte_level;
    trimming.as_object()["add_prefix_space"] = true;
    t["post_processor"] =
        Sequence("processors", {std::move(trimming), std::move(t["post_processor"])});
  });
  for (const char* scheme : {"first", "always", "never"}) {
    for (const bool split : {false, true}) {
      const std::string name = std::string("metaspace ") + scheme + (split ? " split" : "");
      add(name.c_str(), "sentence_piece", [&](json::object& t) {
        t["normalizer"] = nullptr;
        t["pre_tokenizer"] = Metaspace(scheme, split);
      });
    }
  }
  return variants;
}

}  // namespace weft::router
