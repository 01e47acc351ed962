#include "deploy/launcher/hub/snapshot.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/launcher/hub/cache_layout.h"
#include "tests/common/temp_dir.h"

namespace weft::hub {
namespace {

const std::string kCommit(40, 'a');

// A cache with a model as huggingface_hub writes it.
class Cache {
 public:
  Cache() { std::filesystem::create_directories(layout_.model_dir() + "/refs"); }

  void Ref(const std::string& text) { folder_.Write("models--org--name/refs/main", text); }
  void Add(const std::string& path, const std::string& bytes = "x") {
    const std::string full = layout_.Snapshot(kCommit) + "/" + path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::filesystem::create_directories(layout_.blobs_dir());
    folder_.Write(absl::StrCat("models--org--name/blobs/", ++blobs_), bytes);
    std::filesystem::create_symlink(CacheLayout::LinkTarget(path, std::to_string(blobs_)), full);
  }
  absl::StatusOr<PulledModel> Find(const std::vector<std::string>& include = {}) {
    return FindPulledModel(folder_.path(), id_, include);
  }
  std::string Path(const std::string& path) { return layout_.Snapshot(kCommit) + "/" + path; }
  std::string Snapshot() { return layout_.Snapshot(kCommit); }
  void LoseBlob(int blob) { std::filesystem::remove(absl::StrCat(layout_.blobs_dir(), "/", blob)); }

 private:
  const test::TempDir folder_;
  const ModelId id_ = ParseModelId("org/name").value();
  const CacheLayout layout_{folder_.path(), id_};
  int blobs_ = 0;
};

TEST_CASE("A model that was not pulled is named with the command that pulls it", "[hub]") {
  Cache cache;
  const auto none = cache.Find();
  CHECK(absl::IsNotFound(none.status()));
  CHECK(absl::StrContains(none.status().message(), "weft pull org/name fetches it"));
  cache.Ref(kCommit);
  CHECK(absl::StrContains(cache.Find().status().message(), "weft pull org/name fetches it"));
}

TEST_CASE("A reference that is no commit leads nowhere", "[hub]") {
  Cache cache;
  cache.Ref("../../../etc");
  CHECK(absl::IsInvalidArgument(cache.Find().status()));
}

TEST_CASE("A model in safetensors is served when all of its parts are there", "[hub]") {
  Cache cache;
  cache.Ref(kCommit + "\n");
  cache.Add("model.safetensors.index.json", R"({"weight_map":{"a":"p1.st","b":"p2.st"}})");
  cache.Add("p1.st");
  CHECK(absl::StrContains(cache.Find().status().message(), "lacks config.json"));
  cache.Add("config.json");
  CHECK(absl::StrContains(cache.Find().status().message(), "lacks p2.st"));
  cache.Add("p2.st");
  REQUIRE(cache.Find().ok());
  CHECK(cache.Find()->path == cache.Snapshot());
  CHECK(cache.Find()->commit == kCommit);
  // A link without its blob is no file.
  cache.LoseBlob(4);
  CHECK(absl::StrContains(cache.Find().status().message(), "lacks p2.st"));
}

TEST_CASE("One GGUF model is served, of several the one that is named", "[hub]") {
  Cache cache;
  cache.Ref(kCommit);
  cache.Add("README.md");
  CHECK(absl::IsNotFound(cache.Find().status()));
  cache.Add("d/m-00001-of-00002.gguf");
  CHECK(absl::IsNotFound(cache.Find().status()));
  cache.Add("d/m-00002-of-00002.gguf");
  CHECK(cache.Find()->path == cache.Path("d/m-00001-of-00002.gguf"));
  cache.Add("n-Q8_0.gguf");
  const auto several = cache.Find();
  CHECK(absl::IsInvalidArgument(several.status()));
  CHECK(absl::StrContains(several.status().message(), cache.Path("n-Q8_0.gguf")));
  CHECK(cache.Find({"*Q8_0.gguf"})->path == cache.Path("n-Q8_0.gguf"));
}

TEST_CASE("A checkpoint of torch is named with the command that converts it", "[hub]") {
  Cache cache;
  cache.Ref(kCommit);
  cache.Add("config.json");
  cache.Add("pytorch_model.bin");
  CHECK(absl::StrContains(cache.Find().status().message(),
                          absl::StrCat("weft convert --from ", cache.Snapshot())));
}

}  // namespace
}  // namespace weft::hub
