#include "deploy/launcher/pull_model.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/model_path.h"
#include "common/shutdown.h"
#include "common/status.h"
#include "deploy/launcher/hub/reporter.h"
#include "deploy/launcher/hub/settings.h"
#include "deploy/launcher/hub/snapshot.h"

namespace weft::launcher {
namespace {

constexpr absl::Duration kTerminalEach = absl::Milliseconds(200);
constexpr absl::Duration kLineEach = absl::Seconds(5);

const char* GetEnvironment(const char* name) { return std::getenv(name); }

class PullReporter : public hub::Reporter {
 public:
  explicit PullReporter(PullOutput output)
      : log_(output == PullOutput::kLog), terminal_(!log_ && isatty(STDERR_FILENO) != 0) {}
  ~PullReporter() override { Clear(); }

  void Say(const std::string& line) override {
    Clear();
    Print(line);
  }

  void ShowProgress(const std::string& line) override {
    const absl::Time now = absl::Now();
    if (now - shown_at_ < (terminal_ ? kTerminalEach : kLineEach)) return;
    // The first line waits as well: what is done at once needs none.
    const bool first = shown_at_ == absl::InfinitePast();
    shown_at_ = now;
    if (first && !terminal_) return;
    if (terminal_) {
      LogRaw(absl::StrCat("\r\033[K", line));
      stands_ = true;
    } else {
      Print(line);
    }
  }

 private:
  void Print(const std::string& line) const {
    if (log_) {
      WEFT_LOG_INFO("{}", line);
    } else {
      LogRaw(absl::StrCat(line, "\n"));
    }
  }

  void Clear() {
    if (stands_) LogRaw("\r\033[K");
    stands_ = false;
  }

  const bool log_;
  const bool terminal_;
  // A line of progress stands on the terminal.
  bool stands_ = false;
  absl::Time shown_at_ = absl::InfinitePast();
};

}  // namespace

absl::optional<hub::ModelId> HubModel(const std::string& model) {
  struct stat info {};
  // A name of a file that is not there is most likely a slip.
  if (absl::EndsWith(model, ".gguf") || stat(model.c_str(), &info) == 0) return absl::nullopt;
  absl::StatusOr<hub::ModelId> id = hub::ParseModelId(model);
  if (!id.ok()) return absl::nullopt;
  return *std::move(id);
}

absl::StatusOr<std::string> FindModel(const std::string& model,
                                      const std::vector<std::string>& include) {
  const absl::optional<hub::ModelId> id = HubModel(model);
  if (!id.has_value()) {
    WEFT_RETURN_IF_ERROR(CheckModelPath(model));
    return model;
  }
  WEFT_ASSIGN_OR_RETURN(const hub::PulledModel found,
                        hub::FindPulledModel(hub::CacheDir(GetEnvironment), *id, include));
  WEFT_RETURN_IF_ERROR(CheckModelPath(found.path));
  return found.path;
}

absl::StatusOr<std::string> PullModel(const hub::PullOptions& options, PullOutput output) {
  WEFT_ASSIGN_OR_RETURN(ShutdownSignals signals, ShutdownSignals::Create(Hangup::kStops));
  PullReporter reporter(output);
  return hub::Pull(options, GetEnvironment, signals, reporter);
}

}  // namespace weft::launcher
