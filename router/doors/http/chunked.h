// Undoes the chunked transfer coding (RFC 9112, 7.1). Extensions and trailers are checked, bounded
// and dropped: a trailer never becomes a header. Bytes may come in pieces of any size. Pure; owned
// by a RequestReader.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weft::router {

class ChunkedDecoder {
 public:
  enum class State { kMore, kData, kDone, kMalformed, kTooLong };

  // A line of a chunk's size with its extensions, and all trailers together, in bytes.
  static constexpr size_t kLineBytesMax = 1024;
  static constexpr size_t kTrailerBytesMax = 4096;
  // Extensions of a body may be so much longer than its data.
  static constexpr uint64_t kExtensionBytesFree = 4096;

  // Bodies have at most `data_bytes_max` bytes.
  explicit ChunkedDecoder(uint64_t data_bytes_max) : data_bytes_max_(data_bytes_max) {}

  // Takes bytes from the front of *input. kData: *data is the next piece of the body, a part of
  // what was the input; call again. kMore: all taken. kDone: the body and its trailers are
  // complete; what is left in *input belongs to the next request. kTooLong: as soon as a chunk's
  // size says that the body will be longer than it may.
  State Next(absl::string_view* input, absl::string_view* data);
  // After kMalformed.
  absl::string_view problem() const { return problem_; }

 private:
  enum class At { kSizeLine, kData, kDataEnd, kTrailerLine, kDone };

  // Collects a line in line_; kDone when it is complete, without its CRLF.
  State TakeLine(absl::string_view* input, size_t bytes_max);
  State ReadSizeLine();
  State ReadTrailer();
  State Malformed(absl::string_view problem);

  uint64_t data_bytes_max_;
  At at_ = At::kSizeLine;
  std::string line_;
  uint64_t left_ = 0;        // of the present chunk
  uint64_t data_bytes_ = 0;  // of the body so far
  uint64_t extension_bytes_ = 0;
  size_t trailer_bytes_ = 0;
  absl::string_view problem_;
};

}  // namespace weft::router
