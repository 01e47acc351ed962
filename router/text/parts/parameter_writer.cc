#include "router/text/parts/parameter_writer.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/limits.h"
#include "router/text/parts/json_text.h"
#include "router/text/parts/python_reader.h"

namespace weft::router {
namespace {

// JSON of a Python literal, empty of another text.
std::string JsonOfPython(absl::string_view text) {
  PythonReader reader;
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const ValueStep step = reader.Take(text[i], &out);
    if (step == ValueStep::kEnd) return i + 1 == text.size() ? out : std::string();
    if (step != ValueStep::kMore) return {};
  }
  // Numbers and words end with what follows them.
  return reader.Take(' ', &out) == ValueStep::kEndBefore ? out : std::string();
}

}  // namespace

void ParameterWriter::Begin(JsonTypes types, PartWriter* writer) {
  *this = ParameterWriter();
  types_ = types;
  if (types == kJsonString) {
    writer->Arguments("\"");
  } else {
    mode_ = Mode::kHeld;
  }
}

bool ParameterWriter::Take(absl::string_view text, PartWriter* writer) {
  std::string out;
  bool good = true;
  for (const char c : text) {
    if (!TakeByte(c, &out)) {
      good = false;
      break;
    }
  }
  writer->Arguments(out);
  return good;
}

bool ParameterWriter::TakeByte(char c, std::string* out) {
  if (mode_ == Mode::kString) {
    AppendJsonByte(c, out);
    return true;
  }
  if (json_ended_) {
    json_ = IsJsonSpace(c);
  } else if (json_) {
    const bool escape = scanner_.in_string() && static_cast<unsigned char>(c) < 0x20;
    const ValueStep step = scanner_.Take(c);
    json_ended_ = step == ValueStep::kEnd || step == ValueStep::kEndBefore;
    json_ = step != ValueStep::kBroken && (step != ValueStep::kEndBefore || IsJsonSpace(c));
    if (json_) {
      if (escape) {
        AppendJsonByte(c, &held_json_);
      } else if (step != ValueStep::kEndBefore) {
        held_json_.push_back(c);
      }
    }
  }
  if (mode_ == Mode::kJson) {
    out->append(held_json_);
    held_json_.clear();
    return json_;
  }
  held_.push_back(c);
  // Where only a string or null may be, anything but null is a string at once.
  const bool only_null = (types_ & ~(kJsonString | kJsonNull)) == 0;
  const bool may_be_python = (types_ & kJsonString) == 0;
  const bool string = (!json_ && !may_be_python) || (only_null && !absl::StartsWith("null", held_));
  if (string || (!json_ && held_.size() >= kToolCallHeldBytesMax)) {
    BecomeString(out);
  } else if (held_.size() >= kToolCallHeldBytesMax) {
    mode_ = Mode::kJson;
    out->append(held_json_);
    held_json_.clear();
    held_.clear();
  }
  return true;
}

void ParameterWriter::BecomeString(std::string* out) {
  mode_ = Mode::kString;
  out->push_back('"');
  AppendJsonBytes(held_, out);
  held_.clear();
  held_json_.clear();
}

void ParameterWriter::End(PartWriter* writer) {
  std::string out;
  if (mode_ == Mode::kHeld) {
    if (json_ && (json_ended_ || scanner_.CanEnd())) {
      const absl::string_view value = absl::StripAsciiWhitespace(held_json_);
      out.append(value.data(), value.size());
    } else {
      if ((types_ & kJsonString) == 0) out = JsonOfPython(absl::StripAsciiWhitespace(held_));
      if (out.empty()) BecomeString(&out);
    }
  }
  if (mode_ == Mode::kString) out.push_back('"');
  writer->Arguments(out);
}

void ParameterWriter::Cut(PartWriter* writer) {
  if (mode_ == Mode::kHeld && json_) writer->Arguments(absl::StripAsciiWhitespace(held_json_));
}

}  // namespace weft::router
