// The bytes of one file on their way: it is asked for in pieces, several at once, which come in any
// order, break off and are asked for again; what is handed on is in order and without gaps, so that
// a file that grows on the disk is always the beginning of the whole, and its size is all that
// there is to know for going on. Pure; one owner. Memory: the pieces ahead of the one in turn.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace weft::hub {

// Bytes to ask for: from .. to - 1.
struct ByteRange {
  uint64_t from = 0;
  uint64_t to = 0;
};

class FilePieces {
 public:
  // Of `bytes` the first `have` are there.
  FilePieces(uint64_t bytes, uint64_t have, uint64_t piece_bytes);

  // Takes bytes that are next in order.
  using Write = absl::FunctionRef<absl::Status(absl::string_view)>;

  struct Taken {
    uint64_t piece = 0;
    ByteRange range;
  };
  // What to ask for next: a piece that broke off, else a new one. Nothing when all is asked for.
  absl::optional<Taken> Take();
  // Whether Take would give something.
  bool CanTake() const;
  // Whether that would be a piece that broke off: no further memory.
  bool HasBroken() const;
  // `bytes` came, the next ones of `piece`. Those in turn go to `write`, others are kept.
  // INVALID_ARGUMENT when they are more than the piece has.
  absl::Status Add(uint64_t piece, absl::string_view bytes, Write write);
  // The request for `piece` has ended, whole or not: what did not come is up for Take again.
  void Release(uint64_t piece);
  // From now on the rest is one piece, for a server that knows no ranges. No piece may be taken.
  void TakeAsOne();

  bool done() const { return written_ == bytes_; }
  uint64_t bytes() const { return bytes_; }
  // In order, from the file's beginning; and with what is kept in memory beyond.
  uint64_t written() const { return written_; }
  uint64_t arrived() const;
  // Pieces that were taken and not released.
  uint32_t in_flight() const { return in_flight_; }
  // Pieces in memory or in flight beyond the one in turn.
  uint32_t ahead() const;

 private:
  struct Piece {
    uint64_t to = 0;
    uint64_t arrived = 0;
    bool taken = false;
    // Not in turn yet.
    std::string kept;
  };

  absl::Status WriteKept(Write write);

  uint64_t bytes_;
  uint64_t piece_bytes_;
  uint64_t written_;
  // Behind the last piece that was begun.
  uint64_t begun_;
  uint32_t in_flight_ = 0;
  // Begun and not wholly written, by where each begins; the first one is in turn.
  std::map<uint64_t, Piece> pieces_;
};

}  // namespace weft::hub
