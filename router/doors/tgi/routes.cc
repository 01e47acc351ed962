#include "router/doors/tgi/routes.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/version.h"
#include "router/doors/http/call.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/gate.h"
#include "router/doors/http/generation_route.h"
#include "router/doors/http/json.h"
#include "router/doors/http/parameters.h"
#include "router/doors/http/replies.h"
#include "router/doors/openai/request.h"
#include "router/doors/openai/routes.h"
#include "router/doors/tgi/format.h"
#include "router/doors/tgi/request.h"
#include "router/errors.h"

namespace weft::router {
namespace {

GenerationOrReply ReadGenerate(const DoorContext& doors, TgiRoute route,
                               const boost::json::object& body, const std::string& request_id) {
  absl::StatusOr<TgiRequest> request = ReadTgiRequest(doors, route, body, request_id);
  if (!request.ok()) return RefuseBody(doors, request.status(), TgiError);
  const uint32_t best_of = request->format.best_of;
  return MakeGeneration({std::move(request->input)}, best_of,
                        NewTgiFormatter(std::move(request->format)), request->ignored);
}

// True for a member that is there and not null.
bool Has(const boost::json::object& body, absl::string_view name) {
  const boost::json::value* const value = body.if_contains({name.data(), name.size()});
  return value != nullptr && !value->is_null();
}

// SageMaker sends bodies of every kind to one route. What a body is shows by the field that its
// kind cannot do without, looked for in TGI's order; one that has none of them is read as TGI's
// own, which says what is missing.
GenerationOrReply ReadInvocation(const DoorContext& doors, const boost::json::object& body,
                                 const std::string& request_id) {
  const bool chat = Has(body, "messages");
  if (!Has(body, "inputs") && (chat || Has(body, "prompt"))) {
    return ReadOpenAiGeneration(doors, chat, body, request_id, Door::kTgi);
  }
  return ReadGenerate(doors, TgiRoute::kRoot, body, request_id);
}

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

// Reads a tokenize call and hands it in under `permit`; the reply goes through `call`.
using TokenizeReader = void (*)(DoorContext* doors, HttpRequest http, Admission::Permit permit,
                                const std::shared_ptr<HttpCall>& call);

// The tokens of a conversation, with the rendered text beside them where that is wanted.
void TokenizeChat(DoorContext* doors, const boost::json::object& body, bool with_text,
                  const std::string& request_id, Admission::Permit permit,
                  const std::shared_ptr<HttpCall>& call) {
  absl::StatusOr<OpenAiRequest> chat = ReadChatRequest(*doors, body, request_id, Door::kTgi);
  if (!chat.ok()) return call->Done(TgiError(chat.status()));
  HttpHeaders headers;
  AddIgnoredHeader(chat->ignored, &headers);
  auto done = [call, headers, with_text](absl::StatusOr<TokenizeResult> result) {
    HttpReply reply;
    if (result.ok()) {
      JsonWriter json(&reply.body);
      if (with_text) json.BeginObject().Key("tokenize_response");
      WriteTokens(*result, result->text, &json);
      if (with_text) json.Key("templated_text").String(result->text).EndObject();
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

void ChatTokenize(DoorContext* doors, HttpRequest http, Admission::Permit permit,
                  const std::shared_ptr<HttpCall>& call) {
  const absl::StatusOr<boost::json::value> body = ParseBody(http.body);
  if (!body.ok()) return call->Done(TgiError(body.status()));
  TokenizeChat(doors, body->get_object(), /*with_text=*/true, http.request_id, std::move(permit),
               call);
}

void Tokenize(DoorContext* doors, HttpRequest http, Admission::Permit permit,
              const std::shared_ptr<HttpCall>& call) {
  const absl::StatusOr<boost::json::value> body = ParseBody(http.body);
  if (!body.ok()) return call->Done(TgiError(body.status()));
  const boost::json::object& object = body->get_object();
  if (Has(object, "messages") && !Has(object, "inputs")) {
    return TokenizeChat(doors, object, /*with_text=*/false, http.request_id, std::move(permit),
                        call);
  }
  bool add_special_tokens = true;
  std::vector<std::string> ignored;
  absl::StatusOr<std::string> text = ReadTokenize(*doors, object, &add_special_tokens, &ignored);
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

// Takes a permit and reads the body, a long one on a thread of text in.
std::shared_ptr<HttpExchange> StartTokenize(DoorContext* doors, TokenizeReader read,
                                            HttpRequest http, HttpResponder& responder,
                                            IoWaker& waker) {
  absl::StatusOr<Admission::Permit> permit =
      doors->entrance().EnterText(http.tenant, http.body.size());
  if (!permit.ok()) {
    responder.Reply(TgiError(permit.status()));
    return nullptr;
  }
  auto call = std::make_shared<HttpCall>(&responder, &waker);
  const size_t bytes = http.body.size();
  if (bytes < kLongBodyBytes) {
    read(doors, std::move(http), *std::move(permit), call);
    return call;
  }
  absl::AnyInvocable<void()> job = [doors, read, call, http = std::move(http),
                                    permit = *std::move(permit)]() mutable {
    if (!call->text_call()->left()) read(doors, std::move(http), std::move(permit), call);
  };
  if (doors->entrance().Run(bytes, std::move(job))) return call;
  responder.Reply(
      TgiError(OverloadedError("TEXT_QUEUE_FULL", "too many texts wait", absl::Seconds(1))));
  return nullptr;
}

HttpReply Health(const DoorContext& doors) {
  HttpReply reply;
  const ServerState state = doors.Status().state;
  if (state == ServerState::kReady || state == ServerState::kRecovering) {
    reply.content_type = "";
    return reply;
  }
  reply.status = 503;
  reply.body = "{\"error\":\"unhealthy\",\"error_type\":\"healthcheck\"}";
  reply.headers.emplace_back("retry-after", "1");
  return reply;
}

// What requests that sample and do not say how get (--generation-config).
void WriteSamplingDefaults(const SamplingParams& defaults, JsonWriter* json) {
  json->Key("sampling_defaults").BeginObject().Key("temperature").Float(defaults.temperature);
  json->Key("top_k").Unsigned(defaults.top_k).Key("top_p").Float(defaults.top_p);
  json->Key("min_p").Float(defaults.min_p).Key("typical_p").Float(defaults.typical_p);
  json->Key("repetition_penalty").Float(defaults.repetition_penalty).EndObject();
}

HttpReply Info(const DoorContext& doors) {
  const absl::StatusOr<ModelFacts> served = doors.ServedModel();
  if (!served.ok()) return TgiError(served.status());
  const ModelFacts& model = *served;
  HttpReply reply;
  JsonWriter json(&reply.body);
  json.BeginObject().Key("model_id").String(model.model_name);
  json.Key("model_sha").Null().Key("model_pipeline_tag").String("text-generation");
  json.Key("model_dtype")
      .String(model.shape.dtype)
      .Key("model_device_type")
      .String(model.shape.device);
  json.Key("model_family")
      .String(model.shape.family)
      .Key("parameters")
      .Unsigned(model.shape.parameters);
  json.Key("shards").Unsigned(model.shards).Key("vocab_size").Unsigned(model.shape.vocab_size);
  json.Key("max_concurrent_requests").Unsigned(model.requests_max);
  json.Key("max_best_of").Unsigned(1).Key("max_stop_sequences").Unsigned(kStopSequencesMax);
  json.Key("max_input_tokens")
      .Unsigned(model.shape.request_tokens_max > 0 ? model.shape.request_tokens_max - 1 : 0);
  json.Key("max_total_tokens").Unsigned(model.shape.request_tokens_max);
  json.Key("max_top_n_tokens").Unsigned(kTopLogprobsMax).Key("max_client_batch_size").Unsigned(1);
  json.Key("validation_workers").Unsigned(doors.options().text_threads);
  json.Key("router").String("weft-router").Key("version").String(Version());
  WriteSamplingDefaults(model.sampling_defaults, &json);
  json.Key("sha").String(Revision()).Key("docker_label").Null().EndObject();
  return reply;
}

}  // namespace

void AddTgiRoutes(DoorContext* doors, HttpRouter* router) {
  const HttpGate gate = KeyGate(doors);
  const auto add = [&](const char* path, BodyReader read) {
    AddGenerationRoute(doors, path, std::move(read), TgiError, router);
  };
  const auto generate = [](TgiRoute route) -> BodyReader {
    return [route](const DoorContext& to, const boost::json::object& body,
                   const std::string& request_id) {
      return ReadGenerate(to, route, body, request_id);
    };
  };
  add("/", generate(TgiRoute::kRoot));
  add("/generate", generate(TgiRoute::kGenerate));
  add("/generate_stream", generate(TgiRoute::kGenerateStream));
  add("/invocations", ReadInvocation);
  const auto add_tokenize = [&](std::string path, TokenizeReader read) {
    router->Add(
        HttpMethod::kPost, std::move(path),
        [doors, read](HttpRequest request, HttpResponder& responder, IoWaker& waker) {
          return StartTokenize(doors, read, std::move(request), responder, waker);
        },
        gate);
  };
  add_tokenize("/tokenize", Tokenize);
  add_tokenize("/chat_tokenize", ChatTokenize);
  for (const char* path : {"/", "/health", "/ping"}) {
    router->Add(HttpMethod::kGet, path, [doors](HttpRequest, HttpResponder& responder, IoWaker&) {
      responder.Reply(Health(*doors));
      return std::shared_ptr<HttpExchange>();
    });
  }
  router->Add(HttpMethod::kGet, "/info", [doors](HttpRequest, HttpResponder& responder, IoWaker&) {
    responder.Reply(Info(*doors));
    return std::shared_ptr<HttpExchange>();
  });
}

}  // namespace weft::router
