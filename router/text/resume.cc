#include "router/text/resume.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/errors.h"
#include "router/text/detokenizer.h"

namespace weft::router {
namespace {

constexpr absl::string_view kField = "resume.output_ids";

absl::Status CheckResumed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                          uint32_t vocab_size, uint32_t tokens_max) {
  if (ids.size() > tokens_max) {
    return FieldError(kField, absl::StrCat("has ", ids.size(), " ids; the answer has at most ",
                                           tokens_max, " tokens"));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < vocab_size) continue;
    return FieldError(kField, absl::StrCat("token id ", ids[i], " at position ", i,
                                           " is not below the vocabulary size ", vocab_size));
  }
  const size_t bytes = tokenizer.TokensBytes(ids);
  if (bytes > kPromptBytesMax) {
    return FieldError(kField, absl::StrCat("stands for ", bytes, " bytes of text; at most ",
                                           kPromptBytesMax, " are taken"));
  }
  return absl::OkStatus();
}

uint64_t CharacterCount(absl::string_view text) {
  return static_cast<uint64_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

absl::Status ReadResumed(const TextModel& model, uint32_t vocab_size, const GenerateInput& input,
                         Admission::Permit* permit, StreamText* text, PreparedRequest* prepared) {
  const std::vector<TokenId>& ids = input.resume->output_ids;
  WEFT_RETURN_IF_ERROR(CheckResumed(*model.tokenizer, ids, vocab_size, prepared->max_new_tokens));
  WEFT_RETURN_IF_ERROR(permit->AddBytes(model.tokenizer->TokensBytes(ids)));
  ResumedPart& part = prepared->resumed.emplace();
  prepared->resumed_fingerprint = input.resume->fingerprint;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (prepared->resumed_end.has_value()) {
      return FieldError(
          kField, absl::StrCat("goes on for ", ids.size() - i, " ids behind token ", ids[i - 1],
                               " at position ", i - 1, ", which ends the answer (",
                               FinishReasonName(*prepared->resumed_end), ")"));
    }
    part.last = ids[i];
    part.token_characters += CharacterCount(LossyText(model.tokenizer->TokenBytes(ids[i])));
    ++part.tokens;
    if (text->Replay(ids[i], &part.text)) {
      prepared->resumed_end = FinishReason::kStopSequence;
    } else if (std::binary_search(input.stop_token_ids.begin(), input.stop_token_ids.end(),
                                  ids[i])) {
      prepared->resumed_end = FinishReason::kStopToken;
    } else if (!input.ignore_eos &&
               std::binary_search(model.eos_ids->begin(), model.eos_ids->end(), ids[i])) {
      prepared->resumed_end = FinishReason::kEosToken;
    } else if (part.tokens == prepared->max_new_tokens) {
      prepared->resumed_end = FinishReason::kLength;
    }
  }
  // Until the answer is let go: whoever writes it may keep the text so long.
  permit->ChargeBytes(part.text.size());
  return absl::OkStatus();
}

}  // namespace weft::router
