// weft chat: a conversation in the terminal over gRPC. Keeps the history, prints tokens as they
// come. In a terminal Ctrl-C ends the answer that runs, and an answer that fails does not end the
// conversation.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/flags.h"
#include "common/status.h"
#include "deploy/launcher/client_access.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/interrupt.h"
#include "deploy/launcher/run_command.h"
#include "weft/v1/generation.grpc.pb.h"

namespace weft::launcher {
namespace {

// A server that is there answers sooner; one that starts is worth a line.
constexpr absl::Duration kSilentWait = absl::Seconds(1);

struct ChatOptions {
  AccessFlags access = {"127.0.0.1:8081", false, "", ""};
  std::string system;
  std::string prompt;
  uint32_t max_tokens = 512;
  float temperature = 0.0f;
  uint32_t timeout_s = 300;
  uint32_t connect_timeout_s = 10;
  bool stats = false;
};

class Chat {
 public:
  Chat(const ChatOptions& options, ServerAccess access)
      : options_(options),
        access_(std::move(access)),
        channel_(ConnectGrpc(access_)),
        stub_(v1::TextGeneration::NewStub(channel_)) {
    if (!options_.system.empty()) Add("system", options_.system);
  }

  absl::Status Connect() {
    const absl::Duration most = absl::Seconds(options_.connect_timeout_s);
    const absl::Time begin = absl::Now();
    const auto connected = [this, begin](absl::Duration wait) {
      return channel_->WaitForConnected(absl::ToChronoTime(begin + wait));
    };
    if (connected(std::min(most, kSilentWait))) return absl::OkStatus();
    if (most > kSilentWait) {
      std::fputs(absl::StrFormat("waiting for %s, up to %d s (--connect-timeout-s)\n",
                                 access_.address, options_.connect_timeout_s)
                     .c_str(),
                 stderr);
      if (connected(most)) return absl::OkStatus();
    }
    return NoGrpcServer(access_);
  }

  // Sends `text` and prints the answer. Question and answer become part of the history, also when
  // `interrupt` cut the answer short; after an error neither does. `interrupt` may be null.
  absl::Status Turn(const std::string& text, Interrupt* interrupt) {
    Add("user", text);
    grpc::ClientContext context;
    AddApiKey(access_, &context);
    if (interrupt != nullptr) interrupt->Begin(&context);
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(options_.timeout_s)));
    const absl::Time start = absl::Now();
    absl::Time first = absl::InfiniteFuture();
    auto reader = stub_->Generate(&context, request_);
    v1::GenerateResponse response;
    std::string answer;
    uint32_t tokens = 0;
    while (reader->Read(&response)) {
      if (first == absl::InfiniteFuture() && response.has_output()) first = absl::Now();
      std::fputs(response.output().text().c_str(), stdout);
      std::fflush(stdout);
      answer += response.output().text();
      if (response.has_finish_info()) tokens = response.finish_info().output_tokens();
    }
    const grpc::Status status = reader->Finish();
    if (interrupt != nullptr) interrupt->End();
    std::fputs("\n", stdout);
    std::fflush(stdout);
    const bool cut_short = status.error_code() == grpc::StatusCode::CANCELLED && !answer.empty();
    if (!status.ok() && !cut_short) {
      request_.mutable_chat()->mutable_messages()->RemoveLast();
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
    }
    Add("assistant", answer);
    if (options_.stats && !cut_short) PrintStats(start, first, tokens);
    return absl::OkStatus();
  }

 private:
  void Add(const std::string& role, const std::string& content) {
    v1::ChatMessage* message = request_.mutable_chat()->add_messages();
    message->set_role(role);
    message->set_content(content);
    request_.mutable_sampling()->set_temperature(options_.temperature);
    request_.mutable_stopping()->set_max_tokens(options_.max_tokens);
    request_.mutable_response()->set_omit_token_ids(true);
  }

  static void PrintStats(absl::Time start, absl::Time first, uint32_t tokens) {
    const double rest_s = absl::ToDoubleSeconds(absl::Now() - first);
    std::fputs(absl::StrFormat("[%d tokens, first after %.0f ms, then %.1f tokens/s]\n", tokens,
                               absl::ToDoubleMilliseconds(first - start),
                               tokens > 1 && rest_s > 0 ? (tokens - 1) / rest_s : 0.0)
                   .c_str(),
               stderr);
  }

  const ChatOptions options_;
  const ServerAccess access_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::TextGeneration::Stub> stub_;
  v1::GenerateRequest request_;
};

void Declare(Flags& flags, ChatOptions* options) {
  DeclareAccessFlags(flags, "gRPC address of the server, host:port or https://host:port",
                     &options->access);
  flags.Add("system", &options->system, "System message; empty = the chat template's own");
  flags.Add("prompt", &options->prompt, "Ask this one thing and exit");
  flags.Add("max-tokens", &options->max_tokens, "Tokens of an answer at most");
  flags.Add("temperature", &options->temperature, "0 = always the likeliest token; 0 .. 100");
  flags.Add("timeout-s", &options->timeout_s, "Seconds an answer may take");
  flags.Add("connect-timeout-s", &options->connect_timeout_s, "Seconds to wait for the server");
  flags.AddSwitch("stats", &options->stats, "Print tokens and times after each answer");
}

// Messages from a file or a pipe, one a line; the first error ends it.
absl::Status ConverseByLines(Chat& chat) {
  std::string line;
  while (std::getline(std::cin, line) && !absl::StripAsciiWhitespace(line).empty()) {
    if (absl::Status status = chat.Turn(line, nullptr); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ConverseInTerminal(Chat& chat, Interrupt& interrupt) {
  std::fputs("Type a message; Ctrl-C ends an answer, an empty line or Ctrl-D the conversation.\n",
             stdout);
  std::string line;
  while (true) {
    std::fputs("> ", stdout);
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) {
      std::fputs("\n", stdout);  // Ctrl-D leaves the cursor behind the prompt
      return absl::OkStatus();
    }
    if (absl::StripAsciiWhitespace(line).empty()) return absl::OkStatus();
    const absl::Status status = chat.Turn(line, &interrupt);
    if (!status.ok() && !absl::IsCancelled(status)) {
      std::fprintf(stderr, "weft chat: %s\n", std::string(status.message()).c_str());
    }
  }
}

absl::Status Converse(const ChatOptions& options) {
  WEFT_ASSIGN_OR_RETURN(ServerAccess access, ResolveAccess(options.access));
  const bool terminal = options.prompt.empty() && isatty(STDIN_FILENO) != 0;
  // Before the channel, whose threads must inherit the signal mask.
  std::unique_ptr<Interrupt> interrupt;
  if (terminal) {
    WEFT_ASSIGN_OR_RETURN(interrupt, Interrupt::Create());
  }
  Chat chat(options, std::move(access));
  WEFT_RETURN_IF_ERROR(chat.Connect());
  if (!options.prompt.empty()) return chat.Turn(options.prompt, nullptr);
  return terminal ? ConverseInTerminal(chat, *interrupt) : ConverseByLines(chat);
}

}  // namespace

int RunChat(int argc, char** argv) {
  ChatOptions options;
  Flags flags("weft chat", "Talks to a server in the terminal.");
  Declare(flags, &options);
  return RunCommand(flags, argc, argv, [&options] { return Converse(options); });
}

}  // namespace weft::launcher
