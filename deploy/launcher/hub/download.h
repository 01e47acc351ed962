// Fetches files into the cache as blobs: several at once, and pieces of one at once where there are
// fewer files than connections; goes on where an earlier pull stopped; tries again what may pass;
// checks every digest. Owned by a pull, runs on its thread.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/shutdown.h"
#include "deploy/launcher/hub/cache_layout.h"
#include "deploy/launcher/hub/file_list.h"
#include "deploy/launcher/hub/http.h"
#include "deploy/launcher/hub/hub_call.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/model_id.h"
#include "deploy/launcher/hub/progress.h"
#include "deploy/launcher/hub/reporter.h"
#include "deploy/launcher/hub/settings.h"

namespace weft::hub {

struct TransferOptions {
  uint32_t connections = kConnectionsDefault;
  // Tries of one request that bring nothing, beyond the first.
  uint32_t retries = 6;
  double stall_timeout_s = 30;
  // How long to wait for another process that fetches the same.
  double lock_timeout_s = 3600;
};

// What is passed around in a pull; all outlive it.
struct PullContext {
  const HubSettings& settings;
  const TransferOptions& options;
  ShutdownSignals& signals;
  Reporter& reporter;
  HttpLoop& loop;
};

// CANCELLED when a signal to stop has come.
absl::Status CheckInterrupt(PullContext& context);

class Download {
 public:
  // `files` have sizes and names of blobs, and none of these is in the cache.
  Download(PullContext& context, const CacheLayout& layout, const ModelId& id,
           const std::string& commit, std::vector<HubFile> files);
  ~Download();

  // Returns when all of them are in the cache, or one cannot be had. What came is kept.
  absl::Status Run();

 private:
  struct FileJob;
  class PieceCall;

  absl::Status BeginFiles();
  absl::Status BeginFile(const HubFile& file, bool* busy);
  absl::Status ReadBack();
  void BeginCalls();
  FileJob* LeastBusyFile(absl::Time now);
  void BeginCall(FileJob* job);
  // Looks at calls that have ended, and at files that are whole.
  absl::Status Sweep();
  absl::Status OnCallEnd(PieceCall* call);
  // Has the file wait before its next try, and says why.
  void OnFailure(FileJob* job, absl::Duration asked_wait, absl::string_view why);
  // Ends the calls of a file whose server has to be asked in another way.
  absl::Status Rearrange(FileJob* job);
  absl::Status FinishFile(FileJob* job);
  void ReportProgress();
  bool Works() const { return !waiting_.empty() || !jobs_.empty(); }

  PullContext& context_;
  const CacheLayout& layout_;
  const ModelId& id_;
  const std::string commit_;
  // Not begun.
  std::deque<HubFile> waiting_;
  std::vector<std::unique_ptr<FileJob>> jobs_;
  std::vector<std::unique_ptr<PieceCall>> calls_;
  uint64_t bytes_finished_ = 0;
  Progress progress_;
  // A server has asked to be left alone.
  absl::Time paused_until_ = absl::InfinitePast();
  // Another process fetches all that is left, since then.
  absl::Time busy_since_ = absl::InfiniteFuture();
  bool said_busy_ = false;
  absl::Time try_locks_at_ = absl::InfinitePast();
  std::mt19937_64 random_{std::random_device()()};
};

}  // namespace weft::hub
