#include "shard/weights/safetensors.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "shard/weights/tensor_source.h"
#include "tests/common/gguf_builder.h"
#include "tests/common/temp_dir.h"

namespace weft::shard {
namespace {

using test::Raw;
using test::TempDir;

std::string File(const std::string& header, size_t data_bytes) {
  return Raw(uint64_t{header.size()}) + header + std::string(data_bytes, 'd');
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  size_t begin, size_t end) {
  return absl::StrCat("\"", name, R"(":{"dtype":")", dtype, R"(","shape":)", shape,
                      R"(,"data_offsets":[)", begin, ",", end, "]}");
}

const std::string kTwo = "{" + Entry("b", "F16", "[2,3]", 8, 20) + "," +
                         Entry("a", "F32", "[2]", 0, 8) + R"(,"__metadata__":{"format":"pt"}})";

absl::Status Open(const std::string& bytes) {
  const TempDir dir;
  const std::string path = dir.Write("m.safetensors", bytes);
  const absl::Status status = SafetensorsFile::Open(path).status();
  CHECK((status.ok() || absl::StartsWith(status.message(), path)));
  return status;
}

TEST_CASE("A safetensors file gives its tensors in the order of their bytes", "[shard][weights]") {
  const TempDir dir;
  const auto file = SafetensorsFile::Open(dir.Write("m.safetensors", File(kTwo, 20)));
  REQUIRE(file.ok());
  const std::vector<TensorView>& tensors = (*file)->tensors();
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].name == "a");
  CHECK(tensors[0].type == TensorType::kF32);
  CHECK(tensors[0].shape == std::vector<uint64_t>{2});
  CHECK(tensors[1].name == "b");
  CHECK(tensors[1].shape == std::vector<uint64_t>{2, 3});
  CHECK(tensors[1].data.data() == tensors[0].data.data() + 8);
  CHECK(tensors[1].data.size() == 12);
}

TEST_CASE("A safetensors file cut at any byte is refused", "[shard][weights]") {
  const std::string bytes = File(kTwo, 20);
  for (size_t size = 0; size < bytes.size(); ++size) {
    INFO("cut at " << size);
    CHECK_FALSE(Open(bytes.substr(0, size)).ok());
  }
  CHECK(Open(bytes).ok());
}

TEST_CASE("A damaged safetensors header is refused with tensor, expected and found",
          "[shard][weights]") {
  const struct {
    std::string bytes;
    const char* want;
  } cases[] = {
      {"abc", "too short"},
      {Raw(~uint64_t{0}) + "{}", "claims 18446744073709551615 bytes of a file of 10"},
      {Raw(uint64_t{1} << 25) + std::string(1 << 25, ' '), "limit 16777216"},
      {File("[]", 0), "no JSON object"},
      {File("{\"a\":", 0), "no JSON object"},
      {File("{\"a\":3}", 0), "tensor a: expected a JSON object"},
      {File(R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8), "tensor a: dtype is missing"},
      {File(R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8), "tensor a: shape is missing"},
      {File(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "tensor a: data_offsets is missing"},
      {File("{" + Entry("a", "X9", "[2]", 0, 16) + "}", 8), "end outside the data, which has 8"},
      {File("{" + Entry("a", "F32", "[-2]", 0, 8) + "}", 8), "shape holds something else"},
      {File("{" + Entry("a", "F32", "[2.0]", 0, 8) + "}", 8), "shape holds something else"},
      {File("{" + Entry("a", "F32", "[1,1,1,1,1,1,1,1,2]", 0, 8) + "}", 8), "shape is too long"},
      {File("{" + Entry("a", "F32", "[4294967296,4294967296]", 0, 8) + "}", 8), "overflows"},
      {File("{" + Entry("a", "F32", "[3]", 0, 8) + "}", 8),
       "tensor a: shape [3] of F32 needs 12 bytes, data_offsets [0, 8] have 8"},
      {File("{" + Entry("a", "F32", "[2]", 8, 0) + "}", 8), "data_offsets [8, 0] are no range"},
      {File("{" + Entry("a", "F32", "[4]", 0, 16) + "}", 8), "end outside the data, which has 8"},
      {File("{" + Entry("a", "F32", "[2]", 4, 12) + "}", 12), "leaving a hole"},
      {File("{" + Entry("a", "F32", "[2]", 0, 8) + "," + Entry("b", "F32", "[2]", 4, 12) + "}", 12),
       "tensor b begins at byte 4 of the data, inside the one before it, which ends at 8"},
      {File("{" + Entry("a", "F32", "[2]", 0, 8) + "}", 12),
       "the tensors end at byte 8 of the data, which has 12"},
      {File("{" + Entry("a", "F32", "[2]", 0, 8) + "," + Entry("a", "F16", "[4]", 0, 8) + "}", 8),
       "tensor a appears twice"},
      {File(std::string(200, '[') + std::string(200, ']'), 0), "no JSON object"},
  };
  for (const auto& c : cases) {
    const absl::Status status = Open(c.bytes);
    INFO(status << " for " << c.want);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), c.want));
  }
}

