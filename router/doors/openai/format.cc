#include "router/doors/openai/format.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/doors/http/json.h"
#include "router/doors/http/replies.h"
#include "router/doors/http/sse.h"
#include "router/errors.h"
#include "router/text/detokenizer.h"

namespace weft::router {
namespace {

// OpenAI's stand-in for minus infinity.
constexpr float kLogprobFloor = -9999.0f;

float Finite(float logprob) { return std::isfinite(logprob) ? logprob : kLogprobFloor; }

absl::string_view OpenAiFinishReason(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
}

// Characters (not bytes) of a text.
uint64_t CharacterCount(absl::string_view text) {
  uint64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

// token, logprob and bytes: what a chat log-probability holds beside its alternatives.
void WriteChatLogprob(absl::string_view bytes, float logprob, JsonWriter* json) {
  json->Key("token").String(LossyText(bytes)).Key("logprob").Float(Finite(logprob));
  json->Key("bytes").BeginArray();
  for (const char c : bytes) json->Unsigned(static_cast<unsigned char>(c));
  json->EndArray();
}

void WriteChatLogprobs(absl::Span<const AnswerToken> tokens, JsonWriter* json) {
  json->BeginObject().Key("content").BeginArray();
  for (const AnswerToken& token : tokens) {
    json->BeginObject();
    WriteChatLogprob(token.bytes, token.logprob, json);
    json->Key("top_logprobs").BeginArray();
    for (const TokenLogprob& top : token.top) {
      json->BeginObject();
      WriteChatLogprob(top.bytes, top.logprob, json);
      json->EndObject();
    }
    json->EndArray().EndObject();
  }
  json->EndArray().Key("refusal").Null().EndObject();
}

// One entry of `top_logprobs`: the most likely tokens and, if it is not among them, the one chosen.
void WriteTopObject(const AnswerToken& token, std::string* scratch, JsonWriter* json) {
  const auto member = [&](absl::string_view text, float logprob) {
    scratch->clear();
    AppendJsonString(text, scratch);
    const absl::string_view quoted = *scratch;
    json->Key(quoted.substr(1, quoted.size() - 2)).Float(Finite(logprob));
  };
  bool chosen = false;
  json->BeginObject();
  for (const TokenLogprob& top : token.top) {
    chosen |= top.id == token.id;
    member(LossyText(top.bytes), top.logprob);
  }
  if (!chosen) member(LossyText(token.bytes), token.logprob);
  json->EndObject();
}

// `offset` is the first token's place in the answer, in characters; moved on past the last.
void WriteCompletionLogprobs(absl::Span<const AnswerToken> tokens, bool with_top, uint64_t* offset,
                             JsonWriter* json) {
  json->BeginObject().Key("text_offset").BeginArray();
  for (const AnswerToken& token : tokens) {
    json->Unsigned(*offset);
    *offset += CharacterCount(LossyText(token.bytes));
  }
  json->EndArray().Key("token_logprobs").BeginArray();
  for (const AnswerToken& token : tokens) json->Float(Finite(token.logprob));
  json->EndArray().Key("tokens").BeginArray();
  for (const AnswerToken& token : tokens) json->String(LossyText(token.bytes));
  json->EndArray().Key("top_logprobs");
  if (with_top) {
    std::string scratch;
    json->BeginArray();
    for (const AnswerToken& token : tokens) WriteTopObject(token, &scratch, json);
    json->EndArray();
  } else {
    json->Null();
  }
  json->EndObject();
}

class OpenAiFormatter : public ResponseFormatter {
 public:
  explicit OpenAiFormatter(OpenAiFormat format) : format_(std::move(format)) {}

  bool streaming() const override { return format_.stream; }

  void Started(const AnswerHead& started) override {
    head_ = started;
    prompt_tokens_ = started.prompt_tokens;
    cached_tokens_ = started.cached_tokens;
    MakePrefix();
    if (format_.stream) MakePlain();
    if (!started.resumed.has_value()) return;
    // Counts and offsets go on where the broken stream stood; the role came with its first token.
    output_tokens_ = started.resumed->tokens;
    text_offset_ = started.resumed->token_characters;
    role_sent_ = started.resumed->tokens > 0;
  }

  void Step(const AnswerToken* token, const AnswerEnd* finished, std::string* out) override {
    if (token != nullptr) ++output_tokens_;
    if (finished != nullptr) {
      prompt_tokens_ = finished->prompt_tokens;
      output_tokens_ = finished->output_tokens;
      finish_reason_ = OpenAiFinishReason(finished->reason);
    }
    if (!format_.stream) {
      if (token != nullptr) {
        text_ += token->text;
        if (format_.logprobs) tokens_.push_back(*token);
        if (format_.token_ids) ids_.push_back(token->id);
      }
      if (finished != nullptr) text_ += finished->text;
      return;
    }
    if (IsPlain(token, finished)) {
      *out += plain_begin_;
      AppendJsonString(token->text, out);
      *out += plain_end_;
      return;
    }
    SseBegin(out);
    *out += prefix_;
    WriteChunk(token, finished, out);
    SseEnd(out);
    if (finished == nullptr) return;
    if (format_.usage) {
      SseBegin(out);
      absl::StrAppend(out, prefix_, "[],\"usage\":");
      WriteUsage(out);
      out->push_back('}');
      SseEnd(out);
    }
    SseDone(out);
  }

  void Fail(const absl::Status& status, std::string* out) override {
    SseBegin(out);
    *out += OpenAiErrorBody(Named(status));
    SseEnd(out);
    SseDone(out);
  }

  HttpReply Reply() override {
    if (format_.stream) return SseReply();
    HttpReply reply;
    reply.body = prefix_;
    JsonWriter json(&reply.body);
    json.BeginArray().BeginObject().Key("index").Unsigned(0);
    if (format_.chat) {
      json.Key("message").BeginObject().Key("role").String("assistant");
      json.Key("content").String(text_).Key("refusal").Null().EndObject();
    } else {
      json.Key("text").String(text_);
    }
    json.Key("logprobs");
    WriteLogprobs(tokens_, &json);
    json.Key("finish_reason").String(finish_reason_);
    WriteIds(ids_, &json);
    json.EndObject().EndArray();
    reply.body += ",\"usage\":";
    WriteUsage(&reply.body);
    reply.body.push_back('}');
    return reply;
  }

  HttpReply Error(const absl::Status& status) override { return OpenAiError(Named(status)); }

 private:
  // The engine's field names in OpenAI's words.
  absl::Status Named(const absl::Status& status) const {
    const std::string field = ErrorField(status).value_or("");
    if (field == "prompt" && format_.chat) return RenameField(status, "messages");
    if (field == "stop_sequences") return RenameField(status, "stop");
    return status;
  }

  // A chunk of which nothing but its text differs from the one before and the one after: nearly
  // all of a stream are.
  bool IsPlain(const AnswerToken* token, const AnswerEnd* finished) const {
    return token != nullptr && finished == nullptr && !format_.logprobs && !format_.token_ids &&
           !format_.usage_in_every_chunk && (role_sent_ || !format_.chat);
  }

  // Writes what every chunk, or the whole answer, begins with.
  void MakePrefix() {
    const bool chunk = format_.chat && format_.stream;
    JsonWriter json(&prefix_);
    json.BeginObject();
    json.Key("id").String(absl::StrCat(format_.chat ? "chatcmpl-" : "cmpl-", format_.request_id));
    json.Key("object").String(!format_.chat ? "text_completion"
                              : chunk       ? "chat.completion.chunk"
                                            : "chat.completion");
    json.Key("created").Signed(format_.created_unix_s).Key("model").String(format_.model);
    json.Key("system_fingerprint").String(head_.fingerprint).Key("choices");
  }

  // Writes one plain chunk and keeps what stands on both sides of its text.
  void MakePlain() {
    if (format_.logprobs || format_.token_ids || format_.usage_in_every_chunk) return;
    AnswerToken token;
    token.text = "x";
    role_sent_ = true;
    std::string chunk;
    SseBegin(&chunk);
    chunk += prefix_;
    const size_t choices = chunk.size();
    WriteChunk(&token, nullptr, &chunk);
    SseEnd(&chunk);
    role_sent_ = false;
    const size_t text = chunk.find("\"x\"", choices);
    plain_begin_ = chunk.substr(0, text);
    plain_end_ = chunk.substr(text + 3);
  }

  // The choices of a chunk and the rest of it, after `prefix_`.
  void WriteChunk(const AnswerToken* token, const AnswerEnd* finished, std::string* out) {
    std::string& text = text_;  // of this chunk alone
    text.clear();
    if (token != nullptr) text += token->text;
    if (finished != nullptr) text += finished->text;
    JsonWriter json(out);
    json.BeginArray().BeginObject().Key("index").Unsigned(0);
    if (format_.chat) {
      json.Key("delta").BeginObject();
      // The role goes with the first token: a chunk of its own would fake the first token's time.
      if (!role_sent_) json.Key("role").String("assistant");
      role_sent_ = true;
      if (token != nullptr || !text.empty()) json.Key("content").String(text);
      json.EndObject();
    } else {
      json.Key("text").String(text);
    }
    json.Key("logprobs");
    WriteLogprobs(token == nullptr ? absl::Span<const AnswerToken>()
                                   : absl::Span<const AnswerToken>(token, 1),
                  &json);
    json.Key("finish_reason");
    if (finished == nullptr) {
      json.Null();
    } else {
      json.String(finish_reason_);
    }
    WriteIds(token == nullptr ? absl::Span<const TokenId>() : absl::MakeConstSpan(&token->id, 1),
             &json);
    json.EndObject().EndArray();
    if (format_.token_ids && !std::exchange(resume_sent_, true)) WriteResume(head_, &json);
    if (format_.usage_in_every_chunk) {
      *out += ",\"usage\":";
      WriteUsage(out);
    } else if (format_.usage) {
      *out += ",\"usage\":null";
    }
    out->push_back('}');
  }

  void WriteLogprobs(absl::Span<const AnswerToken> tokens, JsonWriter* json) {
    if (!format_.logprobs || (format_.stream && tokens.empty())) {
      json->Null();
    } else if (format_.chat) {
      WriteChatLogprobs(tokens, json);
    } else {
      WriteCompletionLogprobs(tokens, format_.top_logprobs > 0, &text_offset_, json);
    }
  }

  void WriteIds(absl::Span<const TokenId> ids, JsonWriter* json) const {
    if (!format_.token_ids) return;
    json->Key("token_ids").BeginArray();
    for (const TokenId id : ids) json->Unsigned(id);
    json->EndArray();
  }

  void WriteUsage(std::string* out) const {
    JsonWriter json(out);
    json.BeginObject().Key("prompt_tokens").Unsigned(prompt_tokens_);
    json.Key("completion_tokens").Unsigned(output_tokens_);
    json.Key("total_tokens").Unsigned(uint64_t{prompt_tokens_} + output_tokens_);
    json.Key("prompt_tokens_details").BeginObject().Key("cached_tokens").Unsigned(cached_tokens_);
    json.EndObject().EndObject();
  }

  const OpenAiFormat format_;
  AnswerHead head_;
  // The same bytes begin every chunk, and more of them stand around the text of a plain one.
  std::string prefix_;
  std::string plain_begin_;
  std::string plain_end_;
  std::string text_;
  absl::string_view finish_reason_ = "stop";
  std::vector<AnswerToken> tokens_;
  std::vector<TokenId> ids_;
  uint64_t text_offset_ = 0;
  uint32_t prompt_tokens_ = 0;
  uint32_t cached_tokens_ = 0;
  uint32_t output_tokens_ = 0;
  bool role_sent_ = false;
  bool resume_sent_ = false;
};

}  // namespace

std::unique_ptr<ResponseFormatter> NewOpenAiFormatter(OpenAiFormat format) {
  return std::make_unique<OpenAiFormatter>(std::move(format));
}

}  // namespace weft::router
