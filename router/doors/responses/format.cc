#include "router/doors/responses/format.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "router/doors/choice_parts.h"
#include "router/doors/http/json.h"
#include "router/doors/http/replies.h"
#include "router/doors/http/sse.h"
#include "router/doors/openai/logprobs_json.h"
#include "router/doors/responses/output.h"
#include "router/errors.h"

namespace weft::router {
namespace {

using Kind = OutputItem::Kind;

Kind KindOf(const AnswerPart& part) {
  if (part.kind == AnswerPart::Kind::kContent) return Kind::kMessage;
  return part.kind == AnswerPart::Kind::kReasoning ? Kind::kReasoning : Kind::kCall;
}

// What each kind of item has of its own: its id's beginning, the event of a piece of its text, that
// of all of it, and what the latter calls the text.
struct KindWords {
  absl::string_view id;
  absl::string_view delta;
  absl::string_view done;
  const char* text;
};
const KindWords& WordsOf(Kind kind) {
  static constexpr KindWords kWords[] = {
      {"msg_", "response.output_text.delta", "response.output_text.done", "text"},
      {"rs_", "response.reasoning_text.delta", "response.reasoning_text.done", "text"},
      {"fc_", "response.function_call_arguments.delta", "response.function_call_arguments.done",
       "arguments"}};
  return kWords[static_cast<size_t>(kind)];
}

class ResponsesFormatter : public ResponseFormatter {
 public:
  explicit ResponsesFormatter(ResponsesFormat format)
      : format_(std::move(format)), context_(format_.parts) {}

  bool streaming() const override { return format_.stream; }

  void Started(uint32_t /*index*/, const AnswerHead& head) override {
    prompt_tokens_ = head.prompt_tokens;
    cached_tokens_ = head.cached_tokens;
    parts_.Begin(context_, head);
  }

  void Step(uint32_t /*index*/, const AnswerToken* token, const AnswerEnd* finished,
            std::string* out) override {
    const uint32_t reasoned = parts_.reasoning_tokens();
    const std::vector<AnswerPart>& parts = parts_.Take(token, finished);
    if (token != nullptr) {
      ++output_tokens_;
      if (format_.logprobs && parts_.reasoning_tokens() == reasoned) KeepLogprob(*token);
    }
    if (format_.stream && !std::exchange(begun_, true)) {
      WriteState("response.created", out);
      WriteState("response.in_progress", out);
    }
    for (const AnswerPart& part : parts) TakePart(part, out);
    if (finished != nullptr) Finish(*finished, out);
  }

  void Fail(const absl::Status& status, std::string* out) override {
    const absl::Status error = Named(status);
    JsonWriter json = BeginEvent("error", out);
    json.Key("code").String(OpenAiErrorCode(error)).Key("message").String(error.message());
    json.Key("param");
    if (const std::optional<std::string> field = ErrorField(error)) {
      json.String(*field);
    } else {
      json.Null();
    }
    EndEvent(&json, out);
    if (open_) items_.back().status = "incomplete";
    status_ = "failed";
    error_ = error;
    WriteState("response.failed", out);
  }

  HttpReply Reply() override {
    if (format_.stream) return SseReply();
    HttpReply reply;
    JsonWriter json(&reply.body);
    WriteResponse(&reply.body, &json);
    return reply;
  }

  HttpReply Error(const absl::Status& status) override { return OpenAiError(Named(status)); }

 private:
  // The engine's field names in the words of Responses.
  static absl::Status Named(const absl::Status& status) {
    const std::string field = ErrorField(status).value_or("");
    if (field == "prompt" || field == "messages") return RenameField(status, "input");
    if (field == "max_tokens") return RenameField(status, "max_output_tokens");
    if (field == "stop_sequences") return RenameField(status, "stop");
    return status;
  }

  // -- Items ------------------------------------------------------------------------------------

  void TakePart(const AnswerPart& part, std::string* out) {
    const Kind kind = KindOf(part);
    if (kind == Kind::kReasoning && !format_.reasoning) return;
    const bool begins = part.kind == AnswerPart::Kind::kToolBegin;
    if (begins || !open_ || items_.back().kind != kind) {
      CloseItem("completed", out);
      OpenItem(kind, part, out);
    }
    // What was held of tokens without a text goes with the next piece of a message.
    std::string logprobs = std::exchange(held_logprobs_, std::string());
    if (part.text.empty()) return;
    OutputItem& item = items_.back();
    item.text += part.text;
    if (kind == Kind::kMessage && !logprobs.empty()) {
      absl::StrAppend(&item.logprobs, item.logprobs.empty() ? "" : ",", logprobs);
    }
    if (!format_.stream) return;
    JsonWriter json = BeginItemEvent(WordsOf(kind).delta, out);
    json.Key("delta").String(part.text);
    if (kind == Kind::kMessage) json.Key("logprobs").Raw(absl::StrCat("[", logprobs, "]"));
    EndEvent(&json, out);
  }

  void OpenItem(Kind kind, const AnswerPart& part, std::string* out) {
    open_ = true;
    OutputItem& item = items_.emplace_back();
    item.kind = kind;
    item.id = absl::StrCat(WordsOf(kind).id, format_.request_id, "_", items_.size() - 1);
    if (kind == Kind::kCall) {
      item.call_id = parts_.calls()[part.call].id;
      item.name = parts_.calls()[part.call].name;
    }
    if (!format_.stream) return;
    WriteItemEvent("response.output_item.added", out);
    if (kind != Kind::kCall) WritePartEvent("response.content_part.added", out);
  }

