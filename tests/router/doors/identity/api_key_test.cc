#include "router/doors/identity/api_key.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft::router {
namespace {

TEST_CASE("A new key has 256 random bits in URL-safe characters", "[router][identity]") {
  std::set<std::string> keys;
  for (int i = 0; i < 100; ++i) {
    const std::string key = NewApiKey().value();
    CHECK(key.size() == 5 + 43);
    CHECK(absl::StartsWith(key, "weft-"));
    CHECK(
        key.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") ==
        std::string::npos);
    keys.insert(key);
  }
  CHECK(keys.size() == 100);
}

TEST_CASE("A digest is SHA-256 of the whole key text", "[router][identity]") {
  const KeyHasher hasher;
  // printf weft-abc | sha256sum
  CHECK(FormatKeyDigest(hasher.Hash("weft-abc")) ==
        "sha256:19e0a43f2fd2b11a97cc5dc83f6e2e2181591afbf72bce0c15fc85028190d893");
  CHECK(hasher.Hash("weft-abc") ==
        ParseKeyDigest(FormatKeyDigest(hasher.Hash("weft-abc"))).value());
  CHECK(hasher.Hash("weft-abc") != hasher.Hash("weft-abd"));
}

TEST_CASE("A digest that is none is refused without being repeated", "[router][identity]") {
  const std::string hex(64, 'a');
  CHECK(ParseKeyDigest(absl::StrCat("sha256:", hex)).ok());
  CHECK(ParseKeyDigest(absl::StrCat("sha256:", std::string(64, 'A'))).ok());
  for (const std::string& text :
       {hex, absl::StrCat("sha256:", hex, "a"), absl::StrCat("sha256:", hex.substr(1)),
        absl::StrCat("sha256:", hex.substr(1), "g"), absl::StrCat("sha512:", hex),
        std::string("weft-secret"), std::string()}) {
    const auto digest = ParseKeyDigest(text);
    CHECK(digest.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK_FALSE(absl::StrContains(digest.status().message(), "secret"));
  }
}

}  // namespace
}  // namespace weft::router
