// What can be set, and what is refused by name and range.

#include "deploy/launcher/chat/settings.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"

namespace weft::launcher {
namespace {

TEST_CASE("Values in their range are taken and given back", "[chat]") {
  Settings settings;
  CHECK_FALSE(settings.Real("temperature").has_value());
  CHECK(settings.Set("temperature", "0.7").ok());
  CHECK(settings.Real("temperature").value() == 0.7);
  CHECK(settings.Set("seed", "18446744073709551615").ok());
  CHECK(settings.Integer("seed").value() == 18446744073709551615u);
  CHECK(settings.Set("max_tokens", "64").ok());
  CHECK(settings.Integer("max_tokens").value() == 64);
  CHECK(settings.Set("temperature", "default").ok());
  CHECK_FALSE(settings.Real("temperature").has_value());
}

TEST_CASE("A value out of range is refused with the range, and changes nothing", "[chat]") {
  struct Case {
    const char* name;
    const char* bad;
    const char* good;
    const char* range;
  };
  for (const Case& c :
       {Case{"temperature", "-0.1", "100", "0 .. 100"},
        Case{"temperature", "100.5", "0", "0 .. 100"}, Case{"temperature", "nan", "0", "0 .. 100"},
        Case{"temperature", "warm", "0", "0 .. 100"}, Case{"top_p", "0", "1", "above 0, at most 1"},
        Case{"top_p", "1.01", "0.1", "at most 1"}, Case{"top_k", "-1", "0", "0 .. 1048576"},
        Case{"top_k", "1048577", "1048576", "1048576"}, Case{"top_k", "2.5", "2", "0 .. 1048576"},
        Case{"min_p", "1.1", "1", "0 .. 1"}, Case{"typical_p", "0", "0.5", "above 0"},
        Case{"repetition_penalty", "0", "0.01", "0.01 .. 10"},
        Case{"presence_penalty", "-2.1", "-2", "-2 .. 2"},
        Case{"frequency_penalty", "2.1", "2", "-2 .. 2"}, Case{"max_tokens", "0", "1", "1 .. "},
        Case{"max_tokens", "4294967296", "4294967295", "1 .. "}, Case{"seed", "-1", "0", "0 .. "},
        Case{"seed", "18446744073709551616", "7", "0 .. "}}) {
    INFO(c.name << " " << c.bad);
    Settings settings;
    REQUIRE(settings.Set(c.name, c.good).ok());
    const std::string before = settings.Show();
    const absl::Status status = settings.Set(c.name, c.bad);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), c.name));
    CHECK(absl::StrContains(status.message(), c.range));
    CHECK(settings.Show() == before);
  }
}

TEST_CASE("An unknown name is refused with those that there are", "[chat]") {
  Settings settings;
  const absl::Status status = settings.Set("temprature", "1");
  CHECK(absl::StrContains(status.message(), "(temperature?)"));
  CHECK(absl::StrContains(status.message(), "top_k"));
  CHECK_FALSE(settings.Show("temprature").has_value());
}

TEST_CASE("All settings are shown with values and ranges", "[chat]") {
  Settings settings;
  REQUIRE(settings.Set("top_k", "40").ok());
  for (const Settings::Info& info : Settings::All()) {
    CHECK(absl::StrContains(settings.Show(), info.name));
    CHECK(absl::StrContains(*settings.Show(info.name), info.range));
  }
  CHECK(absl::StrContains(*settings.Show("top_k"), " 40 "));
  CHECK(absl::StrContains(*settings.Show("top_p"), " default "));
}

}  // namespace
}  // namespace weft::launcher
