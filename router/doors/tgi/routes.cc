#include "router/doors/tgi/routes.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/version.h"
#include "router/doors/http/call.h"
#include "router/doors/http/fields.h"
#include "router/doors/http/generate.h"
#include "router/doors/http/json.h"
#include "router/doors/http/parameters.h"
#include "router/doors/http/replies.h"
#include "router/doors/openai/request.h"
#include "router/doors/tgi/format.h"
#include "router/errors.h"

namespace weft::router {
namespace {

// Which of TGI's three generating routes.
enum class Route { kRoot, kGenerate, kGenerateStream };

constexpr RefusedField kRefusedParameters[] = {{"best_of", "1"},
                                               {"watermark", "false"},
                                               {"decoder_input_details", "false"},
                                               {"grammar", ""},
                                               {"adapter_id", ""},
                                               {"frequency_penalty_decay", ""},
                                               {"min_new_tokens", "0"},
                                               {"num_beams", "1"},
                                               {"stop_token_ids", "[]"},
                                               {"length_penalty", "1|1.0"}};

// What a body asked for.
struct TgiRequest {
  GenerateInput input;
  TgiFormat format;
  std::vector<std::string> ignored;
};

void ReadInputs(FieldReader& fields, GenerateInput* input, std::string* text) {
  const boost::json::value* inputs = fields.Value("inputs");
  if (inputs == nullptr) {
    fields.Fail("inputs", "is required");
  } else if (const boost::json::array* array = inputs->if_array()) {
    absl::StatusOr<std::vector<TokenId>> ids = ReadTokenIds(*array, "inputs");
    if (ids.ok()) {
      input->prompt = *std::move(ids);
    } else {
      fields.Fail(ids.status());
    }
  } else if (const boost::json::string* string = inputs->if_string()) {
    *text = std::string(string->data(), string->size());
    fields.Fail(CheckPromptText(*text, "inputs"));
    input->prompt = *text;
  } else {
    fields.Fail("inputs", absl::StrCat("must be a string or a list of token ids, not ",
                                       JsonKindName(*inputs)));
  }
}

// Greedy unless do_sample is true or a sampling knob is away from its neutral value.
void ReadTemperature(FieldReader& fields, SamplingParams* sampling) {
  const std::optional<float> temperature = fields.Float("temperature", {0, kTemperatureMax, true});
  const bool do_sample = fields.Bool("do_sample").value_or(false);
  const bool knob = temperature.value_or(1.0f) != 1.0f || sampling->top_k != 0 ||
                    sampling->top_p != 1.0f || sampling->typical_p != 1.0f ||
                    sampling->min_p != 0.0f;
  sampling->temperature = do_sample || knob ? temperature.value_or(1.0f) : 0.0f;
}

void ReadParameters(FieldReader& fields, const std::string& prompt_text, TgiRequest* request) {
  GenerateInput& input = request->input;
  TgiFormat& format = request->format;
  ReadCommonParameters(fields, &input);
  ReadTemperature(fields, &input.sampling);
  ReadStop(fields, "stop", &input);
  input.max_tokens = ReadTokenCount(fields, "max_new_tokens");
  input.truncate_prompt_tokens = ReadTokenCount(fields, "truncate");
  format.details = fields.Bool("details").value_or(false);
  if (fields.Bool("return_full_text").value_or(false)) {
    if (std::holds_alternative<std::string>(input.prompt)) {
      format.text_prefix = prompt_text;
    } else {
      input.echo_prompt = true;  // the text of ids is the tokenizer's to say
    }
  }
  input.sampling.top_logprobs =
      static_cast<uint32_t>(fields.Integer("top_n_tokens", 0, kTopLogprobsMax).value_or(0));
  format.top_tokens = input.sampling.top_logprobs > 0;
  fields.Refuse(kRefusedParameters);
}

absl::StatusOr<TgiRequest> ReadRequest(const Front& front, Route route, const HttpRequest& http) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::value body, ParseBody(http.body));
  TgiRequest request;
  GenerateInput& input = request.input;
  FieldReader fields(body.get_object());
  std::string prompt_text;
  ReadInputs(fields, &input, &prompt_text);

