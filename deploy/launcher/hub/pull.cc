#include "deploy/launcher/hub/pull.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/model_path.h"
#include "common/small_file.h"
#include "common/status.h"
#include "deploy/launcher/hub/ask.h"
#include "deploy/launcher/hub/cache_store.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/selection.h"
#include "deploy/launcher/hub/snapshot.h"
#include "deploy/launcher/hub/urls.h"

namespace weft::hub {
namespace {

constexpr absl::Duration kLookAtLock = absl::Milliseconds(500);

// One pull, from the lock to the reference.
class Puller {
 public:
  Puller(const PullOptions& options, const CacheLayout& layout, PullContext context)
      : options_(options), layout_(layout), context_(context) {}

  absl::StatusOr<std::string> Run() {
    WEFT_ASSIGN_OR_RETURN(const ModelFileList list, AskFileList(context_, options_.id));
    commit_ = list.commit;
    absl::StatusOr<Selection> selected = Select(list.files, options_.include, options_.exclude);
    if (!selected.ok()) return Annotate(selected.status(), options_.id.text());
    Selection selection = *std::move(selected);
    if (!options_.dry_run) WEFT_RETURN_IF_ERROR(Lock());
    if (!selection.index.empty()) WEFT_RETURN_IF_ERROR(ReadIndex(list.files, &selection));
    WEFT_RETURN_IF_ERROR(Complete(&selection.files));
    SayPlan(selection);
    if (!options_.dry_run) {
      WEFT_RETURN_IF_ERROR(FetchMissing(selection.files));
      WEFT_RETURN_IF_ERROR(LinkSnapshot(layout_, commit_, selection.files));
      WEFT_RETURN_IF_ERROR(WriteRef(layout_, options_.id.revision, commit_));
    }
    return layout_.Snapshot(commit_);
  }

 private:
  absl::Status Lock() {
    WEFT_RETURN_IF_ERROR(MakeDirs(layout_.blobs_dir()));
    const absl::Time until = absl::Now() + absl::Seconds(context_.options.lock_timeout_s);
    for (bool said = false;; said = true) {
      WEFT_ASSIGN_OR_RETURN(lock_, FileLock::Try(layout_.PullLock()));
      if (lock_ != nullptr) return absl::OkStatus();
      if (!said) {
        context_.reporter.Say(absl::StrCat("another weft pull of ", options_.id.repository(),
                                           " runs; waiting for its end"));
      }
      if (absl::Now() >= until) {
        return absl::UnavailableError(absl::StrCat(
            "another weft pull of ", options_.id.repository(), " has held ", layout_.PullLock(),
            " for ", context_.options.lock_timeout_s, " s; wait for it, or end it"));
      }
      if (context_.signals.Wait(kLookAtLock).has_value()) {
        return absl::CancelledError("interrupted while another pull ran");
      }
    }
  }

  // The index comes first: it says which files hold the weights.
  absl::Status ReadIndex(const std::vector<HubFile>& files, Selection* selection) {
    const auto found =
        std::find_if(selection->files.begin(), selection->files.end(),
                     [selection](const HubFile& file) { return file.path == selection->index; });
    std::vector<HubFile> index = {*found};
    WEFT_RETURN_IF_ERROR(Complete(&index));
    if (index[0].bytes > kIndexBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(index[0].path, ": is longer than ", kIndexBytesMax, " bytes"));
    }
    if (options_.dry_run && !HasBlob(layout_, index[0])) {
      // Nothing is fetched to know: by its usual names.
      for (const HubFile& file : files) {
        if (MatchesGlob(file.path, "model-*-of-*.safetensors") &&
            !MatchesAny(file.path, options_.exclude)) {
          selection->files.push_back(file);
        }
      }
      return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(FetchMissing(index));
    WEFT_ASSIGN_OR_RETURN(const std::string text,
                          ReadSmallFile(layout_.Blob(index[0].blob.text), kIndexBytesMax));
    const auto parts = ParseSafetensorsIndex(text);
    if (!parts.ok()) {
      return Annotate(parts.status(), absl::StrCat(options_.id.text(), ": ", index[0].path));
    }
    return Annotate(AddIndexed(*parts, files, options_.exclude, selection), options_.id.text());
  }

