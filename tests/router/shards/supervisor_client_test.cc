#include "router/shards/supervisor_client.h"

#include <catch2/catch.hpp>
#include <string>

namespace weft::router {
namespace {

TEST_CASE("The supervisor's lines are read and written as the protocol says", "[router][shards]") {
  CHECK(RestartLine(2, 77, "broken\nchannel") == "restart 2 77 broken channel\n");
  CHECK(RestartLine(2, 77, std::string(5000, 'x')).size() == 1024);
  ShardDeath death;
  REQUIRE(ParseDiedLine("died 3 41", &death).ok());
  CHECK(death.rank == 3);
  CHECK(death.pid == 41);
  CHECK(death.why.empty());
  REQUIRE(ParseDiedLine("died 3 42 --model: x does not exist", &death).ok());
  CHECK(death.why == "--model: x does not exist");
  REQUIRE(ParseDiedLine("died 3 43", &death).ok());
  CHECK(death.why.empty());
  for (const char* bad : {"died", "died 1", "died x 2", "died 1 x 3", "lived 1 2", ""}) {
    CHECK(!ParseDiedLine(bad, &death).ok());
  }
}

}  // namespace
}  // namespace weft::router
