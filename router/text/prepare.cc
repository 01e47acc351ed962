#include "router/text/prepare.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/scatter.h"
#include "router/text/answer_wishes.h"
#include "router/text/constraints/constraints.h"
#include "router/text/constraints/grammar_constraint.h"
#include "router/text/constraints/watermark.h"
#include "router/text/parts/part_parser.h"
#include "router/text/prompt_reader.h"
#include "router/text/resume.h"
#include "router/text/stream_text.h"

namespace weft::router {

namespace {

size_t BytesOf(const std::string& text) { return text.size(); }
size_t BytesOf(const std::vector<TokenId>& /*ids*/) { return 0; }
size_t BytesOf(const ChatPrompt& chat) { return TextBytes(chat); }

// Says which ids the shards hold back until the answer has its least length.
void HoldEnds(const std::vector<TokenId>& eos_ids, GenerateInput* input) {
  if (input->sampling.min_tokens == 0) return;
  std::vector<TokenId>& held = input->sampling.held_ids;
  held = input->stop_token_ids;
  if (!input->ignore_eos) held.insert(held.end(), eos_ids.begin(), eos_ids.end());
  SortIds(&held);
}

// Of an input with a grammar.
absl::StatusOr<std::unique_ptr<TokenConstraint>> MakeGrammarConstraint(
    const TextModel& model, const GenerateInput& input, const std::string& prompt_text) {
  if (model.grammars == nullptr) return FieldError(input.grammar_field, "is not served here");
  if (input.sampling.min_tokens > 0) {
    return FieldError("min_tokens", absl::StrCat("stands beside ", input.grammar_field,
                                                 ", which decides where the answer may end"));
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledGrammar> grammar,
                        model.grammars->Compile(*input.grammar, input.grammar_field));
  std::optional<GrammarEngine::Mark> mark;
  if (input.parts != nullptr) {
    mark = ReasoningMark(*model.tokenizer, *input.parts, !input.parts->tools.empty(), prompt_text);
  }
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<GrammarMatcher> matcher,
      model.grammars->NewMatcher(std::move(grammar), mark.value_or(GrammarEngine::Mark())));
  return FollowGrammar(std::move(matcher), input.grammar_field);
}

// Null where each token may be any. Behind HoldEnds.
absl::StatusOr<std::shared_ptr<ConstrainedLog>> MakeConstraint(const TextModel& model,
                                                               const GenerateInput& input,
                                                               const PromptText& prompt) {
  std::vector<std::unique_ptr<TokenConstraint>> constraints;
  std::vector<std::string> fields;
  const auto add = [&](std::unique_ptr<TokenConstraint> constraint, absl::string_view field) {
    constraints.push_back(std::move(constraint));
    fields.emplace_back(field);
  };
  if (input.grammar.has_value()) {
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<TokenConstraint> grammar,
                          MakeGrammarConstraint(model, input, prompt.text));
    add(std::move(grammar), input.grammar_field);
  }
  const std::vector<TokenId>& allowed = input.allowed_token_ids;
  if (!allowed.empty()) {
    const std::vector<TokenId>& held = input.sampling.held_ids;
    if (std::includes(held.begin(), held.end(), allowed.begin(), allowed.end())) {
      return FieldError("allowed_token_ids",
                        "must hold an id that does not end the answer where a least number of "
                        "tokens is asked for");
    }
    add(AllowOnly(allowed), "allowed_token_ids");
  }
  if (!input.bad_words.empty()) {
    WEFT_ASSIGN_OR_RETURN(std::vector<std::vector<TokenId>> sequences,
                          SpellWords(*model.tokenizer, input.bad_words));
    add(BanSequences(std::move(sequences)), "bad_words");
  }
  if (input.watermark) {
    if (!constraints.empty()) {
      return FieldError("watermark",
                        "goes with no grammar, required or strict calls, allowed ids or bad words");
    }
    add(PreferGreen(prompt.ids.back()), "watermark");
  } else if (!constraints.empty() && !input.sampling.held_ids.empty()) {
    // The shards hold them back, too; with the others it shows here whether anything is left.
    add(HoldBack(input.sampling.held_ids, input.sampling.min_tokens), "min_tokens");
  }
  if (constraints.empty()) return nullptr;
  auto log = std::make_shared<ConstrainedLog>(AllOf(std::move(constraints)), std::move(fields));
  if (input.resume.has_value()) {
    for (const TokenId id : input.resume->output_ids) log->Append(id);
  }
  return log;
}

