// The configuration file of a router that runs: what is taken over, what waits for the next start,
// and what a bad file does.

#include "router/config_reload.h"

#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "spdlog/sinks/ostream_sink.h"
#include "tests/common/temp_dir.h"

namespace weft::router {
namespace {

// A router's flags, its file, and where changes go. What is logged is kept.
class Rig {
 public:
  explicit Rig(const std::string& text, std::vector<std::string> more = {}) {
    Write(text);
    arguments_ = {"weft-router", "--model=m.gguf", "--shard=unix:/s",
                  absl::StrCat("--config=", path())};
    arguments_.insert(arguments_.end(), more.begin(), more.end());
    Start();
  }
  // As `weft serve` starts it, whose own file has another name.
  Rig(const std::string& text, const std::vector<std::string>& from_file,
      const std::string& origins) {
    Write(text);
    arguments_ = {"weft-router", "--model=m.gguf", "--shard=unix:/s"};
    arguments_.insert(arguments_.end(), from_file.begin(), from_file.end());
    arguments_.insert(arguments_.end(),
                      {"--flag-config=/etc/weft.toml", absl::StrCat("--flag-reload=", path()),
                       absl::StrCat("--flag-origins=", origins)});
    Start();
  }
  ~Rig() { spdlog::set_default_logger(before_); }

  void Write(const std::string& text) { folder_.Write("router.conf", text); }
  std::string path() const { return folder_.path() + "/router.conf"; }
  // And what was logged meanwhile.
  std::string Reload() {
    log_.str("");
    status = reload_->Reload();
    return log_.str();
  }

  absl::Status status;
  std::optional<QueueLimits> limits;
  std::map<std::string, std::string> config;

 private:
  void Start() {
    auto logger = std::make_shared<spdlog::logger>(
        "router", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_, true));
    logger->set_pattern("%l %v");
    spdlog::set_default_logger(logger);
    std::vector<char*> argv;
    for (std::string& argument : arguments_) argv.push_back(argument.data());
    RouterFlags flags;
    std::string help;
    REQUIRE(ParseRouterFlags(static_cast<int>(argv.size()), argv.data(), &flags, &help).ok());
    CHECK(flags.reload_path == path());
    ConfigReload::Targets targets;
    targets.queue_limits = [this](const QueueLimits& now) { limits = now; };
    targets.config = [this](const std::map<std::string, std::string>& now) { config = now; };
    reload_.emplace(flags, std::move(targets));
  }

  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  const weft::test::TempDir folder_;
  std::ostringstream log_;
  std::vector<std::string> arguments_;
  std::optional<ConfigReload> reload_;
};

TEST_CASE("New limits are taken over and logged with the old ones", "[router][config]") {
  Rig rig("queue-requests-max = 100\n");
  CHECK(rig.Reload().empty());
  CHECK_FALSE(rig.limits.has_value());
  rig.Write("queue-requests-max = 7\nqueue-tokens-max = 5000\n");
  const std::string log = rig.Reload();
  CHECK(
      absl::StrContains(log, "info configuration: queue-requests-max is 7 (file), was 100 (file)"));
  CHECK(absl::StrContains(log, "queue-tokens-max is 5000 (file), was 4194304 (default)"));
  REQUIRE(rig.limits.has_value());
  CHECK(rig.limits->queue_requests_max == 7);
  CHECK(rig.limits->queue_tokens_max == 5000);
  CHECK(rig.limits->text_bytes_max == kTextBytesDefault);
  CHECK(rig.config.at("queue-requests-max") == "7 (file)");
  CHECK(rig.Reload().empty());
  // What the file names no more is the default again.
  rig.Write("");
  CHECK(absl::StrContains(rig.Reload(), "queue-requests-max is 4096 (default), was 7 (file)"));
  CHECK(rig.limits->queue_requests_max == kQueueRequestsDefault);
}

TEST_CASE("A flag stays above the file", "[router][config]") {
  Rig rig("", {"--queue-requests-max=9"});
  rig.Write("queue-requests-max = 7\n");
  CHECK(rig.Reload().empty());
  CHECK_FALSE(rig.limits.has_value());
}

TEST_CASE("The level of the log changes, and the line about it is not lost", "[router][config]") {
  Rig rig("");
  rig.Write("log-level = \"error\"\nqueue-requests-max = 7\n");
  const std::string log = rig.Reload();
  CHECK(absl::StrContains(log, "log-level is error (file), was info (default)"));
  CHECK(absl::StrContains(log, "queue-requests-max is 7"));
  CHECK_FALSE(spdlog::default_logger()->should_log(spdlog::level::warn));
  rig.Write("log-level = \"debug\"\nqueue-requests-max = 7\n");
  CHECK(absl::StrContains(rig.Reload(), "log-level is debug (file), was error (file)"));
  CHECK(spdlog::default_logger()->should_log(spdlog::level::debug));
}

TEST_CASE("What waits for the next start is said once for each value", "[router][config]") {
  Rig rig("running-max = 8\n");
  rig.Write("running-max = 16\n");
  CHECK(rig.Reload() ==
        "warning configuration: running-max is 16 (file) from the next start on; until then it is "
        "8 (file)\n");
  CHECK(rig.Reload().empty());
  CHECK(rig.config.empty());
  rig.Write("running-max = 32\n");
  CHECK(absl::StrContains(rig.Reload(), "running-max is 32"));
  rig.Write("running-max = 8\n");
  CHECK(rig.Reload().empty());
  rig.Write("running-max = 32\n");
  CHECK(absl::StrContains(rig.Reload(), "running-max is 32"));
}

TEST_CASE("A bad file changes nothing and is spoken of once", "[router][config]") {
  Rig rig("");
  for (const char* bad : {"queue-requests-max = 7\nqueue-tokens-max = -1\n",
                          "queue-requests-max = 7\nque-tokens-max = 1\n",
                          "queue-requests-max = 7\nlog-level = \"loud\"\n"}) {
    INFO(bad);
    rig.Write(bad);
    CHECK(absl::StrContains(rig.Reload(), "error the configuration stays as it was: "));
    CHECK_FALSE(rig.status.ok());
    CHECK(rig.Reload().empty());
    CHECK_FALSE(rig.limits.has_value());
  }
  rig.Write("queue-requests-max = 7\n");
  CHECK(absl::StrContains(rig.Reload(), "the configuration can be read again"));
  CHECK(rig.limits->queue_requests_max == 7);
}

TEST_CASE("Values that a launcher had from its file follow the file", "[router][config]") {
  Rig rig("queue-requests-max = [\"100\"]\n",
          {"--queue-requests-max=100", "--text-bytes-max=5000000", "--http-port=40001"},
          "queue-requests-max:file,text-bytes-max:flag,http-port:file");
  CHECK(rig.Reload().empty());
  rig.Write("queue-requests-max = [\"7\"]\ntext-bytes-max = [\"1\"]\n");
  const std::string log = rig.Reload();
  CHECK(absl::StrContains(log, "queue-requests-max is 7 (file), was 100 (file)"));
  CHECK_FALSE(absl::StrContains(log, "text-bytes-max"));
  // The launcher chose the port.
  CHECK_FALSE(absl::StrContains(log, "http-port"));
  CHECK(rig.limits->text_bytes_max == 5'000'000);
  CHECK(rig.config.at("config") == "/etc/weft.toml (default)");
}

}  // namespace
}  // namespace weft::router
