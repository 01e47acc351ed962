#include "deploy/launcher/serve_options.h"

#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>

namespace weft::launcher {
namespace {

std::string Parse(std::vector<std::string> arguments, ServeOptions* options) {
  Flags flags("weft serve", "test");
  DeclareServeFlags(flags, options);
  arguments.insert(arguments.begin(), "serve");
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  std::string help;
  const absl::Status status = flags.Parse(static_cast<int>(raw.size()), raw.data(), &help);
  return std::string(status.message());
}

bool Contains(const std::vector<std::string>& argv, const std::string& argument) {
  return std::find(argv.begin(), argv.end(), argument) != argv.end();
}

TEST_CASE("Serve hands each flag to the processes that know it", "[launcher]") {
  ServeOptions options;
  REQUIRE(Parse({"--shards=2", "--kv-memory=64MiB", "--queue-requests-max=7", "--running-max=9",
                 "--weights=random"},
                &options)
              .empty());
  const auto shards = ShardSpecs(options, "/bin/weft-shard", "/m.gguf", "/run/weft");
  const auto router = RouterSpec(options, "/bin/weft-router", "/m.gguf", "/run/weft");
  REQUIRE(shards.size() == 2);
  CHECK(shards[1].name == "shard-1");
  CHECK(Contains(shards[1].argv, "--rank=1"));
  CHECK(Contains(shards[1].argv, "--world=2"));
  CHECK(Contains(shards[1].argv, "--kv-memory=64MiB"));
  CHECK(Contains(shards[1].argv, "--running-max=9"));
  CHECK(Contains(shards[1].argv, "--weights=random"));
  CHECK_FALSE(Contains(router.argv, "--weights=random"));
  CHECK_FALSE(Contains(shards[1].argv, "--queue-requests-max=7"));
  CHECK(Contains(router.argv, "--queue-requests-max=7"));
  CHECK(Contains(router.argv, "--running-max=9"));
  CHECK_FALSE(Contains(router.argv, "--kv-memory=64MiB"));
  CHECK(Contains(router.argv, "--shard=unix:/run/weft/shard-1.sock"));
}

TEST_CASE("A switch of a child may stand alone or with its value", "[launcher]") {
  for (const char* typed : {"--deterministic", "--deterministic=true"}) {
    ServeOptions options;
    REQUIRE(Parse({typed, "--strict-fields=false", "--shards=1"}, &options).empty());
    const auto shards = ShardSpecs(options, "/bin/weft-shard", "/m.gguf", "/run/weft");
    const auto router = RouterSpec(options, "/bin/weft-router", "/m.gguf", "/run/weft");
    CHECK(Contains(shards[0].argv, "--deterministic=true"));
    CHECK(Contains(router.argv, "--strict-fields=false"));
  }
  ServeOptions before_another;
  REQUIRE(Parse({"--deterministic", "--model", "/m.gguf"}, &before_another).empty());
  CHECK(before_another.model == "/m.gguf");
  ServeOptions wrong;
  CHECK(Parse({"--deterministic=perhaps"}, &wrong).find("--deterministic") != std::string::npos);
  setenv("WEFT_DETERMINISTIC", "true", 1);
  ServeOptions environment;
  const std::string error = Parse({}, &environment);
  unsetenv("WEFT_DETERMINISTIC");
  REQUIRE(error.empty());
  CHECK(Contains(ShardSpecs(environment, "/s", "/m", "/run")[0].argv, "--deterministic=true"));
}

TEST_CASE("Each shard gets a metrics port of its own, when asked", "[launcher]") {
  ServeOptions options;
  REQUIRE(Parse({"--shards=2", "--shard-metrics-port=9400"}, &options).empty());
  auto shards = ShardSpecs(options, "/bin/weft-shard", "/m.gguf", "/run/weft");
  CHECK(Contains(shards[0].argv, "--metrics-port=9400"));
  CHECK(Contains(shards[1].argv, "--metrics-port=9401"));
  options.shard_metrics_port = 0;
  shards = ShardSpecs(options, "/bin/weft-shard", "/m.gguf", "/run/weft");
  CHECK(Contains(shards[1].argv, "--metrics-port=0"));
  CHECK_FALSE(Parse({"--shard-metrics-port=-2"}, &options).empty());
}

TEST_CASE("The environment reaches the children, and a flag goes before it", "[launcher]") {
  setenv("WEFT_KV_MEMORY", "32MiB", 1);
  setenv("WEFT_RUNNING_MAX", "5", 1);
  ServeOptions options;
  const std::string error = Parse({"--running-max=9"}, &options);
  unsetenv("WEFT_KV_MEMORY");
  unsetenv("WEFT_RUNNING_MAX");
  REQUIRE(error.empty());
  const auto shards = ShardSpecs(options, "/bin/weft-shard", "/m.gguf", "/run/weft");
  CHECK(Contains(shards[0].argv, "--kv-memory=32MiB"));
  CHECK(Contains(shards[0].argv, "--running-max=9"));
}

TEST_CASE("Serve refuses unknown flags and shard counts out of range", "[launcher]") {
  ServeOptions options;
  CHECK(Parse({"--no-such-flag"}, &options).find("no-such-flag") != std::string::npos);
  ServeOptions other;
  CHECK(Parse({"--shards=0"}, &other).find("--shards") != std::string::npos);
}

TEST_CASE("A model that is not there is named with the way out", "[launcher]") {
  ServeOptions options;
  options.model = "/no/such/model";
  const auto model = ResolveModel(options);
  REQUIRE_FALSE(model.ok());
  CHECK(std::string(model.status().message()).find("/no/such/model") != std::string::npos);
}

}  // namespace
}  // namespace weft::launcher