// Two texts that fall together let requests of one tenant share blocks. For those of another it
// would take the tenant's own salt, which nobody is told.
uint64_t CacheSalt(uint64_t tenant_salt, absl::string_view text) {
  if (text.empty()) return tenant_salt;
  uint64_t salt = Scatter(tenant_salt);
  for (const char c : text) salt = Scatter(salt ^ static_cast<unsigned char>(c));
  return salt;
}

absl::Status CheckScores(const GenerateInput& input, uint32_t prompt_tokens) {
  if (!input.prompt_logprobs.has_value()) return absl::OkStatus();
  const uint64_t scores = uint64_t{prompt_tokens} * (1 + *input.prompt_logprobs);
  if (scores <= input.prompt_scores_max) return absl::OkStatus();
  return FieldError("prompt_logprobs",
                    absl::StrCat("asks for ", scores, " log-probabilities of a prompt of ",
                                 prompt_tokens, " tokens, at most ", input.prompt_scores_max));
}

// What each choice has for itself.
struct Choice {
  std::unique_ptr<StreamText> text;
  std::shared_ptr<ConstrainedLog> constraint;
};

absl::StatusOr<Choice> MakeChoice(const TextModel& model, const GenerateInput& input,
                                  const PromptText& prompt) {
  Choice choice;
  WEFT_ASSIGN_OR_RETURN(choice.constraint, MakeConstraint(model, input, prompt));
  StreamText::Wishes wishes;
  if (input.echo_prompt) wishes.echo = prompt.text;
  wishes.min_tokens = input.sampling.min_tokens;
  wishes.stop_token_ids = input.stop_token_ids;
  wishes.include_stop = input.include_stop_sequence;
  bool skip_special = input.skip_special_tokens;
  if (input.parts != nullptr && input.parts->told_apart) {
    skip_special = false;
    wishes.unseen_ids = *model.eos_ids;
    wishes.reasoning_open = PromptOpensReasoning(input.parts->reasoning_parser, prompt.text);
  }
  choice.text = std::make_unique<StreamText>(
      Detokenizer(model.tokenizer, skip_special, /*continues=*/true),
      StopMatcher(input.stop_sequences, input.include_stop_sequence), std::move(wishes));
  return choice;
}

// What all choices have in common and follows from the request alone.
void FillFromInput(const GenerateInput& input, int64_t now_us, const ArrivedRequest& arrived,
                   PreparedRequest* prepared) {
  prepared->max_tokens_named = input.max_tokens.has_value();
  prepared->sampling = input.sampling;
  prepared->priority = input.priority.value_or(0);
  prepared->ignore_eos = input.ignore_eos;
  prepared->stop_token_ids = input.stop_token_ids;
  prepared->deadline_us = input.deadline_us;
  prepared->times.arrival_us = arrived.arrival_us;
  prepared->times.prepared_us = now_us;
}

void Take(Choice choice, AnswerWriter writer, uint32_t text_workers, PreparedRequest* prepared) {
  prepared->text = std::move(choice.text);
  prepared->constraint = std::move(choice.constraint);
  prepared->text_worker = static_cast<uint32_t>(writer.answer().sequence() % text_workers);
  prepared->writer = std::move(writer);
}

}  // namespace

size_t TextBytes(const GenerateInput& input) {
  return std::visit([](const auto& prompt) { return BytesOf(prompt); }, input.prompt);
}

size_t TextBytes(const std::variant<std::string, ChatPrompt>& prompt) {
  return std::visit([](const auto& text) { return BytesOf(text); }, prompt);
}

