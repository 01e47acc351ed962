// The error of a request that asks for more tokens than fit: one text and one reason for all who
// find it out, by which clients know that another model might take it. Thread-safe, stateless.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft::router {

// A FieldError (errors.h) with the reason CONTEXT_LENGTH_EXCEEDED, OpenAI's code. `message` says
// what was asked for, of a prompt that it "is too long"; behind it stands "this model's maximum
// context length is". These are the words that langchain and litellm look for. `tokens_max`: of
// prompt and output together.
absl::Status ContextLengthError(absl::string_view field, absl::string_view message,
                                uint32_t tokens_max);

}  // namespace weft::router
