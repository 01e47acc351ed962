// Writes a recording to disk: parts FILE.1, FILE.2 … of framed records, of which the oldest go when
// all together would pass a limit. Owned by a Recorder, whose thread hands over records and never
// waits: they lie in bounded memory until a thread of the writer's own has written them, within a
// second. When that is not possible (the disk is full, or too slow for the memory) the recording
// ends with one line in the log, the rest is dropped, and what is on disk stays whole.
//
// A part: "weftrec" and the format's digit; then frames: length of the payload (4 bytes), FNV-1a of
// length and payload (8 bytes), payload: whole records. All little endian. A part of an earlier
// process is never written again: numbers go on behind the highest that is there, and old parts
// count and go like this recording's own.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/thread.h"
#include "router/recording/bounds.h"
#include "router/recording/parts.h"
#include "router/scheduler/scheduler_state.h"

namespace weft::router::recording {

// Creates the file of a part for writing: a descriptor, or -1 with errno. An existing file is an
// error.
int CreatePart(const std::string& path);

struct RecordOptions {
  // Of the parts, without their numbers. Empty: nothing is recorded.
  std::string path;
  // On disk, of all parts together.
  uint64_t bytes_max = kRecordBytesDefault;
  // A part that has so many is full; 0: an eighth of bytes_max.
  uint64_t part_bytes = 0;
  // Of records that wait to be written, in memory.
  uint64_t pending_bytes_max = kPendingBytesMax;
  std::function<int(const std::string&)> create_part = CreatePart;
};

class PartWriter {
 public:
  // Opens the first part. Errors name its path.
  static absl::StatusOr<std::unique_ptr<PartWriter>> Create(RecordOptions options);
  // Writes what waits, ends the thread.
  ~PartWriter();

  PartWriter(const PartWriter&) = delete;
  PartWriter& operator=(const PartWriter&) = delete;

  // -- The recorder's thread; none of them waits for the disk
  // Appends a whole record to the current part.
  void Push(absl::string_view record) ABSL_LOCKS_EXCLUDED(mutex_);
  // From now on records go to a part of their own, behind `head` and, unless it is null, `state`.
  // The first call is for the part that Create() opened.
  void BeginPart(std::string head, std::unique_ptr<SchedulerState> state)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The current part has its bytes: another one may begin.
  bool part_is_full() const { return part_bytes_pushed_ >= part_bytes_; }
  // Nothing is recorded any more.
  bool ended() const { return ended_.load(std::memory_order_relaxed); }

 private:
  // What goes into one frame.
  struct Item {
    bool begins_part = false;
    std::string records;
    std::unique_ptr<SchedulerState> state;
    uint64_t bytes = 0;
  };

  explicit PartWriter(RecordOptions options);

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasMuch() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts what waits; false, and the recording ends, when it is too much.
  bool Count(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // -- The writer's thread, and Create() before it starts
  absl::Status OpenPart();
  absl::Status Write(Item item);
  absl::Status WriteBytes(absl::string_view bytes);
  // Old parts go until `bytes` more fit.
  absl::Status MakeRoom(uint64_t bytes);
  absl::Status Remove(const Part& part);
  void ClosePart();
  void End(const absl::Status& why);

  const RecordOptions options_;
  const uint64_t part_bytes_;
  // The recorder's thread alone.
  uint64_t part_bytes_pushed_ = 0;
  std::atomic<bool> ended_{false};

  absl::Mutex mutex_;
  std::deque<Item> pending_ ABSL_GUARDED_BY(mutex_);
  uint64_t pending_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool too_slow_ ABSL_GUARDED_BY(mutex_) = false;

  // -- The writer's thread
  std::deque<Part> parts_;
  uint64_t disk_bytes_ = 0;
  int fd_ = -1;
  bool part_is_new_ = true;
  // The line about the end was logged.
  bool told_ = false;

  Thread thread_;
};

}  // namespace weft::router::recording
