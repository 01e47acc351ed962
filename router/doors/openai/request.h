// Reads the body of /v1/chat/completions and /v1/completions into a GenerateInput and the wishes
// for the answer. /chat_tokenize takes the first body too. Runs on io_context threads, no state.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/doors/front.h"
#include "router/doors/http/message.h"
#include "router/doors/openai/format.h"
#include "router/request.h"

namespace weft::router {

struct OpenAiRequest {
  GenerateInput input;
  OpenAiFormat format;
  std::vector<std::string> ignored;
};

// `door` is where ignored fields are counted. NOT_FOUND for another model's name.
absl::StatusOr<OpenAiRequest> ReadChatRequest(const Front& front, const HttpRequest& http,
                                              Door door);
absl::StatusOr<OpenAiRequest> ReadCompletionRequest(const Front& front, const HttpRequest& http);

}  // namespace weft::router
