#include "router/doors/openai/tokenize.h"

#include <utility>
#include <variant>

#include "common/status.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/json.h"
#include "router/doors/http/parameters.h"
#include "router/doors/http/replies.h"
#include "router/doors/openai/messages.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// Of both forms.
constexpr RefusedField kRefused[] = {{"media_io_kwargs", "{}"}, {"mm_processor_kwargs", "{}"}};
// Templates write such tokens themselves.
constexpr RefusedField kRefusedOfChats[] = {{"add_special_tokens", "false"}};
constexpr RefusedField kRefusedOfTexts[] = {{"messages", ""}};

struct TokenizeAsk {
  std::variant<std::string, ChatPrompt> prompt;
  bool add_special_tokens = false;
  bool token_strs = false;
  HttpHeaders headers;
};

// The end of reading: checks what nobody asked for.
absl::Status Finish(const DoorContext& doors, FieldReader& fields, std::vector<std::string> ignored,
                    HttpHeaders* headers) {
  FieldReader* const readers[] = {&fields};
  WEFT_RETURN_IF_ERROR(FinishFields(doors, Door::kOpenAi, readers, &ignored));
  AddIgnoredHeader(ignored, headers);
  return absl::OkStatus();
}

absl::StatusOr<TokenizeAsk> ReadTokenize(const DoorContext& doors,
                                         const boost::json::object& body) {
  FieldReader fields(body);
  WEFT_RETURN_IF_ERROR(ReadModelName(doors, fields));
  TokenizeAsk ask;
  std::vector<std::string> ignored;
  if (HasMember(body, "prompt")) {
    std::string text = fields.String("prompt").value_or("");
    fields.Fail(CheckPromptText(text, "prompt"));
    ask.prompt = std::move(text);
    ask.add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
    fields.Refuse(kRefusedOfTexts);
  } else {
    ChatPrompt chat;
    ToolChoice choice;
    ReadChatPrompt(fields, &chat, &choice, &ignored);
    ask.prompt = std::move(chat);
    fields.Refuse(kRefusedOfChats);
  }
  ask.token_strs = fields.Bool("return_token_strs").value_or(false);
  fields.Refuse(kRefused);
  WEFT_RETURN_IF_ERROR(Finish(doors, fields, std::move(ignored), &ask.headers));
  return ask;
}

void WriteTokens(const TokenizeResult& result, uint32_t context_tokens, bool token_strs,
                 std::string* out) {
  JsonWriter json(out);
  json.BeginObject().Key("count").Unsigned(result.ids.size());
  json.Key("max_model_len").Unsigned(context_tokens).Key("tokens").BeginArray();
  for (const TokenId id : result.ids) json.Unsigned(id);
  json.EndArray().Key("token_strs");
  if (token_strs) {
    json.BeginArray();
    for (const std::string& token : result.tokens) json.String(token);
    json.EndArray();
  } else {
    json.Null();
  }
  json.EndObject();
}

struct DetokenizeAsk {
  std::vector<TokenId> ids;
  bool skip_special_tokens = false;
  HttpHeaders headers;
};

absl::StatusOr<DetokenizeAsk> ReadDetokenize(const DoorContext& doors,
                                             const boost::json::object& body) {
  FieldReader fields(body);
  WEFT_RETURN_IF_ERROR(ReadModelName(doors, fields));
  DetokenizeAsk ask;
  const boost::json::array* const list = fields.Array("tokens");
  if (list == nullptr) {
    fields.Fail("tokens", "is required");
  } else if (!list->empty()) {
    absl::StatusOr<std::vector<TokenId>> ids = ReadTokenIds(*list, "tokens");
    fields.Fail(ids.status());
    if (ids.ok()) ask.ids = *std::move(ids);
  }
  ask.skip_special_tokens = fields.Bool("skip_special_tokens").value_or(false);
  WEFT_RETURN_IF_ERROR(Finish(doors, fields, {}, &ask.headers));
  return ask;
}

void Detokenize(DoorContext* doors, const boost::json::object& body,
                const std::string& /*request_id*/, Admission::Permit permit,
                const std::shared_ptr<HttpCall>& call) {
  absl::StatusOr<DetokenizeAsk> ask = ReadDetokenize(*doors, body);
  if (!ask.ok()) return call->Done(OpenAiError(ask.status()));
  auto done = [call, headers = std::move(ask->headers)](absl::StatusOr<std::string> text) {
    HttpReply reply;
    if (text.ok()) {
      JsonWriter(&reply.body).BeginObject().Key("prompt").String(*text).EndObject();
    } else {
      const bool is_ids = ErrorField(text.status()) == "ids";
      reply = OpenAiError(is_ids ? RenameField(text.status(), "tokens") : text.status());
    }
    reply.headers.insert(reply.headers.end(), headers.begin(), headers.end());
    call->Done(std::move(reply));
  };
  doors->entrance().Detokenize(std::move(ask->ids), ask->skip_special_tokens, std::move(permit),
                               call->text_call(), std::move(done));
}

}  // namespace

bool IsVllmTokenize(const boost::json::object& body) {
  return !HasMember(body, "inputs") && (HasMember(body, "prompt") || HasMember(body, "messages"));
}

void VllmTokenize(DoorContext* doors, const boost::json::object& body,
                  const std::string& /*request_id*/, Admission::Permit permit,
                  const std::shared_ptr<HttpCall>& call) {
  absl::StatusOr<TokenizeAsk> ask = ReadTokenize(*doors, body);
  if (!ask.ok()) return call->Done(OpenAiError(ask.status()));
  const absl::StatusOr<ModelFacts> model = doors->ServedModel();
  if (!model.ok()) return call->Done(OpenAiError(model.status()));
  const bool chat = std::holds_alternative<ChatPrompt>(ask->prompt);
  auto done = [call, chat, token_strs = ask->token_strs, headers = std::move(ask->headers),
               context_tokens =
                   model->shape.context_tokens](absl::StatusOr<TokenizeResult> result) {
    HttpReply reply;
    if (result.ok()) {
      WriteTokens(*result, context_tokens, token_strs, &reply.body);
    } else {
      const bool rename = chat && ErrorField(result.status()) == "prompt";
      reply = OpenAiError(rename ? RenameField(result.status(), "messages") : result.status());
    }
    reply.headers.insert(reply.headers.end(), headers.begin(), headers.end());
    call->Done(std::move(reply));
  };
  doors->entrance().Tokenize(std::move(ask->prompt), ask->add_special_tokens, std::move(permit),
                             call->text_call(), std::move(done));
}

std::vector<absl::Span<const RefusedField>> RefusedTokenizeFields(bool chat) {
  if (chat) return {kRefused, kRefusedOfChats};
  return {kRefused, kRefusedOfTexts};
}

void AddDetokenizeRoute(DoorContext* doors, HttpRouter* router) {
  AddTextRoute(doors, "/detokenize", Detokenize, OpenAiError, router);
}

}  // namespace weft::router
