#include "deploy/launcher/chat/answer_printer.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "deploy/launcher/chat/terminal.h"

namespace weft::launcher {

bool AnswerPrinter::Write(absl::string_view text) {
  if (text.empty()) return true;
  line_ended_ = absl::EndsWith(text, "\n");
  return WriteOut(text);
}

bool AnswerPrinter::Add(absl::string_view text) {
  switch (form_) {
    case AnswerForm::kBytes:
      return Write(text);
    case AnswerForm::kText:
      return Write(terminal_text_.Add(text));
    case AnswerForm::kMarkdown:
      return Write(markdown_.Add(terminal_text_.Add(text)));
  }
  return false;
}

void AnswerPrinter::BreakLine() {
  if (!line_ended_ && form_ != AnswerForm::kBytes) Write("\n");
}

bool AnswerPrinter::Finish() {
  std::string rest = terminal_text_.Finish();
  if (form_ == AnswerForm::kMarkdown) rest = absl::StrCat(markdown_.Add(rest), markdown_.Finish());
  bool written = Write(rest);
  if (!line_ended_ && written) written = WriteOut("\n");
  return written;
}

}  // namespace weft::launcher
