#include "common/gguf.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <random>

#include "absl/strings/match.h"
#include "tests/common/gguf_builder.h"
#include "tests/common/temp_dir.h"
#include "tests/support/demo_model.h"

namespace weft {
namespace {

using test::GgufBuilder;
using test::Raw;
using test::RawString;
using test::TempDir;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ4_1 = 3;

// A small right file: keys of every kind and two tensors.
GgufBuilder Good() {
  GgufBuilder builder;
  builder.String("general.architecture", "llama")
      .Uint("a.u32", 7)
      .Key("a.i8", GgufBuilder::kI8, Raw(int8_t{-3}))
      .Key("a.u64", GgufBuilder::kU64, Raw(~uint64_t{0}))
      .Float("a.f32", 0.5f)
      .Key("a.f64", GgufBuilder::kF64, Raw(0.25))
      .Key("a.bool", GgufBuilder::kBool, Raw(uint8_t{1}))
      .Key("a.strings", GgufBuilder::kArray,
           Raw<uint32_t>(GgufBuilder::kString) + Raw(uint64_t{3}) + RawString("one") +
               RawString("") + RawString("three"))
      .Key("a.ints", GgufBuilder::kArray,
           Raw<uint32_t>(GgufBuilder::kI32) + Raw(uint64_t{2}) + Raw(int32_t{-1}) + Raw(int32_t{5}))
      .Key("a.floats", GgufBuilder::kArray,
           Raw<uint32_t>(GgufBuilder::kF32) + Raw(uint64_t{2}) + Raw(1.5f) + Raw(-2.0f))
      .Key("a.none", GgufBuilder::kArray, Raw<uint32_t>(GgufBuilder::kString) + Raw(uint64_t{0}))
      .Tensor("norm", {3}, kF32, Raw(1.0f) + Raw(2.0f) + Raw(3.0f))
      .Tensor("matrix", {64, 2}, kQ4_1, std::string(80, 'q'));
  return builder;
}

// The message with which `bytes` are refused; fails the test when they are accepted.
std::string Refusal(const std::string& bytes) {
  const TempDir dir;
  const std::string path = dir.Write("m.gguf", bytes);
  const auto file = GgufFile::Open(path);
  REQUIRE_FALSE(file.ok());
  const std::string message(file.status().message());
  CHECK(absl::StartsWith(message, path));
  return message;
}

TEST_CASE("A GGUF file gives its keys and tensors", "[common][gguf]") {
  const TempDir dir;
  const auto opened = GgufFile::Open(dir.Write("m.gguf", Good().Build()));
  REQUIRE(opened.ok());
  const GgufFile& file = **opened;
  CHECK(*file.GetString("general.architecture") == "llama");
  CHECK(*file.GetUint("a.u32") == 7);
  CHECK(*file.GetUint("a.u64") == ~uint64_t{0});
  CHECK(*file.GetFloat("a.f32") == 0.5);
  CHECK(*file.GetFloat("a.f64") == 0.25);
  CHECK(*file.GetBool("a.bool"));
  CHECK(*file.GetStrings("a.strings") == std::vector<absl::string_view>{"one", "", "three"});
  CHECK(*file.GetInts("a.ints") == std::vector<int64_t>{-1, 5});
  CHECK(*file.GetFloats("a.floats") == std::vector<float>{1.5f, -2.0f});
  CHECK(file.GetStrings("a.none")->empty());
  CHECK(file.Has("a.u32"));
  CHECK_FALSE(file.Has("a.u33"));

  REQUIRE(file.tensors().size() == 2);
  const GgufTensor* const matrix = file.FindTensor("matrix");
  REQUIRE(matrix != nullptr);
  CHECK(matrix->dims == std::vector<uint64_t>{64, 2});
  CHECK(matrix->type == TensorType::kQ4_1);
  CHECK(matrix->data.size() == 80);
  CHECK(matrix->data.front() == 'q');
  CHECK(file.FindTensor("nothing") == nullptr);
  file.DropPages();
  CHECK(matrix->data.back() == 'q');
}

TEST_CASE("GGUF values of another type are refused by file and key", "[common][gguf]") {
  const TempDir dir;
  const std::string path = dir.Write("m.gguf", Good().Build());
  const auto opened = GgufFile::Open(path);
  REQUIRE(opened.ok());
  const GgufFile& file = **opened;
  CHECK(file.GetUint("none").status() == absl::NotFoundError(path + ": has no key \"none\""));
  CHECK(file.GetUint("a.f32").status() ==
        absl::InvalidArgumentError(path + ": key \"a.f32\": expected an integer, found float32"));
  CHECK(file.GetString("a.strings").status() ==
        absl::InvalidArgumentError(
            path + ": key \"a.strings\": expected a string, found an array of string"));
  CHECK(file.GetUint("a.i8").status() ==
        absl::InvalidArgumentError(path +
                                   ": key \"a.i8\": expected an integer of 0 or more, found -3"));
  CHECK_FALSE(file.GetFloat("a.u32").ok());
  CHECK_FALSE(file.GetBool("a.u32").ok());
  CHECK_FALSE(file.GetStrings("a.ints").ok());
  CHECK_FALSE(file.GetInts("a.floats").ok());
  CHECK_FALSE(file.GetInts("a.u32").ok());
  CHECK_FALSE(file.GetFloats("a.ints").ok());
}

TEST_CASE("A GGUF file cut at any byte is refused", "[common][gguf]") {
  const std::string bytes = Good().Build();
  const TempDir dir;
  for (size_t size = 0; size < bytes.size(); ++size) {
    INFO("cut at " << size);
    CHECK_FALSE(GgufFile::Open(dir.Write("m.gguf", bytes.substr(0, size))).ok());
  }
  CHECK(GgufFile::Open(dir.Write("m.gguf", bytes)).ok());
}

TEST_CASE("A damaged GGUF header is refused with what is wrong", "[common][gguf]") {
  GgufBuilder builder = Good();
  std::string want;
  SECTION("magic") {
    builder.magic = "GGML";
    want = "does not begin with \"GGUF\"";
  }
  SECTION("version 1") {
    builder.version = 1;
    want = "GGUF version 1; supported are 2 and 3";
  }
  SECTION("big-endian") {
    builder.version = 3u << 24;
    want = "big-endian";
  }
  SECTION("tensor count") {
    builder.tensor_count = 1u << 30;
    want = "claims 1073741824 tensors";
  }
  SECTION("key count") {
    builder.key_count = 1u << 30;
    want = "1073741824 keys";
  }
  SECTION("key length") {
    builder.Uint(std::string(70000, 'k'), 1);
    want = "has 70000 bytes, more than 65535";
  }
  SECTION("duplicate key") {
    builder.Uint("a.u32", 8);
    want = "key \"a.u32\" appears twice";
  }
  SECTION("unknown value type") {
    builder.Key("odd", 13, "");
    want = "key \"odd\" has the unknown value type 13";
  }
  SECTION("unknown element type") {
    builder.Key("odd", GgufBuilder::kArray, Raw(uint32_t{99}) + Raw(uint64_t{0}));
    want = "array of the unknown value type 99";
  }
  SECTION("nested array") {
    builder.Key("odd", GgufBuilder::kArray, Raw<uint32_t>(GgufBuilder::kArray) + Raw(uint64_t{1}));
    want = "key \"odd\" is an array of arrays";
  }
  SECTION("array length") {
    builder.Key("odd", GgufBuilder::kArray, Raw<uint32_t>(GgufBuilder::kU8) + Raw(~uint64_t{0}));
    want = "array of 18446744073709551615 elements, more than";
  }
  SECTION("array beyond the file") {
    builder.Key("odd", GgufBuilder::kArray,
                Raw<uint32_t>(GgufBuilder::kU64) + Raw(uint64_t{1} << 24));
    want = "the file ends inside key \"odd\"";
  }
  SECTION("string length") {
    builder.Key("odd", GgufBuilder::kString, Raw(~uint64_t{0}));
    want = "has 18446744073709551615 bytes";
  }
  SECTION("alignment of another type") {
    builder.String("general.alignment", "32");
    want = "\"general.alignment\": expected an integer";
  }
  SECTION("alignment 0") {
    builder.Uint("general.alignment", 0);
    want = "general.alignment is 0; expected a power of two";
  }
  SECTION("alignment 48") {
    builder.Uint("general.alignment", 48);
    want = "general.alignment is 48";
  }
  const std::string message = Refusal(builder.Build());
  INFO(message);
  CHECK(absl::StrContains(message, want));
}

TEST_CASE("A damaged GGUF tensor table is refused with the tensor's name", "[common][gguf]") {
  GgufBuilder builder = Good();
  std::string want;
  SECTION("name length") {
    builder.Entry(std::string(65, 'n'), {4}, kF32, 0);
    want = "has 65 bytes, more than 64";
  }
  SECTION("no dimensions") {
    builder.Entry("odd", {}, kF32, 0);
    want = "tensor \"odd\" has 0 dimensions";
  }
  SECTION("five dimensions") {
    builder.Entry("odd", {1, 1, 1, 1, 1}, kF32, 0);
    want = "tensor \"odd\" has 5 dimensions";
  }
  SECTION("empty dimension") {
    builder.Entry("odd", {4, 0}, kF32, 0);
    want = "impossible dimensions [4, 0]";
  }
  SECTION("overflowing dimensions") {
    builder.Entry("odd", {1ull << 32, 1ull << 32, 4}, kF32, 0);
    want = "impossible dimensions [4294967296, 4294967296, …]";
  }
  SECTION("known type that is not read") {
    builder.Entry("odd", {256}, 19, 0);
    want = "tensor \"odd\" has the tensor type IQ1_S (19); supported are F32, F16, BF16";
  }
  SECTION("unknown type") {
    builder.Entry("odd", {256}, 1000, 0);
    want = "tensor type number 1000";
  }
  SECTION("rows of broken blocks") {
    builder.Entry("odd", {48, 2}, kQ4_1, 0);
    want = "rows of 48 elements; Q4_1 needs a multiple of 32";
  }
  SECTION("misaligned offset") {
    builder.Entry("odd", {4}, kF32, 20);
    want = "tensor \"odd\" begins at offset 20, not a multiple of 32";
  }
  SECTION("outside the file") {
    builder.Entry("odd", {4}, kF32, 4096);
    want = "tensor \"odd\" needs bytes 4096 to 4096 + 16 of the data, which has 112 bytes";
  }
  SECTION("offset that overflows") {
    builder.Entry("odd", {4}, kF32, ~uint64_t{31});
    want = "tensor \"odd\" needs bytes 18446744073709551584";
  }
  SECTION("overlap") {
    builder.Entry("odd", {4}, kF32, 32);
    want = "expected an offset of";
  }
  SECTION("duplicate name") {
    builder.Tensor("norm", {4}, kF32, std::string(16, '\0'));
    want = "tensor \"norm\" appears twice";
  }
  const std::string message = Refusal(builder.Build());
  INFO(message);
  CHECK(absl::StrContains(message, want));
}

TEST_CASE("GGUF alignment moves the data", "[common][gguf]") {
  GgufBuilder builder;
  builder.alignment = 256;
  builder.Uint("general.alignment", 256).Tensor("t", {2}, kF32, Raw(4.0f) + Raw(5.0f));
  const TempDir dir;
  const auto file = GgufFile::Open(dir.Write("m.gguf", builder.Build()));
  REQUIRE(file.ok());
  CHECK(Raw(4.0f) ==
        std::string((*file)->tensors()[0].data.begin(), (*file)->tensors()[0].data.begin() + 4));
}

TEST_CASE("Files that cannot be mapped are named", "[common][gguf]") {
  const TempDir dir;
  CHECK(absl::IsNotFound(GgufFile::Open(dir.path() + "/none.gguf").status()));
  CHECK(absl::StrContains(GgufFile::Open(dir.path()).status().message(), "not a regular file"));
  CHECK(absl::StrContains(GgufFile::Open(dir.Write("empty", "")).status().message(), "is empty"));
}

// It has the bytes of its shape, all of them in the file's map.
bool LiesInItsFile(const GgufTensor& tensor) {
  uint64_t elements = 1;
  for (const uint64_t dim : tensor.dims) elements *= dim;
  const absl::Span<const uint8_t> file = tensor.file->bytes();
  return tensor.data.size() == BytesOf(tensor.type, elements) &&
         tensor.data.begin() >= file.begin() && tensor.data.end() <= file.end();
}

TEST_CASE("GGUF files with flipped bytes never crash the reader", "[common][gguf][fuzz][long]") {
  const uint32_t seed = 20240611;
  std::cout << "gguf byte flips: seed " << seed << "\n";
  std::mt19937 random(seed);
  const std::string good = Good().Build();
  const TempDir dir;
  int accepted = 0;
  uint64_t touched = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = good;
    for (uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto file = GgufFile::Open(dir.Write("m.gguf", bytes));
    if (!file.ok()) continue;
    ++accepted;
    for (const GgufTensor& tensor : (*file)->tensors()) {
      REQUIRE(LiesInItsFile(tensor));
      // The kernel objects when the file is shorter than its map.
      touched += tensor.data.front() + tensor.data.back();
    }
    (void)(*file)->GetStrings("a.strings");
    (void)(*file)->GetInts("a.ints");
  }
  // Flips in values and tensor bytes are no damage that a reader could see.
  CHECK(accepted > 100);
  CHECK(accepted < 3900);
  CHECK(touched > 0);
}

// A part of a split model, as gguf-split writes it: metadata in the first, tensors in all.
GgufBuilder Part(uint16_t number, uint16_t count) {
  GgufBuilder builder;
  if (number == 0) builder.String("general.architecture", "llama");
  builder.Key("split.no", GgufBuilder::kU16, Raw(number))
      .Key("split.count", GgufBuilder::kU16, Raw(count))
      .Tensor("part" + std::to_string(number), {1}, kF32, Raw(1.0f + number));
  return builder;
}

TEST_CASE("Any part of a split GGUF model opens all of them", "[common][gguf]") {
  const TempDir dir;
  std::vector<std::string> paths;
  for (uint16_t i = 0; i < 3; ++i) {
    paths.push_back(
        dir.Write("m-0000" + std::to_string(i + 1) + "-of-00003.gguf", Part(i, 3).Build()));
  }
  for (const std::string& path : paths) {
    const auto opened = GgufFile::Open(path);
    REQUIRE(opened.ok());
    CHECK((*opened)->path() == paths[0]);
    CHECK(*(*opened)->GetString("general.architecture") == "llama");
    REQUIRE((*opened)->tensors().size() == 3);
    const GgufTensor* const last = (*opened)->FindTensor("part2");
    REQUIRE(last != nullptr);
    CHECK(last->file->path() == paths[2]);
    CHECK(*reinterpret_cast<const float*>(last->data.data()) == 3.0f);
  }
}

TEST_CASE("A split GGUF model with a part missing or mixed up is refused by name",
          "[common][gguf]") {
  const TempDir dir;
  const std::string first = dir.Write("m-00001-of-00002.gguf", Part(0, 2).Build());
  const auto missing = GgufFile::Open(first);
  CHECK(absl::IsNotFound(missing.status()));
  CHECK(absl::StrContains(missing.status().message(),
                          "m-00002-of-00002.gguf: is missing, part 2 of 2 of the model"));
  dir.Write("m-00002-of-00002.gguf", Part(0, 2).Build());
  CHECK(absl::StrContains(GgufFile::Open(first).status().message(),
                          "has split.no 0 and split.count 2, and by its name it is part 2 of 2"));
  CHECK(absl::StrContains(
      GgufFile::Open(dir.Write("renamed.gguf", Part(1, 2).Build())).status().message(),
      "has split.no 1 and split.count 2, and by its name it is part 1 of 1"));
  CHECK(absl::StrContains(GgufFile::Open(dir.Write("m-00003-of-00002.gguf", "")).status().message(),
                          "part 3 of 2; parts count from 1 to 2"));
  CHECK(absl::StrContains(GgufFile::Open(dir.Write("m-00001-of-02000.gguf", "")).status().message(),
                          "is by its name one of 2000 parts; a model has 1024 at most"));
  GgufBuilder negative;
  negative.Key("split.no", GgufBuilder::kI32, Raw(int32_t{-1})).Tensor("t", {1}, kF32, Raw(1.0f));
  dir.Write("m-00002-of-00002.gguf", negative.Build());
  CHECK(absl::StrContains(GgufFile::Open(first).status().message(),
                          "m-00002-of-00002.gguf: key \"split.no\": expected an integer of 0"));
  auto twice = Part(1, 2);
  twice.Tensor("part0", {1}, kF32, Raw(1.0f));
  dir.Write("m-00002-of-00002.gguf", twice.Build());
  CHECK(absl::StrContains(GgufFile::Open(first).status().message(),
                          "m-00002-of-00002.gguf: tensor \"part0\" appears twice"));
  dir.Write("m-00002-of-00002.gguf", Part(1, 2).Build());
  CHECK(GgufFile::Open(first).ok());
  dir.Write("m-00001-of-00002.gguf", Part(0, 2).Uint("split.tensors.count", 3).Build());
  CHECK(absl::StrContains(GgufFile::Open(first).status().message(),
                          "the model has 3 tensors, and its parts have 2"));
}

TEST_CASE("The demo model's metadata opens in milliseconds", "[common][gguf][demo]") {
  const std::string path = test::DemoModelOrSkip();
  const auto begin = std::chrono::steady_clock::now();
  const auto file = GgufFile::Open(path);
  REQUIRE(file.ok());
  const auto tokens = (*file)->GetStrings("tokenizer.ggml.tokens");
  const auto merges = (*file)->GetStrings("tokenizer.ggml.merges");
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  std::cout << "demo metadata: " << took.count() << " ms\n";
  REQUIRE(tokens.ok());
  REQUIRE(merges.ok());
  CHECK(tokens->size() == 49152);
  CHECK(merges->size() == 48900);
  CHECK((*file)->tensors().size() == 272);
  CHECK((*tokens)[1] == "<|im_start|>");
}

}  // namespace
}  // namespace weft
