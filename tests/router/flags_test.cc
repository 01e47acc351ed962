// The command line of weft-router: what the limits are that nobody named.

#include "router/flags.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/limits.h"

namespace weft::router {
namespace {

RouterFlags Parsed(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"weft-router", "--shard=unix:/s", "--model=m.gguf"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  RouterFlags flags;
  std::string help;
  REQUIRE(ParseRouterFlags(static_cast<int>(argv.size()), argv.data(), &flags, &help).ok());
  return flags;
}

EngineOptions Limits(std::vector<std::string> arguments) {
  return Parsed(std::move(arguments)).engine;
}

TEST_CASE("A step's limit alone bounds the batch that nobody named", "[router][flags]") {
  CHECK(Limits({}).running_max == kRunningMax);
  CHECK(Limits({}).step_tokens_max == kStepTokensMax);
  const EngineOptions few = Limits({"--step-tokens-max=256"});
  CHECK(few.running_max == 256);
  CHECK(few.step_tokens_max == 256);
  const EngineOptions both = Limits({"--step-tokens-max=256", "--running-max=64"});
  CHECK(both.running_max == 64);
  // Refused where the engine is made, with the range.
  CHECK(Limits({"--step-tokens-max=8", "--running-max=64"}).running_max == 64);
}

TEST_CASE("Addresses of IPv6 hosts are written as gRPC wants them", "[router][flags]") {
  for (const char* host : {"--host=::1", "--host=[::1]"}) {
    const RouterFlags flags = Parsed({host, "--grpc-port=8081"});
    CHECK(flags.grpc.address == "[::1]:8081");
    CHECK(flags.http.host == "::1");
  }
  CHECK(Parsed({}).grpc.address == "127.0.0.1:8081");
}

TEST_CASE("Control tokens in messages are read as such only when that is asked",
          "[router][flags]") {
  CHECK_FALSE(Parsed({}).engine.allow_control_tokens);
  CHECK(Parsed({"--allow-control-tokens"}).engine.allow_control_tokens);
}

TEST_CASE("The page is shown, and may call its own server, unless it is off", "[router][flags]") {
  CHECK(Parsed({}).ui);
  CHECK(Parsed({}).http.own_page);
  CHECK_FALSE(Parsed({"--ui=false"}).ui);
  CHECK_FALSE(Parsed({"--ui=false"}).http.own_page);
}

TEST_CASE("A router that is told to end stops taking requests at once unless told otherwise",
          "[router][flags]") {
  CHECK(Parsed({}).shutdown_delay == absl::ZeroDuration());
  CHECK(Parsed({"--shutdown-delay-s=2.5"}).shutdown_delay == absl::Milliseconds(2500));
}

TEST_CASE("The scheduler is recorded where that is asked, within bounds", "[router][flags]") {
  CHECK(Parsed({}).engine.record.path == "");
  const RouterFlags flags = Parsed({"--record=/var/weft/rec", "--record-bytes-max=2000000"});
  CHECK(flags.engine.record.path == "/var/weft/rec");
  CHECK(flags.engine.record.bytes_max == 2000000);
  CHECK(Parsed({"--record=r"}).engine.record.bytes_max == recording::kRecordBytesDefault);
}

TEST_CASE("A model is served by the names that its path has", "[router][flags]") {
  using Names = std::vector<std::string>;
  const RouterFlags flags = Parsed({"--model-alias=gpt-x"});
  CHECK(flags.doors.model_aliases == Names{"gpt-x", "m", "m.gguf"});
  CHECK(flags.model_label == "m");
  CHECK(Parsed({"--served-model-name=big"}).model_label == "big");
}

TEST_CASE("A router by hand warns of variables that look like its own", "[router][flags]") {
  setenv("WEFT_HTTP_PROT", "1", 1);
  setenv("WEFT_KV_MEMORY", "1GiB", 1);  // a shard's
  const RouterFlags alone = Parsed({});
  REQUIRE(alone.unknown_variables.size() == 1);
  CHECK(alone.unknown_variables[0].near == "WEFT_HTTP_PORT");
  // `weft serve` has said so already.
  CHECK(Parsed({"--flag-origins=http-port:flag"}).unknown_variables.empty());
  unsetenv("WEFT_HTTP_PROT");
  unsetenv("WEFT_KV_MEMORY");
}

TEST_CASE("Shards are cut into groups of equal size", "[router][flags]") {
  using Group = std::vector<std::string>;
  CHECK(Limits({"--shard=unix:/b", "--shard=unix:/c", "--shard=unix:/d", "--groups=2"}).groups ==
        std::vector<Group>{{"unix:/s", "unix:/b"}, {"unix:/c", "unix:/d"}});
  CHECK(Limits({}).groups == std::vector<Group>{{"unix:/s"}});
}

TEST_CASE("A router that cannot start as it is told says what to give", "[router][flags]") {
  const auto refusal = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "weft-router");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    RouterFlags flags;
    std::string help;
    return std::string(
        ParseRouterFlags(static_cast<int>(argv.size()), argv.data(), &flags, &help).message());
  };
  CHECK(refusal({"--shard=unix:/s"}).find("--model: ") == 0);
  CHECK(refusal({"--model=m.gguf"}).find("--shard: ") == 0);
  CHECK(refusal({"--model=m.gguf", "--shard=a,b,c", "--groups=2"}) ==
        "--groups: 3 shards do not make 2 groups of equal size; give --shard for every rank of "
        "every group");
  CHECK(refusal({"--model=m.gguf", "--shard=a:1,b:1,a:1"}) ==
        "--shard: a:1 is given twice; each shard has an address of its own");
  CHECK(refusal({"--model=m.gguf", "--shard=a", "--groups=17"}).find("--groups: ") == 0);
  CHECK(refusal({"--model=m.gguf", "--shard=unix:/s", "--metrics-compat=tgi,sglang"}) ==
        "--metrics-compat: `sglang` is not one of tgi, vllm");
  CHECK(refusal({"--model=m.gguf", "--shard=unix:/s", "--cors-origins=https://a,http://a/b"})
            .find("--cors-origins: `http://a/b` has a path") == 0);
}

}  // namespace
}  // namespace weft::router
