#include "router/doors/identity/key_file.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/limits.h"
#include "router/doors/identity/json_tree.h"
#include "tests/common/temp_dir.h"

namespace weft::router {
namespace {

const std::string kHash = absl::StrCat("sha256:", std::string(64, 'a'));

std::string Error(absl::string_view text) {
  const auto file = ParseKeyFile("keys.json", text);
  CHECK(file.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(file.status().message());
}

TEST_CASE("A key file gives tenants with limits and keys", "[router][identity]") {
  const std::string text = absl::StrReplaceAll(R"({
    "tenants": [
      {"name": "search", "weight": 2.5, "requests_max": 64, "tokens_per_minute": 600000,
       "priority_min": -5, "priority_max": 10, "priority_default": 3,
       "keys": ["HASH", {"hash": "sha256:BB", "name": "laptop \"é\"", "expires": "2027-01-31"}]},
      {"name": "batch.1", "priority_max": -1}
    ]
  })",
                                               {{"HASH", kHash}, {"BB", std::string(64, 'b')}});
  const KeyFile file = ParseKeyFile("keys.json", text).value();
  REQUIRE(file.tenants.size() == 2);
  CHECK(file.keys() == 2);
  const TenantEntry& search = file.tenants[0];
  CHECK(search.limits.weight == 2.5);
  CHECK(search.limits.requests_max == 64u);
  CHECK(search.limits.tokens_per_minute == 600000u);
  CHECK(search.limits.priority_min == -5);
  CHECK(search.limits.priority_max == 10);
  CHECK(search.limits.priority_default == 3);
  CHECK(FormatKeyDigest(search.keys[0].digest) == kHash);
  CHECK(search.keys[0].expires == absl::InfiniteFuture());
  CHECK(search.keys[1].name == "laptop \"é\"");
  CHECK(search.keys[1].expires ==
        absl::FromCivil(absl::CivilDay(2027, 1, 31), absl::UTCTimeZone()));
  const TenantLimits& batch = file.tenants[1].limits;
  CHECK(batch.weight == 1);
  CHECK_FALSE(batch.requests_max.has_value());
  CHECK_FALSE(batch.tokens_per_minute.has_value());
  CHECK(batch.priority_min == -kPriorityAbsMax);
  CHECK(batch.priority_default == -1);
  // Written and read again it is the same.
  const KeyFile again = ParseKeyFile("again", FormatKeyFile(file)).value();
  REQUIRE(again.tenants.size() == 2);
  CHECK(again.tenants[0].limits == search.limits);
  CHECK(again.tenants[1].limits == batch);
  CHECK(again.tenants[0].keys[1].name == search.keys[1].name);
  CHECK(again.tenants[0].keys[1].expires == search.keys[1].expires);
  CHECK(again.tenants[0].keys[1].digest == search.keys[1].digest);
  CHECK(FormatKeyFile(again) == FormatKeyFile(file));
  CHECK(ParseKeyFile("none", FormatKeyFile(KeyFile())).value().tenants.empty());
}

TEST_CASE("What is no JSON is refused with line and column", "[router][identity]") {
  CHECK(absl::StartsWith(Error("{\n  \"tenants\": [\n    x\n]}"), "keys.json:3:5: expected"));
  CHECK(absl::StartsWith(Error("{\"tenants\": [],}"), "keys.json:1:16: expected"));
  CHECK(absl::StartsWith(Error("{\n\"tenants\": [\n"), "keys.json:2:"));
  CHECK(absl::StrContains(Error("{\n\"tenants\": [\n"), "the file ends"));
  CHECK(absl::StartsWith(Error(""), "keys.json:1:"));
  CHECK(absl::StartsWith(Error("{\"tenants\": []}\n\n {}"), "keys.json:3:2: "));
  CHECK(absl::StartsWith(Error("{\"tenants\": \"a\nb\"}"), "keys.json:1:"));
  CHECK(absl::StartsWith(Error("{\"tenants\": \"\xff\"}"), "keys.json:1:"));
  CHECK(absl::StrContains(Error("[[[[[[[[[1]]]]]]]]]"), "levels"));
  CHECK(absl::StrContains(Error("{\"tenants\": [],\n\"tenants\": []}"), "keys.json:2"));
  CHECK(ParseKeyFile("keys.json", "\n{\"tenants\": []} \n\n").ok());
}

TEST_CASE("Each wrong value is refused with its line, its path and what is allowed",
          "[router][identity]") {
  const auto tenant = [](absl::string_view members) {
    return absl::StrCat("{\"tenants\": [\n{\"name\": \"a\",\n", members, "}]}");
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "keys.json:1: `the file`: expected an object, not an array"},
      {"{}", "keys.json:1: `tenants`: is missing"},
      {"{\"tenant\": []}", "keys.json:1: `tenant`: is unknown; known here: tenants"},
      {"{\"tenants\": {}}", "`tenants`: expected an array, not an object"},
      {"{\"tenants\": [\n7]}", "keys.json:2: `tenants[0]`: expected an object, not a number"},
      {"{\"tenants\": [{}]}", "`tenants[0].name`: is missing"},
      {"{\"tenants\": [{\"name\": \"a b\"}]}", "`tenants[0].name`: expected 1 to 64 of letters"},
      {"{\"tenants\": [{\"name\": \"\"}]}", "`tenants[0].name`: expected 1 to 64"},
      {"{\"tenants\": [{\"name\": \"anonymous\"}]}", "choose another name"},
      {"{\"tenants\": [{\"name\": \"a\"},\n{\"name\": \"a\"}]}",
       "keys.json:2: `tenants[1].name`: \"a\" stands in line 1 already"},
      {tenant("\"weigth\": 2"), "keys.json:3: `tenants[0].weigth`: is unknown; known here: name"},
      {tenant("\"weight\": 0"),
       "keys.json:3: `tenants[0].weight`: expected a number from 0.01 to 1000"},
      {tenant("\"weight\": 1001"), "expected a number from 0.01 to 1000"},
      {tenant("\"weight\": \"2\""), "`tenants[0].weight`: expected a number, not a string"},
      {tenant("\"requests_max\": 0"),
       "keys.json:3: `tenants[0].requests_max`: expected a whole number from 1 to 1000000; for no "
       "limit leave it out"},
      {tenant("\"requests_max\": 1.5"), "expected a whole number from 1 to 1000000"},
      {tenant("\"requests_max\": 1000001"), "expected a whole number from 1 to 1000000"},
      {tenant("\"tokens_per_minute\": 0"),
       "`tenants[0].tokens_per_minute`: expected a whole number from 1 to 10000000000; for no"},
      {tenant("\"tokens_per_minute\": 18446744073709551615"), "from 1 to 10000000000"},
      {tenant("\"priority_min\": -101"),
       "`tenants[0].priority_min`: expected a whole number from "
       "-100 to 100"},
      {tenant("\"priority_min\": 1, \"priority_max\": 0"),
       "`tenants[0].priority_max`: expected a whole number from 1 to 100"},
      {tenant("\"priority_max\": 5, \"priority_default\": 6"),
       "`tenants[0].priority_default`: expected a whole number from -100 to 5"},
      {tenant("\"keys\": \"x\""), "`tenants[0].keys`: expected an array, not a string"},
      {tenant("\"keys\": [\n1]"), "keys.json:4: `tenants[0].keys[0]`: expected a string or an"},
      {tenant("\"keys\": [\"weft-secret\"]"), "`tenants[0].keys[0]`: expected `sha256:`"},
      {tenant("\"keys\": [{}]"), "`tenants[0].keys[0].hash`: is missing"},
      {tenant("\"keys\": [{\"hash\": 1}]"), "`tenants[0].keys[0].hash`: expected a string"},
      {tenant("\"keys\": [{\"key\": \"weft-secret\"}]"),
       "`tenants[0].keys[0].key`: is unknown; known here: hash, name, expires"},
      {tenant(absl::StrCat("\"keys\": [{\"hash\": \"", kHash, "\", \"expires\": \"soon\"}]")),
       "`tenants[0].keys[0].expires`: expected a date like 2027-01-31"},
      {tenant(absl::StrCat("\"keys\": [{\"hash\": \"", kHash, "\", \"name\": \"",
                           std::string(129, 'n'), "\"}]")),
       "`tenants[0].keys[0].name`: is longer than 128 bytes"},
      {tenant(absl::StrCat("\"keys\": [\"", kHash, "\",\n\"", kHash, "\"]")),
       "keys.json:4: `tenants[0].keys[1]`: this key stands in line 3 already"},
  };
  for (const auto& [text, expected] : cases) {
    const std::string error = Error(text);
    INFO(text << "\n" << error);
    CHECK(absl::StrContains(error, expected));
    CHECK_FALSE(absl::StrContains(error, "secret"));
  }
}