  const std::optional<bool> stream = fields.Bool("stream");
  request.format.stream =
      route == Route::kRoot ? stream.value_or(false) : route == Route::kGenerateStream;
  if (route != Route::kRoot && stream.has_value() && *stream != request.format.stream) {
    fields.Fail("stream", absl::StrCat("must be ", request.format.stream ? "true" : "false",
                                       " on this route, or left out"));
  }
  request.format.wrap_in_list = route == Route::kRoot && !request.format.stream;

  static const boost::json::object kNoParameters;
  const boost::json::object* object = fields.Object("parameters");
  FieldReader parameters(object == nullptr ? kNoParameters : *object, "parameters.");
  ReadParameters(parameters, prompt_text, &request);

  FieldReader* const readers[] = {&fields, &parameters};
  WEFT_RETURN_IF_ERROR(FinishFields(front, Door::kTgi, readers, &request.ignored));
  // A stream's tokens always carry their log-probability, a whole answer's only with details.
  input.sampling.logprobs =
      request.format.stream || request.format.details || request.format.top_tokens;
  input.correlation_id = http.request_id;
  return request;
}

// A user error that no engine has seen, counted here.
HttpReply Refusal(const Front& front, const absl::Status& status) {
  if (!RetryAfter(status).has_value()) front.probe().Failed(FailureReason::kValidation);
  return TgiError(status);
}

std::shared_ptr<HttpExchange> Generate(Front* front, Route route, HttpRequest http,
                                       HttpResponder& responder, IoWaker& waker) {
  absl::StatusOr<Admission::Permit> permit =
      front->Enter({http.authorization, http.api_key}, http.body.size());
  if (!permit.ok()) {
    responder.Reply(TgiError(permit.status()));
    return nullptr;
  }
  const auto read = [front, route](HttpRequest body) -> std::variant<ReadGeneration, HttpReply> {
    absl::StatusOr<TgiRequest> request = ReadRequest(*front, route, body);
    if (!request.ok()) return Refusal(*front, request.status());
    ReadGeneration generation;
    AddIgnoredHeader(request->ignored, &generation.headers);
    generation.input = std::move(request->input);
    generation.formatter = NewTgiFormatter(std::move(request->format));
    return generation;
  };
  return GenerateExchange::Start(front->entrance(), std::move(http), *std::move(permit), read,
                                 TgiError, responder, waker);
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

absl::StatusOr<std::string> ReadTokenize(const Front& front, const HttpRequest& http,
                                         bool* add_special_tokens,
                                         std::vector<std::string>* ignored) {
  WEFT_ASSIGN_OR_RETURN(const boost::json::value body, ParseBody(http.body));
  FieldReader fields(body.get_object());
  std::optional<std::string> text = fields.String("inputs");
  if (!text.has_value()) fields.Fail("inputs", "is required");
  if (text.has_value()) fields.Fail(CheckPromptText(*text, "inputs"));
  *add_special_tokens = fields.Bool("add_special_tokens").value_or(true);
  fields.Accept("parameters");  // TGI takes a whole generate request here
  FieldReader* const readers[] = {&fields};
  WEFT_RETURN_IF_ERROR(FinishFields(front, Door::kTgi, readers, ignored));
  return *std::move(text);
}

// Reads a tokenize call and hands it in under `permit`; the reply goes through `call`.
using TokenizeReader = void (*)(Front* front, HttpRequest http, Admission::Permit permit,
                                const std::shared_ptr<HttpCall>& call);

void Tokenize(Front* front, HttpRequest http, Admission::Permit permit,
              const std::shared_ptr<HttpCall>& call) {
  bool add_special_tokens = true;
  std::vector<std::string> ignored;
  absl::StatusOr<std::string> text = ReadTokenize(*front, http, &add_special_tokens, &ignored);
  if (!text.ok()) return call->Done(Refusal(*front, text.status()));
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
  front->entrance().Tokenize(*std::move(text), add_special_tokens, std::move(permit),
                             call->text_call(), std::move(done));
}

void ChatTokenize(Front* front, HttpRequest http, Admission::Permit permit,
                  const std::shared_ptr<HttpCall>& call) {
  absl::StatusOr<OpenAiRequest> chat = ReadChatRequest(*front, http, Door::kTgi);
  if (!chat.ok()) return call->Done(Refusal(*front, chat.status()));
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
      reply = TgiError(RenameField(result.status(), "messages"));
    }
    reply.headers.insert(reply.headers.end(), headers.begin(), headers.end());
    call->Done(std::move(reply));
  };
  front->entrance().Tokenize(std::get<ChatPrompt>(std::move(chat->input.prompt)), false,
                             std::move(permit), call->text_call(), std::move(done));
}

