// Lines from a terminal, edited: cursor keys by character as it is seen (wide, combined), history,
// search, several lines, a paste as one piece. Where the terminal cannot move its cursor
// (TERM=dumb) lines come as they are. Main thread, which it keeps until a line is there.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/launcher/chat/line_editor_ffi.h"

namespace weft::launcher {

class LineEditor {
 public:
  struct Line {
    enum class Kind { kText, kInterrupted, kEnd } kind;
    std::string text;
  };

  // UNAVAILABLE when there is no terminal. `styled`: the prompt may be bold.
  static absl::StatusOr<std::unique_ptr<LineEditor>> Create(bool styled);

  // What Tab completes.
  void SetWords(const std::vector<std::string>& words);
  // For Up and Ctrl-R.
  void AddHistory(absl::string_view entry);
  // Control characters but line breaks and tabs are taken out. INVALID_ARGUMENT when what was typed
  // is no UTF-8: the next line may be. UNAVAILABLE when the terminal is gone.
  absl::StatusOr<Line> Read(absl::string_view prompt);

 private:
  struct Free {
    void operator()(WeftLineEditor* editor) const { weft_line_editor_free(editor); }
  };
  explicit LineEditor(WeftLineEditor* editor) : editor_(editor) {}

  const std::unique_ptr<WeftLineEditor, Free> editor_;
};

}  // namespace weft::launcher
