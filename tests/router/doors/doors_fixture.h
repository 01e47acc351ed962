// The doors with a fake intake behind it and an HTTP server on a free port.

#pragma once

#include <memory>
#include <utility>

#include "common/check.h"
#include "router/doors/anthropic/routes.h"
#include "router/doors/door_context.h"
#include "router/doors/http/server.h"
#include "router/doors/ollama/routes.h"
#include "router/doors/open_inference.h"
#include "router/doors/openai/routes.h"
#include "router/doors/ops/open_inference_routes.h"
#include "router/doors/ops/routes.h"
#include "router/doors/responses/routes.h"
#include "router/doors/tgi/routes.h"
#include "router/observe/probe.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/router/doors/raw_client.h"

namespace weft::router {

struct DoorsFixture {
  explicit DoorsFixture(HttpServerOptions http = {}, DoorOptions options = {})
      : doors(&intake, &probe, std::move(options)) {
    AddTgiRoutes(&doors, &routes);
    AddOpenAiRoutes(&doors, &routes);
    AddResponsesRoutes(&doors, &routes);
    AddAnthropicRoutes(&doors, &routes);
    AddOllamaRoutes(&doors, &routes);
    AddOpenInferenceRoutes(&doors, &routes);
    AddOpsRoutes(&doors, &routes);
    AddOpsRoutes(&doors, &admin_routes);
    AddConfigRoute(&doors, &admin_routes);
    auto started = HttpServer::Start(http, &routes, &admin_routes, &probe);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
  }

  ~DoorsFixture() { server->Stop(); }

  uint16_t port() const { return server->port(); }
  RawResponse Post(const std::string& path, const std::string& body) const {
    return Fetch(port(), PostText(path, body));
  }
  RawResponse Get(const std::string& path) const { return Fetch(port(), GetText(path)); }

  Probe probe;
  FakeEntrance intake;
  DoorContext doors;
  HttpRouter routes;
  HttpRouter admin_routes;
  std::unique_ptr<HttpServer> server;
};

}  // namespace weft::router