// Takes a permit and reads the body, a long one on a thread of text in.
std::shared_ptr<HttpExchange> StartTokenize(Front* front, TokenizeReader read, HttpRequest http,
                                            HttpResponder& responder, IoWaker& waker) {
  absl::StatusOr<Admission::Permit> permit =
      front->EnterText({http.authorization, http.api_key}, http.body.size());
  if (!permit.ok()) {
    responder.Reply(TgiError(permit.status()));
    return nullptr;
  }
  auto call = std::make_shared<HttpCall>(&responder, &waker);
  const size_t bytes = http.body.size();
  if (bytes < kLongBodyBytes) {
    read(front, std::move(http), *std::move(permit), call);
    return call;
  }
  absl::AnyInvocable<void()> job = [front, read, call, http = std::move(http),
                                    permit = *std::move(permit)]() mutable {
    if (!call->text_call()->left()) read(front, std::move(http), std::move(permit), call);
  };
  if (front->entrance().Run(bytes, std::move(job))) return call;
  responder.Reply(
      TgiError(OverloadedError("TEXT_QUEUE_FULL", "too many texts wait", absl::Seconds(1))));
  return nullptr;
}

HttpReply Health(const Front& front) {
  HttpReply reply;
  const ServerState state = front.Status().state;
  if (state == ServerState::kReady || state == ServerState::kRecovering) {
    reply.content_type = "";
    return reply;
  }
  reply.status = 503;
  reply.body = "{\"error\":\"unhealthy\",\"error_type\":\"healthcheck\"}";
  reply.headers.emplace_back("retry-after", "1");
  return reply;
}

HttpReply Info(const Front& front) {
  const ModelFacts model = front.entrance().Model();
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
  json.Key("max_concurrent_requests").Unsigned(front.options().queue_requests_max);
  json.Key("max_best_of").Unsigned(1).Key("max_stop_sequences").Unsigned(kStopSequencesMax);
  json.Key("max_input_tokens")
      .Unsigned(model.shape.request_tokens_max > 0 ? model.shape.request_tokens_max - 1 : 0);
  json.Key("max_total_tokens").Unsigned(model.shape.request_tokens_max);
  json.Key("max_top_n_tokens").Unsigned(kTopLogprobsMax).Key("max_client_batch_size").Unsigned(1);
  json.Key("router").String("weft-router").Key("version").String(Version());
  json.Key("sha").String(Revision()).Key("docker_label").Null().EndObject();
  return reply;
}

}  // namespace

void AddTgiRoutes(Front* front, HttpRouter* router) {
  const auto generate = [&](std::string path, Route route) {
    router->Add(HttpMethod::kPost, std::move(path),
                [front, route](HttpRequest request, HttpResponder& responder, IoWaker& waker) {
                  return Generate(front, route, std::move(request), responder, waker);
                });
  };
  generate("/", Route::kRoot);
  generate("/generate", Route::kGenerate);
  generate("/generate_stream", Route::kGenerateStream);
  router->Add(HttpMethod::kPost, "/tokenize",
              [front](HttpRequest request, HttpResponder& responder, IoWaker& waker) {
                return StartTokenize(front, Tokenize, std::move(request), responder, waker);
              });
  router->Add(HttpMethod::kPost, "/chat_tokenize",
              [front](HttpRequest request, HttpResponder& responder, IoWaker& waker) {
                return StartTokenize(front, ChatTokenize, std::move(request), responder, waker);
              });
  for (const char* path : {"/", "/health"}) {
    router->Add(HttpMethod::kGet, path, [front](HttpRequest, HttpResponder& responder, IoWaker&) {
      responder.Reply(Health(*front));
      return std::shared_ptr<HttpExchange>();
    });
  }
  router->Add(HttpMethod::kGet, "/info", [front](HttpRequest, HttpResponder& responder, IoWaker&) {
    responder.Reply(Info(*front));
    return std::shared_ptr<HttpExchange>();
  });
}

}  // namespace weft::router
