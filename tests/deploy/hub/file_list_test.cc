#include "deploy/launcher/hub/file_list.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft::hub {
namespace {

const std::string kCommit(40, 'c');
const std::string kSha256(64, 'd');
const std::string kSha1(40, 'e');

std::string List(const std::string& siblings) {
  return absl::StrCat(R"({"sha":")", kCommit, R"(","siblings":[)", siblings, "]}");
}

TEST_CASE("Sizes and digests come from the list, those of large files from their storage",
          "[hub]") {
  const std::string json = List(absl::StrCat(
      R"({"rfilename":"config.json","size":7,"blobId":")", kSha1,
      R"("},{"rfilename":"d/model.gguf","size":9,"blobId":")", kSha1, R"(","lfs":{"sha256":")",
      kSha256, R"(","size":9,"pointerSize":1}},{"rfilename":"unknown"})"));
  const ModelFileList list = ParseFileList(json).value();
  CHECK(list.commit == kCommit);
  REQUIRE(list.files.size() == 3);
  CHECK(list.files[0].blob.kind == BlobName::Kind::kGitBlob);
  CHECK(list.files[0].bytes == 7u);
  CHECK(list.files[1].path == "d/model.gguf");
  CHECK(list.files[1].blob.kind == BlobName::Kind::kSha256);
  CHECK(list.files[1].blob.text == kSha256);
  // Its own headers have to say.
  CHECK(list.files[2].blob.empty());
  CHECK_FALSE(list.files[2].bytes.has_value());
}

TEST_CASE("A list that is none is refused in words", "[hub]") {
  for (const auto& [json, words] : std::initializer_list<std::pair<std::string, std::string>>{
           {"", "no JSON"},
           {"[]", "no object"},
           {"{}", "no commit"},
           {R"({"sha":"main","siblings":[]})", "no commit"},
           {absl::StrCat(R"({"sha":")", kCommit, R"("})"), "no files"},
           {List("1"), "an entry is no object"},
           {List("{}"), "no rfilename"},
           {List(R"({"rfilename":"a"},{"rfilename":"a"})"), "names a twice"},
           {List(R"({"rfilename":"a","size":-1})"), "size"},
           {List(R"({"rfilename":"a","size":1e30})"), "size"},
           {List(R"({"rfilename":"a","size":"1"})"), "size"},
           {List(R"({"rfilename":"a","blobId":"../x"})"), "no version"},
           {List(R"({"rfilename":"a","lfs":{"sha256":"/etc/passwd"}})"), "no version"},
           {std::string(100, '['), "no JSON"}}) {
    INFO(json);
    const auto list = ParseFileList(json);
    REQUIRE_FALSE(list.ok());
    CHECK(absl::StrContains(list.status().message(), words));
  }
}

TEST_CASE("No name of a file leads out of its folder or speaks to a terminal", "[hub]") {
  for (const std::string& path :
       {std::string(), std::string("/etc/passwd"), std::string("../x"), std::string("a/../../x"),
        std::string("a/./b"), std::string("a//b"), std::string("a/"), std::string(".."),
        std::string("a\nb"), std::string("a\x1b[31m"), std::string("a\xc2\x9b"),
        std::string("a\xff"), std::string("a\0b", 3), std::string(256, 'a'), std::string(1025, 'a'),
        std::string("a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a")}) {
    INFO(Shown(path));
    const absl::Status status = CheckRepositoryPath(path);
    REQUIRE_FALSE(status.ok());
    // No control character, and not all of a long name.
    CHECK(Shown(status.message()).substr(0, 300) == status.message().substr(0, 300));
    CHECK(status.message().size() < 400);
  }
  CHECK(CheckRepositoryPath("a/b-c_d.e/模型.gguf").ok());
  CHECK(CheckRepositoryPath(".gitattributes").ok());
  const auto list = ParseFileList(List(R"({"rfilename":"../../../.ssh/authorized_keys"})"));
  CHECK(absl::StrContains(list.status().message(), "leads out of its folder"));
}

TEST_CASE("A blob is named by a digest or by what can be a name", "[hub]") {
  CHECK(ParseBlobName(absl::StrCat("\"", kSha256, "\""))->kind == BlobName::Kind::kSha256);
  CHECK(ParseBlobName(absl::StrCat("W/\"", kSha1, "\""))->kind == BlobName::Kind::kGitBlob);
  CHECK(ParseBlobName("\"5d41402a-7\"")->kind == BlobName::Kind::kOpaque);
  for (const char* text : {"", "\"\"", ".", "..", "a/b", "a b", "\"a\"b"}) {
    INFO(text);
    CHECK_FALSE(ParseBlobName(text).ok());
  }
  CHECK_FALSE(ParseBlobName(std::string(129, 'x')).ok());
}

TEST_CASE("An index names its parts once each", "[hub]") {
  const auto parts = ParseSafetensorsIndex(R"({"weight_map":{"a":"2.st","b":"1.st","c":"2.st"}})");
  REQUIRE(parts.ok());
  CHECK(*parts == std::vector<std::string>{"1.st", "2.st"});
  for (const char* json : {"{}", "[]", "x", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})",
                           R"({"weight_map":{"a":"../../x"}})"}) {
    INFO(json);
    CHECK_FALSE(ParseSafetensorsIndex(json).ok());
  }
}

}  // namespace
}  // namespace weft::hub
