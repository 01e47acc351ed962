// The configuration file of a `weft serve` that runs: what it hands to the router, and what it says
// itself.

#include "deploy/launcher/config_watch.h"

#include <catch2/catch.hpp>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "deploy/launcher/serve_options.h"
#include "spdlog/sinks/ostream_sink.h"
#include "tests/common/temp_dir.h"

namespace weft::launcher {
namespace {

class Rig {
 public:
  explicit Rig(const std::string& text) {
    Write(text);
    auto logger = std::make_shared<spdlog::logger>(
        "weft", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_, true));
    logger->set_pattern("%l %v");
    spdlog::set_default_logger(logger);
    const std::vector<std::string> arguments = {
        "serve", absl::StrCat("--config=", folder_.path(), "/weft.toml")};
    DeclareServeFlags(flags_, &options_);
    std::vector<std::string> copies = arguments;
    std::vector<char*> argv;
    for (std::string& argument : copies) argv.push_back(argument.data());
    std::string help;
    REQUIRE(flags_.Parse(static_cast<int>(argv.size()), argv.data(), &help).ok());
    watch_ = std::make_unique<ConfigWatch>(arguments, flags_, RouterConfigPath(folder_.path()));
    REQUIRE(watch_->WriteForRouter(flags_).ok());
  }
  ~Rig() { spdlog::set_default_logger(before_); }

  void Write(const std::string& text) { folder_.Write("weft.toml", text); }
  // And what was logged meanwhile.
  std::string Reload() {
    log_.str("");
    watch_->Reload();
    return log_.str();
  }
  std::string ForRouter() const { return weft::test::ReadFile(folder_.path() + "/router.conf"); }

 private:
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  const weft::test::TempDir folder_;
  std::ostringstream log_;
  ServeOptions options_;
  Flags flags_{"weft serve", ""};
  std::unique_ptr<ConfigWatch> watch_;
};

TEST_CASE("The router gets its part of the file, without ports", "[launcher][config]") {
  Rig rig("http-port = 0\nqueue-requests-max = 9\nthreads = 2\nmodel-alias = [\"a\", \"b\"]\n");
  CHECK(rig.ForRouter() == "model-alias = [\"a\", \"b\"]\nqueue-requests-max = [\"9\"]\n");
  rig.Write("queue-requests-max = 12\n");
  CHECK(absl::StrContains(rig.Reload(), "http-port is 8080 (default) from the next start on"));
  CHECK(rig.ForRouter() == "queue-requests-max = [\"12\"]\n");
}

TEST_CASE("What belongs to shards waits for the next start, and is said once",
          "[launcher][config]") {
  Rig rig("threads = 2\n");
  rig.Write("threads = 3\nqueue-requests-max = 12\n");
  const std::string log = rig.Reload();
  CHECK(absl::StrContains(log,
                          "warning configuration: threads is 3 (file) from the next start on; "
                          "until then it is 2 (file)"));
  // The router speaks of its own.
  CHECK_FALSE(absl::StrContains(log, "queue-requests-max"));
  CHECK(rig.Reload().empty());
}

TEST_CASE("The launcher's own log follows the file", "[launcher][config]") {
  Rig rig("");
  rig.Write("log-level = \"warn\"\n");
  CHECK(absl::StrContains(rig.Reload(), "log-level is warn (file), was info (default); shards"));
  CHECK_FALSE(spdlog::default_logger()->should_log(spdlog::level::info));
  CHECK(rig.ForRouter() == "log-level = [\"warn\"]\n");
}

TEST_CASE("A bad file changes nothing, here and for the router", "[launcher][config]") {
  Rig rig("queue-requests-max = 9\n");
  rig.Write("queue-requests-max = 12\nshards = 0\n");
  CHECK(absl::StrContains(rig.Reload(), "error the configuration stays as it was: "));
  CHECK(rig.Reload().empty());
  CHECK(rig.ForRouter() == "queue-requests-max = [\"9\"]\n");
  // Any text is a flag's value: what it means is looked at before anything of the file is taken.
  rig.Write("queue-requests-max = 12\nlog-level = \"loud\"\n");
  CHECK(absl::StrContains(rig.Reload(), "\"loud\" is not one of trace, debug"));
  CHECK(rig.ForRouter() == "queue-requests-max = [\"9\"]\n");
  rig.Write("queue-requests-max = 12\n");
  CHECK(absl::StrContains(rig.Reload(), "can be read again"));
  CHECK(rig.ForRouter() == "queue-requests-max = [\"12\"]\n");
}

}  // namespace
}  // namespace weft::launcher
