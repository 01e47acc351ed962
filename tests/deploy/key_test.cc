#include "deploy/launcher/key.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/key_form.h"
#include "common/thread.h"
#include "router/doors/identity/identity.h"
#include "router/doors/identity/key_file.h"
#include "tests/common/temp_dir.h"

namespace weft::launcher {
namespace {

NewKeyOptions Options(const std::string& file, const std::string& tenant) {
  NewKeyOptions options;
  options.file = file;
  options.tenant = tenant;
  return options;
}

std::string KeysPath(const test::TempDir& folder) {
  return absl::StrCat(folder.path(), "/keys.json");
}

TEST_CASE("A new key opens the router and stands in the file as a digest alone",
          "[launcher][key]") {
  const test::TempDir folder;
  const std::string file = KeysPath(folder);
  NewKeyOptions options = Options(file, "team");
  options.name = "laptop";
  const NewKey made = MakeKey(options, absl::Now()).value();
  CHECK(made.tenant_is_new);
  // So that no log line shows it.
  CHECK(HoldsKey(made.key));
  struct stat info {};
  REQUIRE(stat(file.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK_FALSE(absl::StrContains(test::ReadFile(file), made.key));
  const NewKey second = MakeKey(options, absl::Now()).value();
  CHECK_FALSE(second.tenant_is_new);
  router::IdentityOptions identity_options;
  identity_options.key_file = file;
  const auto identity = router::Identity::Create(identity_options).value();
  for (const std::string& key : {made.key, second.key}) {
    CHECK(identity->Authenticate(absl::StrCat("Bearer ", key)).value()->name == "team");
  }
}

TEST_CASE("A key file may be named without a folder, also before it is there", "[launcher][key]") {
  const test::TempDir folder;
  const std::filesystem::path before = std::filesystem::current_path();
  const absl::Cleanup back = [&before] { std::filesystem::current_path(before); };
  std::filesystem::current_path(folder.path());
  CHECK(MakeKey(Options("keys.json", "team"), absl::Now()).value().tenant_is_new);
  CHECK_FALSE(MakeKey(Options("keys.json", "team"), absl::Now()).value().tenant_is_new);
  CHECK(router::LoadKeyFile(KeysPath(folder)).value().keys() == 2);
  CHECK(absl::StrContains(
      MakeKey(Options("nowhere/keys.json", "team"), absl::Now()).status().message(), "nowhere"));
}

TEST_CASE("Limits that stand in the file outlive new keys and revocations", "[launcher][key]") {
  const test::TempDir folder;
  const std::string file = folder.Write(
      "keys.json",
      R"({"tenants": [{"name": "team", "weight": 0.1, "requests_max": 7, "tokens_per_minute": 9,
          "priority_min": -1, "priority_max": 2, "priority_default": 1, "keys": []}]})");
  const auto limits = router::LoadKeyFile(file).value().tenants[0].limits;
  const NewKey made = MakeKey(Options(file, "team"), absl::Now()).value();
  REQUIRE(RevokeKey(file, made.key, "").ok());
  const router::KeyFile after = router::LoadKeyFile(file).value();
  CHECK(after.tenants[0].limits == limits);
  CHECK(after.keys() == 0);
}

TEST_CASE("Without a file a key comes with the line that belongs into one", "[launcher][key]") {
  NewKeyOptions options = Options("", "team");
  options.expires = "2999-01-01";
  const NewKey made = MakeKey(options, absl::Now()).value();
  CHECK(absl::StrContains(made.entry, router::FormatKeyDigest(router::KeyHasher().Hash(made.key))));
  CHECK(absl::StrContains(made.entry, "\"expires\": \"2999-01-01\""));
}

TEST_CASE("A bad flag or file makes no key and changes nothing", "[launcher][key]") {
  const test::TempDir folder;
  const std::string file = KeysPath(folder);
  const auto error = [&](const NewKeyOptions& options) {
    return std::string(MakeKey(options, absl::Now()).status().message());
  };
  CHECK(absl::StartsWith(error(Options(file, "")), "--tenant: "));
  CHECK(absl::StartsWith(error(Options(file, "a b")), "--tenant: "));
  CHECK(absl::StartsWith(error(Options(file, "anonymous")), "--tenant: "));
  NewKeyOptions options = Options(file, "team");
  options.expires = "soon";
  CHECK(absl::StartsWith(error(options), "--expires: expected a date"));
  options.expires = "2001-01-01";
  CHECK(absl::StrContains(error(options), "is in the past"));
  options = Options(file, "team");
  options.name = std::string(129, 'n');
  CHECK(absl::StartsWith(error(options), "--name: "));
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK_FALSE(error(Options(absl::StrCat(folder.path(), "/none/keys.json"), "team")).empty());
  folder.Write("keys.json", "{\n\"tenants\": 5}");
  CHECK(absl::StrContains(error(Options(file, "team")), "keys.json:2: `tenants`"));
  CHECK(test::ReadFile(file) == "{\n\"tenants\": 5}");
}

TEST_CASE("A list shows the keys' digests, tenants and ends", "[launcher][key]") {
  const test::TempDir folder;
  const std::string file = KeysPath(folder);
  const absl::Time now = absl::Now();
  NewKeyOptions options = Options(file, "team");
  options.expires = "2999-01-01";
  options.name = "laptop";
  const NewKey one = MakeKey(options, now).value();
  const NewKey two = MakeKey(Options(file, "batch"), now).value();
  const std::string table = ListKeys(file, now).value();
  const std::vector<std::string> lines = absl::StrSplit(table, '\n', absl::SkipEmpty());
  REQUIRE(lines.size() == 3);
  CHECK(absl::StrContains(
      lines[1], router::FormatKeyDigest(router::KeyHasher().Hash(one.key)).substr(7, 12)));
  CHECK(absl::StrContains(lines[1], "team"));
  CHECK(absl::StrContains(lines[1], "2999-01-01"));
  CHECK(absl::StrContains(lines[1], "laptop"));
  CHECK(absl::StrContains(lines[2], "never"));
  CHECK_FALSE(absl::StrContains(table, two.key));
  const absl::Time later = absl::FromCivil(absl::CivilDay(2999, 1, 1), absl::UTCTimeZone());
  CHECK(absl::StrContains(ListKeys(file, later).value(), "2999-01-01 (over)"));
  CHECK(absl::IsNotFound(ListKeys(absl::StrCat(folder.path(), "/none"), now).status()));
  CHECK(absl::StartsWith(ListKeys("", now).status().message(), "--file"));
}

TEST_CASE("A key is revoked by digest, name or itself, and never two at once", "[launcher][key]") {
  const test::TempDir folder;
  const std::string file = KeysPath(folder);
  std::vector<std::string> keys;
  for (const char* const name : {"a", "b", "b", "c"}) {
    NewKeyOptions options = Options(file, "team");
    options.name = name;
    keys.push_back(MakeKey(options, absl::Now()).value().key);
  }
  const std::string digits = router::FormatKeyDigest(router::KeyHasher().Hash(keys[0])).substr(7);
  const auto left = [&file] { return router::LoadKeyFile(file).value().keys(); };
  CHECK(absl::IsNotFound(RevokeKey(file, digits.substr(0, 7), "").status()));
  CHECK(absl::IsNotFound(RevokeKey(file, "weft-nobody", "").status()));
  const std::string several(RevokeKey(file, "b", "").status().message());
  CHECK(absl::StrContains(several, "several keys"));
  CHECK(absl::StrContains(several, "give the digits instead, or --tenant"));
  CHECK(absl::StartsWith(RevokeKey(file, "a", "other").status().message(), "--tenant"));
  CHECK_FALSE(RevokeKey(file, "", "").ok());
  CHECK(left() == 4);
  CHECK(
      absl::StrContains(RevokeKey(file, digits.substr(0, 8), "").value(), "\"a\" of tenant team"));
  CHECK(RevokeKey(file, keys[1], "team").ok());
  CHECK(RevokeKey(file, "b", "").ok());
  CHECK(left() == 1);
  // A message must not repeat a key that was typed.
  const std::string gone(RevokeKey(file, keys[0], "").status().message());
  CHECK_FALSE(absl::StrContains(gone, keys[0]));
}

TEST_CASE("Keys made at the same time are all in the file", "[launcher][key]") {
  const test::TempDir folder;
  const std::string file = KeysPath(folder);
  constexpr int kThreads = 4;
  constexpr int kKeys = 10;
  {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back("key", [&file, t] {
        for (int made = 0; made < kKeys;) {
          const auto key = MakeKey(Options(file, absl::StrCat("t", t)), absl::Now());
          // Only another command's turn is a reason to fail.
          if (!key.ok() && !absl::IsUnavailable(key.status())) return;
          if (key.ok()) ++made;
        }
      });
    }
  }
  CHECK(router::LoadKeyFile(file).value().keys() == kThreads * kKeys);
}

}  // namespace
}  // namespace weft::launcher
