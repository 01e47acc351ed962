#include "router/doors/openai/format.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "router/doors/choice_parts.h"
#include "router/doors/http/json.h"
#include "router/doors/http/replies.h"
#include "router/doors/http/sse.h"
#include "router/doors/openai/logprobs_json.h"
#include "router/doors/openai/parts_json.h"
#include "router/errors.h"
#include "router/prompt_scores.h"

namespace weft::router {
namespace {

constexpr absl::string_view kStop = "stop";
constexpr absl::string_view kToolCalls = "tool_calls";

absl::string_view OpenAiFinishReason(FinishReason reason) {
  return reason == FinishReason::kLength ? absl::string_view("length") : kStop;
}

// What is known of one answer.
struct Choice {
  ChoiceParts parts;
  absl::string_view finish_reason = kStop;
  std::string stop_sequence;
  TokenId stop_token = kNoToken;
  std::vector<AnswerToken> tokens;
  std::vector<TokenId> ids;
  uint64_t text_offset = 0;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t output_tokens = 0;
  // Of all its tokens, for best_of.
  double logprob = 0;
  bool role_sent = false;
};

class OpenAiFormatter : public ResponseFormatter {
 public:
  explicit OpenAiFormatter(OpenAiFormat format)
      : format_(std::move(format)),
        parts_(format_.parts),
        choices_(size_t{format_.prompts} * format_.best_of),
        scores_(format_.prompts) {}

  bool streaming() const override { return format_.stream; }

  void Started(uint32_t index, const AnswerHead& started) override {
    Choice& choice = choices_[index];
    choice.prompt_tokens = started.prompt_tokens;
    choice.cached_tokens = started.cached_tokens;
    if (prefix_.empty()) {
      head_ = started;
      MakePrefix();
      if (format_.stream) MakePlain();
    }
    if (started.prompt_scores != nullptr) scores_[index / format_.best_of] = started.prompt_scores;
    choice.parts.Begin(parts_, started);
    if (!started.resumed.has_value()) return;
    // Counts and offsets go on where the broken stream stood; the role came with its first token.
    choice.output_tokens = started.resumed->tokens;
    choice.text_offset = started.resumed->token_characters;
    choice.role_sent = started.resumed->tokens > 0;
  }

  void Step(uint32_t index, const AnswerToken* token, const AnswerEnd* finished,
            std::string* out) override {
    Choice& choice = choices_[index];
    if (token != nullptr) {
      ++choice.output_tokens;
      choice.logprob += token->logprob;
    }
    if (finished != nullptr) {
      ++finished_;
      choice.prompt_tokens = finished->prompt_tokens;
      choice.output_tokens = finished->output_tokens;
      choice.finish_reason = OpenAiFinishReason(finished->reason);
      choice.stop_sequence = finished->stop_sequence;
      choice.stop_token = finished->stop_token;
    }
    const std::vector<AnswerPart>& parts = choice.parts.Take(token, finished);
    if (finished != nullptr && choice.parts.called() && choice.finish_reason == kStop) {
      choice.finish_reason = kToolCalls;
    }
    if (!format_.stream) return Collect(token, &choice);
    if (IsPlain(choice, parts, token, finished)) {
      *out += plain_begin_;
      AppendJsonString(parts.empty() ? absl::string_view() : parts.front().text, out);
      *out += plain_end_;
      return;
    }
    if (SaysNothing(choice, parts, finished)) return;
    SseBegin(out);
    *out += prefix_;
    WriteChunk(index, parts, token, finished, out);
    SseEnd(out);
    if (finished_ < choices_.size()) return;
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
    json.BeginArray();
    for (uint32_t prompt = 0; prompt < format_.prompts; ++prompt) {
      const std::vector<Choice*> best = BestOf(prompt);
      for (uint32_t i = 0; i < best.size(); ++i) {
        WriteChoice(prompt * format_.choices + i, scores_[prompt].get(), best[i], &json);
      }
    }
    json.EndArray();
    if (format_.chat && format_.prompt_logprobs.has_value() && scores_[0] != nullptr) {
      reply.body += ",\"prompt_logprobs\":";
      JsonWriter list(&reply.body);
      WritePromptLogprobs(*scores_[0], *format_.prompt_logprobs, &list);
    }
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
    if (field == "prompt_logprobs" && !format_.prompt_logprobs.has_value()) {
      return RenameField(status, "logprobs");
    }
    return status;
  }

