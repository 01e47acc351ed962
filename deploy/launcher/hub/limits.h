// Every fixed bound of what comes from a hub, which is a stranger: its list of files, their names,
// its answers, and what is held in memory of them. Units are in the names.

#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::hub {

// -- What a hub says of a model
// ---------------------------------------------------------------------
inline constexpr size_t kListBytesMax = 64u << 20;
inline constexpr size_t kFilesListedMax = 100'000;
inline constexpr size_t kFilesPulledMax = 10'000;
inline constexpr size_t kIndexBytesMax = 64u << 20;
inline constexpr uint64_t kFileBytesMax = uint64_t{1} << 45;
// Of a path in a repository, and of each of its names (what Linux's file systems take).
inline constexpr size_t kPathBytesMax = 1024;
inline constexpr size_t kNameBytesMax = 255;
inline constexpr size_t kPathDepthMax = 16;
// Of an answer that is an error, to be shown.
inline constexpr size_t kErrorBodyBytesMax = 4096;
inline constexpr size_t kErrorTextBytesMax = 300;
inline constexpr size_t kHeaderBytesMax = 64u << 10;
inline constexpr int kRedirectsMax = 5;

// -- Transfers
// --------------------------------------------------------------------------------------
inline constexpr uint32_t kConnectionsMax = 32;
inline constexpr uint32_t kConnectionsDefault = 8;
// What one request asks for at most, and how many requests may run ahead of the place up to which
// files are written: the product is the memory that a pull takes.
inline constexpr uint64_t kPieceBytes = uint64_t{16} << 20;
inline constexpr uint32_t kPiecesAheadMax = 8;
// A disk is not filled to its last byte.
inline constexpr uint64_t kDiskMarginBytes = uint64_t{64} << 20;

// -- Settings
// ---------------------------------------------------------------------------------------
inline constexpr size_t kTokenBytesMax = 4096;

}  // namespace weft::hub
