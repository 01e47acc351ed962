// weft chat in a terminal: prompt, commands, answers, until its user ends it. Main thread.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "deploy/launcher/chat/history.h"
#include "deploy/launcher/chat/input.h"
#include "deploy/launcher/chat/line_editor.h"
#include "deploy/launcher/chat/talk.h"
#include "deploy/launcher/chat/terminal.h"

namespace weft::launcher {

// A sentence of ours between an answer's lines.
std::string NoteLine(absl::string_view text, bool styled);

class Session {
 public:
  // All outlive it. `history` null = none is kept. `stats`: a line of them behind each answer.
  Session(Talk& talk, LineEditor& editor, const TerminalMode& terminal, const History* history,
          bool styled, bool stats);

  // Until /exit or Ctrl-D. UNAVAILABLE when the terminal is gone.
  absl::Status Run();

 private:
  // False ends the conversation.
  bool Take(const Input& input);
  void LoadHistory();
  void Remember(absl::string_view typed);
  void Set(absl::string_view words);
  void System(absl::string_view text);
  void Save(const std::string& path);
  void Load(const std::string& path);
  void AfterAnswer(const absl::Status& status);
  void Say(absl::string_view text) const;

  Talk& talk_;
  LineEditor& editor_;
  const TerminalMode& terminal_;
  const History* history_;
  const bool styled_;
  const bool stats_;
  // May be overwritten.
  std::string saved_path_;
};

}  // namespace weft::launcher
