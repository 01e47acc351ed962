// The form of the report, and one of this machine.

#include "deploy/launcher/doctor/report.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "deploy/launcher/doctor/host.h"

namespace weft::launcher {
namespace {

TEST_CASE("A report has a line for each check, with the way out of what is wrong", "[doctor]") {
  Report report;
  report.Ok("cores", "4 cores");
  report.Warn("clock", "nothing keeps it right", "run chrony");
  report.Fail("model", absl::NotFoundError("/m: no such file"));
  CHECK(report.Text() ==
        "ok    cores: 4 cores\n"
        "warn  clock: nothing keeps it right; run chrony\n"
        "fail  model: /m: no such file\n");
  const boost::json::value json = boost::json::parse(report.Json());
  CHECK(json.at("failed") == 1);
  CHECK(json.at("warned") == 1);
  CHECK(json.at("checks").at(1).at("verdict") == "warn");
  CHECK(json.at("checks").at(1).at("what") == "clock");
  CHECK(json.at("checks").at(1).at("way_out") == "run chrony");
  CHECK(json.at("checks").as_array().size() == 3);
}

TEST_CASE("This machine is asked for its facts", "[doctor]") {
  const std::unique_ptr<Host> host = ThisHost();
  CHECK(host->OpenFilesMax() > 0);
  CHECK(host->Cores() > 0);
  CHECK(host->ThreadsLeft(1).ok());
  CHECK(host->InstructionSets().back() == "portable");
  const absl::Status met = host->Meet();
  INFO(met);
  CHECK(met.ok());
  CHECK(host->Listen("127.0.0.1", 0).ok());
  CHECK_FALSE(host->Listen("192.0.2.1", 0).ok());
  CHECK(host->OthersRead("/proc/self/stat"));
}

}  // namespace
}  // namespace weft::launcher
