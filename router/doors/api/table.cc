#include "router/doors/api/table.h"

namespace weft::router::api {
namespace {

using enum AnswerKind;
using enum ErrorShape;
using enum Port;

constexpr HttpMethod kGet = HttpMethod::kGet;
constexpr HttpMethod kPost = HttpMethod::kPost;

constexpr absl::string_view kOfOtherModels =
    "Not served: 400 not_supported_by_model, whatever the body";

// One a row, by family.
constexpr ApiRoute kRoutes[] = {
    // -- OpenAI, and vLLM beside it
    {kPost, "/v1/chat/completions", "Answers a conversation", "ChatRequest", kJsonOrStream, kOpenAi,
     true},
    {kPost, "/v1/completions", "Goes on with prompts", "CompletionRequest", kJsonOrStream, kOpenAi,
     true},
    {kPost, "/v1/responses", "Answers a conversation of items", "ResponsesRequest", kJsonOrStream,
     kOpenAi, true},
    {kGet, "/v1/models", "The served model, in a list", "", kJson, kOpenAi, true},
    {kGet, "/v1/models/{model}", "The served model by name or alias", "", kJson, kOpenAi, true},
    {kPost, "/detokenize", "The text of token ids", "DetokenizeRequest", kJson, kOpenAi, true},
    {kPost, "/v1/embeddings", kOfOtherModels, "*", kJson, kOpenAi, true},
    {kPost, "/embed", kOfOtherModels, "*", kJson, kOpenAi, true},
    {kPost, "/v1/rerank", kOfOtherModels, "*", kJson, kOpenAi, true},
    {kPost, "/rerank", kOfOtherModels, "*", kJson, kOpenAi, true},
    {kPost, "/v1/score", kOfOtherModels, "*", kJson, kOpenAi, true},
    {kPost, "/score", kOfOtherModels, "*", kJson, kOpenAi, true},
    // -- TGI
    {kPost, "/generate", "Goes on with a prompt", "GenerateRequest", kJson, kTgi, true},
    {kPost, "/generate_stream", "The same as a stream", "GenerateRequest", kStream, kTgi, true},
    {kPost, "/", "Either, by `stream`; a whole answer comes in a list", "GenerateRequest",
     kJsonOrStream, kTgi, true},
    {kPost, "/invocations", "SageMaker's route: a body of any of three kinds",
     "GenerateRequest|ChatRequest|CompletionRequest", kJsonOrStream, kTgi, true},
    {kPost, "/tokenize", "The tokens of a text: TGI's form with `inputs`, else vLLM's",
     "TokenizeInputs|TokenizeText|TokenizeChat", kJson, kTgi, true},
    {kPost, "/chat_tokenize", "The tokens of a conversation, and its text", "ChatRequest", kJson,
     kTgi, true},
    {kGet, "/", "As /health", "", kEmpty},
    {kGet, "/health", "Whether requests are taken", "", kEmpty},
    {kGet, "/ping", "As /health", "", kEmpty},
    {kGet, "/info", "Model and limits", "", kJson},
    // -- Anthropic
    {kPost, "/v1/messages", "Answers a conversation", "MessagesRequest", kJsonOrStream, kAnthropic,
     true},
    {kPost, "/v1/messages/count_tokens", "The number of a conversation's tokens",
     "CountTokensRequest", kJson, kAnthropic, true},
    // -- Ollama
    {kPost, "/api/chat", "Answers a conversation", "OllamaChatRequest", kJsonOrLines, kTgi, true},
    {kPost, "/api/generate", "Answers a prompt", "OllamaGenerateRequest", kJsonOrLines, kTgi, true},
    {kGet, "/api/tags", "The served model, in a list", "", kJson, kTgi, true},
    // -- Open Inference Protocol
    {kGet, "/v2", "Name and version of the server", "", kJson, kOpenInference},
    {kGet, "/v2/health/live", "As /livez", "", kJson, kOpenInference},
    {kGet, "/v2/health/ready", "As /readyz", "", kJson, kOpenInference},
    {kGet, "/v2/models/{model}", "The served model", "", kJson, kOpenInference, true},
    {kGet, "/v2/models/{model}/ready", "Whether it is served", "", kJson, kOpenInference},
    {kPost, "/v2/models/{model}/infer", "Not served: 501", "*", kJson, kOpenInference, true},
    // -- Operations
    {kGet, "/openapi.json", "This description", "", kJson},
    {kGet, "/server_info", "/info under SGLang's names", "", kJson},
    {kGet, "/get_server_info", "The same", "", kJson},
    {kGet, "/livez", "503 when work exists and no step ends", "", kJson, kTgi, false, kBoth},
    {kGet, "/readyz", "Whether to send requests here", "", kJson, kTgi, false, kBoth},
    {kGet, "/startupz", "503 until the model is ready", "", kJson, kTgi, false, kBoth},
    {kGet, "/metrics", "Prometheus text format", "", kText, kTgi, false, kBoth},
    {kGet, "/version", "The build", "", kJson, kTgi, false, kBoth},
    {kGet, "/config", "Effective flags", "", kJson, kTgi, false, kAdmin},
    {kPost, "/flush_cache", "Forgets cached prefixes that no request uses", "", kJson, kTgi, false,
     kAdmin},
    {kPost, "/reset_prefix_cache", "The same", "", kJson, kTgi, false, kAdmin},
    {kGet, "/debug/trace", "A timeline of the next seconds (1 to 60: `seconds`)", "", kJson, kTgi,
     false, kAdmin},
    // -- The page
    {kGet, "/ui", "The page to chat with the model", "", kText},
    {kGet, "/ui/", "The same", "", kText},
    {kGet, "/ui/{file}", "Its files", "", kText},
};

}  // namespace

absl::Span<const ApiRoute> ApiRoutes() { return kRoutes; }

}  // namespace weft::router::api