  void Collect(const AnswerToken* token, Choice* choice) const {
    choice->parts.Keep();
    if (token == nullptr) return;
    if (format_.logprobs) choice->tokens.push_back(*token);
    if (format_.token_ids) choice->ids.push_back(token->id);
  }

  // The answers to a prompt that are given back, the most likely first where there are more.
  std::vector<Choice*> BestOf(uint32_t prompt) {
    std::vector<Choice*> best;
    for (uint32_t i = 0; i < format_.best_of; ++i) {
      best.push_back(&choices_[size_t{prompt} * format_.best_of + i]);
    }
    if (format_.best_of > format_.choices) {
      // Long answers are not the worse for being long.
      const auto mean = [](const Choice* choice) {
        return choice->logprob / std::max(1u, choice->output_tokens);
      };
      std::stable_sort(best.begin(), best.end(),
                       [&mean](const Choice* a, const Choice* b) { return mean(a) > mean(b); });
    }
    best.resize(format_.choices);
    return best;
  }

  // `scores`: of its prompt, or null.
  void WriteChoice(uint32_t index, const PromptScores* scores, Choice* choice, JsonWriter* json) {
    json->BeginObject().Key("index").Unsigned(index);
    if (format_.chat) {
      json->Key("message");
      WriteMessage(choice->parts, format_.reasoning, json);
    } else {
      json->Key("text").String(choice->parts.content());
    }
    json->Key("logprobs");
    WriteLogprobs(format_.echo_logprobs ? scores : nullptr, choice->tokens, choice, json);
    if (!format_.chat && format_.prompt_logprobs.has_value() && scores != nullptr) {
      json->Key("prompt_logprobs");
      WritePromptLogprobs(*scores, *format_.prompt_logprobs, json);
    }
    json->Key("finish_reason").String(choice->finish_reason);
    WriteStopReason(*choice, json);
    WriteIds(choice->ids, json);
    json->EndObject();
  }

  // A chunk of which nothing but its text differs from the one before and the one after: nearly
  // all of a stream of one answer are.
  bool IsPlain(const Choice& choice, const std::vector<AnswerPart>& parts, const AnswerToken* token,
               const AnswerEnd* finished) const {
    const bool one_text =
        parts.empty() ? !choice.parts.parsed()
                      : parts.size() == 1 && parts.front().kind == AnswerPart::Kind::kContent;
    return one_text && choices_.size() == 1 && token != nullptr && finished == nullptr &&
           !format_.logprobs && !format_.token_ids && !format_.usage_in_every_chunk &&
           (choice.role_sent || !format_.chat);
  }

  // A token of which nothing is known yet, or nothing is to be said, gets no chunk; of an answer
  // that is not told apart each token gets one.
  bool SaysNothing(const Choice& choice, const std::vector<AnswerPart>& parts,
                   const AnswerEnd* finished) const {
    if (!choice.parts.parsed() || finished != nullptr) return false;
    if (format_.logprobs || format_.token_ids || format_.usage_in_every_chunk) return false;
    for (const AnswerPart& part : parts) {
      if (format_.reasoning || part.kind != AnswerPart::Kind::kReasoning) return false;
    }
    return true;
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
    if (choices_.size() > 1 || format_.logprobs || format_.token_ids ||
        format_.usage_in_every_chunk) {
      return;
    }
    const std::vector<AnswerPart> parts = {{AnswerPart::Kind::kContent, 0, "", "x"}};
    const AnswerToken token;
    choices_[0].role_sent = true;
    std::string chunk;
    SseBegin(&chunk);
    chunk += prefix_;
    const size_t choices = chunk.size();
    WriteChunk(0, parts, &token, nullptr, &chunk);
    SseEnd(&chunk);
    choices_[0].role_sent = false;
    const size_t text = chunk.find("\"x\"", choices);
    plain_begin_ = chunk.substr(0, text);
    plain_end_ = chunk.substr(text + 3);
  }

