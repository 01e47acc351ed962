// Reads one call of a format, byte by byte, once something has shown that one may begin here. What
// lies around calls (marks that open and close, commas between, text) is the business of
// AnswerParser, which owns the reader. Each kind of format has a reader of its own; none of them
// ever holds more than kToolCallHeldBytesMax bytes of a call that has begun.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "router/text/parts/formats.h"
#include "router/text/parts/part_writer.h"

namespace weft::router {

class CallReader {
 public:
  enum class Step : uint8_t {
    kMore,
    // The call ended with this byte.
    kDone,
    // This byte cannot follow: it is not taken, and a call that had begun has been ended.
    kBroken,
  };

  virtual ~CallReader() = default;

  // A new call, read from there on.
  virtual void Begin(CallEntry entry) = 0;
  virtual Step Take(char c, PartWriter* writer) = 0;
  // Bytes that a call which had begun took before it broke, and did not use: text that goes on.
  virtual std::string Unused() { return {}; }
  // The answer ends inside of a call that has begun: hands out what is held of it.
  virtual void Cut(PartWriter*) {}
  // Whether a further call of the same frame may begin with this byte, by CallEntry::kNext.
  virtual bool MayFollow(char c) const = 0;
};

std::unique_ptr<CallReader> MakeCallReader(const ToolFormat& format);

}  // namespace weft::router
