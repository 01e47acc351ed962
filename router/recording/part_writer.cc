#include "router/recording/part_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/status.h"
#include "router/recording/records.h"

namespace weft::router::recording {
namespace {

// Records wait for each other so long, or until there are so many bytes of them.
constexpr absl::Duration kFlushTime = absl::Seconds(1);
constexpr uint64_t kFlushBytes = 256u << 10;
// Behind the threads that serve.
constexpr int kNice = 10;
// One part in so many goes when the limit is reached.
constexpr uint64_t kPartsOfLimit = 8;

// In memory, about.
uint64_t BytesOf(const SchedulerState& state) {
  uint64_t bytes = sizeof(state);
  bytes += sizeof(BlockId) * (state.plain.size() + state.cached.size());
  bytes += sizeof(PublishedBlock) * state.published.size();
  for (const SequenceState& sequence : state.sequences) {
    bytes += sizeof(sequence) + sizeof(BlockHash) * sequence.block_hashes.size();
    for (const TableState& table : sequence.tables) {
      bytes += sizeof(table) + sizeof(BlockId) * table.blocks.size();
    }
  }
  return bytes;
}

}  // namespace

int CreatePart(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

PartWriter::PartWriter(RecordOptions options)
    : options_(std::move(options)),
      part_bytes_(options_.part_bytes > 0 ? options_.part_bytes
                                          : options_.bytes_max / kPartsOfLimit) {}

absl::StatusOr<std::unique_ptr<PartWriter>> PartWriter::Create(RecordOptions options) {
  std::unique_ptr<PartWriter> writer(new PartWriter(std::move(options)));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Part> parts, FindParts(writer->options_.path));
  writer->parts_.assign(parts.begin(), parts.end());
  for (const Part& part : parts) writer->disk_bytes_ += part.bytes;
  // Of a router that ended before it served.
  if (!parts.empty() && parts.back().bytes <= kMagicBytes) {
    WEFT_RETURN_IF_ERROR(writer->Remove(writer->parts_.back()));
    writer->parts_.pop_back();
  }
  WEFT_RETURN_IF_ERROR(writer->OpenPart());
  WEFT_ASSIGN_OR_RETURN(writer->thread_,
                        Thread::Start(
                            "record", [raw = writer.get()] { raw->Run(); }, kNice));
  return writer;
}

PartWriter::~PartWriter() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.Join();
  ClosePart();
}

// -- The recorder's thread -----------------------------------------------------------------------

void PartWriter::Push(absl::string_view record) {
  part_bytes_pushed_ += record.size();
  absl::MutexLock lock(&mutex_);
  if (!Count(record.size())) return;
  if (pending_.empty()) pending_.emplace_back();
  Item& item = pending_.back();
  item.records.append(record.data(), record.size());
  item.bytes += record.size();
}

void PartWriter::BeginPart(std::string head, std::unique_ptr<SchedulerState> state) {
  Item item;
  item.begins_part = true;
  item.bytes = head.size() + (state == nullptr ? 0 : BytesOf(*state));
  item.records = std::move(head);
  item.state = std::move(state);
  part_bytes_pushed_ = 0;
  absl::MutexLock lock(&mutex_);
  if (!Count(item.bytes)) return;
  pending_.push_back(std::move(item));
  // The records behind the state are a frame of their own.
  pending_.emplace_back();
}

bool PartWriter::Count(uint64_t bytes) {
  if (ended()) return false;
  if (pending_bytes_ + bytes > options_.pending_bytes_max) {
    too_slow_ = true;
    ended_.store(true, std::memory_order_relaxed);
    return false;
  }
  pending_bytes_ += bytes;
  return true;
}

// -- The writer's thread -------------------------------------------------------------------------

bool PartWriter::HasMuch() const {
  return stop_ || too_slow_ || pending_bytes_ >= kFlushBytes || pending_.size() > 1;
}

void PartWriter::Run() {
  while (true) {
    std::deque<Item> items;
    bool stop = false;
    bool too_slow = false;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(this, &PartWriter::HasMuch), kFlushTime);
      items.swap(pending_);
      stop = stop_;
      too_slow = std::exchange(too_slow_, false);
    }
    for (Item& item : items) {
      const uint64_t bytes = item.bytes;
      if (absl::Status status = told_ ? absl::OkStatus() : Write(std::move(item)); !status.ok()) {
        End(status);
      }
      // Only now: what is being written is in memory all the same.
      absl::MutexLock lock(&mutex_);
      pending_bytes_ -= bytes;
    }
    if (too_slow) {
      End(absl::ResourceExhaustedError(absl::StrCat(
          "the disk is too slow: more than ", options_.pending_bytes_max, " bytes waited for it")));
    }
    if (stop) return;
  }
}

absl::Status PartWriter::OpenPart() {
  ClosePart();
  Part part;
  part.number = parts_.empty() ? 1 : parts_.back().number + 1;
  part.path = PartPath(options_.path, part.number);
  fd_ = options_.create_part(part.path);
  if (fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", part.path));
  parts_.push_back(std::move(part));
  return WriteBytes(PartMagic());
}

void PartWriter::ClosePart() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::Status PartWriter::Write(Item item) {
  if (item.records.empty()) return absl::OkStatus();
  if (item.begins_part) {
    if (!part_is_new_) WEFT_RETURN_IF_ERROR(OpenPart());
    part_is_new_ = false;
  }
  if (item.state != nullptr) {
    Encoder encoder(&item.records);
    encoder.Number(RecordKind::kState);
    encoder.Signed(0);
    EncodeState(*item.state, &item.records);
    item.state.reset();
  }
  std::string frame;
  frame.reserve(kFrameHeadBytes + item.records.size());
  AppendFrame(item.records, &frame);
  return WriteBytes(frame);
}

absl::Status PartWriter::WriteBytes(absl::string_view bytes) {
  WEFT_RETURN_IF_ERROR(MakeRoom(bytes.size()));
  Part& part = parts_.back();
  for (absl::string_view rest = bytes; !rest.empty();) {
    const ssize_t written = write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const absl::Status status =
          absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", part.path));
      // What is there of the frame is of no use. When that fails too, a replay says that it is cut.
      (void)!ftruncate(fd_, static_cast<off_t>(part.bytes));
      return status;
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  part.bytes += bytes.size();
  disk_bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::Status PartWriter::MakeRoom(uint64_t bytes) {
  // A router that starts again and again leaves many small parts.
  while (disk_bytes_ + bytes > options_.bytes_max || parts_.size() > kPartsMax) {
    if (parts_.size() == 1) {
      return absl::ResourceExhaustedError(
          absl::StrCat(parts_.back().path, " alone would pass the limit of ", options_.bytes_max,
                       " bytes; give it more with --record-bytes-max"));
    }
    WEFT_RETURN_IF_ERROR(Remove(parts_.front()));
    parts_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status PartWriter::Remove(const Part& part) {
  if (unlink(part.path.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", part.path));
  }
  disk_bytes_ -= part.bytes;
  return absl::OkStatus();
}

void PartWriter::End(const absl::Status& why) {
  ended_.store(true, std::memory_order_relaxed);
  if (std::exchange(told_, true)) return;
  ClosePart();
  WEFT_LOG_ERROR("recording ended file={} reason=\"{}\": serving goes on without", options_.path,
                 std::string(why.message()));
}

}  // namespace weft::router::recording
