#include "common/mapped_file.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/regular_file.h"
#include "common/status.h"

namespace weft {
namespace {

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// What the last page has behind a file's end.
size_t TailBytes(size_t size) { return (PageBytes() - size % PageBytes()) % PageBytes(); }

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const RegularFile file, OpenRegularFile(path));
  const int fd = file.fd;
  const absl::Cleanup close_fd = [fd] { close(fd); };
  if (file.bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": is empty; copy or download it again"));
  const size_t size = file.bytes;
  void* const data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": mmap"));
  // To AddressSanitizer a read of the last page's other bytes is one behind the end.
  ASAN_POISON_MEMORY_REGION(static_cast<uint8_t*>(data) + size, TailBytes(size));
  return MappedFile(path, static_cast<const uint8_t*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  ASAN_UNPOISON_MEMORY_REGION(data_ + size_, TailBytes(size_));
  munmap(const_cast<uint8_t*>(data_), size_);
}

int MappedFile::Advise(absl::Span<const uint8_t> range, int advice) const {
  if (range.empty()) return 0;
  const size_t begin = static_cast<size_t>(range.data() - data_) / PageBytes() * PageBytes();
  const size_t end = static_cast<size_t>(range.data() - data_) + range.size();
  return madvise(const_cast<uint8_t*>(data_) + begin, end - begin, advice) == 0 ? 0 : errno;
}

void MappedFile::WillNeed(absl::Span<const uint8_t> range) const {
  // Advice only: a kernel that does not take it is merely slower.
  (void)Advise(range, MADV_WILLNEED);
}

absl::Status MappedFile::Populate(absl::Span<const uint8_t> range) const {
  const int error = Advise(range, MADV_POPULATE_READ);
  // EINVAL: a kernel before 5.14; the pages then come in when they are touched.
  if (error == 0 || error == EINVAL) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path_, ": cannot read bytes ", range.data() - data_, " to ",
                   static_cast<size_t>(range.data() - data_) + range.size(), ": ",
                   std::strerror(error), "; the file has shrunk or its disk has failed"));
}

void MappedFile::Drop(absl::Span<const uint8_t> range) const {
  const size_t first = static_cast<size_t>(range.data() - data_);
  const size_t begin = (first + PageBytes() - 1) / PageBytes() * PageBytes();
  // The last page of the file belongs to whoever drops its last byte.
  const bool to_end = first + range.size() == size_;
  const size_t end = to_end ? size_ : (first + range.size()) / PageBytes() * PageBytes();
  if (end <= begin) return;
  (void)madvise(const_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace weft
