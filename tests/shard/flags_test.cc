// The command line of weft-shard: what each flag accepts and how refusals read.

#include "shard/flags.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "shard/kv/memory_texts.h"
#include "tests/support/skip.h"

namespace weft::shard {
namespace {

absl::Status Parse(std::vector<std::string> arguments, ShardFlags* flags) {
  arguments.insert(arguments.begin(), "weft-shard");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  std::string help_text;
  return ParseShardFlags(static_cast<int>(argv.size()), argv.data(), flags, &help_text);
}

}  // namespace

TEST_CASE("Byte counts take binary suffixes", "[shard][flags]") {
  CHECK(*ParseBytes("1073741824") == 1073741824u);
  CHECK(*ParseBytes("512MiB") == 512u << 20);
  CHECK(*ParseBytes("1.5GiB") == 1610612736u);
  CHECK(*ParseBytes("64 KiB") == 65536u);
  for (const char* bad : {"", "GiB", "-1", "0", "nan", "inf", "1GB", "1e30", "12MiBx"}) {
    INFO(bad);
    CHECK(absl::IsInvalidArgument(ParseBytes(bad).status()));
  }
}

TEST_CASE("Flags that are right are taken as given", "[shard][flags]") {
  ShardFlags flags;
  REQUIRE(
      Parse({"--model=m.gguf", "--rank=1", "--world=2", "--socket=/run/x.sock", "--kv-memory=64MiB",
             "--running-max=8", "--step-tokens-max=128", "--threads=3", "--cpu-isa=portable",
             "--dtype=float32", "--metrics-port=0", "--device=cpu", "--weights=random"},
            &flags)
          .ok());
  CHECK(flags.model == "m.gguf");
  CHECK(flags.model_label == "m");
  CHECK(flags.rank == 1);
  CHECK(flags.memory.kv_memory_bytes == 64u << 20);
  CHECK(flags.random_weights);
  CHECK(flags.memory.threads == 3);
  CHECK(flags.memory.dtype == NumberType::kFloat32);
  CHECK(flags.isa == "portable");
  CHECK(flags.metrics_port == 0u);
  ShardFlags defaults;
  REQUIRE(
      Parse({"--model=m.gguf", "--world=64", "--cpu-isa=auto", "--device=cpu"}, &defaults).ok());
  CHECK(defaults.memory.threads >= 1);
  CHECK(defaults.log_name == "shard-0");
  ShardFlags second;
  REQUIRE(Parse({"--model=m.gguf", "--world=2", "--rank=1", "--host-groups=3", "--host-group=2",
                 "--device=cpu"},
                &second)
              .ok());
  CHECK(second.log_name == "shard-5");
  CHECK(absl::StrContains(second.memory.threads_reason, "/ 6 shards"));
  if (defaults.memory.host.bytes > 0) {
    CHECK(second.memory.host.bytes == defaults.memory.host.bytes / 3);
    CHECK(absl::StrContains(second.memory.host.name, "/ 3 groups"));
  }
  CHECK_FALSE(defaults.random_weights);
  CHECK(defaults.isa.empty());
  CHECK(defaults.memory.running_max == kRunningDefault);
  CHECK(defaults.memory.step_tokens_max == kStepTokensDefault);
  CHECK_FALSE(defaults.metrics_port.has_value());
  ShardFlags named;
  REQUIRE(Parse({"--model=m.gguf", "--served-model-name=big", "--device=cpu"}, &named).ok());
  CHECK(named.model_label == "big");
}

TEST_CASE("The shards of a machine share its cores", "[shard][flags]") {
  ShardFlags alone;
  REQUIRE(Parse({"--model=m.gguf", "--device=cpu"}, &alone).ok());
  for (const uint32_t world : {2u, 64u}) {
    ShardFlags one_of;
    REQUIRE(
        Parse({"--model=m.gguf", absl::StrCat("--world=", world), "--device=cpu"}, &one_of).ok());
    CHECK(one_of.memory.threads == std::max(1u, alone.memory.threads / world));
    CHECK(one_of.memory.threads_reason ==
          absl::StrCat(alone.memory.threads_reason, " / ", world, " shards"));
  }
}

TEST_CASE("Flags that are wrong are refused by name", "[shard][flags]") {
  const std::vector<std::vector<std::string>> cases = {
      {"--model"},
      {"--rank", "--rank=2", "--world=2"},
      {"--rank", "--rank=1", "--world=2", "--rank-from-hostname"},
      {"exclude each other", "--rank=0", "--world=2", "--rank-from-hostname"},
      {"--comm-ports", "--comm-ports=7100-7199", "--device=cpu"},
      {"--comm-ports", "--comm-host=127.0.0.1", "--comm-ports=0-7", "--device=cpu"},
      {"--comm-ports", "--comm-host=127.0.0.1", "--comm-ports=8-7", "--device=cpu"},
      {"--comm-ports", "--comm-host=127.0.0.1", "--comm-ports=1-2-3", "--device=cpu"},
      {"--comm-ports", "--comm-host=127.0.0.1", "--comm-ports=7000-70000", "--device=cpu"},
      {"--comm-host", "--comm-host=localhost", "--device=cpu"},
      {"--host-group", "--host-groups=2", "--host-group=2", "--device=cpu"},
      {"--host-groups", "--host-groups=0"},
      {"--world", "--world=0"},
      {"--world", "--world=65"},
      {"--weights", "--weights=zero"},
      {"--device", "--device=tpu"},
      {"--dtype", "--dtype=int3"},
      {"--dtype", "--dtype=float16"},
      {"--kv-dtype", "--kv-dtype=int3"},
      {"--kv-memory", "--kv-memory=lots"},
      {"0.05 .. 0.99", "--memory-fraction=1.5"},
      {"0.05 .. 0.99", "--memory-fraction=much"},
      {"0.05 .. 0.99", "--memory-fraction=nan"},
      {"0.05 .. 0.99", "--device=cuda", "--memory-fraction=0"},
      {"--running-max", "--running-max=1025"},
      {"--step-tokens-max", "--running-max=64", "--step-tokens-max=63"},
      {"--step-tokens-max", "--step-tokens-max=16385"},
      {"--threads", "--threads=5000"},
      {"--device-index", "--device-index=1024"},
      {"--device-index", "--device-index=0", "--device=cpu"},
      {"--metrics-port", "--metrics-port=70000"},
      {"--expert-load", "--expert-load", "--device=cpu"},
      {"--expert-load", "--expert-load=often"},
      {"--peer-timeout-s", "--peer-timeout-s=0"},
      {"--log-format", "--log-format=xml"},
      {"--nonsense", "--nonsense=1"},
  };
  for (const auto& wrong : cases) {
    std::vector<std::string> arguments(wrong.begin() + 1, wrong.end());
    if (wrong[0] != "--model") arguments.push_back("--model=m.gguf");
    ShardFlags flags;
    const absl::Status status = Parse(arguments, &flags);
    INFO(wrong[0] << ": " << status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), wrong[0]));
  }
}

