#include "router/doors/ops/routes.h"

#include <memory>
#include <string>
#include <utility>

#include "common/version.h"
#include "router/doors/http/json.h"
#include "router/doors/http/replies.h"
#include "router/doors/open_inference.h"
#include "router/doors/ops/own_host.h"

namespace weft::router {
namespace {

// {"status", "state", "percent", "detail"} with 200 or 503.
HttpReply StatusReply(const ServerStatus& status, bool good) {
  HttpReply reply;
  reply.status = good ? 200 : 503;
  if (!good) reply.headers.emplace_back("retry-after", "1");
  JsonWriter json(&reply.body);
  json.BeginObject().Key("status").String(good ? "ok" : "unavailable");
  json.Key("state").String(ServerStateName(status.state));
  json.Key("percent").Signed(status.percent).Key("detail").String(status.detail);
  json.Key("stalled_ms").Signed(status.stalled_us / 1000).EndObject();
  return reply;
}

HttpReply Live(const DoorContext& doors) {
  const ServerStatus status = doors.Status();
  return StatusReply(status, status.stalled_us <= kStalledUsMax);
}

HttpReply Ready(const DoorContext& doors) {
  const ServerStatus status = doors.Status();
  return StatusReply(status, status.state == ServerState::kReady);
}

HttpReply Startup(const DoorContext& doors) {
  const ServerStatus status = doors.Status();
  const bool started = status.state != ServerState::kStarting &&
                       status.state != ServerState::kLoading &&
                       status.state != ServerState::kWarming;
  return StatusReply(status, started);
}

HttpReply MetricsReply(const DoorContext& doors) {
  doors.probe().SetServerState(doors.Status().state);
  HttpReply reply;
  reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
  reply.body = doors.probe().Render();
  return reply;
}

HttpReply VersionReply(const DoorContext&) {
  HttpReply reply;
  JsonWriter(&reply.body)
      .BeginObject()
      .Key("version")
      .String(Version())
      .Key("revision")
      .String(Revision())
      .EndObject();
  return reply;
}

HttpReply ConfigReply(const DoorContext& doors) {
  HttpReply reply;
  JsonWriter json(&reply.body);
  json.BeginObject();
  for (const auto& [name, value] : doors.Config()) json.Key(name).String(value);
  json.EndObject();
  return reply;
}

HttpReply FlushReply(const absl::Status& flushed) {
  if (!flushed.ok()) return TgiError(flushed);
  HttpReply reply;
  JsonWriter(&reply.body).BeginObject().Key("success").Bool(true).EndObject();
  return reply;
}

void AddGet(DoorContext* doors, HttpRouter* router, std::string path,
            HttpReply (*make)(const DoorContext&)) {
  router->Add(HttpMethod::kGet, std::move(path),
              [doors, make](HttpRequest, HttpResponder& responder, IoWaker&) {
                responder.Reply(make(*doors));
                return std::shared_ptr<HttpExchange>();
              });
}

}  // namespace

void AddOpsRoutes(DoorContext* doors, HttpRouter* router) {
  AddGet(doors, router, "/livez", Live);
  AddGet(doors, router, "/readyz", Ready);
  AddGet(doors, router, "/startupz", Startup);
  AddGet(doors, router, "/metrics", MetricsReply);
  AddGet(doors, router, "/version", VersionReply);
}

void AddFlushRoutes(std::function<absl::Status()> flush, HttpRouter* router) {
  const auto handle = [flush = std::move(flush)](HttpRequest request, HttpResponder& responder,
                                                 IoWaker&) {
    responder.Reply(NamesThisHost(request)
                        ? FlushReply(flush())
                        : OtherHostReply(request, "the prefix cache is flushed"));
    return std::shared_ptr<HttpExchange>();
  };
  router->Add(HttpMethod::kPost, "/flush_cache", handle);
  router->Add(HttpMethod::kPost, "/reset_prefix_cache", handle);
}

void AddConfigRoute(DoorContext* doors, HttpRouter* router) {
  router->Add(HttpMethod::kGet, "/config",
              [doors](HttpRequest request, HttpResponder& responder, IoWaker&) {
                responder.Reply(NamesThisHost(request)
                                    ? ConfigReply(*doors)
                                    : OtherHostReply(request, "the configuration is shown"));
                return std::shared_ptr<HttpExchange>();
              });
}

}  // namespace weft::router
