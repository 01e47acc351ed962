#include "deploy/launcher/inspect_plans.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "tests/shard/weights/goldens.h"
#include "tests/support/skip.h"

namespace weft::launcher {
namespace {

absl::Status Parse(std::vector<std::string> arguments, PlanOptions* options) {
  Flags flags("weft inspect", "test");
  DeclarePlanFlags(flags, options);
  arguments.insert(arguments.begin(), "inspect");
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  std::string help;
  return flags.Parse(static_cast<int>(raw.size()), raw.data(), &help);
}

std::unique_ptr<shard::ModelFiles> Shape(const std::string& name) {
  auto files = shard::ModelFiles::OpenShape(test::GoldenPath("../bench/shapes/") + name);
  REQUIRE(files.ok());
  return *std::move(files);
}

TEST_CASE("Plans of CPU shards share --kv-memory", "[inspect]") {
  PlanOptions options;
  REQUIRE(Parse({"--device=cpu", "--kv-memory=512MiB"}, &options).ok());
  const auto plans = PlanModel(*Shape("llama-3.2-1b"), options);
  REQUIRE(plans.ok());
  CHECK_FALSE(plans->cuda);
  REQUIRE(plans->worlds.size() == 4);
  for (const WorldPlan& world : plans->worlds) {
    CHECK(world.refusal.empty());
    CHECK(world.kv_bytes_all <= uint64_t{512} << 20);
    CHECK(world.kv_tokens * world.kv_bytes_per_token == world.kv_bytes_all);
  }
  CHECK(Assumptions(*plans).empty());
}

TEST_CASE("Types that no kernel of the device serves are refused for every shard count",
          "[inspect]") {
  if (!shard::CudaIsBuilt().ok()) test::SkipTest("cuda_build", "built with WEFT_CUDA=OFF");
  PlanOptions options;
  REQUIRE(Parse({"--device=cuda", "--kv-dtype=float16"}, &options).ok());
  const auto plans = PlanModel(*Shape("llama-3.2-1b"), options);
  REQUIRE(plans.ok());
  for (const WorldPlan& world : plans->worlds) {
    INFO(world.refusal);
    CHECK(absl::StrContains(world.refusal, "a KV cache in float16 beside bfloat16 activations"));
    CHECK(absl::StrContains(world.refusal, "--kv-dtype auto"));
  }
}

TEST_CASE("An unknown device and contradicting limits are refused by name", "[inspect]") {
  PlanOptions options;
  options.device = "tpu";
  const absl::Status unknown = PlanModel(*Shape("llama-3.2-1b"), options).status();
  CHECK(absl::StrContains(unknown.message(), "auto, cpu, cuda"));
  options.device = "cpu";
  options.memory.running_max = 64;
  options.memory.step_tokens_max = 8;
  const absl::Status few = PlanModel(*Shape("llama-3.2-1b"), options).status();
  CHECK(absl::StrContains(few.message(), "--step-tokens-max"));
}

TEST_CASE("Numbers that a shard refuses are refused, and sizes are read as a shard reads them",
          "[inspect]") {
  const auto planned = [](const std::vector<std::string>& arguments) {
    PlanOptions options;
    REQUIRE(Parse(arguments, &options).ok());
    return PlanModel(*Shape("llama-3.2-1b"), options);
  };
  const std::vector<std::vector<std::string>> cases = {{"0.05 .. 0.99", "--memory-fraction=nan"},
                                                       {"0.05 .. 0.99", "--memory-fraction=1.5"},
                                                       {"0.05 .. 0.99", "--memory-fraction=much"},
                                                       {"--kv-memory", "--kv-memory=512MB"},
                                                       {"--kv-memory", "--kv-memory=0"},
                                                       {"--kv-memory", "--kv-memory=-1"},
                                                       {"--dtype", "--dtype=float16"},
                                                       {"--device-memory", "--device-memory=-1"},
                                                       {"--device-memory", "--device-memory=80GB"}};
  for (const auto& wrong : cases) {
    INFO(wrong[1]);
    const auto plans = planned({"--device=cpu", wrong[1]});
    CHECK(absl::IsInvalidArgument(plans.status()));
    CHECK(absl::StrContains(plans.status().message(), wrong[0]));
  }
  CHECK(planned({"--device=cpu", "--kv-memory=auto"}).ok());
  CHECK(planned({"--device=cpu", "--kv-memory=1.5GiB"}).ok());
  const auto unused = planned({"--device=cpu", "--device-memory=80GiB"});
  CHECK(absl::StrContains(unused.status().message(), "use --device cuda"));
}

TEST_CASE("A GPU of too little memory is refused", "[inspect]") {
  if (!shard::CudaIsBuilt().ok()) test::SkipTest("cuda_build", "built with WEFT_CUDA=OFF");
  PlanOptions options;
  REQUIRE(Parse({"--device=cuda", "--device-memory=80"}, &options).ok());
  const auto tiny = PlanModel(*Shape("llama-3.2-1b"), options);
  CHECK(absl::StrContains(tiny.status().message(), "less than 1GiB"));
}

TEST_CASE("Plans say why they are of the CPU, when a pool is capped, and when none works",
          "[inspect]") {
  PlanOptions options;
  REQUIRE(Parse({"--kv-memory=100000GiB", "--running-max=1"}, &options).ok());
  auto plans = PlanModel(*Shape("llama-3.2-1b"), options);
  REQUIRE(plans.ok());
  CHECK_FALSE(Assumptions(*plans).empty());
  if (!plans->cuda) CHECK(absl::StrContains(Assumptions(*plans), plans->no_gpu));
  if (!plans->cuda) CHECK(plans->worlds[0].kv_capped);
  CHECK(SomeCountWorks(*plans).ok());
  for (WorldPlan& world : plans->worlds) world.refusal = "no";
  CHECK_FALSE(SomeCountWorks(*plans).ok());
}

TEST_CASE("A plan for --device cuda has GPUs of --device-memory, or says that it is not built",
          "[inspect]") {
  PlanOptions options;
  REQUIRE(Parse({"--device=cuda", "--device-memory=80GiB"}, &options).ok());
  const auto plans = PlanModel(*Shape("llama-3.1-70b"), options);
  if (!shard::CudaIsBuilt().ok()) {
    CHECK(absl::StrContains(plans.status().message(), "this build has no CUDA backend"));
    return;
  }
  REQUIRE(plans.ok());
  CHECK(plans->cuda);
  CHECK(plans->gpu.total_bytes == uint64_t{80} << 30);
  REQUIRE(plans->worlds.size() == 4);
  // 131 GiB of weights: more than one GPU holds.
  CHECK(absl::StrContains(plans->worlds[0].refusal, "more shards"));
  for (const size_t i : {1, 2, 3}) {
    const WorldPlan& world = plans->worlds[i];
    CHECK(world.refusal.empty());
    const uint64_t in_use = plans->gpu.used_bytes + world.weights_bytes_max +
                            world.workspace_bytes_max + world.kv_bytes_max;
    CHECK(in_use <= uint64_t{72} << 30);
    CHECK(world.left_bytes_min == plans->gpu.total_bytes - in_use);
    CHECK(world.kv_tokens > 0);
  }
  CHECK(plans->worlds[3].kv_tokens > 2 * plans->worlds[2].kv_tokens);
  CHECK(absl::StrContains(Assumptions(*plans), "81920 MiB"));
  if (plans->gpu.not_found.ok()) {
    return test::LeaveOut("no_gpu", "the plan is of the GPU that is here");
  }
  CHECK(absl::StrContains(Assumptions(*plans), "an H200's 132 multiprocessors"));
  CHECK_FALSE(absl::StrContains(Assumptions(*plans), "one H200"));
}

}  // namespace
}  // namespace weft::launcher