TEST_CASE("Ranks of other hosts are met at an address and ports that are checked",
          "[shard][flags]") {
  ShardFlags flags;
  REQUIRE(Parse({"--model=m", "--device=cpu", "--comm-host=127.0.0.1"}, &flags).ok());
  CHECK(flags.comm_host == "127.0.0.1");
  CHECK(flags.comm_ports.first == 0);
  ShardFlags foreign;
  CHECK(absl::StrContains(
      Parse({"--model=m", "--device=cpu", "--comm-host=192.0.2.1"}, &foreign).message(),
      "--comm-host: 192.0.2.1 is no address of this host"));
}

TEST_CASE("A rank may come from the host's name", "[shard][flags]") {
  char before[256] = {};
  REQUIRE(gethostname(before, sizeof(before) - 1) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    // A name of its own, which a namespace keeps from the machine.
    if (unshare(CLONE_NEWUTS) != 0) _exit(77);
    const auto rank_of = [](const char* name, ShardFlags* flags) {
      if (sethostname(name, strlen(name)) != 0) _exit(78);
      return Parse({"--model=m", "--device=cpu", "--world=12", "--rank-from-hostname"}, flags);
    };
    ShardFlags flags;
    if (!rank_of("weft-shard-11", &flags).ok() || flags.rank != 11) _exit(1);
    if (!absl::StrContains(rank_of("weft-shard-12", &flags).message(), "0 .. 11")) _exit(2);
    if (!absl::StrContains(rank_of("shard7", &flags).message(), "give --rank")) _exit(3);
    if (!absl::StrContains(rank_of("7", &flags).message(), "give --rank")) _exit(4);
    if (!absl::StrContains(rank_of("shard-", &flags).message(), "give --rank")) _exit(5);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) >= 77) test::SkipTest("namespaces", "a host's name cannot be changed");
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("Shard 0 alone counts the rows of experts", "[shard][flags]") {
  ShardFlags first;
  REQUIRE(
      Parse({"--model=m", "--device=cpu", "--world=2", "--expert-load", "--metrics-port=0"}, &first)
          .ok());
  CHECK(first.memory.expert_load);
  ShardFlags second;
  REQUIRE(
      Parse({"--model=m", "--device=cpu", "--world=2", "--rank=1", "--expert-load"}, &second).ok());
  CHECK_FALSE(second.memory.expert_load);
  ShardFlags unasked;
  REQUIRE(Parse({"--model=m", "--device=cpu", "--metrics-port=0"}, &unasked).ok());
  CHECK_FALSE(unasked.memory.expert_load);
}

