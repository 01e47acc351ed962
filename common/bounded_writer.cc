#include "common/bounded_writer.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace weft {
namespace {

// Lines that come within this time of each other are written together and wake nobody.
constexpr int kPauseMs = 10;
// How often a full disk is tried again: nothing tells when it has room.
constexpr int kDiskPauseMs = 100;

bool IsDiskFull(int error) { return error == ENOSPC || error == EDQUOT; }

bool IsNoRoom(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

void WaitWritable(int fd, absl::Duration timeout) {
  pollfd entry{fd, POLLOUT, 0};
  poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
}

}  // namespace

BoundedWriter::BoundedWriter(int fd, size_t bytes_max, NoticeMaker notice)
    : fd_(fd), bytes_max_(bytes_max), notice_(std::move(notice)) {
  ChooseWay();
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return;
  // The thread inherits the mask: signals belong to the threads that the process keeps for them.
  sigset_t all;
  sigset_t own;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &own);
  // Without a thread (the process may start none) callers write what the descriptor takes.
  absl::StatusOr<Thread> thread = Thread::Start("log", [this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &own, nullptr);
  if (!thread.ok()) return;
  thread_ = *std::move(thread);
  has_thread_ = true;
}

BoundedWriter::~BoundedWriter() {
  Flush(kLastFlush);
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  Wake();
  thread_.Join();
  if (wake_fd_ >= 0) close(wake_fd_);
  if (own_fd_ >= 0) close(own_fd_);
}

void BoundedWriter::ChooseWay() {
  struct stat info {};
  if (fstat(fd_, &info) != 0) return;
  if (S_ISSOCK(info.st_mode)) {
    way_ = Way::kSend;
  } else if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
    // O_NONBLOCK belongs to the open file, which other processes share; so open it once more.
    own_fd_ = open(absl::StrCat("/proc/self/fd/", fd_).c_str(),
                   O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own_fd_ < 0) way_ = Way::kPollFirst;
  }
}

int64_t BoundedWriter::WriteSome(absl::string_view bytes) const {
  if (way_ == Way::kSend) {
    return send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (way_ == Way::kPollFirst) {
    pollfd entry{fd_, POLLOUT, 0};
    if (poll(&entry, 1, 0) <= 0) {
      errno = EAGAIN;
      return -1;
    }
    // A pipe that can be written takes so much without waiting.
    return write(fd_, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
  }
  return write(own_fd_ >= 0 ? own_fd_ : fd_, bytes.data(), bytes.size());
}

void BoundedWriter::Wake() {
  const uint64_t one = 1;
  if (wake_fd_ >= 0) (void)!write(wake_fd_, &one, sizeof(one));
}

void BoundedWriter::Push(absl::string_view line, bool urgent) {
  bool wake = false;
  {
    absl::MutexLock lock(&mutex_);
    AddNotice();
    const size_t waiting = pending_.size() + (writing_.size() - written_of_writing_);
    if (dropped_ > dropped_told_ || waiting + line.size() > bytes_max_) {
      ++dropped_;
      return;
    }
    pending_.append(line.data(), line.size());
    pushed_bytes_ += line.size();
    if (!has_thread_) {
      WriteHere();
      return;
    }
    wake = state_ == State::kIdle || (urgent && state_ == State::kPause);
    if (wake) state_ = State::kBusy;
  }
  if (wake) Wake();
}

bool BoundedWriter::Flush(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  absl::MutexLock lock(&mutex_);
  const uint64_t target = pushed_bytes_;
  const auto done = [this, target]()
                        ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return done_bytes_ >= target; };
  if (has_thread_) {
    state_ = State::kBusy;
    Wake();
    return mutex_.AwaitWithTimeout(absl::Condition(&done), timeout);
  }
  while (true) {
    WriteHere();
    if (done() || absl::Now() >= end) return done();
    WaitWritable(fd_, end - absl::Now());
  }
}

uint64_t BoundedWriter::dropped_lines() const {
  absl::MutexLock lock(&mutex_);
  return dropped_;
}

void BoundedWriter::AddNotice() {
  if (dropped_ == dropped_told_) return;
  const std::string line = notice_ ? notice_(dropped_ - dropped_told_) : "";
  const size_t waiting = pending_.size() + (writing_.size() - written_of_writing_);
  // Half of the buffer must have left: else each line that leaves would make room for a notice.
  if (waiting + line.size() > bytes_max_ / 2) return;
  pending_ += line;
  pushed_bytes_ += line.size();
  dropped_told_ = dropped_;
}

bool BoundedWriter::TakePending() {
  if (written_of_writing_ < writing_.size()) return true;
  AddNotice();
  writing_.clear();
  written_of_writing_ = 0;
  writing_.swap(pending_);
  return !writing_.empty();
}

void BoundedWriter::Advance(size_t bytes, bool lost) {
  if (lost) {
    dropped_ += static_cast<uint64_t>(std::count(
        writing_.begin() + static_cast<ptrdiff_t>(written_of_writing_), writing_.end(), '\n'));
    // Nobody is left to tell.
    dropped_told_ = dropped_;
  }
  written_of_writing_ += bytes;
  done_bytes_ += bytes;
}

void BoundedWriter::WriteHere() {
  while (TakePending()) {
    const absl::string_view rest = absl::string_view(writing_).substr(written_of_writing_);
    const int64_t bytes = WriteSome(rest);
    if (bytes < 0 && IsNoRoom(errno)) return;
    Advance(bytes < 0 ? rest.size() : static_cast<size_t>(bytes), bytes < 0);
  }
}

void BoundedWriter::Run() {
  pollfd entries[2] = {{wake_fd_, POLLIN, 0}, {own_fd_ >= 0 ? own_fd_ : fd_, POLLOUT, 0}};
  bool no_room = false;
  bool disk_full = false;
  bool wrote = false;
  while (true) {
    bool has_bytes = false;
    {
      absl::MutexLock lock(&mutex_);
      if (stop_) return;
      // After a write it rests: lines that come meanwhile need wake nobody.
      has_bytes = !wrote && TakePending();
      state_ = has_bytes ? State::kBusy : wrote ? State::kPause : State::kIdle;
    }
    if (!has_bytes || no_room) {
      // A full disk counts as writable.
      poll(entries, no_room && !disk_full ? 2 : 1,
           disk_full ? kDiskPauseMs
           : wrote   ? kPauseMs
                     : -1);
      uint64_t count = 0;
      (void)!read(wake_fd_, &count, sizeof(count));
      no_room = false;
      disk_full = false;
      wrote = false;
      continue;
    }
    const absl::string_view rest = absl::string_view(writing_).substr(written_of_writing_);
    const int64_t bytes = WriteSome(rest);
    disk_full = bytes < 0 && IsDiskFull(errno);
    no_room = disk_full || (bytes < 0 && IsNoRoom(errno));
    if (no_room) continue;
    absl::MutexLock lock(&mutex_);
    Advance(bytes < 0 ? rest.size() : static_cast<size_t>(bytes), bytes < 0);
    wrote = written_of_writing_ == writing_.size();
  }
}

void WriteWithin(int fd, absl::string_view bytes, absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (!bytes.empty() && absl::Now() < end) {
    WaitWritable(fd, end - absl::Now());
    pollfd entry{fd, POLLOUT, 0};
    if (poll(&entry, 1, 0) <= 0) continue;
    const ssize_t written = write(fd, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
    if (written < 0 && !IsNoRoom(errno) && errno != EINTR) return;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace weft