TEST_CASE("A tensor of an unknown type may lie in a file, with its type's name",
          "[shard][weights]") {
  const TempDir dir;
  const auto file = SafetensorsFile::Open(dir.Write(
      "m.safetensors",
      File("{" + Entry("a", "F8_E4M3", "[2]", 0, 2) + "," + Entry("b", "F32", "[2]", 2, 10) + "}",
           10)));
  REQUIRE(file.ok());
  const std::vector<TensorView>& tensors = (*file)->tensors();
  CHECK(tensors[0].unknown_type == "F8_E4M3");
  CHECK(tensors[0].data.size() == 2);
  CHECK(tensors[1].unknown_type.empty());
}

TEST_CASE("Keys inside a tensor's entry may repeat a tensor's name", "[shard][weights]") {
  CHECK(Open(File(R"({"dtype":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4)).ok());
}

std::string IndexOf(const std::string& map) { return R"({"weight_map":{)" + map + "}}"; }

TEST_CASE("An index joins its parts and checks that they hold what it says", "[shard][weights]") {
  const TempDir dir;
  dir.Write("one.safetensors", File("{" + Entry("a", "F32", "[2]", 0, 8) + "}", 8));
  dir.Write("two.safetensors", File(kTwo, 20));
  const auto open = [&dir](const std::string& map) {
    dir.Write("model.safetensors.index.json", map);
    return TensorSource::OpenDirectory(dir.path());
  };
  const auto source = open(IndexOf(R"("a":"one.safetensors","b":"two.safetensors")"));
  REQUIRE(source.ok());
  REQUIRE((*source)->tensors().size() == 2);
  // "a" is in both parts: the index decides.
  CHECK(absl::EndsWith((*source)->Find("a")->file->path(), "one.safetensors"));
  CHECK((*source)->Find("c") == nullptr);

  const struct {
    std::string text;
    const char* want;
  } cases[] = {
      {"{}", "weight_map: is missing"},
      {"{\"weight_map\": 3}", "weight_map: is missing or no object"},
      {"{", "model.safetensors.index.json: "},
      {IndexOf(R"("a":3)"), "weight_map: a: expected a file name"},
      {IndexOf(R"("a":"../one.safetensors")"), "no plain name"},
      {IndexOf(R"("a":"one.bin")"), "no plain name of a .safetensors file"},
      {IndexOf(R"("b":"one.safetensors")"), "weight_map: b: is not in "},
      {IndexOf(R"("b":"three.safetensors")"), "three.safetensors"},
  };
  for (const auto& c : cases) {
    const absl::Status status = open(c.text).status();
    INFO(status << " for " << c.want);
    CHECK_FALSE(status.ok());
    CHECK(absl::StrContains(status.message(), c.want));
  }
}

TEST_CASE("A directory without weights is refused with what was looked for", "[shard][weights]") {
  const TempDir dir;
  CHECK(absl::StrContains(TensorSource::OpenDirectory(dir.path()).status().message(),
                          "has neither model.safetensors nor model.safetensors.index.json"));
  dir.Write("pytorch_model.bin", "x");
  CHECK(absl::EndsWith(
      TensorSource::OpenDirectory(dir.path()).status().message(),
      absl::StrCat("; weft convert --from ", dir.path(), " makes it of the .bin files")));
}

}  // namespace
}  // namespace weft::shard
