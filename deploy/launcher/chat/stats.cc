#include "deploy/launcher/chat/stats.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft::launcher {
namespace {

// Of the tokens behind the first one; 0 where there are none.
double TokensPerSecond(const Answer& answer) {
  const double rest_s = absl::ToDoubleSeconds(answer.after_first_token);
  return answer.output_tokens > 1 && rest_s > 0 ? (answer.output_tokens - 1) / rest_s : 0.0;
}

}  // namespace

void Stats::Add(const Answer& answer) {
  last_ = answer;
  last_.text.clear();
  ++answers_;
  output_tokens_ += answer.output_tokens;
  prompt_tokens_ += answer.prompt_tokens;
  cached_tokens_ += answer.cached_tokens;
  context_used_ = answer.prompt_tokens + answer.output_tokens;
}

std::string Stats::LastLine() const {
  return absl::StrFormat(
      "%d tokens, first after %.0f ms, then %.1f tokens/s; %d of prompt, %d cached",
      last_.output_tokens, absl::ToDoubleMilliseconds(last_.to_first_token), TokensPerSecond(last_),
      last_.prompt_tokens, last_.cached_tokens);
}

std::string Stats::Report(uint32_t context_tokens) const {
  std::string text;
  if (answers_ == 0) {
    text = "  no answer yet\n";
  } else {
    absl::StrAppendFormat(&text,
                          "  last answer  %d tokens, the first after %.0f ms, then %.1f tokens/s\n"
                          "  its prompt   %d tokens, %d of them cached\n"
                          "  all answers  %d: %d tokens; prompts: %d tokens, %d of them cached\n",
                          last_.output_tokens, absl::ToDoubleMilliseconds(last_.to_first_token),
                          TokensPerSecond(last_), last_.prompt_tokens, last_.cached_tokens,
                          answers_, output_tokens_, prompt_tokens_, cached_tokens_);
  }
  absl::StrAppendFormat(&text, "  context      %d tokens used, %d left of %d\n", context_used_,
                        context_tokens > context_used_ ? context_tokens - context_used_ : 0,
                        context_tokens);
  return text;
}

}  // namespace weft::launcher