TEST_CASE("A step's limit alone bounds the batch by default", "[shard][flags]") {
  ShardFlags flags;
  REQUIRE(Parse({"--model=m.gguf", "--device=cpu", "--step-tokens-max=32"}, &flags).ok());
  CHECK(flags.memory.step_tokens_max == 32);
  CHECK(flags.memory.running_max == 32);
}

TEST_CASE("Without a GPU cuda is refused with a way out, and auto keeps the reason",
          "[shard][flags]") {
  ShardFlags flags;
  const absl::Status cuda = Parse({"--model=m.gguf", "--device=cuda"}, &flags);
  if (cuda.ok()) test::SkipTest("no_gpu", "--device cuda is served here");
  CHECK(absl::StartsWith(cuda.message(), "--device cuda: "));
  CHECK(absl::EndsWith(cuda.message(), "use --device cpu"));
  ShardFlags automatic;
  REQUIRE(Parse({"--model=m.gguf"}, &automatic).ok());
  CHECK_FALSE(automatic.gpu.has_value());
  CHECK(absl::StrContains(cuda.message(), automatic.no_gpu.message()));
  ShardFlags asked;
  REQUIRE(Parse({"--model=m.gguf", "--device=cpu"}, &asked).ok());
  CHECK(asked.no_gpu.ok());
}

TEST_CASE("A shard by hand warns of variables that look like its own", "[shard][flags]") {
  setenv("WEFT_KV_MEMROY", "1GiB", 1);
  setenv("WEFT_HTTP_PORT", "1", 1);  // a router's
  ShardFlags alone;
  REQUIRE(Parse({"--model=m.gguf", "--device=cpu"}, &alone).ok());
  REQUIRE(alone.unknown_variables.size() == 1);
  CHECK(alone.unknown_variables[0].near == "WEFT_KV_MEMORY");
  // `weft serve` has said so already.
  for (const char* const mark : {"--flag-origins=model:flag", "--load-progress"}) {
    ShardFlags served;
    REQUIRE(Parse({"--model=m.gguf", "--device=cpu", mark}, &served).ok());
    CHECK(served.unknown_variables.empty());
  }
  unsetenv("WEFT_KV_MEMROY");
  unsetenv("WEFT_HTTP_PORT");
}

}  // namespace weft::shard
