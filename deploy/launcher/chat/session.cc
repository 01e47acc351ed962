#include "deploy/launcher/chat/session.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/small_file.h"
#include "deploy/launcher/chat/terminal_text.h"

namespace weft::launcher {
namespace {

constexpr char kPrompt[] = "> ";
constexpr size_t kSavedBytesMax = 64u << 20;

std::string WithHome(const std::string& path) {
  const char* const home = std::getenv("HOME");
  if (home == nullptr || !absl::StartsWith(path, "~/")) return path;
  return absl::StrCat(home, path.substr(1));
}

}  // namespace

std::string NoteLine(absl::string_view text, bool styled) {
  const std::string safe = ForTerminal(text);
  return styled ? absl::StrCat("\x1b[2m[", safe, "]\x1b[22m\n") : absl::StrCat("[", safe, "]\n");
}

Session::Session(Talk& talk, LineEditor& editor, const TerminalMode& terminal,
                 const History* history, bool styled, bool stats)
    : talk_(talk),
      editor_(editor),
      terminal_(terminal),
      history_(history),
      styled_(styled),
      stats_(stats) {}

void Session::Say(absl::string_view text) const { WriteOut(NoteLine(text, styled_)); }

absl::Status Session::Run() {
  editor_.SetWords(CompletedWords());
  LoadHistory();
  WriteOut(absl::StrCat(ForTerminal(talk_.facts().name), ", ", talk_.facts().context_tokens,
                        " tokens of context\n/help lists commands, Ctrl-D ends.\n"));
  while (true) {
    absl::StatusOr<LineEditor::Line> line = editor_.Read(kPrompt);
    terminal_.MarkPastes();
    if (absl::IsInvalidArgument(line.status())) {
      Say(line.status().message());
      continue;
    }
    if (!line.ok()) return line.status();
    if (line->kind == LineEditor::Line::Kind::kEnd) return absl::OkStatus();
    if (line->kind == LineEditor::Line::Kind::kInterrupted) continue;
    Remember(absl::StripTrailingAsciiWhitespace(line->text));
    const absl::StatusOr<Input> input = ParseInput(line->text);
    if (!input.ok()) {
      Say(input.status().message());
    } else if (!Take(*input)) {
      return absl::OkStatus();
    }
  }
}

bool Session::Take(const Input& input) {
  switch (input.kind) {
    case Input::Kind::kNothing:
      break;
    case Input::Kind::kMessage:
      AfterAnswer(talk_.Ask(input.text));
      break;
    case Input::Kind::kRetry:
      AfterAnswer(talk_.Retry());
      break;
    case Input::Kind::kSet:
      Set(input.text);
      break;
    case Input::Kind::kSystem:
      System(input.text);
      break;
    case Input::Kind::kStats:
      WriteOut(talk_.stats().Report(talk_.facts().context_tokens));
      break;
    case Input::Kind::kSave:
      Save(WithHome(input.text));
      break;
    case Input::Kind::kLoad:
      Load(WithHome(input.text));
      break;
    case Input::Kind::kUndo:
      if (const auto question = talk_.conversation().Undo()) {
        talk_.stats().ForgetContext();
        Say(absl::StrCat("taken back: ", absl::string_view(*question).substr(0, 60),
                         question->size() > 60 ? "..." : ""));
      } else {
        Say("there is nothing to take back");
      }
      break;
    case Input::Kind::kClear:
      talk_.conversation().Clear();
      talk_.stats().ForgetContext();
      Say("a new conversation");
      break;
    case Input::Kind::kHelp:
      WriteOut(HelpText());
      break;
    case Input::Kind::kExit:
      return false;
  }
  return true;
}

void Session::AfterAnswer(const absl::Status& status) {
  if (!status.ok()) {
    Say(absl::StrCat(status.message(), absl::IsNotFound(status) ? "" : " (/retry asks again)"));
    return;
  }
  switch (talk_.end()) {
    case Answer::End::kStopped:
      Say("stopped");
      break;
    case Answer::End::kLength:
      Say("the answer ends at its limit of tokens");
      break;
    default:
      if (stats_) Say(talk_.stats().LastLine());
  }
}

void Session::Set(absl::string_view words) {
  const size_t blank = words.find_first_of(" \t\n=");
  const absl::string_view name = words.substr(0, blank);
  const absl::string_view value =
      blank == absl::string_view::npos ? "" : absl::StripAsciiWhitespace(words.substr(blank + 1));
  if (name.empty()) {
    WriteOut(talk_.settings().Show());
    return;
  }
  if (!value.empty()) {
    if (const absl::Status status = talk_.settings().Set(name, value); !status.ok()) {
      Say(status.message());
      return;
    }
  }
  if (const auto shown = talk_.settings().Show(name)) {
    WriteOut(*shown);
  } else {
    Say(talk_.settings().Set(name, "default").message());
  }
}

void Session::System(absl::string_view text) {
  if (text == "-") {
    talk_.conversation().SetSystem("");
  } else if (!text.empty()) {
    talk_.conversation().SetSystem(text);
  }
  const std::string& system = talk_.conversation().system();
  Say(system.empty() ? "no system message: the model's own" : absl::StrCat("system: ", system));
}

void Session::Save(const std::string& path) {
  if (path != saved_path_ && access(path.c_str(), F_OK) == 0) {
    Say(absl::StrCat(path, " is there already: name another file"));
    return;
  }
  const Conversation& conversation = talk_.conversation();
  const absl::Status status = WriteFileAtomically(
      path, absl::EndsWith(path, ".md") ? conversation.ToMarkdown()
                                        : conversation.ToJson(talk_.facts().name));
  if (status.ok()) saved_path_ = path;
  Say(status.ok() ? absl::StrCat(conversation.exchanges(), " exchanges are in ", path)
                  : std::string(status.message()));
}

void Session::Load(const std::string& path) {
  absl::StatusOr<std::string> text = ReadSmallFile(path, kSavedBytesMax);
  absl::Status status = text.status();
  if (status.ok()) {
    status = talk_.conversation().FromJson(*text);
    if (!status.ok())
      status = absl::InvalidArgumentError(absl::StrCat(path, " ", status.message()));
  }
  if (status.ok()) {
    saved_path_ = path;
    talk_.stats().ForgetContext();
  }
  Say(status.ok() ? absl::StrCat(talk_.conversation().exchanges(), " exchanges of ", path)
                  : std::string(status.message()));
}

void Session::LoadHistory() {
  if (history_ == nullptr) return;
  const absl::StatusOr<std::vector<std::string>> entries = history_->Load();
  if (!entries.ok()) {
    Say(absl::StrCat("the history: ", entries.status().message()));
    history_ = nullptr;
    return;
  }
  for (const std::string& entry : *entries) editor_.AddHistory(entry);
}

void Session::Remember(absl::string_view typed) {
  if (typed.empty()) return;
  editor_.AddHistory(typed);
  if (history_ == nullptr) return;
  if (const absl::Status status = history_->Append(typed); !status.ok()) {
    Say(absl::StrCat("the history: ", status.message()));
    history_ = nullptr;
  }
}

}  // namespace weft::launcher
