#include "deploy/launcher/serve_options.h"

#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/launcher/run_command.h"
#include "tests/common/temp_dir.h"

namespace weft::launcher {
namespace {

using Arguments = std::vector<std::string>;

// A command line of `weft serve`, parsed, and what it makes for the children.
struct Serve {
  explicit Serve(Arguments arguments) : flags("weft serve", "test") {
    DeclareServeFlags(flags, &options);
    arguments.insert(arguments.begin(), "serve");
    std::vector<char*> raw;
    for (std::string& argument : arguments) raw.push_back(argument.data());
    const absl::Status status = flags.Parse(static_cast<int>(raw.size()), raw.data(), &help);
    error = std::string(status.message());
  }

  std::vector<ChildSpec> Shards() const { return ShardSpecs(flags, options, kPlaces, environ); }
  ChildSpec Router() const { return RouterSpec(flags, options, kPlaces, environ); }

  inline static const ServePlaces kPlaces{"/bin/weft-router", "/bin/weft-shard", "/m.gguf", "",
                                          "/run/weft"};
  Flags flags;
  ServeOptions options;
  std::string help;
  std::string error;
};

// Sets an environment variable for a while.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* const name_;
};

bool Contains(const Arguments& argv, const std::string& argument) {
  return std::find(argv.begin(), argv.end(), argument) != argv.end();
}

bool HasFlag(const Arguments& argv, const std::string& name) {
  return std::any_of(argv.begin(), argv.end(), [&](const std::string& argument) {
    return absl::StartsWith(argument, absl::StrCat("--", name, "="));
  });
}

TEST_CASE("Serve hands each flag to the processes that know it", "[launcher]") {
  const Serve serve({"--shards=2", "--kv-memory=64MiB", "--queue-requests-max=7", "--running-max=9",
                     "--weights=random", "--public-ops=false", "--model-alias=a,b",
                     "--model-alias=c", "--prefix-cache=false", "--context-tokens-max=100",
                     "--connections-max=50", "--log-level=debug"});
  REQUIRE(serve.error.empty());
  const auto shards = serve.Shards();
  const auto router = serve.Router();
  REQUIRE(shards.size() == 2);
  CHECK(shards[1].name == "shard-1");
  for (const char* argument : {"--rank=1", "--world=2", "--kv-memory=64MiB", "--running-max=9",
                               "--weights=random", "--log-level=debug"}) {
    INFO(argument);
    CHECK(Contains(shards[1].argv, argument));
  }
  for (const char* argument :
       {"--queue-requests-max=7", "--running-max=9", "--public-ops=false", "--model-alias=a",
        "--model-alias=b", "--model-alias=c", "--prefix-cache=false", "--context-tokens-max=100",
        "--connections-max=50", "--log-level=debug", "--shard=unix:/run/weft/shard-1.sock"}) {
    INFO(argument);
    CHECK(Contains(router.argv, argument));
  }
  for (const char* name : {"weights", "kv-memory"}) CHECK_FALSE(HasFlag(router.argv, name));
  for (const char* name : {"queue-requests-max", "public-ops", "http-port", "model-alias"}) {
    CHECK_FALSE(HasFlag(shards[1].argv, name));
  }
}

TEST_CASE("Replicas are groups of shards, whose ranks the router counts through", "[launcher]") {
  const Serve serve({"--shards=2", "--replicas=3", "--shard-metrics-port=7100"});
  REQUIRE(serve.error.empty());
  const auto shards = serve.Shards();
  REQUIRE(shards.size() == 6);
  CHECK(shards[5].name == "shard-5");
  for (const char* argument :
       {"--rank=1", "--world=2", "--socket=/run/weft/shard-5.sock", "--host-groups=3",
        "--host-group=2", "--metrics-port=7105", "--device-index=5"}) {
    INFO(argument);
    CHECK(Contains(shards[5].argv, argument));
  }
  const auto router = serve.Router();
  CHECK(Contains(router.argv, "--groups=3"));
  CHECK(Contains(router.argv, "--shard=unix:/run/weft/shard-0.sock"));
  CHECK(Contains(router.argv, "--shard=unix:/run/weft/shard-5.sock"));
  CHECK_FALSE(HasFlag(Serve({}).Router().argv, "groups"));
  CHECK_FALSE(HasFlag(Serve({}).Shards()[0].argv, "host-groups"));
  CHECK(absl::StrContains(Serve({"--replicas=17"}).error, "--replicas"));
}

TEST_CASE("Serve takes every flag of router and shard but what it decides itself", "[launcher]") {
  const auto names = [](auto declare, auto values) {
    Flags flags("test", "test");
    declare(flags, &values);
    return flags.Names();
  };
  // --tls-cert and --tls-key are the router's public ones; a shard's are withheld.
  const std::set<std::string> own = {"shard",
                                     "groups",
                                     "host-groups",
                                     "host-group",
                                     "supervisor-socket",
                                     "shard-tls-cert",
                                     "shard-tls-key",
                                     "shard-tls-ca",
                                     "rank",
                                     "rank-from-hostname",
                                     "comm-host",
                                     "comm-ports",
                                     "world",
                                     "socket",
                                     "listen",
                                     "tls-ca",
                                     "metrics-port",
                                     "die-with-parent",
                                     "load-progress",
                                     "launcher-id",
                                     "launcher-generation",
                                     "device-index"};
  const Serve serve({});
  const std::vector<std::string> all = serve.flags.Names();
  const std::set<std::string> taken(all.begin(), all.end());
  for (const auto& list : {names(router::DeclareRouterFlags, router::RouterFlagValues()),
                           names(shard::DeclareShardFlags, shard::ShardFlagValues())}) {
    CHECK(list.size() > 20);
    for (const std::string& name : list) {
      INFO(name);
      CHECK((taken.count(name) != 0) == (own.count(name) == 0));
    }
  }
}

TEST_CASE("What nobody set is handed to nobody", "[launcher]") {
  const Serve serve({});
  CHECK(serve.Shards()[0].argv == Arguments{"/bin/weft-shard", "--model=/m.gguf", "--rank=0",
                                            "--world=1", "--socket=/run/weft/shard-0.sock",
                                            "--load-progress", "--device-index=0"});
  CHECK(serve.Router().argv ==
        Arguments{"/bin/weft-router", "--model=/m.gguf", "--http-port=8080", "--grpc-port=8081",
                  "--supervisor-socket=/run/weft/supervisor.sock",
                  "--shard=unix:/run/weft/shard-0.sock",
                  "--flag-origins=shard:weft serve,supervisor-socket:weft serve,"
                  "launcher-id:weft serve,launcher-generation:weft serve,model:weft serve,"
                  "http-port:default,grpc-port:default"});
}

TEST_CASE("The router is told where values came from", "[launcher]") {
  const test::TempDir folder;
  const std::string file = folder.Write("weft.toml", "idle-timeout-s = 5\n");
  const Variable variable("WEFT_QUEUE_REQUESTS_MAX", "7");
  const Serve serve({"--config", file, "--http-port=0"});
  REQUIRE(serve.error.empty());
  const std::string origins = serve.Router().argv.back();
  for (const char* origin : {"http-port:flag", "queue-requests-max:environment",
                             "idle-timeout-s:file", "grpc-port:default", "model:weft serve"}) {
    INFO(origin);
    CHECK(absl::StrContains(origins, origin));
  }
  // It reads no file itself.
  CHECK(Contains(serve.Router().argv, absl::StrCat("--flag-config=", file)));
  CHECK(absl::StrContains(origins, "config:flag"));
  CHECK_FALSE(HasFlag(serve.Router().argv, "config"));
}

TEST_CASE("The children get the model once, and the router is told that it was given",
          "[launcher]") {
  const Serve serve({"--model=/m.gguf"});
  REQUIRE(serve.error.empty());
  const auto models = [](const Arguments& argv) {
    return std::count_if(argv.begin(), argv.end(), [](const std::string& argument) {
      return absl::StartsWith(argument, "--model");
    });
  };
  CHECK(models(serve.Router().argv) == 1);
  CHECK(models(serve.Shards()[0].argv) == 1);
  const std::string origins = serve.Router().argv.back();
  CHECK(absl::StrContains(origins, "model:flag"));
  CHECK_FALSE(absl::StrContains(origins, "model:weft serve"));
  CHECK(absl::StrContains(origins, "launcher-id:weft serve"));
  CHECK(absl::StrContains(origins, "launcher-generation:weft serve"));
}

TEST_CASE("What serve decides itself is refused with these words", "[launcher]") {
  for (const char* argument : {"--rank=1", "--socket=/x"}) {
    INFO(argument);
    CHECK(
        absl::StrContains(Serve({argument}).error, " is not taken: weft serve decides it itself"));
  }
  CHECK(Serve({"--htp-port", "1"}).error ==
        "unknown flag --htp-port; the nearest known one is --http-port (see --help)");
}

TEST_CASE("A switch of a child may stand alone or with its value", "[launcher]") {
  for (const char* typed : {"--deterministic", "--deterministic=true"}) {
    const Serve serve({typed, "--strict-fields=false", "--shards=1"});
    REQUIRE(serve.error.empty());
    CHECK(Contains(serve.Shards()[0].argv, "--deterministic=true"));
    CHECK(Contains(serve.Router().argv, "--strict-fields=false"));
  }
  const Serve before_another({"--deterministic", "--model", "/m.gguf"});
  CHECK(before_another.options.model == "/m.gguf");
  const Serve wrong({"--deterministic=perhaps"});
  CHECK(absl::StrContains(wrong.error, "--deterministic"));
  const Variable variable("WEFT_DETERMINISTIC", "true");
  const Serve environment({});
  REQUIRE(environment.error.empty());
  CHECK(Contains(environment.Shards()[0].argv, "--deterministic=true"));
}

TEST_CASE("Each shard gets a metrics port of its own, when asked", "[launcher]") {
  const Serve serve({"--shards=2", "--shard-metrics-port=9400"});
  REQUIRE(serve.error.empty());
  CHECK(Contains(serve.Shards()[0].argv, "--metrics-port=9400"));
  CHECK(Contains(serve.Shards()[1].argv, "--metrics-port=9401"));
  const Serve free_ports({"--shards=2", "--shard-metrics-port=0"});
  CHECK(Contains(free_ports.Shards()[1].argv, "--metrics-port=0"));
  CHECK_FALSE(Serve({"--shard-metrics-port=-2"}).error.empty());
}

TEST_CASE("The environment reaches the children as flags, and only so", "[launcher]") {
  const Variable memory("WEFT_KV_MEMORY", "32MiB");
  const Variable running("WEFT_RUNNING_MAX", "5");
  const Variable metrics("WEFT_METRICS_PORT", "9999");
  const Variable rank("WEFT_RANK", "7");
  const Variable config("WEFT_CONFIG", "");
  const Variable other("WEFT_DEMO_MODEL", "/demo.gguf");
  const Serve serve({"--running-max=9"});
  REQUIRE(serve.error.empty());
  for (const ChildSpec& child : {serve.Shards()[0], serve.Router()}) {
    CHECK(Contains(child.argv, "--running-max=9"));
    CHECK_FALSE(HasFlag(child.argv, "metrics-port"));
    for (const std::string& entry : child.environment) {
      INFO(entry);
      CHECK(serve.flags.environment_names().count(entry.substr(0, entry.find('='))) == 0);
      for (const char* name : {"KV_MEMORY", "RUNNING_MAX", "METRICS_PORT", "RANK", "CONFIG"}) {
        CHECK_FALSE(absl::StartsWith(entry, absl::StrCat("WEFT_", name, "=")));
      }
    }
    CHECK(Contains(child.environment, "WEFT_DEMO_MODEL=/demo.gguf"));
    CHECK(Contains(child.environment, absl::StrCat("PATH=", getenv("PATH"))));
  }
  CHECK(Contains(serve.Shards()[0].argv, "--kv-memory=32MiB"));
  CHECK_FALSE(HasFlag(serve.Router().argv, "kv-memory"));
}

TEST_CASE("Ports that were chosen take the place of those that were asked for", "[launcher]") {
  Serve serve({"--http-port=0", "--grpc-port=0", "--host=::1"});
  serve.options.router.http_port = 43210;
  const ChildSpec router = serve.Router();
  CHECK(Contains(router.argv, "--http-port=43210"));
  CHECK_FALSE(Contains(router.argv, "--http-port=0"));
  CHECK(Contains(router.argv, "--host=::1"));
}

TEST_CASE("Serve refuses unknown flags and values out of range, and names the range",
          "[launcher]") {
  CHECK(absl::StrContains(Serve({"--no-such-flag"}).error, "no-such-flag"));
  struct Case {
    const char* argument;
    const char* says;
  };
  for (const Case& wrong : {Case{"--shards=0", "--shards: 0 is not in 1 .. 64"},
                            Case{"--http-port=99999", "--http-port: 99999 is not in 0 .. 65535"},
                            Case{"--http-port=many", "--http-port: many is not in 0 .. 65535"},
                            Case{"--queue-requests-max=0", "--queue-requests-max: 0 is not in 1"},
                            Case{"--idle-timeout-s=0", "--idle-timeout-s: 0 is not in 0.001"},
                            Case{"--idle-timeout-s=nan", "--idle-timeout-s: nan is not in"},
                            Case{"--prefix-cache=maybe", "--prefix-cache: maybe is neither"}}) {
    INFO(wrong.argument);
    const std::string error = Serve({wrong.argument}).error;
    INFO(error);
    CHECK(absl::StartsWith(error, wrong.says));
  }
}

TEST_CASE("Help groups the flags by process and shows their ranges", "[launcher]") {
  const Serve serve({"--help"});
  for (const char* says : {"Server:", "Ports and connections (router):", "0 .. 65535",
                           "Model and device (shards):", "WEFT_KV_MEMORY"}) {
    INFO(says);
    CHECK(absl::StrContains(serve.help, says));
  }
  CHECK_FALSE(absl::StrContains(serve.help, "flag-origins"));
}

TEST_CASE("An address without its port is refused before anybody connects", "[launcher]") {
  for (const char* good : {"127.0.0.1:8081", "localhost:1", "[::1]:65535"}) {
    INFO(good);
    CHECK(CheckConnect(good).ok());
  }
  for (const char* bad : {"127.0.0.1", "localhost", "[::1]", "localhost:"}) {
    INFO(bad);
    CHECK(absl::StrContains(CheckConnect(bad).message(), "lacks the port"));
  }
  for (const char* bad : {"localhost:0", "localhost:65536", "localhost:http", ":8081"}) {
    INFO(bad);
    CHECK(absl::StartsWith(CheckConnect(bad).message(), "--connect: "));
  }
}

TEST_CASE("A model that cannot be one is named with the way out", "[launcher]") {
  const auto refusal = [](const std::string& path) {
    ServeOptions options;
    options.model = path;
    const auto model = ResolveModel(options);
    REQUIRE_FALSE(model.ok());
    return std::string(model.status().message());
  };
  CHECK(absl::StrContains(refusal("/no/such/model"), "--model: /no/such/model does not exist"));
  CHECK(absl::StrContains(refusal("/dev/null"), "neither a file nor a directory"));
  const test::TempDir folder;
  CHECK(absl::StrContains(refusal(folder.path()), "has no config.json; give"));
  const std::string gguf = folder.Write("tiny.gguf", "x");
  CHECK(absl::EndsWith(refusal(folder.path()), absl::StrCat("name ", gguf)));
}

}  // namespace
}  // namespace weft::launcher
