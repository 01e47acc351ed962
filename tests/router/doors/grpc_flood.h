// HTTP/2 written by hand, for clients as rude as ours in tests: a preface, calls, resets.

#pragma once

#include <cstdint>
#include <string>

namespace weft::router {

// The client's preface with empty SETTINGS.
std::string Http2Preface();
// The same, with so many bytes of room for each answer, and for all together.
std::string Http2PrefaceWithWindow(uint32_t bytes);
// A call's HEADERS; `message` with its frame after it unless that is empty. Streams are odd.
std::string Http2Call(uint32_t stream, const std::string& path, const std::string& message);
// A call's HEADERS that go on: what follows must be continuations.
std::string Http2OpenHeaders(uint32_t stream, const std::string& path);
// More of them, one field of so many bytes, and still not the last.
std::string Http2Continuation(uint32_t stream, size_t bytes);
// RST_STREAM with CANCEL.
std::string Http2Reset(uint32_t stream);

// Calls on streams `first`, `first` + 2 ..., each reset at once.
std::string Http2ResetCalls(uint32_t first, uint32_t count, const std::string& path,
                            const std::string& message);

}  // namespace weft::router
