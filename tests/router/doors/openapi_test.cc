// The description of the API in itself; tests/integration/test_openapi.py holds it against a
// server.

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/str_split.h"
#include "router/doors/api/bodies.h"
#include "router/doors/api/openapi.h"
#include "router/doors/api/table.h"
#include "router/doors/http/json.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

TEST_CASE("A body has each field once, and each schema is JSON", "[router][api]") {
  for (const api::ApiBody& body : api::AllBodies()) {
    std::set<std::string> names;
    for (const api::ApiField& field : body.fields) {
      INFO(body.name << " " << field.name);
      CHECK(names.insert(std::string(field.name)).second);
      CHECK(ParseJson(absl::StrCat("{", field.schema, "}")).ok());
    }
  }
}

TEST_CASE("Every route's body is described, and each route once", "[router][api]") {
  std::set<std::string> bodies = {"", "*"};
  for (const api::ApiBody& body : api::AllBodies()) {
    CHECK(bodies.insert(std::string(body.name)).second);
  }
  std::set<std::string> routes;
  for (const api::ApiRoute& route : api::ApiRoutes()) {
    INFO(route.path);
    CHECK(
        routes.insert(absl::StrCat(route.method == HttpMethod::kGet ? "GET " : "POST ", route.path))
            .second);
    for (const absl::string_view body : absl::StrSplit(route.body, '|')) {
      CHECK(bodies.contains(std::string(body)));
    }
  }
}

TEST_CASE("The document is served whole, without a key", "[router][api]") {
  DoorsFixture fixture;
  const RawResponse response = fixture.Get("/openapi.json");
  CHECK(response.status == 200);
  CHECK(response.headers.at("content-type") == "application/json");
  CHECK(response.body == OpenApiDocument());
  CHECK(ParseJson(response.body).ok());
}

}  // namespace
}  // namespace weft::router
