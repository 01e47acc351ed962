#include "router/doors/openai/logprobs_json.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/text/detokenizer.h"

namespace weft::router {
namespace {

// OpenAI's stand-in for minus infinity.
constexpr float kLogprobFloor = -9999.0f;

float Finite(float logprob) { return std::isfinite(logprob) ? logprob : kLogprobFloor; }

// Characters (not bytes) of a text.
uint64_t CharacterCount(absl::string_view text) {
  uint64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

// What a token has in common with its alternatives.
void WriteMembers(absl::string_view bytes, float logprob, JsonWriter* json) {
  json->Key("token").String(LossyText(bytes)).Key("logprob").Float(Finite(logprob));
  json->Key("bytes").BeginArray();
  for (const char c : bytes) json->Unsigned(static_cast<unsigned char>(c));
  json->EndArray();
}

absl::Span<const TokenLogprob> Best(const AnswerToken& token, uint32_t top) {
  return absl::MakeConstSpan(token.top).first(std::min<size_t>(top, token.top.size()));
}

// One entry of `top_logprobs`: the most likely tokens and, if it is not among them, the one chosen.
// Null where nothing stands before the token.
void WriteTopObject(const AnswerToken& token, uint32_t top, std::string* scratch,
                    JsonWriter* json) {
  if (!token.has_logprob) {
    json->Null();
    return;
  }
  const auto member = [&](absl::string_view text, float logprob) {
    scratch->clear();
    AppendJsonString(text, scratch);
    const absl::string_view quoted = *scratch;
    json->Key(quoted.substr(1, quoted.size() - 2)).Float(Finite(logprob));
  };
  bool chosen = false;
  json->BeginObject();
  for (const TokenLogprob& one : Best(token, top)) {
    chosen |= one.id == token.id;
    member(LossyText(one.bytes), one.logprob);
  }
  if (!chosen) member(LossyText(token.bytes), token.logprob);
  json->EndObject();
}

void WriteRanked(TokenId id, float logprob, uint32_t rank, absl::string_view bytes,
                 JsonWriter* json) {
  json->Key(absl::StrCat(id)).BeginObject().Key("logprob").Float(Finite(logprob));
  json->Key("rank").Unsigned(rank).Key("decoded_token").String(LossyText(bytes)).EndObject();
}

}  // namespace

void WriteTokenLogprob(const AnswerToken& token, JsonWriter* json) {
  json->BeginObject();
  WriteMembers(token.bytes, token.logprob, json);
  json->Key("top_logprobs").BeginArray();
  for (const TokenLogprob& top : token.top) {
    json->BeginObject();
    WriteMembers(top.bytes, top.logprob, json);
    json->EndObject();
  }
  json->EndArray().EndObject();
}

void WriteChatLogprobs(absl::Span<const AnswerToken> tokens, JsonWriter* json) {
  json->BeginObject().Key("content").BeginArray();
  for (const AnswerToken& token : tokens) WriteTokenLogprob(token, json);
  json->EndArray().Key("refusal").Null().EndObject();
}

void WriteCompletionLogprobs(const PromptScores* scores, absl::Span<const AnswerToken> tokens,
                             uint32_t top, uint64_t* offset, JsonWriter* json) {
  const size_t prompt = scores == nullptr ? 0 : scores->tokens();
  const auto for_each = [&](auto&& body) {
    for (size_t i = 0; i < prompt; ++i) body(scores->Token(i));
    for (const AnswerToken& token : tokens) body(token);
  };
  json->BeginObject().Key("text_offset").BeginArray();
  for_each([&](const AnswerToken& token) {
    json->Unsigned(*offset);
    *offset += CharacterCount(LossyText(token.bytes));
  });
  json->EndArray().Key("token_logprobs").BeginArray();
  for_each([&](const AnswerToken& token) {
    if (token.has_logprob) {
      json->Float(Finite(token.logprob));
    } else {
      json->Null();
    }
  });
  json->EndArray().Key("tokens").BeginArray();
  for_each([&](const AnswerToken& token) { json->String(LossyText(token.bytes)); });
  json->EndArray().Key("top_logprobs");
  if (top > 0) {
    std::string scratch;
    json->BeginArray();
    for_each([&](const AnswerToken& token) { WriteTopObject(token, top, &scratch, json); });
    json->EndArray();
  } else {
    json->Null();
  }
  json->EndObject();
}

void WritePromptLogprobs(const PromptScores& scores, uint32_t top, JsonWriter* json) {
  json->BeginArray();
  for (size_t i = 0; i < scores.tokens(); ++i) {
    const AnswerToken token = scores.Token(i);
    if (!token.has_logprob) {
      json->Null();
      continue;
    }
    json->BeginObject();
    WriteRanked(token.id, token.logprob, scores.Rank(i), token.bytes, json);
    uint32_t rank = 0;
    for (const TokenLogprob& one : Best(token, top)) {
      ++rank;
      if (one.id != token.id) WriteRanked(one.id, one.logprob, rank, one.bytes, json);
    }
    json->EndObject();
  }
  json->EndArray();
}

}  // namespace weft::router
