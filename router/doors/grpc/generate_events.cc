#include "router/doors/grpc/generate_events.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "router/doors/grpc/request.h"
#include "router/prompt_scores.h"

namespace weft::router {
namespace {

weft::v1::FinishReason WireReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return weft::v1::FINISH_REASON_LENGTH;
    case FinishReason::kEosToken:
      return weft::v1::FINISH_REASON_EOS_TOKEN;
    case FinishReason::kStopSequence:
      return weft::v1::FINISH_REASON_STOP_SEQUENCE;
    case FinishReason::kStopToken:
      return weft::v1::FINISH_REASON_STOP_TOKEN;
  }
  return weft::v1::FINISH_REASON_UNSPECIFIED;
}

void FillTop(absl::Span<const TokenLogprob> from,
             google::protobuf::RepeatedPtrField<weft::v1::TokenLogprob>* out) {
  for (const TokenLogprob& top : from) {
    weft::v1::TokenLogprob* one = out->Add();
    one->set_id(top.id);
    one->set_logprob(top.logprob);
  }
}

void FillPromptDetails(const PromptScores& scores, weft::v1::PromptInfo* info) {
  for (size_t i = 0; i < scores.tokens(); ++i) {
    const AnswerToken token = scores.Token(i);
    weft::v1::PromptToken* out = info->add_prompt_details();
    out->set_id(token.id);
    if (!token.has_logprob) continue;
    out->set_logprob(token.logprob);
    out->set_rank(scores.Rank(i));
    FillTop(token.top, out->mutable_top());
  }
}

// One piece a run of parts of the same call.
void FillCall(const AnswerPart& part, const ChoiceParts& choice, weft::v1::Output* output) {
  const bool begins = part.kind == AnswerPart::Kind::kToolBegin;
  const int pieces = output->tool_calls_size();
  if (begins || pieces == 0 || output->tool_calls(pieces - 1).index() != part.call) {
    weft::v1::ToolCallDelta* const piece = output->add_tool_calls();
    piece->set_index(part.call);
    if (begins) {
      piece->set_id(choice.calls()[part.call].id);
      piece->set_name(part.name);
    }
  }
  *output->mutable_tool_calls(output->tool_calls_size() - 1)->mutable_arguments() += part.text;
}

}  // namespace

void GenerateEvents::TellApart(std::shared_ptr<const PartsSpec> spec) {
  if (spec == nullptr || !spec->told_apart) return;
  parts_ = std::make_unique<Parts>(std::move(spec), std::max(1u, request_.sampling().n()));
}

void GenerateEvents::FillText(const AnswerEvent& event, weft::v1::GenerateResponse* response) {
  std::string* const text = response->mutable_output()->mutable_text();
  if (event.token != nullptr) *text += event.token->text;
  if (event.end != nullptr) *text += event.end->text;
}

void GenerateEvents::FillParts(const AnswerEvent& event, weft::v1::GenerateResponse* response) {
  ChoiceParts& choice = parts_->choices[event.index];
  for (const AnswerPart& part : choice.Take(event.token, event.end)) {
    weft::v1::Output* const output = response->mutable_output();
    switch (part.kind) {
      case AnswerPart::Kind::kContent:
        *output->mutable_text() += part.text;
        break;
      case AnswerPart::Kind::kReasoning:
        if (!request_.response().omit_reasoning()) *output->mutable_reasoning() += part.text;
        break;
      case AnswerPart::Kind::kToolBegin:
      case AnswerPart::Kind::kToolArguments:
        FillCall(part, choice, output);
        break;
    }
  }
}

void GenerateEvents::FillToken(const AnswerToken& token, weft::v1::Output* output) const {
  if (!request_.response().omit_token_ids()) output->add_token_ids(token.id);
  if (!token.has_logprob) return;
  weft::v1::TokenDetail* detail = output->add_details();
  detail->set_logprob(token.logprob);
  FillTop(token.top, detail->mutable_top());
}

void GenerateEvents::FillFinish(const AnswerEvent& event, weft::v1::FinishInfo* info) const {
  const AnswerEnd& finished = *event.end;
  const bool called = parts_ != nullptr && parts_->choices[event.index].called();
  info->set_index(event.index);
  info->set_reason(called && finished.reason != FinishReason::kLength
                       ? weft::v1::FINISH_REASON_TOOL_CALLS
                       : WireReason(finished.reason));
  info->set_prompt_tokens(finished.prompt_tokens);
  info->set_output_tokens(finished.output_tokens);
  info->set_stop_sequence(finished.stop_sequence);
  if (finished.reason == FinishReason::kStopToken) info->set_stop_token_id(finished.stop_token);
}

void GenerateEvents::FillHead(const Answers& answers, const AnswerHead& head,
                              weft::v1::GenerateResponse* response) {
  if (std::exchange(head_sent_, true)) return;
  weft::v1::PromptInfo* info = response->mutable_prompt_info();
  info->set_request_id(answers.first().name());
  info->set_prompt_tokens(head.prompt_tokens);
  info->set_cached_tokens(head.cached_tokens);
  info->set_seed(head.seed);
  info->set_fingerprint(head.fingerprint);
  if (head.prompt_scores != nullptr) FillPromptDetails(*head.prompt_scores, info);
  if (head.resumed.has_value()) {
    info->set_resume_match(head.resumed->exact ? weft::v1::RESUME_MATCH_EXACT
                                               : weft::v1::RESUME_MATCH_INEXACT);
  }
}

bool GenerateEvents::TakeNext(Answers* answers, bool ends_only,
                              weft::v1::GenerateResponse* response, bool* last,
                              absl::Status* status) {
  if (!answers->Fetch()) return false;
  std::optional<AnswerEvent> event;
  do {
    event = answers->Next();
  } while (ends_only && event.has_value() && event->end == nullptr);
  if (!event.has_value()) return false;
  if (event->end != nullptr && !event->end->status.ok()) {
    *status = WithGrpcField(event->end->status, request_);
    return true;
  }
  if (event->head != nullptr) {
    FillHead(*answers, *event->head, response);
    if (parts_ != nullptr) parts_->choices[event->index].Begin(parts_->context, *event->head);
  }
  if (event->token != nullptr) {
    begun_ = true;
    FillToken(*event->token, response->mutable_output());
  }
  if (parts_ != nullptr) {
    FillParts(*event, response);
  } else if (event->token != nullptr || !event->end->text.empty()) {
    FillText(*event, response);
  }
  if (event->end != nullptr) FillFinish(*event, response->mutable_finish_info());
  if (response->has_output()) response->mutable_output()->set_index(event->index);
  *last = answers->ended();
  return true;
}

}  // namespace weft::router