TEST_CASE("A key file is bounded in bytes, tenants, keys and values", "[router][identity]") {
  const auto tenants = [](size_t count) {
    std::string text = "{\"tenants\": [{\"name\": \"t\"}";
    for (size_t i = 1; i < count; ++i) absl::StrAppend(&text, ",\n{\"name\": \"t", i, "\"}");
    return absl::StrCat(text, "]}");
  };
  CHECK(ParseKeyFile("keys.json", tenants(kTenantsMax)).ok());
  CHECK(absl::StrContains(Error(tenants(kTenantsMax + 1)), "more than 1024"));
  const auto keys = [](size_t count) {
    std::string text = "{\"tenants\": [{\"name\": \"t\", \"keys\": [";
    for (size_t i = 0; i < count; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ",\n",
                      "{\"name\": \"laptop\", \"hash\": \"sha256:", std::string(48, '0'),
                      absl::Hex(i, absl::kZeroPad16), "\"}");
    }
    return absl::StrCat(text, "]}]}");
  };
  CHECK(ParseKeyFile("keys.json", keys(kApiKeysMax)).value().keys() == kApiKeysMax);
  CHECK(absl::StrContains(Error(keys(kApiKeysMax + 1)), "more than 16384 keys"));
  std::string values = "[0";
  for (size_t i = 0; i < kJsonTreeValuesMax; ++i) values += ",0";
  CHECK(absl::StrContains(Error(values + "]"), "more than 200000"));
  const test::TempDir folder;
  const std::string path = folder.Write("keys.json", std::string(kKeyFileBytesMax + 1, ' '));
  CHECK(absl::StrContains(LoadKeyFile(path).status().message(), "longer than"));
}

