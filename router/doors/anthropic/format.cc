#include "router/doors/anthropic/format.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/doors/chat_json.h"
#include "router/doors/choice_parts.h"
#include "router/doors/http/json.h"
#include "router/doors/http/replies.h"
#include "router/doors/http/sse.h"
#include "router/errors.h"

namespace weft::router {
namespace {

using Kind = AnswerPart::Kind;

class AnthropicFormatter : public ResponseFormatter {
 public:
  explicit AnthropicFormatter(AnthropicFormat format)
      : format_(std::move(format)), context_(format_.parts) {}

  bool streaming() const override { return format_.stream; }

  void Started(uint32_t /*index*/, const AnswerHead& head) override {
    prompt_tokens_ = head.prompt_tokens;
    cached_tokens_ = head.cached_tokens;
    parts_.Begin(context_, head);
  }

  void Step(uint32_t /*index*/, const AnswerToken* token, const AnswerEnd* finished,
            std::string* out) override {
    if (token != nullptr) ++output_tokens_;
    const std::vector<AnswerPart>& parts = parts_.Take(token, finished);
    if (finished != nullptr) {
      output_tokens_ = finished->output_tokens;
      stop_sequence_ = finished->stop_sequence;
      stop_reason_ = StopReason(*finished);
    }
    if (!format_.stream) return parts_.Keep();
    if (!std::exchange(begun_, true)) WriteStart(out);
    for (const AnswerPart& part : parts) WritePart(part, out);
    if (finished != nullptr) WriteEnd(out);
  }

  void Fail(const absl::Status& status, std::string* out) override {
    SseBegin("error", out);
    *out += AnthropicErrorBody(NamedForAnthropic(status));
    SseEnd(out);
  }

  HttpReply Reply() override {
    if (format_.stream) return SseReply();
    HttpReply reply;
    JsonWriter json(&reply.body);
    json.BeginObject();
    WriteHead(&json);
    json.Key("content").BeginArray();
    if (format_.thinking && !parts_.reasoning().empty()) {
      json.BeginObject().Key("type").String("thinking").Key("thinking");
      json.String(parts_.reasoning()).Key("signature").String("").EndObject();
    }
    if (!parts_.content().empty()) {
      json.BeginObject().Key("type").String("text").Key("text").String(parts_.content());
      json.EndObject();
    }
    for (const AnsweredCall& call : parts_.calls()) WriteCall(call, &json);
    json.EndArray();
    WriteStop(&json);
    WriteUsage(output_tokens_, &json);
    json.EndObject();
    return reply;
  }

  HttpReply Error(const absl::Status& status) override {
    return AnthropicError(NamedForAnthropic(status));
  }

 private:
  const char* StopReason(const AnswerEnd& end) const {
    if (end.reason == FinishReason::kLength) return "max_tokens";
    if (end.reason == FinishReason::kStopSequence) return "stop_sequence";
    return parts_.called() ? "tool_use" : "end_turn";
  }

  // Members of a message in front of its content.
  void WriteHead(JsonWriter* json) const {
    json->Key("id").String(absl::StrCat("msg_", format_.request_id));
    json->Key("type").String("message").Key("role").String("assistant");
    json->Key("model").String(format_.model);
  }

  // Null while it is not known.
  void WriteStop(JsonWriter* json) const {
    json->Key("stop_reason");
    if (stop_reason_ == nullptr) {
      json->Null();
    } else {
      json->String(stop_reason_);
    }
    json->Key("stop_sequence");
    if (stop_sequence_.empty()) {
      json->Null();
    } else {
      json->String(stop_sequence_);
    }
  }

  void WriteUsage(uint32_t output_tokens, JsonWriter* json) const {
    json->Key("usage").BeginObject();
    json->Key("input_tokens").Unsigned(prompt_tokens_ - cached_tokens_);
    json->Key("cache_creation_input_tokens").Unsigned(0);
    json->Key("cache_read_input_tokens").Unsigned(cached_tokens_);
    json->Key("output_tokens").Unsigned(output_tokens).EndObject();
  }

  // Arguments that were cut off are no JSON, and a message holds nothing else.
  static void WriteCall(const AnsweredCall& call, JsonWriter* json) {
    json->BeginObject().Key("type").String("tool_use").Key("id").String(call.id);
    json->Key("name").String(call.name).Key("input");
    json->Raw(IsJsonObject(call.arguments) ? absl::string_view(call.arguments) : "{}").EndObject();
  }

