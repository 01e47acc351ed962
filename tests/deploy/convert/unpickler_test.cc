// Pickles: those of tensors are read, all else is refused and never run.

#include "deploy/convert/unpickler.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "tests/deploy/convert/torch_builder.h"

namespace weft::convert {
namespace {

using test::Bytes;
using test::PickleBuilder;

absl::Span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string Refusal(const std::string& pickle) {
  Unpickler unpickler(AsBytes(pickle));
  const auto value = unpickler.Load();
  if (value.ok()) return "";
  return std::string(value.status().message());
}

// What one value becomes.
PickleValue Load(const std::string& pickle) {
  Unpickler unpickler(AsBytes(pickle));
  const auto value = unpickler.Load();
  INFO(value.status());
  REQUIRE(value.ok());
  CHECK(unpickler.at() == pickle.size());
  return *value;
}

TEST_CASE("Numbers and texts of a pickle", "[deploy][convert]") {
  CHECK(Load(PickleBuilder().Raw("K\xff").Build()).number == 255);
  CHECK(Load(PickleBuilder().Raw("M\x01\x02").Build()).number == 513);
  CHECK(Load(PickleBuilder().Raw("J\xff\xff\xff\xff").Build()).number == -1);
  CHECK(Load(PickleBuilder().Int(int64_t{1} << 40).Build()).number == int64_t{1} << 40);
  CHECK(Load(PickleBuilder().Int(-7).Build()).number == -7);
  CHECK(Load(PickleBuilder().Raw(absl::string_view("\x8a\x00", 2)).Build()).number == 0);
  CHECK(Load(PickleBuilder().Raw("\x8a\x01\x80").Build()).number == -128);
  CHECK(Load(PickleBuilder().Text("name").Build()).text == "name");
  CHECK(Load(PickleBuilder().Raw("U\x02hi").Build()).text == "hi");
  CHECK(Load(PickleBuilder().Raw("\x88").Build()).number == 1);
}

TEST_CASE("A tensor is a storage and a view", "[deploy][convert]") {
  const PickleBuilder::View view = {"HalfStorage", "12", 24, 4, {2, 3}, {6, 2}};
  const std::string pickle = PickleBuilder()
                                 .OrderedDict()
                                 .Mark()
                                 .Text("w")
                                 .Tensor(view)
                                 .Text("p")
                                 .Global("torch._utils", "_rebuild_parameter")
                                 .Mark()
                                 .Tensor(view)
                                 .Raw("\x88")
                                 .OrderedDict()
                                 .Raw("tRu")
                                 // The versions that modules leave in a state dict.
                                 .Dict()
                                 .Text("_metadata")
                                 .OrderedDict()
                                 .Raw("sb")
                                 .Build();
  Unpickler unpickler(AsBytes(pickle));
  const auto top = unpickler.Load();
  INFO(top.status());
  REQUIRE(top.ok());
  REQUIRE(top->kind == PickleKind::kDict);
  const Unpickler::Pairs& pairs = unpickler.PairsOf(*top);
  REQUIRE(pairs.size() == 2);
  REQUIRE(unpickler.storages().size() == 1);
  CHECK(unpickler.storages()[0].key == "12");
  CHECK(std::string(unpickler.storages()[0].type->safetensors_name) == "F16");
  CHECK(unpickler.storages()[0].elements == 24);
  for (const auto& [key, value] : pairs) {
    REQUIRE(value.kind == PickleKind::kTensor);
    CHECK(unpickler.TensorOf(value).offset == 4);
    CHECK(unpickler.TensorOf(value).shape == std::vector<uint64_t>{2, 3});
    CHECK(unpickler.TensorOf(value).strides == std::vector<uint64_t>{6, 2});
  }
}

TEST_CASE("What a pickle would call is refused by its name and place", "[deploy][convert]") {
  const std::string system =
      PickleBuilder().Global("posix", "system").Text("touch /tmp/owned").Raw("\x85R").Build();
  CHECK(Refusal(system) ==
        "byte 2: it names posix.system, which tensors of a checkpoint do not need: refused, "
        "nothing was run");
  for (const auto& [module, name] :
       std::vector<std::pair<std::string, std::string>>{{"builtins", "eval"},
                                                        {"__builtin__", "getattr"},
                                                        {"torch.storage", "_load_from_bytes"},
                                                        {"torch._utils", "_rebuild_tensor"},
                                                        {"torch", "ComplexFloatStorage"},
                                                        {"numpy.core.multiarray", "scalar"},
                                                        {"collections", "OrderedDict "}}) {
    const std::string text = Refusal(PickleBuilder().Global(module, name).Build());
    CHECK(absl::StrContains(text, module + "." + name));
  }
}

TEST_CASE("Opcodes that make or call objects are unknown", "[deploy][convert]") {
  // INST, OBJ, NEWOBJ, STACK_GLOBAL, EXT1, PERSID, BUILD and REDUCE of what is none, POP, DUP, INT,
  // FRAME, MEMOIZE, BINUNICODE8, BYTEARRAY8.
  for (const char* opcode :
       {"i", "o", "\x81", "\x93", "\x82", "P", "0", "2", "I", "\x95", "\x94", "\x8d", "\x96"}) {
    const std::string text = Refusal(PickleBuilder().None().Raw(opcode).Build());
    INFO(text);
    CHECK(absl::StrContains(text, "byte 3: opcode 0x"));
  }
  CHECK(absl::StrContains(Refusal(PickleBuilder().None().None().Raw("b").Build()),
                          "attributes are given"));
  CHECK(absl::StrContains(Refusal(PickleBuilder().Text("os").Raw(")R").Build()), "an object"));
  CHECK(absl::StrContains(
      Refusal(PickleBuilder().Global("torch", "FloatStorage").Raw(")R").Build()), "an object"));
  CHECK(absl::StrContains(Refusal(std::string("\x80\x04N.")), "pickle protocol 4"));
}

TEST_CASE("A pickle cannot take what it did not give", "[deploy][convert]") {
  for (const char* ops : {"", "R", "Q", "b", "(", "t", "u", "s", "e", "a", "\x87", "}Na", "}Ns",
                          "(]u", "]](u", "}(Nu", "h\x05", "q\x01"}) {
    INFO(ops);
    CHECK(!Refusal(PickleBuilder().Raw(ops).Build()).empty());
  }
  CHECK(absl::StrContains(Refusal(PickleBuilder().None().None().Build()), "more than one value"));
  CHECK(absl::StrContains(Refusal(PickleBuilder().Raw("\x8a\x09").Raw(std::string(9, 1)).Build()),
                          "an integer of 9 bytes"));
}

TEST_CASE("A bomb in a pickle meets a limit", "[deploy][convert][long]") {
  const auto repeat = [](absl::string_view piece, size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out.append(piece.data(), piece.size());
    return out;
  };
  CHECK(absl::StrContains(Refusal(PickleBuilder().Raw(repeat("(", 300'000)).Build()), "stack"));
  CHECK(absl::StrContains(Refusal(PickleBuilder().Raw(repeat("N", 300'000)).Build()), "stack"));
  CHECK(absl::StrContains(Refusal(PickleBuilder().None().Raw(repeat("](t", 600'000)).Build()),
                          "stack"));
  CHECK(absl::StrContains(Refusal(PickleBuilder().Raw("]").Raw(repeat("}a", 1'100'000)).Build()),
                          " objects"));
  // Values that are remembered, each under a number of its own.
  PickleBuilder memo;
  memo.None();
  std::string puts;
  for (uint32_t i = 0; i < 2'200'000; ++i) puts += "r" + Bytes(i);
  CHECK(absl::StrContains(Refusal(memo.Raw(puts).Build()), "values are remembered"));
  // A list of lists of lists, each with the one before it a hundred times: values in objects count.
  PickleBuilder lists;
  for (int i = 0; i < 30'000; ++i) {
    lists.Raw("]")
        .Raw(Bytes('q'))
        .Raw(Bytes('\0'))
        .Raw("(")
        .Raw(repeat(std::string("h\0", 2), 100));
    lists.Raw("e").Raw(Bytes('\x85'));
  }
  CHECK(absl::StrContains(Refusal(lists.Build()), "values in its objects"));
}

TEST_CASE("A pickle cut at any byte is refused", "[deploy][convert]") {
  const std::string pickle = PickleBuilder()
                                 .OrderedDict()
                                 .Mark()
                                 .Text("w")
                                 .Tensor({"FloatStorage", "0", 6, 0, {2, 3}, {3, 1}})
                                 .Raw("uq")
                                 .Raw(std::string(1, '\0'))
                                 .Build();
  CHECK(Refusal(pickle).empty());
  for (size_t size = 0; size < pickle.size(); ++size) {
    INFO(size);
    CHECK(!Refusal(pickle.substr(0, size)).empty());
  }
}

}  // namespace
}  // namespace weft::convert
