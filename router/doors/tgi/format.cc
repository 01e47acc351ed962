#include "router/doors/tgi/format.h"

#include <algorithm>
#include <optional>
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

// A control token shows its own text, every other one the text that became certain with it, so that
// the texts of a stream add up to the answer.
absl::string_view TokenText(const AnswerToken& token) {
  return token.special ? token.bytes : token.text;
}

void WriteToken(const AnswerToken& token, absl::string_view text, JsonWriter* json) {
  json->BeginObject().Key("id").Unsigned(token.id).Key("text").String(text).Key("logprob");
  if (token.has_logprob) {
    json->Float(token.logprob);
  } else {
    json->Null();
  }
  json->Key("special").Bool(token.special).EndObject();
}

void WriteTopTokens(const AnswerToken& token, JsonWriter* json) {
  json->BeginArray();
  for (const TokenLogprob& top : token.top) {
    json->BeginObject()
        .Key("id")
        .Unsigned(top.id)
        .Key("text")
        .String(LossyText(top.bytes))
        .Key("logprob");
    json->Float(top.logprob).Key("special").Bool(false).EndObject();
  }
  json->EndArray();
}

// The engine's field names in TGI's words.
absl::Status TgiName(const absl::Status& status) {
  const std::string field = ErrorField(status).value_or("");
  if (field.empty()) return status;
  if (field == "prompt") return RenameField(status, "inputs");
  if (field == "max_tokens") return RenameField(status, "parameters.max_new_tokens");
  if (field == "truncate_prompt_tokens") return RenameField(status, "parameters.truncate");
  if (field == "stop_sequences") return RenameField(status, "parameters.stop");
  if (field == "top_logprobs") return RenameField(status, "parameters.top_n_tokens");
  return RenameField(status, absl::StrCat("parameters.", field));
}

class TgiFormatter : public ResponseFormatter {
 public:
  explicit TgiFormatter(TgiFormat format) : format_(std::move(format)) {
    text_ = format_.text_prefix;
  }

  bool streaming() const override { return format_.stream; }

  void Step(const AnswerToken* token, const AnswerEnd* finished, std::string* out) override {
    if (token != nullptr) text_ += token->text;
    if (finished != nullptr) {
      text_ += finished->text;
      finished_ = *finished;
    }
    if (!format_.stream) {
      if (token != nullptr && format_.details) tokens_.push_back(*token);
      return;
    }
    // The last event needs a token too. When the end became known only after the last token had
    // been sent, that token is named again, with the text that had been held back.
    AnswerToken last;
    if (token == nullptr) {
      last = last_;
      last.text = finished->text;
      last.special = false;
      WriteEvent(last, last.text, finished, out);
      return;
    }
    ++index_;
    WriteEvent(*token,
               finished == nullptr || token->special ? std::string(TokenText(*token))
                                                     : absl::StrCat(token->text, finished->text),
               finished, out);
    last_.id = token->id;
    last_.has_logprob = token->has_logprob;
    last_.logprob = token->logprob;
  }

  void Fail(const absl::Status& status, std::string* out) override {
    SseBegin(out);
    *out += TgiErrorBody(TgiName(status));
    SseEnd(out);
  }

  HttpReply Reply() override {
    if (format_.stream) return SseReply();
    HttpReply reply;
    AddTimings(&reply.headers);
    JsonWriter json(&reply.body);
    if (format_.wrap_in_list) json.BeginArray();
    json.BeginObject().Key("generated_text").String(text_);
    if (format_.details) WriteDetails(&json);
    json.EndObject();
    if (format_.wrap_in_list) json.EndArray();
    return reply;
  }

  HttpReply Error(const absl::Status& status) override { return TgiError(TgiName(status)); }

  void Started(const AnswerHead& started) override {
    prompt_tokens_ = started.prompt_tokens;
    head_ = started;
    if (!started.resumed.has_value()) return;
    // Numbers, and the whole text at the end, go on where the broken stream stood.
    index_ = started.resumed->tokens;
    last_.id = started.resumed->last;
    text_ += started.resumed->text;
  }

 private:
  void WriteEvent(const AnswerToken& token, absl::string_view text, const AnswerEnd* finished,
                  std::string* out) {
    SseBegin(out);
    JsonWriter json(out);
    json.BeginObject().Key("index").Unsigned(index_).Key("token");
    WriteToken(token, text, &json);
    if (format_.top_tokens) {
      json.Key("top_tokens");
      WriteTopTokens(token, &json);
    }
    if (finished == nullptr) {
      out->append(",\"generated_text\":null,\"details\":null");
    } else {
      json.Key("generated_text").String(text_).Key("details").BeginObject();
      json.Key("finish_reason").String(FinishReasonName(finished->reason));
      json.Key("generated_tokens").Unsigned(finished->output_tokens);
      json.Key("seed").Unsigned(finished->seed);
      json.Key("input_length").Unsigned(PromptTokens()).EndObject();
    }
    if (head_.has_value()) WriteResume(*std::exchange(head_, std::nullopt), &json);
    json.EndObject();
    SseEnd(out);
  }

  void WriteDetails(JsonWriter* json) const {
    json->Key("details").BeginObject();
    json->Key("finish_reason").String(FinishReasonName(finished_.reason));
    json->Key("generated_tokens").Unsigned(finished_.output_tokens);
    json->Key("seed").Unsigned(finished_.seed);
    json->Key("prefill").BeginArray().EndArray().Key("tokens").BeginArray();
    for (size_t i = 0; i < tokens_.size(); ++i) {
      // Text that was held back to the end belongs to the last token.
      const bool tail = i + 1 == tokens_.size() && !tokens_[i].special;
      WriteToken(tokens_[i],
                 tail ? absl::StrCat(tokens_[i].text, finished_.text) : TokenText(tokens_[i]),
                 json);
    }
    json->EndArray();
    if (format_.top_tokens) {
      json->Key("top_tokens").BeginArray();
      for (const AnswerToken& token : tokens_) WriteTopTokens(token, json);
      json->EndArray();
    }
    json->EndObject();
  }

  uint32_t PromptTokens() const { return std::max(prompt_tokens_, finished_.prompt_tokens); }

  // Times in milliseconds, as TGI gives them.
  void AddTimings(HttpHeaders* headers) const {
    const auto add = [&](const char* name, int64_t value) {
      headers->emplace_back(name, absl::StrCat(value));
    };
    const int64_t tokens = std::max<int64_t>(1, finished_.output_tokens);
    add("x-total-time",
        (finished_.validation_us + finished_.queue_us + finished_.inference_us) / 1000);
    add("x-validation-time", finished_.validation_us / 1000);
    add("x-queue-time", finished_.queue_us / 1000);
    add("x-inference-time", finished_.inference_us / 1000);
    add("x-time-per-token", finished_.inference_us / tokens / 1000);
    add("x-prompt-tokens", PromptTokens());
    add("x-generated-tokens", finished_.output_tokens);
  }

  const TgiFormat format_;
  std::string text_;
  // Until the first event has said what of it a client gives back to go on elsewhere.
  std::optional<AnswerHead> head_;
  uint32_t index_ = 0;
  uint32_t prompt_tokens_ = 0;
  AnswerEnd finished_;
  AnswerToken last_;
  std::vector<AnswerToken> tokens_;
};

}  // namespace

std::unique_ptr<ResponseFormatter> NewTgiFormatter(TgiFormat format) {
  return std::make_unique<TgiFormatter>(std::move(format));
}

}  // namespace weft::router