  // Does nothing when none is open.
  void CloseItem(absl::string_view status, std::string* out) {
    if (!std::exchange(open_, false)) return;
    OutputItem& item = items_.back();
    item.status = status;
    if (!format_.stream) return;
    const KindWords& words = WordsOf(item.kind);
    JsonWriter json = BeginItemEvent(words.done, out);
    json.Key(words.text).String(item.text);
    if (item.kind == Kind::kMessage) {
      json.Key("logprobs").Raw(absl::StrCat("[", item.logprobs, "]"));
    } else if (item.kind == Kind::kCall) {
      json.Key("name").String(item.name);
    }
    EndEvent(&json, out);
    if (item.kind != Kind::kCall) WritePartEvent("response.content_part.done", out);
    WriteItemEvent("response.output_item.done", out);
  }

  void Finish(const AnswerEnd& end, std::string* out) {
    output_tokens_ = end.output_tokens;
    const bool cut = end.reason == FinishReason::kLength;
    // An answer without a word is an empty message.
    if (items_.empty()) OpenItem(Kind::kMessage, AnswerPart(), out);
    CloseItem(cut ? "incomplete" : "completed", out);
    status_ = cut ? "incomplete" : "completed";
    completed_unix_s_ = absl::ToUnixSeconds(absl::Now());
    if (format_.stream) WriteState(cut ? "response.incomplete" : "response.completed", out);
  }

  void KeepLogprob(const AnswerToken& token) {
    if (!held_logprobs_.empty()) held_logprobs_.push_back(',');
    JsonWriter json(&held_logprobs_);
    WriteTokenLogprob(token, &json);
  }

  // -- Events -----------------------------------------------------------------------------------

  JsonWriter BeginEvent(absl::string_view type, std::string* out) {
    SseBegin(type, out);
    JsonWriter json(out);
    json.BeginObject().Key("type").String(type);
    json.Key("sequence_number").Unsigned(sequence_++);
    return json;
  }

  static void EndEvent(JsonWriter* json, std::string* out) {
    json->EndObject();
    SseEnd(out);
  }

  // Of the last item, or of its one part.
  JsonWriter BeginItemEvent(absl::string_view type, std::string* out) {
    JsonWriter json = BeginEvent(type, out);
    json.Key("item_id").String(items_.back().id);
    json.Key("output_index").Unsigned(items_.size() - 1);
    if (items_.back().kind != Kind::kCall) json.Key("content_index").Unsigned(0);
    return json;
  }

  void WriteItemEvent(absl::string_view type, std::string* out) {
    JsonWriter json = BeginEvent(type, out);
    json.Key("output_index").Unsigned(items_.size() - 1).Key("item");
    WriteOutputItem(items_.back(), &json);
    EndEvent(&json, out);
  }

  void WritePartEvent(absl::string_view type, std::string* out) {
    JsonWriter json = BeginItemEvent(type, out);
    json.Key("part");
    WriteOutputPart(items_.back(), &json);
    EndEvent(&json, out);
  }

  void WriteState(absl::string_view type, std::string* out) {
    JsonWriter json = BeginEvent(type, out);
    json.Key("response");
    WriteResponse(out, &json);
    EndEvent(&json, out);
  }

  // -- The whole --------------------------------------------------------------------------------

  // The answer as far as it is; `json` writes to `out`.
  void WriteResponse(std::string* out, JsonWriter* json) const {
    json->BeginObject().Key("id").String(absl::StrCat("resp_", format_.request_id));
    json->Key("object").String("response").Key("created_at").Signed(format_.created_unix_s);
    json->Key("status").String(status_).Key("completed_at");
    if (status_ == "completed") {
      json->Signed(completed_unix_s_);
    } else {
      json->Null();
    }
    json->Key("error");
    if (error_.ok()) {
      json->Null();
    } else {
      json->BeginObject().Key("code").String("server_error");
      json->Key("message").String(error_.message()).EndObject();
    }
    json->Key("incomplete_details");
    if (status_ == "incomplete") {
      json->BeginObject().Key("reason").String("max_output_tokens").EndObject();
    } else {
      json->Null();
    }
    json->Key("model").String(format_.model).Key("output").BeginArray();
    for (const OutputItem& item : items_) WriteOutputItem(item, json);
    json->EndArray().Key("usage");
    WriteUsage(json);
    absl::StrAppend(out, ",", format_.echo);
    json->EndObject();
  }

  // Null while the answer is on its way.
  void WriteUsage(JsonWriter* json) const {
    if (status_ == "in_progress") {
      json->Null();
      return;
    }
    json->BeginObject().Key("input_tokens").Unsigned(prompt_tokens_);
    json->Key("input_tokens_details").BeginObject().Key("cached_tokens").Unsigned(cached_tokens_);
    json->Key("cache_write_tokens").Unsigned(0).EndObject();
    json->Key("output_tokens").Unsigned(output_tokens_);
    json->Key("output_tokens_details").BeginObject();
    json->Key("reasoning_tokens").Unsigned(parts_.reasoning_tokens()).EndObject();
    json->Key("total_tokens").Unsigned(uint64_t{prompt_tokens_} + output_tokens_).EndObject();
  }

  const ResponsesFormat format_;
  const PartsContext context_;
  ChoiceParts parts_;
  std::vector<OutputItem> items_;
  // The last item may grow.
  bool open_ = false;
  // Of tokens whose text has not come out, as in OutputItem.
  std::string held_logprobs_;
  uint32_t prompt_tokens_ = 0;
  uint32_t cached_tokens_ = 0;
  uint32_t output_tokens_ = 0;
  absl::string_view status_ = "in_progress";
  absl::Status error_;
  int64_t completed_unix_s_ = 0;
  bool begun_ = false;
  uint64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<ResponseFormatter> NewResponsesFormatter(ResponsesFormat format) {
  return std::make_unique<ResponsesFormatter>(std::move(format));
}

}  // namespace weft::router
