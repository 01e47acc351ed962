// A front with a fake intake behind it and an HTTP server on a free port.

#pragma once

#include <memory>
#include <utility>

#include "common/check.h"
#include "router/doors/front.h"
#include "router/doors/http/server.h"
#include "router/doors/openai/routes.h"
#include "router/doors/ops/routes.h"
#include "router/doors/tgi/routes.h"
#include "router/observe/probe.h"
#include "tests/router/doors/fake_entrance.h"
#include "tests/router/doors/raw_client.h"

namespace weft::router {

struct FrontFixture {
  explicit FrontFixture(HttpServerOptions http = {}, FrontOptions options = {})
      : front(&intake, &probe, std::move(options)) {
    AddTgiRoutes(&front, &routes);
    AddOpenAiRoutes(&front, &routes);
    AddOpsRoutes(&front, &routes);
    AddConfigRoute(&front, &routes);
    AddOpsRoutes(&front, &admin_routes);
    auto started = HttpServer::Start(http, &routes, &admin_routes, &probe);
    WEFT_CHECK_MSG(started.ok(), std::string(started.status().message()));
    server = *std::move(started);
  }

  ~FrontFixture() { server->Stop(); }

  uint16_t port() const { return server->port(); }
  RawResponse Post(const std::string& path, const std::string& body) const {
    return Fetch(port(), PostText(path, body));
  }
  RawResponse Get(const std::string& path) const { return Fetch(port(), GetText(path)); }

  Probe probe;
  FakeEntrance intake;
  Front front;
  HttpRouter routes;
  HttpRouter admin_routes;
  std::unique_ptr<HttpServer> server;
};

}  // namespace weft::router
