// The log-probability of one token as OpenAI's chats and Responses write it. Pure.

#pragma once

#include "router/answer.h"
#include "router/doors/http/json.h"

namespace weft::router {

// What OpenAI has for minus infinity stands in for a log-probability that is not finite.
float FiniteLogprob(float logprob);

// {"token", "logprob", "bytes", "top_logprobs": [...]}.
void WriteTokenLogprob(const AnswerToken& token, JsonWriter* json);

}  // namespace weft::router
