#include "router/doors/tgi/tokenize.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/status.h"
#include "router/doors/http/call.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/json.h"
#include "router/doors/http/parameters.h"
#include "router/doors/http/replies.h"
#include "router/doors/openai/request.h"
#include "router/doors/openai/tokenize.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// [{id, text, start, stop}]: start and stop are bytes of the text, where the tokenizer tells them.
void WriteTokens(const TokenizeResult& result, absl::string_view text, JsonWriter* json) {
  json->BeginArray();
  for (size_t i = 0; i < result.ids.size(); ++i) {
    json->BeginObject().Key("id").Unsigned(result.ids[i]).Key("text");
    const bool known = i < result.offsets.size();
    const auto [start, stop] = known ? result.offsets[i] : std::pair<uint32_t, uint32_t>{0, 0};
    if (known && start < stop && stop <= text.size()) {
      json->String(text.substr(start, stop - start));
    } else {
      json->String(i < result.tokens.size() ? absl::string_view(result.tokens[i]) : "");
    }
    if (known) json->Key("start").Unsigned(start).Key("stop").Unsigned(stop);
    json->EndObject();
  }
  json->EndArray();
}

absl::StatusOr<std::string> ReadTokenize(const DoorContext& doors, const boost::json::object& body,
                                         bool* add_special_tokens,
                                         std::vector<std::string>* ignored) {
  FieldReader fields(body);
  std::optional<std::string> text = fields.String("inputs");
  if (!text.has_value()) fields.Fail("inputs", "is required");
  if (text.has_value()) fields.Fail(CheckPromptText(*text, "inputs"));
  *add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  fields.Accept("parameters");  // TGI takes a whole generate request here
  FieldReader* const readers[] = {&fields};
  WEFT_RETURN_IF_ERROR(FinishFields(doors, Door::kTgi, readers, ignored));
  return *std::move(text);
}

// The tokens of a conversation, with the rendered text beside them.
void ChatTokenize(DoorContext* doors, const boost::json::object& body,
                  const std::string& request_id, Admission::Permit permit,
                  const std::shared_ptr<HttpCall>& call) {
  absl::StatusOr<OpenAiRequest> chat = ReadChatRequest(*doors, body, request_id, Door::kTgi);
  if (!chat.ok()) return call->Done(TgiError(chat.status()));
  HttpHeaders headers;
  AddIgnoredHeader(chat->ignored, &headers);
  auto done = [call, headers](absl::StatusOr<TokenizeResult> result) {
    HttpReply reply;
    if (result.ok()) {
      JsonWriter json(&reply.body);
      json.BeginObject().Key("tokenize_response");
      WriteTokens(*result, result->text, &json);
      json.Key("templated_text").String(result->text).EndObject();
    } else {
      const bool is_prompt = ErrorField(result.status()) == "prompt";
      reply = TgiError(is_prompt ? RenameField(result.status(), "messages") : result.status());
    }
    reply.headers.insert(reply.headers.end(), headers.begin(), headers.end());
    call->Done(std::move(reply));
  };
  doors->entrance().Tokenize(std::get<ChatPrompt>(std::move(chat->inputs.front().prompt)), false,
                             std::move(permit), call->text_call(), std::move(done));
}

void Tokenize(DoorContext* doors, const boost::json::object& body, const std::string& request_id,
              Admission::Permit permit, const std::shared_ptr<HttpCall>& call) {
  if (IsVllmTokenize(body)) {
    return VllmTokenize(doors, body, request_id, std::move(permit), call);
  }
  bool add_special_tokens = true;
  std::vector<std::string> ignored;
  absl::StatusOr<std::string> text = ReadTokenize(*doors, body, &add_special_tokens, &ignored);
  if (!text.ok()) return call->Done(TgiError(text.status()));
  HttpHeaders headers;
  AddIgnoredHeader(ignored, &headers);
  auto done = [call, headers, text = *text](absl::StatusOr<TokenizeResult> result) {
    HttpReply reply;
    if (result.ok()) {
      JsonWriter json(&reply.body);
      WriteTokens(*result, text, &json);
    } else {
      reply = TgiError(RenameField(result.status(), "inputs"));
    }
    reply.headers.insert(reply.headers.end(), headers.begin(), headers.end());
    call->Done(std::move(reply));
  };
  doors->entrance().Tokenize(*std::move(text), add_special_tokens, std::move(permit),
                             call->text_call(), std::move(done));
}

}  // namespace

void AddTokenizeRoutes(DoorContext* doors, HttpRouter* router) {
  AddTextRoute(doors, "/tokenize", Tokenize, TgiError, router);
  AddTextRoute(doors, "/chat_tokenize", ChatTokenize, TgiError, router);
}

}  // namespace weft::router
