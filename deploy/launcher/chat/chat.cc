// weft chat: talks to a server. In a terminal it is a conversation; with a question in the
// arguments or on standard input it answers once and ends.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/check.h"
#include "common/flags.h"
#include "common/status.h"
#include "deploy/launcher/chat/grpc_chat_server.h"
#include "deploy/launcher/chat/history.h"
#include "deploy/launcher/chat/interrupt.h"
#include "deploy/launcher/chat/line_editor.h"
#include "deploy/launcher/chat/session.h"
#include "deploy/launcher/chat/talk.h"
#include "deploy/launcher/chat/terminal.h"
#include "deploy/launcher/chat/terminal_text.h"
#include "deploy/launcher/client_access.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/run_command.h"

namespace weft::launcher {
namespace {

// Of standard input; a message may be shorter still.
constexpr size_t kInputBytesMax = 16u << 20;

struct ChatOptions {
  AccessFlags access = {"127.0.0.1:8081", false, "", ""};
  std::string question;
  std::string prompt;
  std::string system;
  std::string model;
  // By name of a setting; empty = the server's default.
  std::map<std::string, std::string> settings = {{"temperature", "0"}};
  uint32_t timeout_s = 300;
  uint32_t connect_timeout_s = 10;
  uint32_t reconnect_timeout_s = 60;
  bool stats = false;
  bool plain = false;
  bool no_history = false;
};

void DeclareSettings(Flags& flags, ChatOptions* options) {
  for (const Settings::Info& info : Settings::All()) {
    const std::string name = info.name;
    flags.Add(absl::StrReplaceAll(name, {{"_", "-"}}), &options->settings[name],
              absl::StrCat(info.help, "; ", info.range), [name](const std::string& text) {
                return std::string(Settings().Set(name, text).message());
              });
  }
}

void Declare(Flags& flags, ChatOptions* options) {
  flags.AddArgument("QUESTION", &options->question,
                    "Answer this once and end; what standard input has is put behind it");
  DeclareAccessFlags(flags, "gRPC address of the server, host:port or https://host:port",
                     &options->access);
  flags.Add("url", &options->access.connect, "The same as --connect");
  flags.Add("model", &options->model, "Model to ask for by name; empty = the one that is served");
  flags.Add("system", &options->system, "System message; empty = the chat template's own");
  flags.Add("prompt", &options->prompt, "As QUESTION, but leaves standard input alone");
  flags.Add("timeout-s", &options->timeout_s, "Seconds an answer may take");
  flags.Add("connect-timeout-s", &options->connect_timeout_s, "Seconds to wait for the server");
  flags.Add("reconnect-timeout-s", &options->reconnect_timeout_s,
            "Seconds to wait for a server that went away during an answer");
  flags.AddSwitch("stats", &options->stats, "Print tokens and times after each answer");
  flags.AddSwitch("plain", &options->plain,
                  "No styles, and Markdown as it was written; as with NO_COLOR set");
  flags.AddSwitch("no-history", &options->no_history, "Keep no history of what is typed");
  flags.Group("How answers are drawn");
  DeclareSettings(flags, options);
}

// Standard input is something to read to its end: a pipe, a file. Not a device, which may never
// end, such as one that a service manager left there.
bool InputIsText() {
  struct stat info {};
  return fstat(STDIN_FILENO, &info) == 0 &&
         (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode) || S_ISSOCK(info.st_mode));
}

absl::StatusOr<std::string> ReadInput() {
  std::string text;
  char buffer[1 << 14];
  while (true) {
    const size_t bytes = std::fread(buffer, 1, sizeof buffer, stdin);
    text.append(buffer, bytes);
    if (text.size() > kInputBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("standard input has more than ", kInputBytesMax, " bytes"));
    }
    if (bytes < sizeof buffer) break;
  }
  if (std::ferror(stdin) != 0) return absl::InternalError("standard input cannot be read");
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

// What to answer once; empty = nothing, there is a conversation to begin.
absl::StatusOr<std::string> Question(const ChatOptions& options, bool conversation) {
  if (!options.prompt.empty() && !options.question.empty()) {
    return absl::InvalidArgumentError("--prompt and QUESTION: give one of them");
  }
  if (!options.prompt.empty()) return options.prompt;
  if (conversation || (!options.question.empty() && !InputIsText())) return options.question;
  if (isatty(STDIN_FILENO) != 0) {
    std::fputs("the message, and Ctrl-D behind it:\n", stderr);
  }
  WEFT_ASSIGN_OR_RETURN(const std::string input, ReadInput());
  if (options.question.empty() && input.empty()) {
    return absl::InvalidArgumentError(
        "nothing to answer: standard input is empty; weft chat \"question\", or weft chat alone "
        "in a terminal");
  }
  if (options.question.empty() || input.empty()) return absl::StrCat(options.question, input);
  return absl::StrCat(options.question, "\n\n", input);
}

AnswerLimits LimitsOf(const ChatOptions& options) {
  AnswerLimits limits;
  limits.answer = absl::Seconds(options.timeout_s);
  limits.reconnect = absl::Seconds(options.reconnect_timeout_s);
  return limits;
}

absl::StatusOr<ModelFacts> Connect(const ChatOptions& options, ChatServer& server, Stop& stop) {
  WEFT_RETURN_IF_ERROR(server.Connect(absl::Seconds(options.connect_timeout_s)));
  return server.Facts(stop);
}

// Flags have been checked.
void Begin(const ChatOptions& options, Talk* talk) {
  talk->conversation().SetSystem(options.system);
  for (const auto& [name, text] : options.settings) {
    if (!text.empty()) WEFT_CHECK(talk->settings().Set(name, text).ok());
  }
}

absl::Status AnswerOnce(const ChatOptions& options, ServerAccess access,
                        const std::string& question) {
  WEFT_RETURN_IF_ERROR(Talk::CheckMessage(question));
  Stop stop;
  std::unique_ptr<Interrupt> interrupt;
  if (isatty(STDOUT_FILENO) != 0) {
    WEFT_ASSIGN_OR_RETURN(interrupt, Interrupt::Create(/*terminal=*/nullptr, stop));
  }
  const auto server = MakeGrpcChatServer(std::move(access), options.model);
  WEFT_ASSIGN_OR_RETURN(ModelFacts facts, Connect(options, *server, stop));
  const AnswerForm form = isatty(STDOUT_FILENO) == 0                    ? AnswerForm::kBytes
                          : options.plain || !StandardOutputHasStyles() ? AnswerForm::kText
                                                                        : AnswerForm::kMarkdown;
  Talk talk(*server, std::move(facts), LimitsOf(options), form, stop, [](absl::string_view text) {
    std::fputs(absl::StrCat("weft chat: ", text, "\n").c_str(), stderr);
  });
  Begin(options, &talk);
  WEFT_RETURN_IF_ERROR(talk.Ask(question));
  if (options.stats) {
    std::fputs(absl::StrCat("[", talk.stats().LastLine(), "]\n").c_str(), stderr);
  }
  return absl::OkStatus();
}

absl::Status Converse(const ChatOptions& options, ServerAccess access) {
  Stop stop;
  const bool styled = !options.plain && StandardOutputHasStyles();
  WEFT_ASSIGN_OR_RETURN(const auto terminal, TerminalMode::Begin());
  // Before the channel, whose threads must inherit the signal mask.
  WEFT_ASSIGN_OR_RETURN(const auto interrupt, Interrupt::Create(terminal.get(), stop));
  const auto server = MakeGrpcChatServer(std::move(access), options.model);
  WEFT_ASSIGN_OR_RETURN(ModelFacts facts, Connect(options, *server, stop));
  WEFT_ASSIGN_OR_RETURN(const auto editor, LineEditor::Create(styled));
  Talk talk(*server, std::move(facts), LimitsOf(options),
            styled ? AnswerForm::kMarkdown : AnswerForm::kText, stop,
            [styled](absl::string_view text) { WriteOut(NoteLine(text, styled)); });
  Begin(options, &talk);
  std::unique_ptr<History> history;
  if (const auto path = History::DefaultPath(); path.ok() && !options.no_history) {
    history = std::make_unique<History>(*path);
  }
  interrupt->Converse();
  return Session(talk, *editor, *terminal, history.get(), styled, options.stats).Run();
}

absl::Status Run(const ChatOptions& options) {
  WEFT_ASSIGN_OR_RETURN(ServerAccess access, ResolveAccess(options.access));
  const bool conversation = options.prompt.empty() && options.question.empty() &&
                            isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  WEFT_ASSIGN_OR_RETURN(const std::string question, Question(options, conversation));
  const absl::Status status = conversation ? Converse(options, std::move(access))
                                           : AnswerOnce(options, std::move(access), question);
  // The server's words may be in it.
  return absl::Status(status.code(), ForTerminal(status.message()));
}

}  // namespace

int RunChat(int argc, char** argv) {
  ChatOptions options;
  Flags flags("weft chat",
              "Talks to a server: a conversation in a terminal, one answer for a question.");
  Declare(flags, &options);
  return RunCommand(flags, argc, argv, [&options] { return Run(options); });
}

}  // namespace weft::launcher
