#include "shard/comm/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status.h"

namespace weft::shard {
namespace {

constexpr absl::string_view kTokenTag = "weft-shm-1";
constexpr size_t kPageBytes = 4096;
constexpr size_t kTokenBytesMax = 200;
// The size can never change again, so no access to a mapping can fault.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t RoundUpToPage(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// A descriptor that closes itself.
struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  int release() { return std::exchange(fd, -1); }
  int fd;
};

uint64_t RandomMagic() {
  std::random_device random;
  const uint64_t magic = (uint64_t{random()} << 32) | random();
  return magic == 0 ? 1 : magic;
}

struct Token {
  uint64_t magic = 0;
  Epoch epoch = 0;
  uint32_t world = 0;
  int64_t capacity_floats = 0;
  std::string path;
};

bool AllDigits(absl::string_view text) {
  if (text.empty() || text.size() > 10) return false;
  for (char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

// "<tag> <magic> <epoch> <world> <capacity> /proc/<pid>/fd/<n>"
absl::StatusOr<Token> ParseToken(absl::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError("token: not a shared-memory rendezvous");
  if (text.size() > kTokenBytesMax) return bad;
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  if (words.size() != 6 || words[0] != kTokenTag) return bad;
  Token token;
  if (!absl::SimpleAtoi(words[1], &token.magic) || !absl::SimpleAtoi(words[2], &token.epoch) ||
      !absl::SimpleAtoi(words[3], &token.world) ||
      !absl::SimpleAtoi(words[4], &token.capacity_floats)) {
    return bad;
  }
  // Only this form is ever opened: a token cannot point at a file, a pipe or a device by name.
  const std::vector<absl::string_view> parts = absl::StrSplit(words[5], '/');
  if (parts.size() != 5 || !parts[0].empty() || parts[1] != "proc" || !AllDigits(parts[2]) ||
      parts[3] != "fd" || !AllDigits(parts[4])) {
    return bad;
  }
  token.path = std::string(words[5]);
  return token;
}

absl::Status Differs(absl::string_view what, uint64_t found, uint64_t expected,
                     absl::string_view cause = "") {
  return absl::FailedPreconditionError(
      absl::StrCat("token: ", what, " is ", found, ", this rank expects ", expected, cause));
}

absl::Status CheckToken(const Token& token, const ShmShape& shape) {
  if (token.epoch != shape.epoch) return Differs("epoch", token.epoch, shape.epoch);
  if (token.world != shape.world) return Differs("world", token.world, shape.world);
  if (token.capacity_floats != shape.capacity_floats) {
    return Differs("window size in floats (step tokens * widest row)",
                   static_cast<uint64_t>(token.capacity_floats),
                   static_cast<uint64_t>(shape.capacity_floats),
                   ": the --step-tokens-max or models of the shards differ");
  }
  return absl::OkStatus();
}

absl::Status CheckFile(int fd, const ShmShape& shape) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, "fstat of the shared segment");
  const int seals = fcntl(fd, F_GET_SEALS);
  if (!S_ISREG(info.st_mode) || seals < 0 || (seals & kSeals) != kSeals) {
    return absl::FailedPreconditionError("token: the file is not a sealed shared segment");
  }
  if (static_cast<uint64_t>(info.st_size) != shape.total_bytes()) {
    return Differs("segment size in bytes", static_cast<uint64_t>(info.st_size),
                   shape.total_bytes());
  }
  return absl::OkStatus();
}

}  // namespace

size_t ShmShape::window_bytes() const {
  return RoundUpToPage(static_cast<size_t>(capacity_floats) * sizeof(float));
}

size_t ShmShape::total_bytes() const {
  return RoundUpToPage(sizeof(ShmHeader)) + 2 * world * window_bytes();
}

absl::StatusOr<ShmSegment> ShmSegment::Create(const ShmShape& shape) {
  const int fd = memfd_create("weft-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  Descriptor descriptor(fd);
  // Reserved now: running out of memory is an error here instead of a fault in a step (mem.plan).
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(shape.total_bytes()));
      error != 0) {
    return absl::ErrnoToStatus(
        error, absl::StrCat("reserving ", shape.total_bytes(), " bytes of shared memory"));
  }
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    return absl::ErrnoToStatus(errno, "sealing the shared segment");
  }
  void* base = mmap(nullptr, sizeof(ShmHeader), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping the shared segment");
  ShmHeader* header = new (base) ShmHeader{};
  header->magic = RandomMagic();
  header->epoch = shape.epoch;
  header->world = shape.world;
  header->capacity_floats = shape.capacity_floats;
  std::string token =
      absl::StrCat(kTokenTag, " ", header->magic, " ", shape.epoch, " ", shape.world, " ",
                   shape.capacity_floats, " /proc/", getpid(), "/fd/", fd);
  munmap(base, sizeof(ShmHeader));
  return ShmSegment(descriptor.release(), std::move(token));
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), token_(std::move(other.token_)) {}

ShmSegment& ShmSegment::operator=(ShmSegment&& other) noexcept {
  if (fd_ >= 0) close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  token_ = std::move(other.token_);
  return *this;
}

ShmSegment::~ShmSegment() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::unique_ptr<ShmMapping>> ShmMapping::Open(absl::string_view text,
                                                             const ShmShape& shape) {
  WEFT_ASSIGN_OR_RETURN(const Token token, ParseToken(text));
  WEFT_RETURN_IF_ERROR(CheckToken(token, shape));
  // O_NONBLOCK: the descriptor number may by now name a pipe, whose open would wait.
  Descriptor descriptor(open(token.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("opening ", token.path, " of rank 0"));
  }
  WEFT_RETURN_IF_ERROR(CheckFile(descriptor.fd, shape));
  void* base = mmap(nullptr, shape.total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                    descriptor.fd, 0);
  if (base == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping the shared segment");
  std::unique_ptr<ShmMapping> mapping(new ShmMapping(base, shape));
  const ShmHeader& header = mapping->header();
  if (header.magic != token.magic || header.epoch != shape.epoch || header.world != shape.world ||
      header.capacity_floats != shape.capacity_floats) {
    return absl::FailedPreconditionError("token: the shared segment belongs to another rendezvous");
  }
  return mapping;
}

ShmMapping::~ShmMapping() { munmap(base_, shape_.total_bytes()); }

std::byte* ShmMapping::window(Rank rank, uint32_t parity) {
  const size_t index = static_cast<size_t>(parity) * shape_.world + rank;
  return static_cast<std::byte*>(base_) + RoundUpToPage(sizeof(ShmHeader)) +
         index * shape_.window_bytes();
}

}  // namespace weft::shard
