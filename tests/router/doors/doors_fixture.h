// The doors with a fake intake behind it and an HTTP server on a free port.

#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "common/check.h"
#include "router/doors/anthropic/routes.h"
#include "router/doors/api/openapi.h"
#include "router/doors/door_context.h"
#include "router/doors/http/server.h"
#include "router/doors/ollama/routes.h"
#include "router/doors/open_inference.h"
#include "router/doors/openai/routes.h"
#include "router/doors/ops/open_inference_routes.h"
#include "router/doors/ops/routes.h"
#include "router/doors/ops/server_info.h"
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
    AddServerInfoRoutes(&doors, &routes);
    AddOpenApiRoute(&routes);
    AddOpsRoutes(&doors, &routes);
    AddOpsRoutes(&doors, &admin_routes);
    AddConfigRoute(&doors, &admin_routes);
    AddFlushRoutes(
        [this] {
          ++flushes;
          return flush_status;
        },
        &admin_routes);
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
  // How often the prefix cache was flushed, and what came of it. Set while nobody asks.
  std::atomic<int> flushes{0};
  absl::Status flush_status;
  std::unique_ptr<HttpServer> server;
};

}  // namespace weft::router
