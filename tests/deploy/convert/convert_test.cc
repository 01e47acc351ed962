// weft convert as a whole: a directory in, a directory out.

#include "deploy/convert/convert.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model_path.h"
#include "shard/weights/tensor_source.h"
#include "tests/common/temp_dir.h"
#include "tests/deploy/convert/safetensors_bytes.h"
#include "tests/deploy/convert/torch_builder.h"

namespace weft::convert {
namespace {

using test::PickleBuilder;
using test::TempDir;
using test::TorchZip;
using Names = std::vector<std::string>;

std::string Committed(const std::string& name) {
  return absl::StrCat(WEFT_CONVERT_TEST_DIR, "/", name);
}

absl::StatusOr<Names> Run(const ConvertOptions& options) {
  return Convert(
      options, [](const std::string&) {}, [] { return absl::OkStatus(); });
}

std::set<std::string> FilesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

std::string Refusal(const ConvertOptions& options) {
  const auto written = Run(options);
  return written.ok() ? "" : std::string(written.status().message());
}

// Two tensors of four elements each in one checkpoint.
std::string SmallCheckpoint() {
  PickleBuilder pickle;
  pickle.Dict().Mark();
  for (const char* key : {"0", "1"}) {
    pickle.Text(absl::StrCat("w", key)).Tensor({"FloatStorage", key, 4, 0, {4}, {1}});
  }
  return TorchZip(pickle.Raw("u").Build(), {std::string(16, 'a'), std::string(16, 'b')});
}

// What torch.save writes of the tensors of a .safetensors file.
std::string TorchFileOf(const std::map<std::string, test::TensorBytes>& tensors) {
  const std::map<std::string, std::pair<std::string, int64_t>> types = {
      {"F32", {"FloatStorage", 4}},
      {"F16", {"HalfStorage", 2}},
      {"BF16", {"BFloat16Storage", 2}},
      {"I64", {"LongStorage", 8}},
      {"BOOL", {"BoolStorage", 1}}};
  PickleBuilder pickle;
  std::vector<std::string> storages;
  pickle.OrderedDict().Mark();
  for (const auto& [name, tensor] : tensors) {
    const auto& [type, width] = types.at(tensor.dtype);
    PickleBuilder::View view = {type, std::to_string(storages.size()),
                                static_cast<int64_t>(tensor.bytes.size()) / width};
    view.shape = boost::json::value_to<std::vector<int64_t>>(boost::json::parse(tensor.shape));
    int64_t stride = 1;
    for (size_t i = view.shape.size(); i-- > 0; stride *= view.shape[i]) {
      view.strides.insert(view.strides.begin(), stride);
    }
    pickle.Text(name).Tensor(view);
    storages.push_back(tensor.bytes);
  }
  return TorchZip(pickle.Raw("u").Build(), storages);
}

TEST_CASE("A checkpoint of torch.save becomes the same tensors as safetensors",
          "[deploy][convert]") {
  const TempDir from;
  const auto expected = test::ReadTensors(test::ReadFile(Committed("checkpoints/all.safetensors")));
  from.Write("pytorch_model.bin", test::ReadFile(Committed("checkpoints/all.bin")));
  const auto written = Run({from.path()});
  INFO(written.status());
  REQUIRE(written.ok());
  CHECK(*written == Names{"model.safetensors"});
  CHECK(test::ReadTensors(test::ReadFile(from.path() + "/model.safetensors")) == expected);
  CHECK(FilesIn(from.path()) == std::set<std::string>{"model.safetensors", "pytorch_model.bin"});
  // Nothing is missing any more.
  CHECK(Run({from.path()}).value().empty());
}

TEST_CASE("Parts with an index become one file, or parts with an index", "[deploy][convert]") {
  const auto expected = test::ReadTensors(test::ReadFile(Committed("checkpoints/all.safetensors")));
  for (const uint64_t part_bytes : {kPartBytesDefault, uint64_t{512}, uint64_t{1}}) {
    const TempDir folder;
    const std::string to = folder.path() + "/out";
    const auto written = Run({Committed("checkpoints/parts"), to, part_bytes});
    INFO(written.status());
    REQUIRE(written.ok());
    CHECK(written->back() == "config.json");
    std::map<std::string, test::TensorBytes> found;
    size_t parts = 0;
    for (const std::string& name : FilesIn(to)) {
      if (!absl::EndsWith(name, ".safetensors")) continue;
      ++parts;
      const auto tensors = test::ReadTensors(test::ReadFile(to + "/" + name));
      uint64_t bytes = 0;
      for (const auto& [tensor, content] : tensors) {
        CHECK(found.emplace(tensor, content).second);
        bytes += content.bytes.size();
      }
      CHECK((bytes <= part_bytes || tensors.size() == 1));
    }
    CHECK(found == expected);
    if (part_bytes == kPartBytesDefault) CHECK(parts == 1);
    if (part_bytes == 512) CHECK(parts > 1);
    if (part_bytes == 1) CHECK(parts == expected.size());
    // The shard's own reader takes it, by the index where there are parts.
    const auto source = shard::TensorSource::OpenDirectory(to);
    INFO(source.status());
    REQUIRE(source.ok());
    CHECK((*source)->tensors().size() == expected.size());
    CHECK((*source)->Find("parameter") != nullptr);
  }
}

TEST_CASE("A model survives the way through a checkpoint of torch", "[deploy][convert]") {
  for (const char* name : {"opt", "gptj", "llama_nine_heads_f16"}) {
    const std::string golden = absl::StrCat(WEFT_SOURCE_DIR, "/tests/goldens/", name);
    const auto expected = test::ReadTensors(test::ReadFile(golden + "/model.safetensors"));
    const TempDir folder;
    folder.Write("pytorch_model.bin", TorchFileOf(expected));
    folder.Write("config.json", test::ReadFile(golden + "/config.json"));
    folder.Write("tokenizer.json", test::ReadFile(golden + "/tokenizer.json"));
    folder.Write("training_args.bin", "not ours");
    const std::string to = folder.path() + "/out";
    const auto written = Run({folder.path(), to});
    INFO(name << ": " << written.status());
    REQUIRE(written.ok());
    CHECK(*written == Names{"model.safetensors", "tokenizer.json", "config.json"});
    CHECK(FilesIn(to) == std::set<std::string>(written->begin(), written->end()));
    CHECK(test::ReadTensors(test::ReadFile(to + "/model.safetensors")) == expected);
    CHECK(test::ReadFile(to + "/config.json") == test::ReadFile(golden + "/config.json"));
    CHECK(CheckModelPath(to).ok());
    CHECK(CheckTokenizerFile(to).ok());
  }
}

TEST_CASE("A directory that lacks only its tokenizer gets it", "[deploy][convert]") {
  const TempDir from;
  from.Write("model.safetensors", "never read");
  for (const char* name : {"config.json", "vocab.json", "merges.txt"}) {
    from.Write(name, test::ReadFile(Committed(absl::StrCat("models/gpt2/", name))));
  }
  const std::string advice(CheckTokenizerFile(from.path()).message());
  CHECK(absl::EndsWith(advice, absl::StrCat("weft convert --from ", from.path(),
                                            " makes it of vocab.json and merges.txt")));
  CHECK(absl::StrContains(Refusal({from.path(), from.path() + "/out"}), "leave --to out"));
  const auto before = FilesIn(from.path());
  CHECK(Run({from.path()}).value() == Names{"tokenizer.json"});
  CHECK(FilesIn(from.path()).size() == before.size() + 1);
  CHECK(CheckTokenizerFile(from.path()).ok());
}

TEST_CASE("Nothing is overwritten, and what fails leaves nothing behind", "[deploy][convert]") {
  const TempDir folder;
  folder.Write("pytorch_model.bin", SmallCheckpoint());
  folder.Write("config.json", "{}");
  const auto before = FilesIn(folder.path());
  // The file that comes last is there already.
  const std::string to = folder.path() + "/out";
  REQUIRE(mkdir(to.c_str(), 0700) == 0);
  TempDir other;
  std::filesystem::copy(folder.path() + "/config.json", to + "/config.json");
  const std::string refusal = Refusal({folder.path(), to});
  CHECK(absl::StrContains(refusal, "/out/config.json exists and is never overwritten"));
  CHECK(FilesIn(to) == std::set<std::string>{"config.json"});
  CHECK(test::ReadFile(to + "/config.json") == "{}");
  std::filesystem::remove_all(to);
  // Interrupted in the middle: also the directory that was made is gone.
  int asked = 0;
  const auto stop = [&asked] {
    return ++asked == 2 ? absl::CancelledError("stopped") : absl::OkStatus();
  };
  const auto stopped = Convert(
      {folder.path(), to}, [](const std::string&) {}, stop);
  CHECK(absl::IsCancelled(stopped.status()));
  CHECK(
      absl::StrContains(stopped.status().message(), "/out/model.safetensors: tensor w1: stopped"));
  CHECK(FilesIn(folder.path()) == before);
  CHECK(absl::StrContains(Refusal({folder.path(), folder.path() + "/no/out"}),
                          "--to: " + folder.path() + "/no/out: the directory above it"));
  CHECK(absl::StrContains(Refusal({folder.path(), folder.path() + "/config.json"}),
                          "is no directory"));
  // A file system without room.
  CHECK(absl::StrContains(Refusal({folder.path(), "/proc/self"}), "and its disk has 0 left"));
  CHECK(absl::StrContains(Refusal(ConvertOptions()), "--from: name the model directory"));
  CHECK(absl::StrContains(Refusal(ConvertOptions{folder.path() + "/none"}), "is no directory"));
  CHECK(absl::StrContains(Refusal({other.path()}), "has neither pytorch_model.bin nor"));
  CHECK(FilesIn(folder.path()) == before);
}

TEST_CASE("An index that lies about its parts is refused", "[deploy][convert]") {
  const TempDir folder;
  folder.Write("a.bin", SmallCheckpoint());
  folder.Write("b.bin", SmallCheckpoint());
  const auto refused = [&folder](const char* map, const char* want) {
    folder.Write("pytorch_model.bin.index.json", map);
    const std::string text = Refusal({folder.path()});
    INFO(text);
    CHECK(absl::StrContains(text, want));
  };
  refused(R"({})", "weight_map: is missing or no object");
  refused(R"({"weight_map": {"w0": 1}})", "w0: expected a file name");
  refused(R"({"weight_map": {"w0": "../a.bin"}})", "is no plain name of a .bin file");
  refused(R"({"weight_map": {"w0": "a.pkl"}})", "is no plain name of a .bin file");
  refused(R"({"weight_map": {"w0": "c.bin"}})", "c.bin: is missing; ");
  refused(R"({"weight_map": {"w0": "a.bin", "w2": "a.bin"}})", "w2: is not in ");
  refused(R"({"weight_map": {"w0": "a.bin", "w1": "b.bin"}})", "tensor w0 is both in ");
  refused(R"({"weight_map": {}})", "hold no tensor");
}

TEST_CASE("Names that share a storage cannot fill the disk", "[deploy][convert]") {
  const std::string storage(1 << 16, 'x');
  const auto with_names = [&storage](int names) {
    PickleBuilder pickle;
    pickle.Dict().Mark();
    for (int i = 0; i < names; ++i) {
      pickle.Text(std::to_string(i)).Tensor({"ByteStorage", "0", 1 << 16, 0, {1 << 16}, {1}});
    }
    return TorchZip(pickle.Raw("u").Build(), {storage});
  };
  const TempDir folder;
  folder.Write("pytorch_model.bin", with_names(4));
  CHECK(Run({folder.path()}).ok());
  const TempDir many;
  many.Write("pytorch_model.bin", with_names(6));
  CHECK(
      absl::StrContains(Refusal({many.path()}), "share storages and would take more than 4 times"));
}

}  // namespace
}  // namespace weft::convert
