#include "deploy/launcher/hub/pieces.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace weft::hub {

FilePieces::FilePieces(uint64_t bytes, uint64_t have, uint64_t piece_bytes)
    : bytes_(bytes), piece_bytes_(piece_bytes), written_(have), begun_(have) {
  WEFT_CHECK(have <= bytes && piece_bytes > 0);
}

absl::optional<FilePieces::Taken> FilePieces::Take() {
  for (auto& [from, piece] : pieces_) {
    if (piece.taken || from + piece.arrived == piece.to) continue;
    piece.taken = true;
    ++in_flight_;
    return Taken{from, {from + piece.arrived, piece.to}};
  }
  if (begun_ == bytes_) return absl::nullopt;
  const uint64_t from = begun_;
  Piece& piece = pieces_[from];
  piece.to = from + std::min(piece_bytes_, bytes_ - from);
  piece.taken = true;
  begun_ = piece.to;
  ++in_flight_;
  return Taken{from, {from, piece.to}};
}

bool FilePieces::CanTake() const { return begun_ < bytes_ || HasBroken(); }

bool FilePieces::HasBroken() const {
  for (const auto& [from, piece] : pieces_) {
    if (!piece.taken && from + piece.arrived != piece.to) return true;
  }
  return false;
}

absl::Status FilePieces::Add(uint64_t piece_from, absl::string_view bytes, Write write) {
  const auto found = pieces_.find(piece_from);
  // A piece that has come whole is forgotten, its request may still run.
  if (found == pieces_.end() ||
      bytes.size() > found->second.to - piece_from - found->second.arrived) {
    return absl::InvalidArgumentError("more bytes came than were asked for");
  }
  Piece& piece = found->second;
  piece.arrived += bytes.size();
  if (found != pieces_.begin()) {
    absl::StrAppend(&piece.kept, bytes);
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(write(bytes));
  written_ += bytes.size();
  return WriteKept(write);
}

absl::Status FilePieces::WriteKept(Write write) {
  // A piece that is written whole makes way for the next one, which may have come already.
  while (!pieces_.empty()) {
    const auto first = pieces_.begin();
    Piece& piece = first->second;
    if (!piece.kept.empty()) {
      const std::string kept = std::move(piece.kept);
      piece.kept.clear();
      WEFT_RETURN_IF_ERROR(write(kept));
      written_ += kept.size();
    }
    if (first->first + piece.arrived != piece.to) return absl::OkStatus();
    pieces_.erase(first);
  }
  return absl::OkStatus();
}

void FilePieces::Release(uint64_t piece_from) {
  WEFT_CHECK(in_flight_ > 0);
  --in_flight_;
  const auto found = pieces_.find(piece_from);
  if (found != pieces_.end()) found->second.taken = false;
}

void FilePieces::TakeAsOne() {
  WEFT_CHECK(in_flight_ == 0);
  pieces_.clear();
  begun_ = written_;
  piece_bytes_ = std::max<uint64_t>(bytes_, 1);
}

uint64_t FilePieces::arrived() const {
  uint64_t sum = written_;
  for (const auto& [from, piece] : pieces_) sum += piece.kept.size();
  return sum;
}

uint32_t FilePieces::ahead() const {
  return pieces_.empty() ? 0 : static_cast<uint32_t>(pieces_.size() - 1);
}

}  // namespace weft::hub
