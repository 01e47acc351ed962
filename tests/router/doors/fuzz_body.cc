// Fuzz target: a JSON body of any bytes, on every route that takes one, is answered with a 4xx and
// a JSON error, or becomes a request.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "boost/json/parse.hpp"
#include "common/check.h"
#include "router/doors/door_context.h"
#include "router/doors/http/router.h"
#include "router/doors/openai/routes.h"
#include "router/doors/tgi/routes.h"
#include "router/observe/probe.h"
#include "tests/router/doors/fake_entrance.h"

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
  }
  Probe probe;
  FakeEntrance intake;
  DoorContext doors{&intake, &probe, {}};
  HttpRouter router;
  IoWaker waker{[] {}};
};

void PostEverywhere(const std::string& body) {
  static Routes routes;
  for (const char* path :
       {"/generate", "/generate_stream", "/tokenize", "/v1/chat/completions", "/v1/completions"}) {
    const auto match = routes.router.Find(HttpMethod::kPost, path);
    WEFT_CHECK(match.handler != nullptr && *match.gate != nullptr);
    HttpRequest request;
    // Nobody needs a key here: all are one tenant.
    request.tenant = *(*match.gate)("", "");
    request.method = HttpMethod::kPost;
    request.path = path;
    request.body = body;
    request.request_id = NewRequestId();
    Answered answered;
    const auto exchange = (*match.handler)(std::move(request), answered, routes.waker);
    if (exchange != nullptr) exchange->OnGone(CancelReason::kClientGone);
    if (!answered.reply().has_value()) continue;
    WEFT_CHECK_GE(answered.reply()->status, 400);
    WEFT_CHECK_LE(answered.reply()->status, 499);
    boost::system::error_code error;
    boost::json::parse(answered.reply()->body, error);
    WEFT_CHECK_MSG(!error, answered.reply()->body);
  }
}

}  // namespace
}  // namespace weft::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::router::PostEverywhere(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
