#include "router/doors/ollama/format.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "router/doors/chat_json.h"
#include "router/doors/choice_parts.h"
#include "router/doors/http/json.h"
#include "router/doors/http/replies.h"
#include "router/errors.h"

namespace weft::router {
namespace {

class OllamaFormatter : public ResponseFormatter {
 public:
  explicit OllamaFormatter(OllamaFormat format)
      : format_(std::move(format)), context_(format_.parts) {}

  bool streaming() const override { return format_.stream; }

  void Started(uint32_t /*index*/, const AnswerHead& head) override {
    parts_.Begin(context_, head);
    begun_us_ = MonotonicClock().NowUs();
  }

  void Step(uint32_t /*index*/, const AnswerToken* token, const AnswerEnd* finished,
            std::string* out) override {
    std::string text, thinking;
    for (const AnswerPart& part : parts_.Take(token, finished)) {
      if (part.kind == AnswerPart::Kind::kContent) text += part.text;
      if (part.kind == AnswerPart::Kind::kReasoning) thinking += part.text;
    }
    parts_.Keep();
    if (!format_.stream) {
      if (finished != nullptr) WriteLine(parts_.content(), parts_.reasoning(), finished, &whole_);
    } else if (finished != nullptr || !text.empty() || !thinking.empty()) {
      WriteLine(text, thinking, finished, out);
    }
  }

  void Silence(std::string* out) override { WriteLine("", "", nullptr, out); }
  void Fail(const absl::Status& status, std::string* out) override {
    *out += TgiErrorBody(Named(status)) + "\n";
  }
  HttpReply Reply() override {
    HttpReply reply;
    if (format_.stream) reply.content_type = "application/x-ndjson";
    reply.body = std::move(whole_);
    return reply;
  }
  HttpReply Error(const absl::Status& status) override { return TgiError(Named(status)); }

 private:
  // The engine's field names in Ollama's words.
  absl::Status Named(const absl::Status& status) const {
    const std::string field = ErrorField(status).value_or("");
    if (field == "max_tokens") return RenameField(status, "options.num_predict");
    return format_.chat && field == "prompt" ? RenameField(status, "messages") : status;
  }

  void WriteLine(absl::string_view text, absl::string_view thinking, const AnswerEnd* finished,
                 std::string* out) const {
    JsonWriter json(out);
    json.BeginObject().Key("model").String(format_.model);
    json.Key("created_at").String(absl::FormatTime(absl::Now(), absl::UTCTimeZone()));
    if (format_.chat) json.Key("message").BeginObject().Key("role").String("assistant");
    json.Key(format_.chat ? "content" : "response").String(text);
    if (!thinking.empty()) json.Key("thinking").String(thinking);
    // Calls are objects, so that they come whole.
    if (finished != nullptr && parts_.called()) WriteCalls(&json);
    if (format_.chat) json.EndObject();
    json.Key("done").Bool(finished != nullptr);
    if (finished != nullptr) WriteEnd(*finished, &json);
    json.EndObject();
    out->push_back('\n');
  }

  void WriteCalls(JsonWriter* json) const {
    json->Key("tool_calls").BeginArray();
    for (const AnsweredCall& call : parts_.calls()) {
      json->BeginObject().Key("function").BeginObject().Key("name").String(call.name);
      json->Key("arguments").Raw(IsJsonObject(call.arguments) ? call.arguments : "{}");
      json->EndObject().EndObject();
    }
    json->EndArray();
  }

  // Durations in nanoseconds.
  void WriteEnd(const AnswerEnd& end, JsonWriter* json) const {
    const int64_t eval_us = std::min(end.inference_us, MonotonicClock().NowUs() - begun_us_);
    json->Key("done_reason").String(end.reason == FinishReason::kLength ? "length" : "stop");
    json->Key("total_duration")
        .Signed((end.validation_us + end.queue_us + end.inference_us) * 1000);
    json->Key("load_duration").Signed(end.queue_us * 1000);
    json->Key("prompt_eval_count").Unsigned(end.prompt_tokens);
    json->Key("prompt_eval_duration").Signed((end.inference_us - eval_us) * 1000);
    json->Key("eval_count").Unsigned(end.output_tokens);
    json->Key("eval_duration").Signed(eval_us * 1000);
  }

  const OllamaFormat format_;
  const PartsContext context_;
  ChoiceParts parts_;
  int64_t begun_us_ = 0;
  std::string whole_;
};

}  // namespace

std::unique_ptr<ResponseFormatter> NewOllamaFormatter(OllamaFormat format) {
  return std::make_unique<OllamaFormatter>(std::move(format));
}

}  // namespace weft::router
