#include "deploy/convert/tokenizer_steps.h"

#include <algorithm>
#include <vector>

#include "boost/json.hpp"

namespace weft::convert {
namespace {

namespace json = boost::json;

// U+2581, SentencePiece's blank.
constexpr char kBlank[] = "\xe2\x96\x81";

constexpr char kQwen2Pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

bool IsByteLevel(const TokenizerSteps& steps) {
  return steps.kind == TokenizerKind::kGpt2 || steps.kind == TokenizerKind::kQwen2;
}

json::value ByteLevel(bool blank_first, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", blank_first},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

json::value Replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

json::value SpecialPiece(const std::string& token, int type_id) {
  return {{"SpecialToken", {{"id", token}, {"type_id", type_id}}}};
}

json::value TextPiece(const char* which, int type_id) {
  return {{"Sequence", {{"id", which}, {"type_id", type_id}}}};
}

json::value Template(const TokenizerSteps& steps) {
  json::array single;
  json::array pair;
  json::object tokens;
  for (const auto& token : {steps.first, steps.last}) {
    if (!token.has_value()) continue;
    tokens[token->first] = {{"id", token->first},
                            {"ids", json::array{token->second}},
                            {"tokens", json::array{token->first}}};
  }
  if (steps.first.has_value()) single.push_back(SpecialPiece(steps.first->first, 0));
  single.push_back(TextPiece("A", 0));
  if (steps.last.has_value()) single.push_back(SpecialPiece(steps.last->first, 0));
  pair = single;
  if (steps.first.has_value()) pair.push_back(SpecialPiece(steps.first->first, 1));
  pair.push_back(TextPiece("B", 1));
  if (steps.last.has_value()) pair.push_back(SpecialPiece(steps.last->first, 1));
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(tokens)}};
}

}  // namespace

json::value Normalizer(const TokenizerSteps& steps) {
  if (steps.kind == TokenizerKind::kQwen2) return json::object({{"type", "NFC"}});
  if (steps.kind == TokenizerKind::kGemma) return Replace(" ", kBlank);
  if (steps.kind == TokenizerKind::kGpt2 || !steps.legacy) return nullptr;
  json::array list;
  if (steps.blank_first) list.push_back({{"type", "Prepend"}, {"prepend", kBlank}});
  list.push_back(Replace(" ", kBlank));
  return {{"type", "Sequence"}, {"normalizers", std::move(list)}};
}

json::value PreTokenizer(const TokenizerSteps& steps) {
  switch (steps.kind) {
    case TokenizerKind::kGpt2:
      return ByteLevel(steps.blank_first, true, true);
    case TokenizerKind::kQwen2: {
      json::array list;
      list.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", kQwen2Pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}});
      list.push_back(ByteLevel(steps.blank_first, true, false));
      return {{"type", "Sequence"}, {"pretokenizers", std::move(list)}};
    }
    case TokenizerKind::kLlama:
      if (steps.legacy) return nullptr;
      return {{"type", "Metaspace"},
              {"replacement", kBlank},
              {"prepend_scheme", steps.blank_first ? "first" : "never"},
              {"split", false}};
    case TokenizerKind::kGemma:
      return {{"type", "Split"},
              {"pattern", {{"String", " "}}},
              {"behavior", "MergedWithPrevious"},
              {"invert", false}};
  }
  return nullptr;
}

json::value PostProcessor(const TokenizerSteps& steps) {
  const bool around = steps.first.has_value() || steps.last.has_value();
  if (around || !IsByteLevel(steps)) return Template(steps);
  return ByteLevel(true, false, true);
}

json::value Decoder(const TokenizerSteps& steps) {
  if (IsByteLevel(steps)) return ByteLevel(true, true, true);
  json::array list;
  list.push_back(Replace(kBlank, " "));
  list.push_back(json::object({{"type", "ByteFallback"}}));
  list.push_back(json::object({{"type", "Fuse"}}));
  if (steps.blank_first) {
    list.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", std::move(list)}};
}

json::value Model(const TokenizerSteps& steps, const BpeVocab& vocab) {
  const bool pieces = !IsByteLevel(steps);
  std::vector<std::pair<uint32_t, absl::string_view>> tokens;
  for (const auto& [token, id] : vocab.ids) tokens.emplace_back(id, token);
  std::sort(tokens.begin(), tokens.end());
  json::object ids;
  for (const auto& [id, token] : tokens) ids[json::string_view(token.data(), token.size())] = id;
  json::array merges;
  for (const auto& [left, right] : vocab.merges) merges.push_back(json::array{left, right});
  json::object model = {{"type", "BPE"}, {"dropout", nullptr}};
  model["unk_token"] = pieces ? json::value(steps.unknown) : json::value(nullptr);
  model["continuing_subword_prefix"] = pieces ? json::value(nullptr) : json::value("");
  model["end_of_word_suffix"] = pieces ? json::value(nullptr) : json::value("");
  model["fuse_unk"] = pieces;
  model["byte_fallback"] = pieces;
  model["ignore_merges"] = false;
  model["vocab"] = std::move(ids);
  model["merges"] = std::move(merges);
  return model;
}

}  // namespace weft::convert
