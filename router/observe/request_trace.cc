#include "router/observe/request_trace.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace weft::router {
namespace {

// version-trace-parent-flags
constexpr size_t kVersionLength = 2;
constexpr size_t kTraceAt = 3;
constexpr size_t kParentAt = 36;
constexpr size_t kFlagsAt = 53;
constexpr size_t kLength = 55;

template <typename Id>
bool ReadId(absl::string_view text, Id* id) {
  const std::string bytes = absl::HexStringToBytes(text);
  std::copy(bytes.begin(), bytes.end(), id->begin());
  return std::any_of(id->begin(), id->end(), [](uint8_t byte) { return byte != 0; });
}

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return absl::ascii_isxdigit(byte) && !absl::ascii_isupper(byte);
  });
}

}  // namespace

std::optional<TraceParent> ParseTraceparent(absl::string_view text) {
  const absl::string_view version = text.substr(0, kVersionLength);
  if (text.size() < kLength || !IsHex(version) || version == "ff") return std::nullopt;
  // Later versions may have more behind a dash.
  if (text.size() > kLength && (version == "00" || text[kLength] != '-')) return std::nullopt;
  for (const size_t dash : {kTraceAt, kParentAt, kFlagsAt}) {
    if (text[dash - 1] != '-') return std::nullopt;
  }
  const absl::string_view trace = text.substr(kTraceAt, kParentAt - 1 - kTraceAt);
  const absl::string_view parent = text.substr(kParentAt, kFlagsAt - 1 - kParentAt);
  const absl::string_view flags = text.substr(kFlagsAt, 2);
  if (!IsHex(trace) || !IsHex(parent) || !IsHex(flags)) return std::nullopt;
  TraceParent out;
  if (!ReadId(trace, &out.trace_id) || !ReadId(parent, &out.span_id)) return std::nullopt;
  out.sampled = (absl::HexStringToBytes(flags)[0] & 1) != 0;
  return out;
}

std::string TraceIdText(const TraceId& id) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(id.data()), id.size()));
}

}  // namespace weft::router
