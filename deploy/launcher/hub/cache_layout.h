// Where things lie in the cache of Hugging Face's libraries, which weft shares with them
// (huggingface_hub's guide "Understand caching"):
//   models--org--name/blobs/DIGEST            a file's bytes, under its digest
//   models--org--name/blobs/DIGEST.incomplete what has come of it so far
//   models--org--name/refs/REVISION           the commit that a branch or tag meant when last asked
//   models--org--name/snapshots/COMMIT/PATH   a symbolic link to the blob
//   .locks/models--org--name/DIGEST.lock      held (flock) by who fetches that blob
// Pure: reads and writes nothing.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "deploy/launcher/hub/model_id.h"

namespace weft::hub {

class CacheLayout {
 public:
  // `cache_dir` as HF_HUB_CACHE names it. `id` was parsed by ParseModelId.
  CacheLayout(const std::string& cache_dir, const ModelId& id);

  const std::string& cache_dir() const { return cache_dir_; }
  const std::string& model_dir() const { return model_dir_; }
  std::string blobs_dir() const { return model_dir_ + "/blobs"; }
  std::string snapshots_dir() const { return model_dir_ + "/snapshots"; }
  const std::string& locks_dir() const { return locks_dir_; }

  std::string Blob(const std::string& blob) const;
  std::string Incomplete(const std::string& blob) const;
  std::string BlobLock(const std::string& blob) const;
  // Held by a `weft pull` of this model.
  std::string PullLock() const;
  std::string Ref(const std::string& revision) const;
  std::string Snapshot(const std::string& commit) const;

  // What the link of `path` in a snapshot holds: a relative path to the blob.
  static std::string LinkTarget(absl::string_view path, absl::string_view blob);

 private:
  std::string cache_dir_;
  std::string model_dir_;
  std::string locks_dir_;
};

}  // namespace weft::hub
