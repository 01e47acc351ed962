// Puts an answer on standard output while it arrives. Main thread, one for each answer.

#pragma once

#include "absl/strings/string_view.h"
#include "deploy/launcher/chat/markdown.h"
#include "deploy/launcher/chat/terminal_text.h"

namespace weft::launcher {

enum class AnswerForm {
  // As it is: for pipes and files.
  kBytes,
  // Without what a terminal would obey.
  kText,
  // And with Markdown as styles.
  kMarkdown,
};

class AnswerPrinter {
 public:
  explicit AnswerPrinter(AnswerForm form) : form_(form) {}

  // False when standard output takes no more.
  bool Add(absl::string_view text);
  // Ends the line that is being written, so that a note can stand on one of its own; an answer in
  // bytes is left alone.
  void BreakLine();
  // The rest, and the end of the line where the answer did not end it.
  bool Finish();

 private:
  bool Write(absl::string_view text);

  const AnswerForm form_;
  TerminalText terminal_text_;
  Markdown markdown_;
  bool line_ended_ = true;
};

}  // namespace weft::launcher
