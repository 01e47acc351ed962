// Paths of models, and what is no file: nothing may wait for a pipe's writer.

#include "common/model_path.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/mapped_file.h"
#include "tests/common/temp_dir.h"

namespace weft {
namespace {

TEST_CASE("A pipe or a device in the place of a file is refused at once", "[common]") {
  const test::TempDir folder;
  const std::string pipe = folder.path() + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"), folder.path()}) {
    INFO(path);
    const absl::Status mapped = MappedFile::Open(path).status();
    CHECK(mapped.message() == absl::StrCat(path, ": is not a regular file"));
  }
  CHECK(absl::StrContains(CheckModelPath(pipe).message(), "neither a file nor a directory"));
}

TEST_CASE("A path that cannot be a model is told what would be one", "[common]") {
  const test::TempDir folder;
  CHECK(absl::IsNotFound(CheckModelPath(folder.path() + "/none")));
  CHECK(absl::StrContains(CheckModelPath(folder.path() + "/none").message(), ".gguf file"));
  const absl::Status part = CheckModelPath(folder.path() + "/big-00002-of-00003.gguf");
  CHECK(absl::StrContains(part.message(), "does not exist: part 2 of 3 of a split model; copy"));
  CHECK(absl::StrContains(CheckModelPath(folder.path()).message(), "has no config.json"));
  const std::string second = folder.Write("b.gguf", "");
  const std::string first = folder.Write("a.gguf", "");
  CHECK(absl::EndsWith(CheckModelPath(folder.path()).message(), absl::StrCat("name ", first)));
  CHECK(CheckModelPath(second).ok());
  folder.Write("config.json", "{}");
  CHECK(CheckModelPath(folder.path()).ok());
}

TEST_CASE("A model is called by the names that its path has", "[common]") {
  using Names = std::vector<std::string>;
  CHECK(ModelNames("/models/Smol.Q4_1.gguf") == Names{"Smol.Q4_1", "Smol.Q4_1.gguf"});
  CHECK(ModelNames("/models/Big-00002-of-00003.gguf") ==
        Names{"Big", "Big-00002-of-00003", "Big-00002-of-00003.gguf"});
  CHECK(ModelNames("models/Llama-3//") == Names{"Llama-3"});
  CHECK(ModelNames("Llama-3") == Names{"Llama-3"});
  CHECK(ModelNames("/usr/.") == Names{"usr"});
  CHECK(ModelNames("/").empty());
}

TEST_CASE("A directory that can be converted is told the command", "[common]") {
  CHECK(ConvertCommand("/models/opt-1.3b") == "weft convert --from /models/opt-1.3b");
  CHECK(ConvertCommand("my models/x") == "weft convert --from 'my models/x'");
  CHECK(ConvertCommand("it's; rm") == "weft convert --from 'it'\\''s; rm'");
  const test::TempDir folder;
  folder.Write("config.json", "{}");
  folder.Write("vocab.json", "{}");
  CHECK(absl::StrContains(CheckTokenizerFile(folder.path()).message(), "AutoTokenizer"));
  folder.Write("merges.txt", "");
  CHECK(absl::EndsWith(CheckTokenizerFile(folder.path()).message(),
                       absl::StrCat("; weft convert --from ", folder.path(),
                                    " makes it of vocab.json and merges.txt")));
  const test::TempDir pieces;
  pieces.Write("tokenizer.model", "");
  CHECK(
      absl::EndsWith(CheckTokenizerFile(pieces.path()).message(), " makes it of tokenizer.model"));
  pieces.Write("pytorch_model.bin.index.json", "{}");
  CHECK(FindModelFiles(pieces.path()).torch);
  CHECK(!FindModelFiles(pieces.path()).safetensors);
}

TEST_CASE("A model directory without a tokenizer is told what writes one", "[common]") {
  const test::TempDir folder;
  folder.Write("config.json", "{}");
  const absl::Status missing = CheckTokenizerFile(folder.path());
  CHECK(absl::IsNotFound(missing));
  CHECK(absl::StartsWith(missing.message(), folder.path() + "/tokenizer.json does not exist"));
  CHECK(absl::StrContains(missing.message(), "AutoTokenizer"));
  folder.Write("tokenizer.json", "{}");
  CHECK(CheckTokenizerFile(folder.path()).ok());
  CHECK(CheckTokenizerFile(folder.Write("a.gguf", "")).ok());
}

}  // namespace
}  // namespace weft
