#include "shard/model/hf_config.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "tests/common/temp_dir.h"

namespace weft::shard {
namespace {

TEST_CASE("Configuration values convert, and null counts as absent", "[shard][model]") {
  const test::TempDir dir;
  dir.Write("config.json", R"({"u": 7, "f": 1e-5, "i": 2, "b": true, "s": "text", "n": null,
                               "o": {"x": 1}, "list": [1, 2], "names": ["a"]})");
  const auto config = HfConfig::Load(dir.path());
  REQUIRE(config.ok());
  const HfObject root = config->root();
  CHECK(*root.GetUint("u") == 7);
  CHECK(*root.GetUintOr("n", 5) == 5);
  CHECK(*root.GetFloat("f") == 1e-5f);
  CHECK(*root.GetFloat("i") == 2.0f);
  CHECK(*root.GetFloatOr("none", 0.5f) == 0.5f);
  CHECK(*root.GetBoolOr("b", false));
  CHECK_FALSE(*root.GetBoolOr("n", false));
  CHECK(*root.GetString("s") == "text");
  CHECK(*root.GetStringOr("n", "other") == "other");
  CHECK(*root.GetObject("o")->GetUint("x") == 1);
  CHECK(*root.GetUints("list", 2) == std::vector<uint32_t>{1, 2});
  CHECK(*root.GetUints("u", 7) == std::vector<uint32_t>{7});
  CHECK(root.GetUints("n", 7)->empty());
  CHECK_FALSE(root.GetUints("list", 1).ok());
  CHECK_FALSE(root.GetUints("u", 6).ok());
  CHECK(*root.GetStrings("names") == std::vector<std::string>{"a"});
  CHECK_FALSE(root.Has("n"));
  CHECK_FALSE(config->generation().Has("u"));
}

TEST_CASE("Configuration errors name file, key and what was found", "[shard][model]") {
  const test::TempDir dir;
  dir.Write("config.json", R"({"u": -1, "big": 4294967296, "d": 8.0, "s": 3, "o": {"x": "y"},
                               "list": [1, "2"], "huge": 1e60})");
  const auto config = HfConfig::Load(dir.path());
  REQUIRE(config.ok());
  const HfObject root = config->root();
  const std::string at = dir.path() + "/config.json: ";
  CHECK(root.GetUint("none").status() == absl::NotFoundError(at + "none: is missing"));
  const std::string integer = "expected an integer from 0 to 4294967295, found ";
  CHECK(root.GetUint("u").status() == absl::InvalidArgumentError(at + "u: " + integer + "-1"));
  CHECK(root.GetUint("big").status() ==
        absl::InvalidArgumentError(at + "big: " + integer + "4294967296"));
  CHECK_FALSE(root.GetUint("d").ok());
  CHECK(root.GetString("s").status() ==
        absl::InvalidArgumentError(at + "s: expected a string, found 3"));
  CHECK(root.GetObject("o")->GetUint("x").status() ==
        absl::InvalidArgumentError(at + "o.x: " + integer + "\"y\""));
  CHECK_FALSE(root.GetUints("list", 9).ok());
  CHECK_FALSE(root.GetStrings("list").ok());
  CHECK_FALSE(root.GetFloat("huge").ok());
  CHECK_FALSE(root.GetFloat("o").ok());
  CHECK_FALSE(root.GetBoolOr("s", false).ok());
}

TEST_CASE("A directory without a readable config.json is refused", "[shard][model]") {
  const test::TempDir dir;
  CHECK(absl::IsNotFound(HfConfig::Load(dir.path()).status()));
  const std::string path = dir.Write("config.json", "{\"a\": ");
  CHECK(absl::StartsWith(HfConfig::Load(dir.path()).status().message(), path));
  dir.Write("config.json", "[1]");
  CHECK(absl::StrContains(HfConfig::Load(dir.path()).status().message(), "expected a JSON object"));
  dir.Write("config.json", std::string(200, '[') + std::string(200, ']'));
  CHECK_FALSE(HfConfig::Load(dir.path()).ok());
  dir.Write("config.json", "{\"x\": \"" + std::string(5 << 20, 'x') + "\"}");
  CHECK(absl::IsResourceExhausted(HfConfig::Load(dir.path()).status()));
  dir.Write("config.json", "{}");
  dir.Write("generation_config.json", "nonsense");
  CHECK(absl::StrContains(HfConfig::Load(dir.path()).status().message(), "generation_config.json"));
}

}  // namespace
}  // namespace weft::shard
