// The command line of weft-router: what the limits are that nobody named.

#include "router/flags.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/limits.h"

namespace weft::router {
namespace {

EngineOptions Limits(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"weft-router", "--shard=unix:/s", "--model=m.gguf"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  RouterFlags flags;
  std::string help;
  REQUIRE(ParseRouterFlags(static_cast<int>(argv.size()), argv.data(), &flags, &help).ok());
  return flags.engine;
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

}  // namespace
}  // namespace weft::router
