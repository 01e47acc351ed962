#include "shard/comm/mesh_communicator.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"

namespace weft::shard {
namespace {

constexpr size_t kAlignment = 64;
// A gather of small things goes in one frame even where sums are small.
constexpr size_t kWindowBytesMin = 4096;
// Polls before a wait sleeps: shards may share their cores with a router.
constexpr absl::Duration kSpin = absl::Microseconds(20);
// Floats summed at a time: the partial sum stays in the first-level cache.
constexpr int64_t kTileFloats = 1024;

size_t WindowBytes(int64_t capacity_floats) {
  const size_t bytes =
      std::max(static_cast<size_t>(capacity_floats) * sizeof(float), kWindowBytesMin);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::byte* Allocate(size_t bytes) {
  void* memory = std::aligned_alloc(kAlignment, bytes);
  WEFT_CHECK(memory != nullptr);
  return static_cast<std::byte*>(memory);
}

void Add(float* __restrict sum, const float* __restrict values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += values[i];
}

// What is left of a header and a body of which `done` bytes have moved.
int Parts(void* header, size_t header_bytes, void* body, size_t bytes, size_t done, iovec* parts) {
  int count = 0;
  if (done < header_bytes) {
    parts[count++] = {static_cast<char*>(header) + done, header_bytes - done};
    done = header_bytes;
  }
  if (done < header_bytes + bytes) {
    const size_t from = done - header_bytes;
    parts[count++] = {static_cast<char*>(body) + from, bytes - from};
  }
  return count;
}

}  // namespace

void MeshCommunicator::FreeDeleter::operator()(std::byte* memory) const { std::free(memory); }

MeshCommunicator::MeshCommunicator(const MeshOptions& options, std::vector<TcpSocket> peers)
    : options_(options),
      peers_(std::move(peers)),
      window_bytes_(WindowBytes(options.capacity_floats)),
      windows_(Allocate(window_bytes_ * options.world)),
      progress_(options.world) {
  WEFT_CHECK_LE(options_.world, kWorldMax);
  WEFT_CHECK_LT(options_.rank, options_.world);
  WEFT_CHECK_EQ(peers_.size(), options_.world);
}

float* MeshCommunicator::Stage(int64_t count) {
  WEFT_CHECK_GE(count, 0);
  WEFT_CHECK_LE(count, options_.capacity_floats);
  return reinterpret_cast<float*>(window(options_.rank));
}

absl::Status MeshCommunicator::AllReduceAdd(float* target, int64_t count) {
  WEFT_CHECK_GE(count, 0);
  WEFT_CHECK_LE(count, options_.capacity_floats);
  WEFT_RETURN_IF_ERROR(Exchange(static_cast<size_t>(count) * sizeof(float), options_.wait_timeout));
  alignas(kAlignment) float sum[kTileFloats];
  for (int64_t begin = 0; begin < count; begin += kTileFloats) {
    const int64_t floats = std::min(kTileFloats, count - begin);
    const auto part = [&](Rank rank) {
      return reinterpret_cast<const float*>(window(rank)) + begin;
    };
    std::memcpy(sum, part(0), static_cast<size_t>(floats) * sizeof(float));
    for (Rank rank = 1; rank < options_.world; ++rank) Add(sum, part(rank), floats);
    Add(target + begin, sum, floats);
  }
  return absl::OkStatus();
}

absl::Status MeshCommunicator::AllGather(const void* mine, size_t bytes, void* all) {
  const auto* from = static_cast<const std::byte*>(mine);
  auto* to = static_cast<std::byte*>(all);
  for (size_t begin = 0; begin < bytes; begin += window_bytes_) {
    const size_t piece = std::min(window_bytes_, bytes - begin);
    std::memcpy(window(options_.rank), from + begin, piece);
    WEFT_RETURN_IF_ERROR(Exchange(piece, options_.wait_timeout));
    for (Rank rank = 0; rank < options_.world; ++rank) {
      std::memcpy(to + rank * bytes + begin, window(rank), piece);
    }
  }
  return absl::OkStatus();
}

void MeshCommunicator::Abort() {
  aborted_.store(true);
  for (const TcpSocket& peer : peers_) peer.Shutdown();
}

absl::Status MeshCommunicator::Exchange(size_t bytes, absl::Duration timeout) {
  ++collective_;
  for (Progress& peer : progress_) peer = {};
  const absl::Time begin = absl::Now();
  absl::Time spin_end = begin + kSpin;
  bool waited = false;
  for (;;) {
    uint32_t left = 0;
    WEFT_ASSIGN_OR_RETURN(const bool moved, Advance(bytes, &left));
    if (left == 0) break;
    const absl::Time now = absl::Now();
    if (moved) spin_end = now + kSpin;
    if (moved || now < spin_end) continue;
    waited = true;
    if (options_.heartbeat != nullptr) options_.heartbeat->Beat();
    if (now - begin >= timeout) return Late(bytes);
    Sleep(bytes);
  }
  if (waited) {
    waited_us_.fetch_add(static_cast<uint64_t>(absl::ToInt64Microseconds(absl::Now() - begin)),
                         std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MeshCommunicator::Advance(size_t bytes, uint32_t* left) {
  bool moved = false;
  for (Rank peer = 0; peer < options_.world; ++peer) {
    if (peer == options_.rank) continue;
    WEFT_ASSIGN_OR_RETURN(const bool sent, Send(peer, bytes));
    WEFT_ASSIGN_OR_RETURN(const bool received, Receive(peer, bytes));
    moved = moved || sent || received;
    const size_t whole = sizeof(FrameHeader) + bytes;
    if (progress_[peer].sent < whole || progress_[peer].received < whole) ++*left;
  }
  return moved;
}

absl::StatusOr<bool> MeshCommunicator::Send(Rank peer, size_t bytes) {
  Progress& state = progress_[peer];
  FrameHeader header{collective_, static_cast<uint32_t>(bytes)};
  std::array<iovec, 2> parts;
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = static_cast<size_t>(
      Parts(&header, sizeof(header), window(options_.rank), bytes, state.sent, parts.data()));
  if (message.msg_iovlen == 0) return false;
  const ssize_t sent = sendmsg(peers_[peer].fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0)
    return errno == EAGAIN || errno == EINTR ? absl::StatusOr<bool>(false) : Broken(peer);
  state.sent += static_cast<size_t>(sent);
  return sent > 0;
}

absl::StatusOr<bool> MeshCommunicator::Receive(Rank peer, size_t bytes) {
  Progress& state = progress_[peer];
  std::array<iovec, 2> parts;
  msghdr message{};
  message.msg_iov = parts.data();
  // Never a byte of the frame that follows: its window would be overwritten.
  message.msg_iovlen = static_cast<size_t>(Parts(&state.header, sizeof(state.header), window(peer),
                                                 bytes, state.received, parts.data()));
  if (message.msg_iovlen == 0) return false;
  const size_t before = state.received;
  const ssize_t read = recvmsg(peers_[peer].fd(), &message, MSG_DONTWAIT);
  if (read == 0) return Broken(peer);
  if (read < 0)
    return errno == EAGAIN || errno == EINTR ? absl::StatusOr<bool>(false) : Broken(peer);
  state.received += static_cast<size_t>(read);
  if (before < sizeof(FrameHeader) && state.received >= sizeof(FrameHeader)) {
    WEFT_RETURN_IF_ERROR(CheckHeader(peer, bytes));
  }
  return true;
}

absl::Status MeshCommunicator::CheckHeader(Rank peer, size_t bytes) const {
  const FrameHeader& header = progress_[peer].header;
  if (header.collective == collective_ && header.bytes == bytes) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "rank ", peer, " is at collective ", header.collective, " of ", header.bytes, " bytes, rank ",
      options_.rank, " at ", collective_, " of ", bytes, " in epoch ", options_.epoch));
}

void MeshCommunicator::Sleep(size_t bytes) const {
  std::array<pollfd, kWorldMax> entries;
  nfds_t count = 0;
  for (Rank peer = 0; peer < options_.world; ++peer) {
    if (peer == options_.rank) continue;
    short events = 0;
    if (progress_[peer].sent < sizeof(FrameHeader) + bytes) events |= POLLOUT;
    if (progress_[peer].received < sizeof(FrameHeader) + bytes) events |= POLLIN;
    if (events != 0) entries[count++] = {peers_[peer].fd(), events, 0};
  }
  poll(entries.data(), count, static_cast<int>(absl::ToInt64Milliseconds(kSlice)));
}

absl::Status MeshCommunicator::Late(size_t bytes) {
  std::vector<Rank> missing;
  for (Rank peer = 0; peer < options_.world; ++peer) {
    if (peer != options_.rank && progress_[peer].received < sizeof(FrameHeader) + bytes) {
      missing.push_back(peer);
    }
  }
  Abort();
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", options_.rank, " gave up waiting for rank ",
                   absl::StrJoin(missing, ", "), " in epoch ", options_.epoch));
}

absl::Status MeshCommunicator::Broken(Rank peer) const {
  if (aborted_.load()) {
    return absl::AbortedError(
        absl::StrCat("epoch ", options_.epoch, " was ended by rank ", options_.rank));
  }
  return absl::UnavailableError(absl::StrCat("the connection of rank ", options_.rank, " to rank ",
                                             peer, " broke in epoch ", options_.epoch));
}

}  // namespace weft::shard