TEST_CASE("A key file that is missing is refused with the command that makes one",
          "[router][identity]") {
  const test::TempDir folder;
  const std::string path = folder.path() + "/none.json";
  const absl::Status missing = LoadKeyFile(path).status();
  CHECK(absl::IsNotFound(missing));
  CHECK(absl::StartsWith(missing.message(), path + ": No such file or directory; put one there"));
  CHECK(absl::EndsWith(missing.message(),
                       "`weft key new --tenant NAME --file " + path + "` makes one"));
}

TEST_CASE("Mutants of a key file are refused with a line or mean what they say",
          "[router][identity]") {
  const std::string seeds[] = {
      absl::StrCat("{\n\"tenants\": [\n{\"name\": \"a\", \"weight\": 2.5, \"requests_max\": 7,\n",
                   "\"tokens_per_minute\": 600, \"priority_min\": -5, \"keys\": [\n\"", kHash,
                   "\",\n{\"hash\": \"sha256:", std::string(64, 'b'),
                   "\", \"name\": \"x\\u00e9\", \"expires\": \"2027-01-31\"}]}]}\n"),
      "{\"tenants\": []}"};
  constexpr uint32_t kSeed = 11;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  int understood = 0;
  for (int run = 0; run < 20'000; ++run) {
    std::string text = seeds[run % 2];
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, 1, "{}[]\",:0-\n"[random() % 10]);
      }
      if (text.empty()) text.push_back(0x20);
    }
    const auto file = ParseKeyFile("keys.json", text);
    if (!file.ok()) {
      if (absl::StartsWith(file.status().message(), "keys.json:")) continue;
      INFO(text);
      FAIL(file.status());
    }
    ++understood;
    const std::string written = FormatKeyFile(*file);
    if (FormatKeyFile(ParseKeyFile("again", written).value()) != written) FAIL(text);
  }
  CHECK(understood > 100);
}

TEST_CASE("Expiry dates are read strictly and written as they are read", "[router][identity]") {
  for (const absl::string_view text :
       {"2027-01-31", "2027-01-31T18:00:00Z", "2027-01-31T18:00:00.5Z"}) {
    CHECK(FormatExpiry(ParseExpiry(text).value()) == text);
  }
  CHECK(FormatExpiry(ParseExpiry("2027-01-31T02:00:00+02:00").value()) == "2027-01-31");
  for (const absl::string_view text :
       {"", "tomorrow", "infinite-future", "2027-13-01", "2027-02-30", "31.1.2027", "2027-01-31 x",
        "2027-01-31T18:00:00"}) {
    INFO(text);
    CHECK(ParseExpiry(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weft::router
