#include "router/doors/openai/logprobs.h"

#include <cmath>

#include "absl/strings/string_view.h"
#include "router/text/detokenizer.h"

namespace weft::router {
namespace {

constexpr float kLogprobFloor = -9999.0f;

// What a token has in common with its alternatives.
void WriteMembers(absl::string_view bytes, float logprob, JsonWriter* json) {
  json->Key("token").String(LossyText(bytes)).Key("logprob").Float(FiniteLogprob(logprob));
  json->Key("bytes").BeginArray();
  for (const char c : bytes) json->Unsigned(static_cast<unsigned char>(c));
  json->EndArray();
}

}  // namespace

float FiniteLogprob(float logprob) { return std::isfinite(logprob) ? logprob : kLogprobFloor; }

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

}  // namespace weft::router
