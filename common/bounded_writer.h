// Lines on their way to a descriptor that may stop taking them, as stderr does when it is a pipe
// that nobody reads or a file on a full disk. They lie in a bounded buffer that one thread of the
// writer's own empties; what does not fit is dropped and counted, and a notice takes its place when
// bytes flow again. Owned by the log (common/log.h), one per descriptor. Push is thread-safe and
// never waits for the descriptor; it costs a copy, and a wake-up after a pause.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/thread.h"

namespace weft {

class BoundedWriter {
 public:
  // Makes the line, with its newline, that says how many were dropped.
  using NoticeMaker = absl::AnyInvocable<std::string(uint64_t lines)>;

  // `fd` must stay open, and is left as it is: what it shares with other processes does not become
  // non-blocking. At most `bytes_max` bytes wait. Without `notice` drops are counted in silence.
  BoundedWriter(int fd, size_t bytes_max, NoticeMaker notice);
  // Flushes for up to kLastFlush, then lets go of what is left.
  ~BoundedWriter();

  BoundedWriter(const BoundedWriter&) = delete;
  BoundedWriter& operator=(const BoundedWriter&) = delete;

  static constexpr absl::Duration kLastFlush = absl::Milliseconds(500);

  // Takes `line`, which ends in its newline, whole or not at all. An urgent one is written at once,
  // another within 10 ms of the one before it.
  void Push(absl::string_view line, bool urgent) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until all that was pushed before is written, up to `timeout`. False when it is not.
  bool Flush(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // Lines dropped so far: the buffer was full, or the descriptor is broken.
  uint64_t dropped_lines() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // What the thread does; Push wakes it out of kIdle, an urgent Push out of kPause.
  enum class State { kIdle, kPause, kBusy };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Moves pending_ to writing_; false when there is nothing to write.
  bool TakePending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the notice of dropped lines into pending_, if there are any and it fits.
  void AddNotice() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts `bytes` of writing_ as done. With `lost`, its lines as dropped.
  void Advance(size_t bytes, bool lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes what the descriptor takes now. For callers when there is no thread.
  void WriteHere() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake();

  const int fd_;
  const size_t bytes_max_;
  // How `fd_` is written without waiting, and the descriptor for it.
  enum class Way { kWrite, kSend, kPollFirst };
  Way way_ = Way::kWrite;
  int own_fd_ = -1;
  int wake_fd_ = -1;

  // Bytes written, -1 with errno; EAGAIN when the descriptor takes none now.
  int64_t WriteSome(absl::string_view bytes) const;
  void ChooseWay();

  mutable absl::Mutex mutex_;
  NoticeMaker notice_ ABSL_GUARDED_BY(mutex_);
  std::string pending_ ABSL_GUARDED_BY(mutex_);
  // Changed under the lock and by the thread alone, which therefore reads it without.
  std::string writing_;
  size_t written_of_writing_ = 0;
  uint64_t pushed_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_told_ ABSL_GUARDED_BY(mutex_) = 0;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kBusy;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_thread_ = false;
  Thread thread_;
};

// Writes `bytes` to `fd` and waits up to `timeout` for it to take them; for last words, where no
// writer can be asked any more. What is not taken by then is lost.
void WriteWithin(int fd, absl::string_view bytes, absl::Duration timeout);

}  // namespace weft
