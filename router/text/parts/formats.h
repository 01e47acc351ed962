// The formats in which published models write calls and reasoning, as tables: the marks around
// them, and which kind of reader knows what stands inside. A format is what a model's chat template
// shows it in its history; docs/MODELS.md lists them. Constant.

#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft::router {

// Where a reader begins.
enum class CallEntry : uint8_t {
  // Behind a mark that opens a frame of one or more calls, or (of formats whose calls may begin
  // without one) with the first byte of the answer.
  kFrame,
  // Behind a mark that opens a single call.
  kCall,
  // With the first byte of a further call in the same frame.
  kNext,
};

struct ToolMark {
  enum class Use : uint8_t {
    // Opens a frame or a call wherever it stands.
    kOpen,
    // The same at the beginning of the answer and behind reasoning.
    kOpenFirst,
    // The same there and behind a call.
    kOpenInLead,
    // Left out behind a call.
    kClose,
  };
  absl::string_view text;
  Use use = Use::kOpen;
  CallEntry entry = CallEntry::kFrame;
};

// Of formats that write each argument between tags, as in <parameter=city>Paris</parameter>.
struct TagForm {
  // Where a frame holds calls with marks of their own, else empty.
  absl::string_view call_open;
  // Any of these ends the name. It is taken, but for '<', which begins what follows.
  absl::string_view name_stops;
  // What has to follow the name's end.
  absl::string_view name_tail;
  absl::string_view parameter_open;
  char key_stop;
  // What has to follow a key before its value; a blank stands for any space.
  absl::string_view key_tail;
  // Attributes follow the key, up to '>'; string="true" or "false" among them tells the type.
  bool attributes;
  absl::string_view value_close;
  absl::string_view call_close;
  // One line feed behind the key and one in front of the value's end are not the value's.
  bool lines;
};

struct ToolFormat {
  enum class Family : uint8_t { kJson, kDeepSeek, kKimi, kMistral, kTags, kPythonic, kHarmony };

  absl::string_view name;
  Family family;
  absl::Span<const ToolMark> marks;
  // Bytes with which a frame may begin without a mark where the answer begins.
  absl::string_view bare;
  const TagForm* tags = nullptr;
};

struct ReasoningFormat {
  absl::string_view name;
  // Any of them, each with the same effect.
  absl::Span<const absl::string_view> opens;
  absl::Span<const absl::string_view> closes;
  // Opens reasoning wherever it stands, not at the beginning and behind calls alone.
  bool anywhere;
};

inline constexpr absl::string_view kHarmony = "harmony";

absl::Span<const ToolFormat> ToolFormats();
absl::Span<const ReasoningFormat> ReasoningFormats();
// nullptr when there is none of that name.
const ToolFormat* FindToolFormat(absl::string_view name);
const ReasoningFormat* FindReasoningFormat(absl::string_view name);

}  // namespace weft::router