absl::Status Prepare(const TextModel& model, const Admission& admission, uint32_t vocab_size,
                     const std::optional<PrefixHasher>& hasher, const Clock& clock, Probe* probe,
                     ArrivedRequest* arrived, PreparedRequest* prepared) {
  GenerateInput& input = arrived->input;
  AnswerWriter& writer = arrived->writers.front();
  Answer& answer = writer.answer();
  if (input.deadline_us > 0 && clock.NowUs() >= input.deadline_us) {
    answer.Cancel(CancelReason::kDeadline);
  }
  const CancelReason cancelled = answer.cancelled();
  if (cancelled != CancelReason::kNone) return CancelStatus(cancelled);
  WEFT_ASSIGN_OR_RETURN(
      PromptText prompt,
      ReadPrompt(*model.tokenizer, model.chat_template, vocab_size, admission.request_tokens_max(),
                 {&writer.permit(), &answer.unwanted()}, &input));
  const auto prompt_tokens = static_cast<uint32_t>(prompt.ids.size());
  WEFT_RETURN_IF_ERROR(CheckScores(input, prompt_tokens));
  prepared->prompt_only = input.max_tokens == 0u;
  if (prepared->prompt_only) input.max_tokens = 1;
  const absl::StatusOr<uint32_t> max_new_tokens =
      admission.OutputTokens(prompt_tokens, input.max_tokens);
  if (!max_new_tokens.ok()) {
    probe->Rejected(RejectReason::kTooLong, answer.tenant().get());
    return max_new_tokens.status();
  }
  HoldEnds(*model.eos_ids, &input);
  if (input.watermark) input.sampling.mask_penalty = kWatermarkBias;
  prepared->max_new_tokens = *max_new_tokens;
  std::vector<Choice> choices;
  for (size_t i = 0; i < arrived->writers.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(Choice choice, MakeChoice(model, input, prompt));
    choices.push_back(std::move(choice));
  }
  if (input.resume.has_value()) {
    WEFT_RETURN_IF_ERROR(ReadResumed(model, vocab_size, input, &writer.permit(),
                                     choices.front().text.get(), prepared));
    const std::vector<TokenId>& ids = input.resume->output_ids;
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
  }
  for (AnswerWriter& one : arrived->writers) {
    WEFT_RETURN_IF_ERROR(one.permit().AddTokens(static_cast<uint32_t>(prompt.ids.size())));
    one.permit().ReleaseTextBytes();
  }
  // Here and not on the engine's thread: a long prompt takes a millisecond.
  const uint64_t salt = CacheSalt(answer.tenant()->cache_salt, input.cache_salt);
  prepared->prompt = hasher.has_value() ? hasher->Hash(std::move(prompt.ids), salt)
                                        : Prompt(std::move(prompt.ids), salt);
  prepared->prompt_tokens = prompt_tokens;
  prepared->prompt_logprobs = input.prompt_logprobs;
  prepared->seed = arrived->seed;
  FillFromInput(input, clock.NowUs(), *arrived, prepared);
  for (size_t i = 1; i < choices.size(); ++i) {
    auto follower = std::make_unique<PreparedRequest>();
    follower->follows = true;
    follower->max_new_tokens = prepared->max_new_tokens;
    follower->prompt_only = prepared->prompt_only;
    follower->prompt = prepared->prompt.Copy();
    follower->prompt_tokens = prompt_tokens;
    // Below 2^53, as a drawn one is: clients give it back to have this choice alone. Requests of
    // neighbouring seeds have no choice in common.
    follower->seed = Scatter(Scatter(arrived->seed) + i) >> 11;
    FillFromInput(input, prepared->times.prepared_us, *arrived, follower.get());
    Take(std::move(choices[i]), std::move(arrived->writers[i]), arrived->text_workers,
         follower.get());
    prepared->followers.push_back(std::move(follower));
  }
  Take(std::move(choices[0]), std::move(writer), arrived->text_workers, prepared);
  return absl::OkStatus();
}

}  // namespace weft::router
