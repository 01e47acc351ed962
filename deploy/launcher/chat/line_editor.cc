#include "deploy/launcher/chat/line_editor.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "deploy/launcher/chat/history.h"
#include "deploy/launcher/chat/input.h"

namespace weft::launcher {
namespace {

WeftLineSlice Slice(absl::string_view text) { return {text.data(), text.size()}; }

bool IsComplete(WeftLineSlice text) { return IsCompleteInput({text.data, text.size}); }

}  // namespace

absl::StatusOr<std::unique_ptr<LineEditor>> LineEditor::Create(bool styled) {
  WeftLineEditor* const editor = weft_line_editor_new(History::kEntriesMax, styled, &IsComplete);
  if (editor == nullptr) return absl::UnavailableError("the terminal cannot be used");
  return std::unique_ptr<LineEditor>(new LineEditor(editor));
}

void LineEditor::SetWords(const std::vector<std::string>& words) {
  for (const std::string& word : words) weft_line_editor_add_word(editor_.get(), Slice(word));
}

void LineEditor::AddHistory(absl::string_view entry) {
  weft_line_editor_add_history(editor_.get(), Slice(entry));
}

absl::StatusOr<LineEditor::Line> LineEditor::Read(absl::string_view prompt) {
  WeftLineSlice slice = {};
  switch (weft_line_editor_read(editor_.get(), Slice(prompt), &slice)) {
    case kWeftLineInterrupted:
      return Line{Line::Kind::kInterrupted, ""};
    case kWeftLineEnd:
      return Line{Line::Kind::kEnd, ""};
    case kWeftLineNotText:
      return absl::InvalidArgumentError("what was typed is no UTF-8; the line is gone");
    case kWeftLineFailed:
      return absl::UnavailableError(absl::StrCat(
          "the terminal: ",
          slice.size == 0 ? "the line editor failed" : absl::string_view(slice.data, slice.size)));
    case kWeftLineRead:
      break;
  }
  std::string text(slice.data, slice.size);
  const auto is_control = [](char byte) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(byte)) && byte != '\n' && byte != '\t';
  };
  text.erase(std::remove_if(text.begin(), text.end(), is_control), text.end());
  return Line{Line::Kind::kText, std::move(text)};
}

}  // namespace weft::launcher
