// Log-probabilities as OpenAI's chats, completions and Responses have them, of an answer's tokens and of a
// prompt's, and vLLM's `prompt_logprobs`. Pure functions; any thread.

#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "router/answer.h"
#include "router/doors/http/json.h"
#include "router/prompt_scores.h"

namespace weft::router {

// {"token", "logprob", "bytes", "top_logprobs": [...]}: of one token, in chats and in Responses.
void WriteTokenLogprob(const AnswerToken& token, JsonWriter* json);

// `choices[].logprobs` of a chat.
void WriteChatLogprobs(absl::Span<const AnswerToken> tokens, JsonWriter* json);

// `choices[].logprobs` of a completion, with the `top` most likely tokens of each place, 0: without
// them. `scores`: of the prompt that the text begins with; null when it does not. `offset` is the
// first token's place in the answer, in characters; moved on past the last.
void WriteCompletionLogprobs(const PromptScores* scores, absl::Span<const AnswerToken> tokens,
                             uint32_t top, uint64_t* offset, JsonWriter* json);

// vLLM's list: null for the first token of the prompt, then for each an object by id, of the token
// itself and the `top` most likely ones.
void WritePromptLogprobs(const PromptScores& scores, uint32_t top, JsonWriter* json);

}  // namespace weft::router
