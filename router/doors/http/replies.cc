#include "router/doors/http/replies.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "router/doors/http/json.h"
#include "router/doors/identity/identity.h"
#include "router/errors.h"

namespace weft::router {
namespace {

int TgiCode(const absl::Status& status) {
  switch (HttpCode(status)) {
    case 400:
      return 422;
    case 500:
      return 424;
    default:
      return HttpCode(status);
  }
}

// Words of TGI's error_type, for the codes it knows, and plain ones for the others.
absl::string_view TgiType(int code) {
  switch (code) {
    case 422:
      return "validation";
    case 424:
      return "generation";
    case 429:
      return "overloaded";
    case 401:
      return "authentication";
    case 404:
      return "not_found";
    case 499:
      return "cancelled";
    case 503:
      return "unavailable";
    case 504:
      return "deadline";
    default:
      return code < 500 || code == 505 ? "request" : "generation";
  }
}

absl::string_view OpenAiType(int code) {
  if (code == 401) return "authentication_error";
  if (code == 429) return "rate_limit_error";
  if (code == 503) return "service_unavailable_error";
  return code < 500 || code == 505 ? "invalid_request_error" : "server_error";
}

std::string TgiBody(absl::string_view message, absl::string_view type) {
  std::string body;
  JsonWriter(&body)
      .BeginObject()
      .Key("error")
      .String(message)
      .Key("error_type")
      .String(type)
      .EndObject();
  return body;
}

std::string OpenAiBody(absl::string_view message, absl::string_view type,
                       const std::optional<std::string>& param, absl::string_view code) {
  std::string body;
  JsonWriter json(&body);
  json.BeginObject().Key("error").BeginObject();
  json.Key("message").String(message).Key("type").String(type).Key("param");
  if (param.has_value()) {
    json.String(*param);
  } else {
    json.Null();
  }
  json.Key("code");
  if (code.empty()) {
    json.Null();
  } else {
    json.String(code);
  }
  json.EndObject().EndObject();
  return body;
}

// OpenAI's and Anthropic's clients send what failed with 500 and above once more by themselves, and
// obey this. A deadline that has passed is not met by that, and what has failed for good fails
// again.
void AddRetryAdvice(HttpReply* reply) {
  if (reply->status == 500 || reply->status == 504) {
    reply->headers.emplace_back("x-should-retry", "false");
  }
}

absl::string_view AnthropicType(int code) {
  switch (code) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return code < 500 || code == 505 ? "invalid_request_error" : "api_error";
  }
}

std::string AnthropicBody(absl::string_view message, absl::string_view type) {
  std::string body;
  JsonWriter json(&body);
  json.BeginObject().Key("type").String("error").Key("error").BeginObject();
  json.Key("type").String(type).Key("message").String(message).EndObject().EndObject();
  return body;
}

bool IsAnthropicPath(absl::string_view path) {
  return path == "/v1/messages" || absl::StartsWith(path, "/v1/messages/");
}

// Beside those of OpenAI itself, vLLM's that are its alone.
bool IsOpenAiPath(absl::string_view path) {
  constexpr absl::string_view kOthers[] = {"/detokenize", "/embed", "/rerank", "/score"};
  return absl::StartsWith(path, "/v1/") ||
         std::find(std::begin(kOthers), std::end(kOthers), path) != std::end(kOthers);
}

// What a refusal says beside its body: how to be let in, or when to come back.
void AddRefusalHeaders(const absl::Status& status, HttpReply* reply) {
  if (absl::IsUnauthenticated(status)) {
    reply->headers.emplace_back("www-authenticate", kWwwAuthenticate);
  }
  const std::optional<absl::Duration> after = RetryAfter(status);
  if (!after.has_value()) return;
  // Whole seconds (RFC 9110, 10.2.3), never 0: that would invite a storm.
  const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(*after, absl::Seconds(1)));
  reply->headers.emplace_back("retry-after", absl::StrCat(std::max<int64_t>(1, seconds)));
}

}  // namespace

HttpReply TgiError(const absl::Status& status) {
  HttpReply reply;
  reply.status = TgiCode(status);
  reply.body = TgiErrorBody(status);
  AddRefusalHeaders(status, &reply);
  return reply;
}

std::string TgiErrorBody(const absl::Status& status) {
  return TgiBody(status.message(), TgiType(TgiCode(status)));
}

HttpReply OpenAiError(const absl::Status& status) {
  HttpReply reply;
  reply.status = HttpCode(status);
  reply.body = OpenAiErrorBody(status);
  AddRefusalHeaders(status, &reply);
  AddRetryAdvice(&reply);
  return reply;
}

std::string OpenAiErrorCode(const absl::Status& status) {
  const std::string reason = ErrorReason(status);
  if (!reason.empty()) return absl::AsciiStrToLower(reason);
  switch (HttpCode(status)) {
    case 401:
      return "invalid_api_key";
    case 404:
      return "model_not_found";
    case 499:
      return "cancelled";
    case 503:
      return "unavailable";
    case 504:
      return "deadline_exceeded";
    default:
      return HttpCode(status) >= 500 ? "internal_error" : "";
  }
}

std::string OpenAiErrorBody(const absl::Status& status) {
  return OpenAiBody(status.message(), OpenAiType(HttpCode(status)), ErrorField(status),
                    OpenAiErrorCode(status));
}

HttpReply AnthropicError(const absl::Status& status) {
  HttpReply reply;
  reply.status = HttpCode(status);
  reply.body = AnthropicErrorBody(status);
  AddRefusalHeaders(status, &reply);
  AddRetryAdvice(&reply);
  return reply;
}

std::string AnthropicErrorBody(const absl::Status& status) {
  return AnthropicBody(status.message(), AnthropicType(HttpCode(status)));
}

HttpReply TransportError(absl::string_view path, int code, absl::string_view message) {
  HttpReply reply;
  reply.status = code;
  if (IsAnthropicPath(path)) {
    reply.body = AnthropicBody(message, AnthropicType(code));
    return reply;
  }
  reply.body = IsOpenAiPath(path) ? OpenAiBody(message, OpenAiType(code), std::nullopt, "")
                                  : TgiBody(message, TgiType(code));
  return reply;
}

HttpReply TransportError(absl::string_view path, const absl::Status& status) {
  if (IsAnthropicPath(path)) return AnthropicError(status);
  return IsOpenAiPath(path) ? OpenAiError(status) : TgiError(status);
}

absl::string_view HttpReason(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 422:
      return "Unprocessable Content";
    case 424:
      return "Failed Dependency";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

}  // namespace weft::router
