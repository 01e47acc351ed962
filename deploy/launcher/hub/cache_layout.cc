#include "deploy/launcher/hub/cache_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft::hub {

CacheLayout::CacheLayout(const std::string& cache_dir, const ModelId& id) : cache_dir_(cache_dir) {
  const std::string folder = absl::StrCat("models--", id.org, "--", id.name);
  model_dir_ = absl::StrCat(cache_dir, "/", folder);
  locks_dir_ = absl::StrCat(cache_dir, "/.locks/", folder);
}

std::string CacheLayout::Blob(const std::string& blob) const {
  return absl::StrCat(model_dir_, "/blobs/", blob);
}

std::string CacheLayout::Incomplete(const std::string& blob) const {
  return absl::StrCat(Blob(blob), ".incomplete");
}

std::string CacheLayout::BlobLock(const std::string& blob) const {
  return absl::StrCat(locks_dir_, "/", blob, ".lock");
}

std::string CacheLayout::PullLock() const { return absl::StrCat(locks_dir_, "/weft-pull.lock"); }

std::string CacheLayout::Ref(const std::string& revision) const {
  return absl::StrCat(model_dir_, "/refs/", revision);
}

std::string CacheLayout::Snapshot(const std::string& commit) const {
  return absl::StrCat(model_dir_, "/snapshots/", commit);
}

std::string CacheLayout::LinkTarget(absl::string_view path, absl::string_view blob) {
  // Out of snapshots/COMMIT and each folder of the path.
  std::string target = "../../";
  for (auto left = std::count(path.begin(), path.end(), '/'); left > 0; --left) target += "../";
  return absl::StrCat(target, "blobs/", blob);
}

}  // namespace weft::hub