  // Sizes and names of blobs that the list did not say.
  absl::Status Complete(std::vector<HubFile>* files) {
    for (HubFile& file : *files) {
      if (file.bytes.has_value() && !file.blob.empty()) continue;
      WEFT_RETURN_IF_ERROR(AskFile(context_, options_.id, commit_, &file));
    }
    return absl::OkStatus();
  }

  // Files that have the same bytes are one.
  std::vector<HubFile> Missing(const std::vector<HubFile>& files) const {
    std::vector<HubFile> missing;
    std::set<std::string> seen;
    for (const HubFile& file : files) {
      if (!seen.insert(file.blob.text).second || HasBlob(layout_, file)) continue;
      missing.push_back(file);
    }
    return missing;
  }

  void SayPlan(const Selection& selection) {
    if (!selection.note.empty()) {
      context_.reporter.Say(absl::StrCat(options_.id.text(), ": ", selection.note));
    }
    uint64_t all = 0;
    for (const HubFile& file : selection.files) {
      all += *file.bytes;
      if (options_.dry_run) {
        context_.reporter.Say(absl::StrCat(HasBlob(layout_, file) ? "there   " : "to fetch ",
                                           FormatBytes(static_cast<double>(*file.bytes)), "  ",
                                           file.path));
      }
    }
    uint64_t missing_bytes = 0;
    const std::vector<HubFile> missing = Missing(selection.files);
    for (const HubFile& file : missing) {
      missing_bytes += *file.bytes - IncompleteBytes(layout_, file);
    }
    context_.reporter.Say(absl::StrCat(
        options_.id.text(), " at ", commit_.substr(0, 12), ": ", selection.files.size(),
        selection.files.size() == 1 ? " file, " : " files, ", FormatBytes(static_cast<double>(all)),
        missing.empty()
            ? ", all there"
            : absl::StrCat(", of these ", FormatBytes(static_cast<double>(missing_bytes)),
                           " to fetch into ", layout_.model_dir())));
  }

  absl::Status FetchMissing(const std::vector<HubFile>& files) {
    const std::vector<HubFile> missing = Missing(files);
    uint64_t bytes = 0;
    for (const HubFile& file : missing) bytes += *file.bytes - IncompleteBytes(layout_, file);
    WEFT_RETURN_IF_ERROR(CheckDiskSpace(layout_.blobs_dir(), bytes));
    Download download(context_, layout_, options_.id, commit_, missing);
    return Annotate(download.Run(), options_.id.text());
  }

  const PullOptions& options_;
  const CacheLayout& layout_;
  PullContext context_;
  std::string commit_;
  std::unique_ptr<FileLock> lock_;
};

}  // namespace

absl::StatusOr<std::string> Pull(const PullOptions& options, Environment environment,
                                 ShutdownSignals& signals, Reporter& reporter) {
  const CacheLayout layout(CacheDir(environment), options.id);
  const bool offline = IsOffline(environment);
  // A commit never changes: what is there whole needs no hub.
  if (offline || (IsCommit(options.id.revision) && options.include.empty())) {
    const auto found = FindPulledModel(layout.cache_dir(), options.id, options.include);
    if (found.ok() && (offline || CheckTokenizerFile(found->path).ok())) {
      reporter.Say(absl::StrCat(options.id.text(), offline ? ": HF_HUB_OFFLINE is set; it is as it "
                                                             "was pulled before"
                                                           : ": all there"));
      return layout.Snapshot(found->commit);
    }
    if (offline) {
      return absl::FailedPreconditionError(absl::StrCat(
          "HF_HUB_OFFLINE is set, so that nothing is fetched: ", found.status().message()));
    }
  }
  WEFT_ASSIGN_OR_RETURN(const HubSettings settings, ReadHubSettings(environment));
  if (!settings.token.empty() && absl::StartsWith(settings.endpoint, "http:")) {
    reporter.Say(absl::StrCat("the token goes to ", HostOf(settings.endpoint),
                              " in clear: HF_ENDPOINT begins with http:"));
  }
  HttpOptions http;
  http.ca_file = settings.ca_file;
  http.stall_timeout = absl::Seconds(options.transfer.stall_timeout_s);
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<HttpLoop> loop, HttpLoop::Create(http));
  return Puller(options, layout, PullContext{settings, options.transfer, signals, reporter, *loop})
      .Run();
}

}  // namespace weft::hub
