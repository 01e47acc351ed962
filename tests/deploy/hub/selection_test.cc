#include "deploy/launcher/hub/selection.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace weft::hub {
namespace {

using Names = std::vector<std::string>;

std::vector<HubFile> Files(const Names& paths) {
  std::vector<HubFile> out;
  for (const std::string& path : paths) out.push_back({path, uint64_t{1} << 30, {}});
  return out;
}

Names PathsOf(const Selection& selection) {
  Names out;
  for (const HubFile& file : selection.files) out.push_back(file.path);
  std::sort(out.begin(), out.end());
  return out;
}

TEST_CASE("Of a model in safetensors what weft reads is taken, once", "[hub]") {
  const auto files = Files({".gitattributes", "README.md", "config.json", "tokenizer.json",
                            "tokenizer.model", "chat_template.jinja", "model.safetensors",
                            "pytorch_model.bin", "model.fp16.safetensors", "flax_model.msgpack",
                            "original/consolidated.00.pth", "onnx/model.onnx"});
  const Selection selection = Select(files, {}, {}).value();
  CHECK(PathsOf(selection) == Names{"chat_template.jinja", "config.json", "model.safetensors",
                                    "tokenizer.json", "tokenizer.model"});
  CHECK(selection.index.empty());
  CHECK(PathsOf(Select(files, {}, {"tokenizer.*"}).value()) ==
        Names{"chat_template.jinja", "config.json", "model.safetensors"});
}

TEST_CASE("With an index its own parts are taken, and no others", "[hub]") {
  const auto files = Files({"config.json", "model.safetensors.index.json",
                            "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                            "consolidated.safetensors", "model.fp16-00001-of-00002.safetensors"});
  Selection selection = Select(files, {}, {}).value();
  CHECK(selection.index == "model.safetensors.index.json");
  CHECK(PathsOf(selection) == Names{"config.json", "model.safetensors.index.json"});
  REQUIRE(AddIndexed({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
                     files, {}, &selection)
              .ok());
  CHECK(selection.files.size() == 4);
  const absl::Status missing = AddIndexed({"model-3.safetensors"}, files, {}, &selection);
  CHECK(absl::StrContains(missing.message(),
                          "names model-3.safetensors, which the model does not have"));
}

TEST_CASE("Of several GGUF files one has to be chosen", "[hub]") {
  const auto files = Files({"README.md", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m.gguf",
                            "big/m-BF16-00001-of-00002.gguf", "big/m-BF16-00002-of-00002.gguf"});
  const auto several = Select(files, {}, {});
  REQUIRE(absl::IsInvalidArgument(several.status()));
  CHECK(absl::StrContains(several.status().message(), "--include '*"));
  CHECK(absl::StrContains(several.status().message(), "1.00 GiB  m-Q4_K_M.gguf"));
  CHECK(absl::StrContains(several.status().message(),
                          "2.00 GiB  big/m-BF16-00001-of-00002.gguf and 1 more part"));
  CHECK_FALSE(absl::StrContains(several.status().message(), "mmproj"));
  CHECK(PathsOf(Select(files, {"*Q4_K_M.gguf"}, {}).value()) == Names{"m-Q4_K_M.gguf"});
  // The stars of globs reach over folders.
  CHECK(PathsOf(Select(files, {"*BF16*"}, {}).value()).size() == 2);
  CHECK(PathsOf(Select(files, {"big/"}, {}).value()).size() == 2);
  // One that is left of them is the choice.
  CHECK(PathsOf(Select(files, {}, {"*Q8_0*", "big/*"}).value()) == Names{"m-Q4_K_M.gguf"});
}

TEST_CASE("Safetensors go before GGUF, which is named", "[hub]") {
  const auto files = Files({"config.json", "model.safetensors", "m-Q8_0.gguf"});
  const Selection selection = Select(files, {}, {}).value();
  CHECK(PathsOf(selection) == Names{"config.json", "model.safetensors"});
  CHECK(absl::StrContains(selection.note, "--include '*m-Q8_0.gguf'"));
}

TEST_CASE("Checkpoints of torch are taken where there is nothing else, for convert", "[hub]") {
  const auto files = Files({"config.json", "vocab.json", "merges.txt", "pytorch_model.bin",
                            "training_args.bin", "tf_model.h5"});
  const Selection selection = Select(files, {}, {}).value();
  CHECK(PathsOf(selection) ==
        Names{"config.json", "merges.txt", "pytorch_model.bin", "vocab.json"});
  CHECK(absl::StrContains(selection.note, "weft convert"));
}

TEST_CASE("What matches nothing is an error that says what is there", "[hub]") {
  CHECK(absl::IsNotFound(Select(Files({"README.md", "config.json"}), {}, {}).status()));
  const auto nothing = Select(Files({"README.md", "a.gguf"}), {"*Q4*"}, {});
  CHECK(absl::StrContains(nothing.status().message(), "it has README.md, a.gguf"));
}

TEST_CASE("A split model is complete with all of its parts", "[hub]") {
  const Names paths = {"a-00001-of-00003.gguf", "a-00003-of-00003.gguf", "b.gguf",
                       "x/a-00001-of-00001.gguf"};
  const auto all = FindGgufModels(paths, false);
  CHECK(all.size() == 3);
  const auto complete = FindGgufModels(paths, true);
  REQUIRE(complete.size() == 2);
  CHECK(complete[0].path == "b.gguf");
  CHECK(complete[1].path == "x/a-00001-of-00001.gguf");
}

}  // namespace
}  // namespace weft::hub
