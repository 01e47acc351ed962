#include "deploy/launcher/hub/cache_store.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "tests/common/temp_dir.h"

namespace weft::hub {
namespace {

// SHA-256 of "hello", and git's SHA-1 of it (git hash-object).
constexpr char kSha256[] = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
constexpr char kGit[] = "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0";

struct Store {
  test::TempDir folder;
  ModelId id = ParseModelId("org/name").value();
  CacheLayout layout{folder.path(), id};
  Store() { CHECK(MakeDirs(layout.blobs_dir()).ok()); }
};

HubFile Hello(const char* digest) {
  return {"dir/hello.txt", uint64_t{5}, ParseBlobName(digest).value()};
}

TEST_CASE("A blob grows, is checked by either digest and appears whole", "[hub]") {
  for (const char* digest : {kSha256, kGit}) {
    const Store store;
    const HubFile file = Hello(digest);
    auto blob = GrowingBlob::Open(store.layout, file).value();
    REQUIRE(blob->ReadBack(1000).value());
    CHECK(blob->Append("hel").ok());
    CHECK_FALSE(HasBlob(store.layout, file));
    CHECK(IncompleteBytes(store.layout, file) == 3);
    // Another one is told that it is taken.
    CHECK(GrowingBlob::Open(store.layout, file).value() == nullptr);
    blob.reset();
    // What came is kept, and goes into the digest.
    blob = GrowingBlob::Open(store.layout, file).value();
    CHECK(blob->bytes() == 3);
    CHECK_FALSE(blob->ReadBack(2).value());
    CHECK(blob->ReadBack(2).value());
    CHECK(blob->Append("lo").ok());
    CHECK(blob->Finish().ok());
    CHECK(HasBlob(store.layout, file));
    CHECK(test::ReadFile(store.layout.Blob(digest)) == "hello");
    CHECK_FALSE(std::filesystem::exists(store.layout.Incomplete(digest)));
  }
}

TEST_CASE("Wrong bytes leave nothing behind", "[hub]") {
  const Store store;
  const HubFile file = Hello(kSha256);
  auto blob = GrowingBlob::Open(store.layout, file).value();
  REQUIRE(blob->ReadBack(1).value());
  CHECK(blob->Append("hallo").ok());
  const absl::Status status = blob->Finish();
  CHECK(absl::IsDataLoss(status));
  CHECK(absl::StrContains(status.message(), "dir/hello.txt"));
  blob.reset();
  CHECK_FALSE(HasBlob(store.layout, file));
  CHECK_FALSE(std::filesystem::exists(store.layout.Incomplete(kSha256)));
}

TEST_CASE("What is longer than the file is no beginning of it", "[hub]") {
  const Store store;
  store.folder.Write(std::string("models--org--name/blobs/") + kSha256 + ".incomplete",
                     "longer than that");
  const auto blob = GrowingBlob::Open(store.layout, Hello(kSha256)).value();
  CHECK(blob->bytes() == 0);
}

TEST_CASE("A snapshot appears whole, and an old one gets what it lacks", "[hub]") {
  const Store store;
  const std::string commit(40, 'c');
  store.folder.Write(std::string("models--org--name/blobs/") + kSha256, "hello");
  const HubFile deep = Hello(kSha256);
  HubFile config = Hello(kSha256);
  config.path = "config.json";
  // Left by a pull that was killed.
  CHECK(MakeDirs(store.layout.model_dir() + "/.weft-snapshot/old").ok());
  REQUIRE(LinkSnapshot(store.layout, commit, {deep}).ok());
  const std::string snapshot = store.layout.Snapshot(commit);
  CHECK(test::ReadFile(snapshot + "/dir/hello.txt") == "hello");
  CHECK_FALSE(std::filesystem::exists(snapshot + "/old"));
  CHECK(std::filesystem::read_symlink(snapshot + "/dir/hello.txt") ==
        std::string("../../../blobs/") + kSha256);
  // A link that leads nowhere is mended.
  std::filesystem::create_symlink("../../blobs/gone", snapshot + "/config.json");
  REQUIRE(LinkSnapshot(store.layout, commit, {deep, config}).ok());
  CHECK(test::ReadFile(snapshot + "/config.json") == "hello");
}

TEST_CASE("A branch is noted as its commit, a commit is not", "[hub]") {
  const Store store;
  const std::string commit(40, 'c');
  REQUIRE(WriteRef(store.layout, "refs/pr/1", commit).ok());
  CHECK(test::ReadFile(store.layout.Ref("refs/pr/1")) == commit);
  REQUIRE(WriteRef(store.layout, commit, commit).ok());
  CHECK_FALSE(std::filesystem::exists(store.layout.Ref(commit)));
}

TEST_CASE("A disk without room is named before anything is fetched", "[hub]") {
  const Store store;
  CHECK(CheckDiskSpace(store.folder.path(), 1).ok());
  const absl::Status full = CheckDiskSpace(store.folder.path(), uint64_t{1} << 60);
  CHECK(absl::IsResourceExhausted(full));
  CHECK(absl::StrContains(full.message(), "HF_HOME"));
}

}  // namespace
}  // namespace weft::hub
