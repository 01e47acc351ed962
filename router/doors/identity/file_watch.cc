#include "router/doors/identity/file_watch.h"

#include <sys/stat.h>

#include <utility>

namespace weft::router {

FileChanges::FileChanges(std::vector<std::string> paths, std::function<absl::Time()> wall_now)
    : paths_(std::move(paths)), wall_now_(std::move(wall_now)), marks_(paths_.size()) {}

bool FileChanges::Look() {
  bool changed = std::exchange(again_, false);
  const absl::Time now = wall_now_();
  for (size_t i = 0; i < paths_.size(); ++i) {
    const Mark mark = MarkOf(paths_[i]);
    if (mark == marks_[i]) continue;
    marks_[i] = mark;
    changed = true;
    // Once is enough: by the next look the write's clock tick is over.
    if (now - absl::FromUnixNanos(mark.modified_ns) < kSettled) again_ = true;
  }
  return changed;
}

FileChanges::Mark FileChanges::MarkOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return Mark();
  const auto nanoseconds = [](const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return Mark{info.st_dev, info.st_ino, info.st_size, nanoseconds(info.st_mtim),
              nanoseconds(info.st_ctim)};
}

FileWatch::~FileWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.Join();
}

void FileWatch::Add(std::vector<std::string> paths, absl::AnyInvocable<void()> on_change,
                    absl::AnyInvocable<void()> each_period) {
  entries_.push_back(
      Entry{FileChanges(std::move(paths)), std::move(on_change), std::move(each_period)});
}

void FileWatch::Start() {
  thread_ = Thread("file-watch", [this] { Run(); });
}

void FileWatch::Run() {
  while (true) {
    for (Entry& entry : entries_) {
      if (entry.changes.Look()) entry.on_change();
      if (entry.each_period != nullptr) entry.each_period();
    }
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), kPeriod)) return;
  }
}

}  // namespace weft::router
