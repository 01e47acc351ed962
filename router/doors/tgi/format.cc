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
#include "router/prompt_scores.h"
#include "router/text/detokenizer.h"

namespace weft::router {
namespace {

// A control token shows its own text, every other one the text that became certain with it, so that
// the texts of a stream add up to the answer.
absl::string_view TokenText(const AnswerToken& token) {
  return token.special ? token.bytes : token.text;
}

// TGI's clients know three words.
absl::string_view TgiFinishReason(FinishReason reason) {
  return FinishReasonName(reason == FinishReason::kStopToken ? FinishReason::kStopSequence
                                                             : reason);
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

// Of the prompt's tokens, the first without a log-probability.
void WritePrefill(const PromptScores* scores, JsonWriter* json) {
  json->BeginArray();
  for (size_t i = 0; scores != nullptr && i < scores->tokens(); ++i) {
    const AnswerToken token = scores->Token(i);
    json->BeginObject().Key("id").Unsigned(token.id);
    json->Key("text").String(LossyText(token.bytes)).Key("logprob");
    if (token.has_logprob) {
      json->Float(token.logprob);
    } else {
      json->Null();
    }
    json->EndObject();
  }
  json->EndArray();
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
std::string TgiName(const std::string& field) {
  if (field == "prompt") return "inputs";
  if (field == "max_tokens") return "parameters.max_new_tokens";
  if (field == "truncate_prompt_tokens") return "parameters.truncate";
  if (field == "stop_sequences") return "parameters.stop";
  if (field == "min_tokens") return "parameters.min_new_tokens";
  if (field == "prompt_logprobs") return "parameters.decoder_input_details";
  if (field == "top_logprobs") return "parameters.top_n_tokens";
  return absl::StrCat("parameters.", field);
}

// What is known of one answer.
struct Choice {
  std::string text;
  uint32_t index = 0;
  uint32_t prompt_tokens = 0;
  AnswerEnd finished;
  AnswerToken last;
  std::vector<AnswerToken> tokens;
  // Of all its tokens, for best_of.
  double logprob = 0;

  uint32_t PromptTokens() const { return std::max(prompt_tokens, finished.prompt_tokens); }
};

class TgiFormatter : public ResponseFormatter {
 public:
  explicit TgiFormatter(TgiFormat format) : format_(std::move(format)), choices_(format_.best_of) {
    for (Choice& choice : choices_) choice.text = format_.text_prefix;
  }

  bool streaming() const override { return format_.stream; }

  void Step(uint32_t index, const AnswerToken* token, const AnswerEnd* finished,
            std::string* out) override {
    Choice& choice = choices_[index];
    if (token != nullptr) {
      choice.text += token->text;
      choice.logprob += token->logprob;
    }
    if (finished != nullptr) {
      choice.text += finished->text;
      choice.finished = *finished;
    }
    if (!format_.stream) {
      if (token != nullptr && format_.details) choice.tokens.push_back(*token);
      return;
    }
    // The last event needs a token too. When the end became known only after the last token had
    // been sent, that token is named again, with the text that had been held back.
    AnswerToken last;
    if (token == nullptr) {
      last = choice.last;
      last.text = finished->text;
      last.special = false;
      WriteEvent(choice, last, last.text, finished, out);
      return;
    }
    ++choice.index;
    WriteEvent(choice, *token,
               finished == nullptr || token->special ? std::string(TokenText(*token))
                                                     : absl::StrCat(token->text, finished->text),
               finished, out);
    choice.last.id = token->id;
    choice.last.has_logprob = token->has_logprob;
    choice.last.logprob = token->logprob;
  }

  void Fail(const absl::Status& status, std::string* out) override {
    SseBegin(out);
    *out += TgiErrorBody(RenameFields(status, &TgiName));
    SseEnd(out);
  }

  HttpReply Reply() override {
    if (format_.stream) return SseReply();
    // The most likely one is the answer; of equals the first.
    std::stable_sort(choices_.begin(), choices_.end(), [](const Choice& a, const Choice& b) {
      return MeanLogprob(a) > MeanLogprob(b);
    });
    const Choice& best = choices_.front();
    HttpReply reply;
    AddTimings(best.finished, best.PromptTokens(), &reply.headers);
    JsonWriter json(&reply.body);
    if (format_.wrap_in_list) json.BeginArray();
    json.BeginObject().Key("generated_text").String(best.text);
    if (format_.details) {
      json.Key("details").BeginObject();
      WriteDetails(best, &json);
      if (choices_.size() > 1) WriteOthers(&json);
      json.EndObject();
    }
    json.EndObject();
    if (format_.wrap_in_list) json.EndArray();
    return reply;
  }

  HttpReply Error(const absl::Status& status) override {
    return TgiError(RenameFields(status, &TgiName));
  }

  void Started(uint32_t index, const AnswerHead& started) override {
    Choice& choice = choices_[index];
    choice.prompt_tokens = started.prompt_tokens;
    head_ = started;
    if (started.prompt_scores != nullptr) scores_ = started.prompt_scores;
    if (!started.resumed.has_value()) return;
    // Numbers, and the whole text at the end, go on where the broken stream stood.
    choice.index = started.resumed->tokens;
    choice.last.id = started.resumed->last;
    choice.text += started.resumed->text;
  }

 private:
  // Long answers are not the worse for being long.
  static double MeanLogprob(const Choice& choice) {
    return choice.logprob / std::max(1u, choice.finished.output_tokens);
  }

  void WriteEvent(const Choice& choice, const AnswerToken& token, absl::string_view text,
                  const AnswerEnd* finished, std::string* out) {
    SseBegin(out);
    JsonWriter json(out);
    json.BeginObject().Key("index").Unsigned(choice.index).Key("token");
    WriteToken(token, text, &json);
    if (format_.top_tokens) {
      json.Key("top_tokens");
      WriteTopTokens(token, &json);
    }
    if (finished == nullptr) {
      out->append(",\"generated_text\":null,\"details\":null");
    } else {
      json.Key("generated_text").String(choice.text).Key("details").BeginObject();
      json.Key("finish_reason").String(TgiFinishReason(finished->reason));
      json.Key("generated_tokens").Unsigned(finished->output_tokens);
      json.Key("seed").Unsigned(finished->seed);
      json.Key("input_length").Unsigned(choice.PromptTokens()).EndObject();
    }
    if (head_.has_value()) WriteResume(*std::exchange(head_, std::nullopt), &json);
    json.EndObject();
    SseEnd(out);
  }

  void WriteDetails(const Choice& choice, JsonWriter* json) const {
    json->Key("finish_reason").String(TgiFinishReason(choice.finished.reason));
    json->Key("generated_tokens").Unsigned(choice.finished.output_tokens);
    json->Key("seed").Unsigned(choice.finished.seed);
    json->Key("prefill");
    WritePrefill(scores_.get(), json);
    json->Key("tokens").BeginArray();
    const std::vector<AnswerToken>& tokens = choice.tokens;
    for (size_t i = 0; i < tokens.size(); ++i) {
      // Text that was held back to the end belongs to the last token.
      const bool tail = i + 1 == tokens.size() && !tokens[i].special;
      WriteToken(tokens[i],
                 tail ? absl::StrCat(tokens[i].text, choice.finished.text) : TokenText(tokens[i]),
                 json);
    }
    json->EndArray();
    if (format_.top_tokens) {
      json->Key("top_tokens").BeginArray();
      for (const AnswerToken& token : tokens) WriteTopTokens(token, json);
      json->EndArray();
    }
  }

  void WriteOthers(JsonWriter* json) const {
    json->Key("best_of_sequences").BeginArray();
    for (size_t i = 1; i < choices_.size(); ++i) {
      json->BeginObject().Key("generated_text").String(choices_[i].text);
      WriteDetails(choices_[i], json);
      json->EndObject();
    }
    json->EndArray();
  }

  // Times in milliseconds, as TGI gives them.
  static void AddTimings(const AnswerEnd& finished, uint32_t prompt_tokens, HttpHeaders* headers) {
    const auto add = [&](const char* name, int64_t value) {
      headers->emplace_back(name, absl::StrCat(value));
    };
    const int64_t tokens = std::max<int64_t>(1, finished.output_tokens);
    add("x-total-time",
        (finished.validation_us + finished.queue_us + finished.inference_us) / 1000);
    add("x-validation-time", finished.validation_us / 1000);
    add("x-queue-time", finished.queue_us / 1000);
    add("x-inference-time", finished.inference_us / 1000);
    add("x-time-per-token", finished.inference_us / tokens / 1000);
    add("x-prompt-tokens", prompt_tokens);
    add("x-generated-tokens", finished.output_tokens);
  }

  const TgiFormat format_;
  std::vector<Choice> choices_;
  // Of the prompt; null unless it was scored.
  std::shared_ptr<const PromptScores> scores_;
  // Until the first event has said what of it a client gives back to go on elsewhere.
  std::optional<AnswerHead> head_;
};

}  // namespace

std::unique_ptr<ResponseFormatter> NewTgiFormatter(TgiFormat format) {
  return std::make_unique<TgiFormatter>(std::move(format));
}

}  // namespace weft::router
