#include "deploy/convert/tokenizer_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "common/mapped_file.h"
#include "common/model_path.h"
#include "common/status.h"
#include "deploy/convert/added_tokens.h"
#include "deploy/convert/bpe_vocab.h"
#include "deploy/convert/sentence_piece.h"
#include "deploy/convert/tokenizer_config.h"
#include "deploy/convert/tokenizer_steps.h"

namespace weft::convert {
namespace {

namespace json = boost::json;

constexpr size_t kSentencePieceBytesMax = 64u << 20;

// What a class of transformers is made of.
struct KnownClass {
  const char* name;
  TokenizerKind kind;
};

constexpr KnownClass kClasses[] = {
    {"GPT2Tokenizer", TokenizerKind::kGpt2},   {"CodeGenTokenizer", TokenizerKind::kGpt2},
    {"Qwen2Tokenizer", TokenizerKind::kQwen2}, {"LlamaTokenizer", TokenizerKind::kLlama},
    {"GemmaTokenizer", TokenizerKind::kGemma},
};

// Where no file names a class: that of the model_type in config.json.
constexpr KnownClass kModelTypes[] = {
    {"gpt2", TokenizerKind::kGpt2},         {"gptj", TokenizerKind::kGpt2},
    {"opt", TokenizerKind::kGpt2},          {"phi", TokenizerKind::kGpt2},
    {"qwen2", TokenizerKind::kQwen2},       {"qwen2_moe", TokenizerKind::kQwen2},
    {"qwen3", TokenizerKind::kQwen2},       {"qwen3_moe", TokenizerKind::kQwen2},
    {"llama", TokenizerKind::kLlama},       {"mistral", TokenizerKind::kLlama},
    {"mixtral", TokenizerKind::kLlama},     {"phi3", TokenizerKind::kLlama},
    {"gemma", TokenizerKind::kGemma},       {"gemma2", TokenizerKind::kGemma},
    {"gemma3_text", TokenizerKind::kGemma},
};

// Their published tokenizer.json splits digits, which vocab.json and merges.txt do not say.
constexpr const char* kSplitDigits[] = {"gpt_bigcode", "starcoder2"};

bool IsByteLevel(TokenizerKind kind) {
  return kind == TokenizerKind::kGpt2 || kind == TokenizerKind::kQwen2;
}

absl::StatusOr<TokenizerKind> KindOf(const std::string& directory, const TokenizerConfig& config) {
  const auto refuse = [&](const auto&... what) {
    return absl::UnimplementedError(absl::StrCat(
        directory, ": ", what...,
        "; save a tokenizer.json with transformers' AutoTokenizer(...).save_pretrained instead"));
  };
  for (const char* type : kSplitDigits) {
    if (config.model_type == type) {
      return refuse("no tokenizer.json is made for the model_type ", type);
    }
  }
  for (const KnownClass& known : kClasses) {
    if (config.tokenizer_class == known.name) return known.kind;
  }
  if (!config.tokenizer_class.empty()) {
    std::string names;
    for (const KnownClass& known : kClasses) absl::StrAppend(&names, " ", known.name);
    return refuse("tokenizer_class is ", absl::CHexEscape(config.tokenizer_class),
                  "; converted are", names);
  }
  for (const KnownClass& known : kModelTypes) {
    if (config.model_type == known.name) return known.kind;
  }
  return refuse("no file names a tokenizer_class, and what the model_type \"",
                absl::CHexEscape(config.model_type), "\" has is not known");
}

// What transformers takes a class's tokens for where no file names them.
void SetDefaults(TokenizerKind kind, TokenizerConfig* config) {
  constexpr absl::string_view kEnd = "<|endoftext|>";
  switch (kind) {
    case TokenizerKind::kGpt2:
      for (const char* key : {"bos_token", "eos_token", "unk_token"}) config->SetDefault(key, kEnd);
      return;
    case TokenizerKind::kQwen2:
      for (const char* key : {"eos_token", "unk_token", "pad_token"}) config->SetDefault(key, kEnd);
      return;
    case TokenizerKind::kLlama:
      config->SetDefault("bos_token", "<s>");
      config->SetDefault("eos_token", "</s>");
      config->SetDefault("unk_token", "<unk>");
      return;
    case TokenizerKind::kGemma:
      config->SetDefault("bos_token", "<bos>");
      config->SetDefault("eos_token", "<eos>");
      config->SetDefault("unk_token", "<unk>");
      config->SetDefault("pad_token", "<pad>");
      return;
  }
}

// The token under `key` when it is to be put around every text.
absl::StatusOr<std::optional<std::pair<std::string, uint32_t>>> Around(
    const TokenizerConfig& config, const AddedTokens& added, const char* flag,
    std::optional<bool> given, bool by_default, const char* key) {
  using Token = std::optional<std::pair<std::string, uint32_t>>;
  const std::string content = config.Named(key);
  if (!given.value_or(by_default)) return Token();
  const std::optional<uint32_t> id = added.IdOf(content);
  if (!content.empty() && id.has_value()) return Token({content, *id});
  if (!given.has_value()) return Token();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is true, and there is no ", key, " in the vocabulary"));
}

absl::StatusOr<std::string> Assemble(const TokenizerConfig& config, const BpeVocab& vocab,
                                     const std::vector<AddedToken>& own, TokenizerSteps steps) {
  WEFT_ASSIGN_OR_RETURN(const AddedTokens added, GatherAddedTokens(vocab, own, config));
  const bool pieces = !IsByteLevel(steps.kind);
  WEFT_ASSIGN_OR_RETURN(
      steps.first, Around(config, added, "add_bos_token", config.add_bos, pieces, "bos_token"));
  WEFT_ASSIGN_OR_RETURN(steps.last,
                        Around(config, added, "add_eos_token", config.add_eos, false, "eos_token"));
  json::array tokens;
  for (const auto& [id, token] : added.by_id()) {
    tokens.push_back({{"id", id},
                      {"content", token.content},
                      {"single_word", token.single_word},
                      {"lstrip", token.lstrip},
                      {"rstrip", token.rstrip},
                      {"normalized", token.normalized},
                      {"special", token.special}});
  }
  json::object out = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  out["added_tokens"] = std::move(tokens);
  out["normalizer"] = Normalizer(steps);
  out["pre_tokenizer"] = PreTokenizer(steps);
  out["post_processor"] = PostProcessor(steps);
  out["decoder"] = Decoder(steps);
  out["model"] = Model(steps, vocab);
  return json::serialize(out) + "\n";
}

absl::StatusOr<std::string> FromBytes(const std::string& directory, const TokenizerConfig& config,
                                      TokenizerKind kind) {
  WEFT_ASSIGN_OR_RETURN(const BpeVocab vocab, ReadVocabAndMerges(directory));
  TokenizerSteps steps;
  steps.kind = kind;
  steps.blank_first = config.add_prefix_space.value_or(false);
  return Assemble(config, vocab, {}, std::move(steps));
}

absl::StatusOr<std::string> FromPieces(const std::string& directory, const TokenizerConfig& config,
                                       TokenizerKind kind) {
  const std::string path = absl::StrCat(directory, "/", kSentencePieceName);
  WEFT_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kSentencePieceBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has ", file.bytes().size(),
                                                   " bytes; at most ", kSentencePieceBytesMax,
                                                   " are read"));
  }
  absl::StatusOr<SentencePieceModel> model = ParseSentencePiece(file.bytes());
  WEFT_RETURN_IF_ERROR(Annotate(model.status(), path));
  if (kind == TokenizerKind::kGemma) {
    // Old files of Gemma lack a tab; its byte is written as it then.
    const auto with = [&model](absl::string_view text) {
      return std::find_if(model->pieces.begin(), model->pieces.end(),
                          [text](const SentencePiece& piece) { return piece.text == text; });
    };
    const auto byte = with("<0x09>");
    if (with("\t") == model->pieces.end() && byte != model->pieces.end()) {
      byte->text.assign(1, '\t');
      byte->score = 0;
    }
  }
  std::vector<AddedToken> own;
  for (const SentencePiece& piece : model->pieces) {
    if (piece.type != SentencePiece::kControl && piece.type != SentencePiece::kUserDefined)
      continue;
    AddedToken token;
    token.content = piece.text;
    token.special = piece.type == SentencePiece::kControl;
    if (kind == TokenizerKind::kGemma) {
      token.special |= piece.text == "<start_of_turn>" || piece.text == "<end_of_turn>";
    }
    own.push_back(std::move(token));
  }
  TokenizerSteps steps;
  steps.kind = kind;
  steps.unknown = model->unknown_piece;
  steps.blank_first =
      kind == TokenizerKind::kLlama && config.add_prefix_space.value_or(model->add_dummy_prefix);
  steps.legacy = config.legacy.value_or(true);
  return Assemble(config, VocabOf(model->pieces), own, std::move(steps));
}

}  // namespace

absl::StatusOr<std::string> MakeTokenizerJson(const std::string& directory) {
  WEFT_ASSIGN_OR_RETURN(TokenizerConfig config, ReadTokenizerConfig(directory));
  WEFT_ASSIGN_OR_RETURN(const TokenizerKind kind, KindOf(directory, config));
  SetDefaults(kind, &config);
  return IsByteLevel(kind) ? FromBytes(directory, config, kind)
                           : FromPieces(directory, config, kind);
}

}  // namespace weft::convert
