// Between "not ready" and refusing: what balancers are told while requests are still taken.

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "tests/router/doors/doors_fixture.h"

namespace weft::router {
namespace {

TEST_CASE("A server that leaves is not ready and serves until it drains", "[router][http]") {
  DoorsFixture fixture;
  const std::string body = R"({"inputs":"x"})";
  REQUIRE(fixture.Get("/readyz").status == 200);

  fixture.doors.StartLeaving();
  const RawResponse ready = fixture.Get("/readyz");
  CHECK(ready.status == 503);
  CHECK(absl::StrContains(ready.body, "\"state\":\"draining\""));
  CHECK(fixture.Get("/health").status == 503);
  CHECK(fixture.Get("/livez").status == 200);
  CHECK(fixture.Get("/startupz").status == 200);
  CHECK(fixture.doors.Status().state == ServerState::kDraining);
  CHECK(fixture.Post("/generate", body).status == 200);

  fixture.doors.StartDrain();
  CHECK(fixture.Get("/readyz").status == 503);
  const RawResponse refused = fixture.Post("/generate", body);
  CHECK(refused.status == 503);
  CHECK(absl::StrContains(refused.body, "shutting down"));
}

TEST_CASE("A server that leaves refuses what it would have refused anyway", "[router][http]") {
  DoorsFixture fixture;
  ServerStatus loading;
  loading.state = ServerState::kLoading;
  fixture.intake.SetStatus(loading);
  fixture.doors.StartLeaving();
  const RawResponse refused = fixture.Post("/generate", R"({"inputs":"x"})");
  CHECK(refused.status == 503);
  CHECK(absl::StrContains(refused.body, "not ready: loading"));
}

}  // namespace
}  // namespace weft::router
