// Notices that files have changed and calls those who read them. It looks once a second instead of
// asking the kernel for events: Kubernetes and certbot change files by moving symbolic links that
// lie in other folders, and network file systems send no events at all. A look costs a stat a file.
// Owned by the router's composition; callbacks run on its thread, one at a time.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/thread.h"

namespace weft::router {

// Whether any of a few files is another than at the last look. Used by one thread.
class FileChanges {
 public:
  // `wall_now` must be the clock that file times are taken from.
  explicit FileChanges(std::vector<std::string> paths,
                       std::function<absl::Time()> wall_now = absl::Now);

  // True at the first look; later when a file (at the end of symbolic links) has changed, appeared
  // or gone since the last one. A file written less than kSettled ago reads as changed at the next
  // look too: a second write could leave its times and size as they are.
  bool Look();

  static constexpr absl::Duration kSettled = absl::Milliseconds(500);

 private:
  // What stat(2) says; all 0 where there is no file.
  struct Mark {
    dev_t device = 0;
    ino_t inode = 0;
    off_t bytes = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  static Mark MarkOf(const std::string& path);

  const std::vector<std::string> paths_;
  const std::function<absl::Time()> wall_now_;
  std::vector<Mark> marks_;
  // The last look saw a file so young that the next one has to report it again.
  bool again_ = true;
};

class FileWatch {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(1);

  FileWatch() = default;
  // Waits for a callback under way.
  ~FileWatch();

  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // Before Start. `on_change` is called once soon after Start, so that no change between the first
  // reading and the first look is missed, and after each change of any of `paths`; it must bear
  // being called when nothing has changed. `each_period`, when set, is called at every look.
  void Add(std::vector<std::string> paths, absl::AnyInvocable<void()> on_change,
           absl::AnyInvocable<void()> each_period = nullptr);
  void Start();

 private:
  struct Entry {
    FileChanges changes;
    absl::AnyInvocable<void()> on_change;
    absl::AnyInvocable<void()> each_period;
  };

  void Run();

  // The thread's, once it runs.
  std::vector<Entry> entries_;
  absl::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace weft::router
