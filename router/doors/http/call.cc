#include "router/doors/http/call.h"

#include "absl/time/time.h"
#include "common/limits.h"
#include "router/doors/http/gate.h"
#include "router/doors/http/parameters.h"
#include "router/errors.h"

namespace weft::router {
namespace {

struct TextRoute {
  DoorContext* doors;
  TextCallReader read;
  HttpReply (*refuse)(const absl::Status&);
};

void Read(const TextRoute& route, const HttpRequest& http, Admission::Permit permit,
          const std::shared_ptr<HttpCall>& call) {
  const absl::StatusOr<boost::json::value> body = ParseBody(http.body);
  if (!body.ok()) return call->Done(route.refuse(body.status()));
  route.read(route.doors, body->get_object(), http.request_id, std::move(permit), call);
}

std::shared_ptr<HttpExchange> Start(const TextRoute& route, HttpRequest http,
                                    HttpResponder& responder, IoWaker& waker) {
  Entrance& entrance = route.doors->entrance();
  const size_t bytes = http.body.size();
  absl::StatusOr<Admission::Permit> permit = entrance.EnterText(http.tenant, bytes);
  if (!permit.ok()) {
    responder.Reply(route.refuse(permit.status()));
    return nullptr;
  }
  auto call = std::make_shared<HttpCall>(&responder, &waker);
  if (bytes < kLongBodyBytes) {
    Read(route, http, *std::move(permit), call);
    return call;
  }
  absl::AnyInvocable<void()> job = [route, call, http = std::move(http),
                                    permit = *std::move(permit)]() mutable {
    if (!call->text_call()->left()) Read(route, http, std::move(permit), call);
  };
  if (entrance.Run(bytes, std::move(job))) return call;
  responder.Reply(
      route.refuse(OverloadedError("TEXT_QUEUE_FULL", "too many texts wait", absl::Seconds(1))));
  return nullptr;
}

}  // namespace

void AddTextRoute(DoorContext* doors, std::string path, TextCallReader read,
                  HttpReply (*refuse)(const absl::Status&), HttpRouter* router) {
  const TextRoute route = {doors, read, refuse};
  router->Add(
      HttpMethod::kPost, std::move(path),
      [route](HttpRequest request, HttpResponder& responder, IoWaker& waker) {
        return Start(route, std::move(request), responder, waker);
      },
      KeyGate(doors));
}

}  // namespace weft::router
