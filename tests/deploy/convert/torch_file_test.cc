// Checkpoints of torch.save (make_checkpoints.py), and such as it would never write.

#include "deploy/convert/torch_file.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/common/temp_dir.h"
#include "tests/deploy/convert/safetensors_bytes.h"
#include "tests/deploy/convert/torch_builder.h"
#include "tests/shard/weights/memory_file.h"

namespace weft::convert {
namespace {

using test::PickleBuilder;
using test::TorchZip;

std::string Committed(const std::string& name) {
  return absl::StrCat(WEFT_CONVERT_TEST_DIR, "/checkpoints/", name);
}

std::map<std::string, test::TensorBytes> TensorsOf(const TorchFile& file) {
  std::map<std::string, test::TensorBytes> out;
  for (const TorchTensor& tensor : file.tensors()) {
    test::TensorBytes& bytes = out[tensor.name];
    bytes.dtype = tensor.type->safetensors_name;
    bytes.shape = absl::StrCat("[", absl::StrJoin(tensor.view.shape, ","), "]");
    CHECK(VisitElements(tensor.view, tensor.storage, 64, [&](absl::Span<const uint8_t> piece) {
            bytes.bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
            return absl::OkStatus();
          }).ok());
  }
  return out;
}

std::string Refusal(const std::string& bytes) {
  const test::MemoryFile memory(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const auto file = TorchFile::Open(memory.path());
  if (file.ok()) return "";
  CHECK(absl::StartsWith(file.status().message(), memory.path()));
  return std::string(file.status().message());
}

// A state dict of one tensor.
std::string OneTensor(const PickleBuilder::View& view, const std::string& name = "w") {
  return PickleBuilder().Dict().Text(name).Tensor(view).Raw("s").Build();
}

const PickleBuilder::View kSquare = {"FloatStorage", "0", 4, 0, {2, 2}, {2, 1}};

TEST_CASE("Both formats of torch.save give the tensors that were saved", "[deploy][convert]") {
  const auto expected = test::ReadTensors(test::ReadFile(Committed("all.safetensors")));
  REQUIRE(expected.size() == 24);
  for (const char* name : {"all.bin", "all_before_1_6.bin"}) {
    const auto file = TorchFile::Open(Committed(name));
    INFO(name << ": " << file.status());
    REQUIRE(file.ok());
    const auto found = TensorsOf(**file);
    REQUIRE(found.size() == expected.size());
    for (const auto& [tensor, bytes] : expected) {
      INFO(tensor);
      REQUIRE(found.count(tensor) == 1);
      CHECK(found.at(tensor) == bytes);
    }
  }
  const auto plain = TorchFile::Open(Committed("plain_dict.bin"));
  REQUIRE(plain.ok());
  CHECK((*plain)->tensors().size() == 2);
}

TEST_CASE("A checkpoint cut at any byte is refused", "[deploy][convert]") {
  for (const char* name : {"all.bin", "all_before_1_6.bin"}) {
    const std::string bytes = test::ReadFile(Committed(name));
    for (size_t size = 0; size < bytes.size(); ++size) {
      if (Refusal(bytes.substr(0, size)).empty()) FAIL(name << " cut at " << size);
    }
  }
}

TEST_CASE("Tensors must lie in their storage", "[deploy][convert]") {
  const std::string four(16, 'x');
  CHECK(Refusal(TorchZip(OneTensor(kSquare), {four})).empty());
  const auto refused = [&](PickleBuilder::View view, const char* want) {
    const std::string text = Refusal(TorchZip(OneTensor(view), {four}));
    INFO(text);
    CHECK(absl::StrContains(text, want));
  };
  PickleBuilder::View view = kSquare;
  view.offset = 1;
  refused(view, "tensor w: shape [2, 2] with strides [2, 1] at element 1 ends outside its storage");
  view = kSquare;
  view.strides = {-2, 1};
  refused(view, "a tensor has the stride -2; expected 0 or more");
  view.strides = {0, 1};
  refused(view, "share a place");
  view = kSquare;
  view.shape = {2, -2};
  refused(view, "a tensor has the size -2");
  view = kSquare;
  view.elements = 5;
  refused(view, "storage 0: has 16 bytes; 5 elements of F32 need 4 each");
  view.elements = int64_t{1} << 62;
  refused(view, "storage 0: has 16 bytes");
  view = kSquare;
  view.type = "DoubleStorage";
  refused(view, "storage 0: has 16 bytes; 4 elements of F64 need 8 each");
  view = kSquare;
  view.key = "1";
  refused(view, "storage 1: is not in the archive");
  view.key = "../../../../etc/passwd";
  refused(view, "storage ../../../../etc/passwd: is not in the archive");
}

TEST_CASE("A checkpoint holds tensors under names and nothing else", "[deploy][convert]") {
  const std::string four(16, 'x');
  const auto refused = [&](const std::string& pickle, const char* want) {
    const std::string text = Refusal(TorchZip(pickle, {four, four}));
    INFO(text);
    CHECK(absl::StrContains(text, want));
  };
  refused(PickleBuilder().Raw("]").Build(), "holds a list instead of a dictionary of tensors");
  refused(PickleBuilder().Dict().Text("epoch").Int(3).Raw("s").Build(),
          "tensor epoch: is an integer; only tensors are converted");
  refused(PickleBuilder().Dict().Text("model").Dict().Raw("s").Build(), "is a dictionary");
  refused(PickleBuilder().Dict().Int(1).Tensor(kSquare).Raw("s").Build(),
          "has an integer for a name");
  PickleBuilder twice;
  twice.Dict().Text("w").Tensor(kSquare).Raw("s").Text("w").Tensor(kSquare).Raw("s");
  refused(twice.Build(), "tensor w appears twice");
  refused(OneTensor(kSquare, ""), "has a name of 0 bytes");
  refused(OneTensor(kSquare, std::string(2000, 'n')), "has a name of 2000 bytes");
  refused(OneTensor(kSquare, "w\xff"), "is not UTF-8");
  refused(OneTensor(kSquare, "__metadata__"), "keep for other things");
  PickleBuilder types;
  PickleBuilder::View other = kSquare;
  other.type = "IntStorage";
  types.Dict().Text("a").Tensor(kSquare).Raw("s").Text("b").Tensor(other).Raw("s");
  refused(types.Build(), "storage 0 appears with two types or two sizes");
  refused(PickleBuilder().Global("posix", "system").Text("true").Raw("\x85R").Build(),
          "data.pkl: byte 2: it names posix.system");
}

TEST_CASE("What is no checkpoint of torch is told from one", "[deploy][convert]") {
  CHECK(absl::StrContains(Refusal("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"));
  CHECK(absl::StrContains(Refusal(test::ZipBuilder().Add("x", "y").Build()), "without data.pkl"));
  const std::string pickle = OneTensor({"FloatStorage", "0", 0, 0, {0}, {1}});
  test::ZipBuilder two;
  two.Add("a/data.pkl", pickle).Add("b/data.pkl", pickle);
  CHECK(absl::StrContains(Refusal(two.Build()), "more than one data.pkl"));
  test::ZipBuilder big;
  big.Add("a/data.pkl", pickle).Add("a/byteorder", "big").Add("a/data/0", "");
  CHECK(absl::StrContains(Refusal(big.Build()), "byteorder is \"big\""));
  // Not a bit of the old format is taken for granted either.
  std::string old = test::ReadFile(Committed("all_before_1_6.bin"));
  old[old.find("little_endian") + 13 + 2] = '\x89';
  CHECK(absl::StrContains(Refusal(old), "big-endian"));
}

}  // namespace
}  // namespace weft::convert
