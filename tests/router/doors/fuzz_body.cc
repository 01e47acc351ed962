// Fuzz target: a JSON body of any bytes, on every route that takes one, is answered with a 4xx and
// a JSON error, or becomes a request that keeps all promises; the same body written anew becomes
// the same request.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "common/check.h"
#include "router/doors/anthropic/routes.h"
#include "router/doors/door_context.h"
#include "router/doors/http/json.h"
#include "router/doors/http/router.h"
#include "router/doors/ollama/routes.h"
#include "router/doors/openai/routes.h"
#include "router/doors/responses/routes.h"
#include "router/doors/tgi/routes.h"
#include "router/observe/probe.h"
#include "tests/router/doors/checking_entrance.h"

namespace weft::router {
namespace {

// Keeps the answer that came at once, if one did.
class Answered : public HttpResponder {
 public:
  void Reply(HttpReply reply) override { reply_ = std::move(reply); }
  void BeginStream(HttpReply) override {}
  void Write(absl::string_view) override {}
  void Flush() override {}
  void EndStream() override {}
  bool writable() const override { return true; }

  const std::optional<HttpReply>& reply() const { return reply_; }

 private:
  std::optional<HttpReply> reply_;
};

struct Routes {
  Routes() {
    AddTgiRoutes(&doors, &router);
    AddOpenAiRoutes(&doors, &router);
    AddResponsesRoutes(&doors, &router);
    AddAnthropicRoutes(&doors, &router);
    AddOllamaRoutes(&doors, &router);
  }
  Probe probe;
  CheckingEntrance entrance;
  DoorContext doors{&entrance, &probe, {}};
  HttpRouter router;
  IoWaker waker{[] {}};
};

// The words of the request that the body becomes; empty when it is refused.
std::string Post(const char* path, const std::string& body) {
  static Routes routes;
  const auto match = routes.router.Find(HttpMethod::kPost, path);
  WEFT_CHECK(match.handler != nullptr && *match.gate != nullptr);
  HttpRequest request;
  // Nobody needs a key here: all are one tenant.
  request.tenant = *(*match.gate)("", "");
  request.method = HttpMethod::kPost;
  request.path = path;
  request.body = body;
  request.request_id = "fuzz";
  Answered answered;
  const auto exchange = (*match.handler)(std::move(request), answered, routes.waker);
  routes.waker.Drain();
  if (exchange != nullptr) exchange->OnGone(CancelReason::kClientGone);
  WEFT_CHECK(answered.reply().has_value());
  WEFT_CHECK_GE(answered.reply()->status, 400);
  WEFT_CHECK_LE(answered.reply()->status, 499);
  boost::system::error_code error;
  boost::json::parse(answered.reply()->body, error);
  WEFT_CHECK_MSG(!error, answered.reply()->body);
  std::string seen = routes.entrance.TakeSeen();
  // The entrance is always full; a door has no other reason to say so.
  WEFT_CHECK_EQ(answered.reply()->status == 429, !seen.empty());
  return seen;
}

}  // namespace
}  // namespace weft::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  const auto json = weft::router::ParseJson(body);
  for (const char* path :
       {"/", "/generate", "/generate_stream", "/tokenize", "/chat_tokenize", "/detokenize",
        "/invocations", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
        "/v1/messages/count_tokens", "/api/chat", "/api/generate"}) {
    const std::string seen = weft::router::Post(path, body);
    if (seen.empty()) continue;
    WEFT_CHECK(json.ok());
    const std::string again = boost::json::serialize(*json);
    // A number that no double holds, in an ignored field: Boost.JSON reads 1e999 as infinity and
    // 0e999 as no number, and writes them as words that are no JSON.
    if (absl::StrContains(again, "Infinity") || absl::StrContains(again, "NaN")) continue;
    WEFT_CHECK_EQ(weft::router::Post(path, again), seen);
  }
  return 0;
}