  void WriteStart(std::string* out) const {
    SseBegin("message_start", out);
    JsonWriter json(out);
    json.BeginObject().Key("type").String("message_start").Key("message").BeginObject();
    WriteHead(&json);
    json.Key("content").BeginArray().EndArray();
    json.Key("stop_reason").Null().Key("stop_sequence").Null();
    WriteUsage(/*output_tokens=*/0, &json);
    json.EndObject().EndObject();
    SseEnd(out);
  }

  void WritePart(const AnswerPart& part, std::string* out) {
    if (part.kind == Kind::kReasoning && !format_.thinking) return;
    const bool begins = part.kind == Kind::kToolBegin;
    if (begins || !open_ || BlockOf(part.kind) != block_) OpenBlock(part, out);
    if (begins || part.text.empty()) return;
    SseBegin("content_block_delta", out);
    JsonWriter json(out);
    json.BeginObject().Key("type").String("content_block_delta").Key("index").Unsigned(index_);
    json.Key("delta").BeginObject().Key("type");
    switch (part.kind) {
      case Kind::kContent:
        json.String("text_delta").Key("text");
        break;
      case Kind::kReasoning:
        json.String("thinking_delta").Key("thinking");
        break;
      case Kind::kToolBegin:
      case Kind::kToolArguments:
        json.String("input_json_delta").Key("partial_json");
        break;
    }
    json.String(part.text).EndObject().EndObject();
    SseEnd(out);
  }

  // Both kinds of parts of a call are of one block.
  static Kind BlockOf(Kind kind) { return kind == Kind::kToolBegin ? Kind::kToolArguments : kind; }

  void OpenBlock(const AnswerPart& part, std::string* out) {
    CloseBlock(out);
    open_ = true;
    block_ = BlockOf(part.kind);
    SseBegin("content_block_start", out);
    JsonWriter json(out);
    json.BeginObject().Key("type").String("content_block_start").Key("index").Unsigned(index_);
    json.Key("content_block").BeginObject().Key("type");
    if (block_ == Kind::kContent) {
      json.String("text").Key("text").String("");
    } else if (block_ == Kind::kReasoning) {
      json.String("thinking").Key("thinking").String("").Key("signature").String("");
    } else {
      const AnsweredCall& call = parts_.calls()[part.call];
      json.String("tool_use").Key("id").String(call.id).Key("name").String(call.name);
      json.Key("input").BeginObject().EndObject();
    }
    json.EndObject().EndObject();
    SseEnd(out);
  }

  void CloseBlock(std::string* out) {
    if (!std::exchange(open_, false)) return;
    SseBegin("content_block_stop", out);
    JsonWriter(out)
        .BeginObject()
        .Key("type")
        .String("content_block_stop")
        .Key("index")
        .Unsigned(index_++)
        .EndObject();
    SseEnd(out);
  }

  void WriteEnd(std::string* out) {
    CloseBlock(out);
    SseBegin("message_delta", out);
    JsonWriter json(out);
    json.BeginObject().Key("type").String("message_delta").Key("delta").BeginObject();
    WriteStop(&json);
    json.EndObject();
    WriteUsage(output_tokens_, &json);
    json.EndObject();
    SseEnd(out);
    SseBegin("message_stop", out);
    *out += R"({"type":"message_stop"})";
    SseEnd(out);
  }

  const AnthropicFormat format_;
  const PartsContext context_;
  ChoiceParts parts_;
  uint32_t prompt_tokens_ = 0;
  uint32_t cached_tokens_ = 0;
  uint32_t output_tokens_ = 0;
  const char* stop_reason_ = nullptr;
  std::string stop_sequence_;
  bool begun_ = false;
  // The block that is being written, when one is, and its place.
  bool open_ = false;
  Kind block_ = Kind::kContent;
  uint32_t index_ = 0;
};

}  // namespace

absl::Status NamedForAnthropic(const absl::Status& status) {
  return ErrorField(status) == "prompt" ? RenameField(status, "messages") : status;
}

std::unique_ptr<ResponseFormatter> NewAnthropicFormatter(AnthropicFormat format) {
  return std::make_unique<AnthropicFormatter>(std::move(format));
}

}  // namespace weft::router
