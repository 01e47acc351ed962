#include "deploy/launcher/hub/settings.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "tests/common/temp_dir.h"

namespace weft::hub {
namespace {

// An environment.
auto Variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
}

TEST_CASE("The cache lies where Hugging Face's libraries look for it", "[hub]") {
  CHECK(CacheDir(Variables({{"HOME", "/h"}})) == "/h/.cache/huggingface/hub");
  CHECK(CacheDir(Variables({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}})) == "/x/huggingface/hub");
  CHECK(CacheDir(Variables({{"HOME", "/h"}, {"HF_HOME", "~/f"}})) == "/h/f/hub");
  CHECK(CacheDir(Variables({{"HF_HOME", "/f"}, {"HF_HUB_CACHE", "/c"}})) == "/c");
  CHECK(CacheDir(Variables({{"HF_HOME", "/f"}, {"HUGGINGFACE_HUB_CACHE", "/l"}})) == "/l");
}

TEST_CASE("A token comes from the environment, else from its file", "[hub]") {
  const test::TempDir folder;
  CHECK(ReadHubSettings(Variables({{"HF_HOME", folder.path()}}))->token.empty());
  folder.Write("token", "hf_file\n");
  CHECK(ReadHubSettings(Variables({{"HF_HOME", folder.path()}}))->token == "hf_file");
  CHECK(ReadHubSettings(Variables({{"HF_HOME", folder.path()}, {"HF_TOKEN", " hf_env "}}))->token ==
        "hf_env");
  CHECK(ReadHubSettings(Variables({{"HF_HOME", folder.path()},
                                   {"HF_TOKEN_PATH", folder.Write("other", "hf_other")}}))
            ->token == "hf_other");
  CHECK(ReadHubSettings(
            Variables({{"HF_HOME", folder.path()}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}))
            ->token.empty());
  // A file that is named and not there is a slip.
  CHECK_FALSE(ReadHubSettings(Variables({{"HF_TOKEN_PATH", folder.path() + "/none"}})).ok());
}

TEST_CASE("A token that is none is refused without being shown", "[hub]") {
  for (const char* token : {"two words", "a\r\nX-Evil: 1", "t\xc3\xb6ken"}) {
    const auto settings = ReadHubSettings(Variables({{"HF_TOKEN", token}}));
    REQUIRE_FALSE(settings.ok());
    CHECK(absl::StrContains(settings.status().message(), "HF_TOKEN"));
    CHECK_FALSE(absl::StrContains(settings.status().message(), token));
  }
}

TEST_CASE("The hub and its certificates can be named", "[hub]") {
  const HubSettings plain = ReadHubSettings(Variables({{"HF_HOME", "/none"}})).value();
  CHECK(plain.endpoint == "https://huggingface.co");
  CHECK(plain.ca_file.empty());
  const HubSettings mirror = ReadHubSettings(Variables({{"HF_HOME", "/none"},
                                                        {"HF_ENDPOINT", "http://mirror:1/a//"},
                                                        {"CURL_CA_BUNDLE", "/b.pem"}}))
                                 .value();
  CHECK(mirror.endpoint == "http://mirror:1/a");
  CHECK(mirror.ca_file == "/b.pem");
  CHECK_FALSE(ReadHubSettings(Variables({{"HF_ENDPOINT", "mirror"}})).ok());
}

TEST_CASE("Offline is what Hugging Face's libraries take for it", "[hub]") {
  for (const char* yes : {"1", "ON", "yes", "True"}) {
    CHECK(IsOffline(Variables({{"HF_HUB_OFFLINE", yes}})));
  }
  CHECK(IsOffline(Variables({{"TRANSFORMERS_OFFLINE", "1"}})));
  CHECK_FALSE(IsOffline(Variables({{"HF_HUB_OFFLINE", "0"}, {"TRANSFORMERS_OFFLINE", "1"}})));
  CHECK_FALSE(IsOffline(Variables({})));
}

}  // namespace
}  // namespace weft::hub