  // The choices of a chunk and the rest of it, after `prefix_`.
  void WriteChunk(uint32_t index, const std::vector<AnswerPart>& parts, const AnswerToken* token,
                  const AnswerEnd* finished, std::string* out) {
    Choice& choice = choices_[index];
    JsonWriter json(out);
    json.BeginArray().BeginObject().Key("index").Unsigned(index);
    if (format_.chat) {
      json.Key("delta").BeginObject();
      // The role goes with the first token: a chunk of its own would fake the first token's time.
      if (!std::exchange(choice.role_sent, true)) json.Key("role").String("assistant");
      // Each token of an answer that is not told apart has a content, maybe an empty one.
      if (parts.empty() && token != nullptr && !choice.parts.parsed()) {
        json.Key("content").String("");
      }
      WriteDelta(parts, choice.parts, format_.reasoning, &json);
      json.EndObject();
    } else {
      json.Key("text").String(parts.empty() ? absl::string_view() : parts.front().text);
    }
    json.Key("logprobs");
    WriteLogprobs(nullptr,
                  token == nullptr ? absl::Span<const AnswerToken>()
                                   : absl::Span<const AnswerToken>(token, 1),
                  &choice, &json);
    json.Key("finish_reason");
    if (finished == nullptr) {
      json.Null();
    } else {
      json.String(choice.finish_reason);
      WriteStopReason(choice, &json);
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

  void WriteLogprobs(const PromptScores* scores, absl::Span<const AnswerToken> tokens,
                     Choice* choice, JsonWriter* json) const {
    if (!format_.logprobs || (format_.stream && tokens.empty())) {
      json->Null();
    } else if (format_.chat) {
      WriteChatLogprobs(tokens, json);
    } else {
      WriteCompletionLogprobs(scores, tokens, format_.top_logprobs, &choice->text_offset, json);
    }
  }

  void WriteIds(absl::Span<const TokenId> ids, JsonWriter* json) const {
    if (!format_.token_ids) return;
    json->Key("token_ids").BeginArray();
    for (const TokenId id : ids) json->Unsigned(id);
    json->EndArray();
  }

  // Which stop string or stop token ended the answer, as vLLM says it; nothing for other ends.
  static void WriteStopReason(const Choice& choice, JsonWriter* json) {
    if (!choice.stop_sequence.empty()) {
      json->Key("stop_reason").String(choice.stop_sequence);
    } else if (choice.stop_token != kNoToken) {
      json->Key("stop_reason").Unsigned(choice.stop_token);
    }
  }

  // Each prompt counts once, and every answer, also those that were not the best.
  void WriteUsage(std::string* out) const {
    uint64_t prompt_tokens = 0;
    uint64_t cached_tokens = 0;
    uint64_t output_tokens = 0;
    uint64_t reasoning_tokens = 0;
    for (size_t i = 0; i < choices_.size(); ++i) {
      output_tokens += choices_[i].output_tokens;
      reasoning_tokens += choices_[i].parts.reasoning_tokens();
      if (i % format_.best_of != 0) continue;
      prompt_tokens += choices_[i].prompt_tokens;
      cached_tokens += choices_[i].cached_tokens;
    }
    JsonWriter json(out);
    json.BeginObject().Key("prompt_tokens").Unsigned(prompt_tokens);
    json.Key("completion_tokens").Unsigned(output_tokens);
    json.Key("total_tokens").Unsigned(prompt_tokens + output_tokens);
    json.Key("prompt_tokens_details").BeginObject().Key("cached_tokens").Unsigned(cached_tokens);
    json.EndObject();
    if (format_.chat) {
      json.Key("completion_tokens_details").BeginObject();
      json.Key("reasoning_tokens").Unsigned(reasoning_tokens).EndObject();
    }
    json.EndObject();
  }

  const OpenAiFormat format_;
  const PartsContext parts_;
  // The choices of each prompt, one prompt behind the other.
  std::vector<Choice> choices_;
  // Of each prompt that was scored.
  std::vector<std::shared_ptr<const PromptScores>> scores_;
  size_t finished_ = 0;
  AnswerHead head_;
  // The same bytes begin every chunk, and more of them stand around the text of a plain one.
  std::string prefix_;
  std::string plain_begin_;
  std::string plain_end_;
  bool resume_sent_ = false;
};

}  // namespace

std::unique_ptr<ResponseFormatter> NewOpenAiFormatter(OpenAiFormat format) {
  return std::make_unique<OpenAiFormatter>(std::move(format));
}

}  // namespace weft::router
