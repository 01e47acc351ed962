// Fuzz target: a chat template of any bytes renders conversations of any bytes, in a process of its
// own as in the router. It may end that process by memory, stack or time; it must not fail inside
// the library, nor let a user's string become a control token.
//
// An input is the template, then roles and contents in turn, with a zero byte between. The worker
// is forked for each input; its coverage counters lie in memory that it shares with the fuzzer.

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "router/chat_prompt.h"
#include "router/text/chat_marks.h"
#include "router/text/chat_values.h"
#include "router/text/ffi_text.h"
#include "router/text/template_channel.h"
#include "router/text/template_worker.h"
#include "router/text/tokenizer.h"
#include "tests/support/coverage_counters.h"

extern "C" {
int __asan_report_present() __attribute__((weak));
void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

// An allocation that fails is for the template engine to answer, as in the router's workers.
const char* __asan_default_options() { return "allocator_may_return_null=1"; }
}

namespace weft::router {
namespace {

constexpr uint32_t kFuel = 20'000;
constexpr uint32_t kOutputBytesMax = 64u << 10;
constexpr uint32_t kCpuMs = 1000;
constexpr rlim_t kMemoryBytes = 256u << 20;
constexpr size_t kMessagesMax = 4;
// Of minijinja 3.0.5, which takes the first of nothing for [][::-1]; the call fails alone.
constexpr absl::string_view kKnownPanic = "index out of bounds: the len is 0 but the index is 0";

const Tokenizer& TheTokenizer() {
  static const auto tokenizer = Tokenizer::FromModel(WEFT_TEXT_TEST_DIR "/models/qwen2");
  WEFT_CHECK_MSG(tokenizer.ok(), tokenizer.status().ToString());
  return **tokenizer;
}

size_t DataBytes() {
  size_t pages[6] = {};
  FILE* const file = fopen("/proc/self/statm", "r");
  WEFT_CHECK(file != nullptr);
  for (size_t& value : pages) WEFT_CHECK_EQ(fscanf(file, "%zu", &value), 1);
  fclose(file);
  return pages[5] * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// A worker as the template server forks it, and the router's end of its socket.
class Worker {
 public:
  Worker() {
    int sockets[2];
    WEFT_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    pid_ = fork();
    WEFT_CHECK_GE(pid_, 0);
    if (pid_ == 0) {
      close(sockets[0]);
      Serve(sockets[1]);
    }
    close(sockets[1]);
    socket_ = sockets[0];
  }
  ~Worker() {
    close(socket_);
    int status = 0;
    pid_t ended = -1;
    do {
      ended = waitpid(pid_, &status, 0);
    } while (ended < 0 && errno == EINTR);  // libFuzzer's clock is a signal
    WEFT_CHECK_EQ(ended, pid_);
    // A signal is the end that a hostile template may come to.
    WEFT_CHECK_MSG(WIFSIGNALED(status) || WEXITSTATUS(status) == 0,
                   "a sanitizer's report; WEFT_FUZZ_WORKER_STDERR=1 shows it");
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // What the worker says to `request`, its status and text; nothing when it has ended.
  std::optional<std::pair<uint32_t, std::string>> Ask(const std::string& request) {
    const absl::Time deadline = absl::Now() + absl::Milliseconds(kCpuMs) + absl::Seconds(5);
    if (!SendFrame(socket_, request, deadline).ok()) return Kill();
    const auto reply = ReceiveFrame(socket_, kTemplateReplyBytesMax, deadline);
    if (!reply.ok()) return Kill();
    absl::string_view fields = *reply;
    uint32_t status = 0;
    absl::string_view text;
    WEFT_CHECK(TakeNumber(&fields, &status) && TakeText(&fields, &text) && fields.empty());
    WEFT_CHECK_MSG(status != WEFT_TEXT_PANIC || text == kKnownPanic, std::string(text));
    return std::make_pair(status, std::string(text));
  }

 private:
  std::nullopt_t Kill() {
    kill(pid_, SIGKILL);
    return std::nullopt;
  }

  // A sanitizer dies of its own memory too, which is as good as a signal.
  static void OnDeath() {
    _exit(__asan_report_present != nullptr && __asan_report_present() != 0 ? 1 : 0);
  }

  [[noreturn]] static void Serve(int socket) {
    if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(&OnDeath);
    for (const int fatal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL}) signal(fatal, SIG_DFL);
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const rlim_t bytes = DataBytes() + kMemoryBytes;
    const rlimit memory = {bytes, bytes};
    setrlimit(RLIMIT_DATA, &memory);
    if (getenv("WEFT_FUZZ_WORKER_STDERR") == nullptr) close(2);
    RunTemplateWorker(socket, kCpuMs);
    _exit(0);
  }

  pid_t pid_ = -1;
  int socket_ = -1;
};

// What the strings make: roles and contents in turn; a content that is the JSON of an object is a
// tool, and further variables, as well.
ChatPrompt Prompt(const std::vector<std::string>& strings) {
  ChatPrompt prompt;
  for (size_t i = 0; i + 1 < strings.size(); i += 2) {
    ChatMessage message;
    message.role = strings[i];
    message.content = strings[i + 1];
    boost::json::error_code error;
    const boost::json::value json = boost::json::parse(message.content, error);
    if (!error && json.is_object()) {
      prompt.tools = absl::StrCat("[", message.content, "]");
      prompt.template_kwargs = message.content;
      message.tool_calls.push_back({"call", message.role, message.content});
    }
    prompt.messages.push_back(std::move(message));
  }
  return prompt;
}

// The request to render, or nothing when a string is refused.
std::optional<std::string> Request(const std::vector<std::string>& strings,
                                   const MarkedTemplate& marked) {
  for (const std::string& text : strings) {
    std::string with_marks;
    if (!AppendMarked(TheTokenizer(), text, &with_marks).ok()) return std::nullopt;
    WEFT_CHECK_EQ(Unmark(with_marks).text, text);
  }
  std::string request;
  AppendNumber(&request, kFuel);
  AppendNumber(&request, kOutputBytesMax);
  AppendNumber(&request, 0);
  const auto written =
      WriteVariables(Prompt(strings), {}, {&TheTokenizer(), &marked.words}, &request);
  if (!written.ok()) return std::nullopt;
  return request;
}

// All control tokens of this model begin with '<'.
bool WritesControlTokens(absl::string_view source) {
  return source.find_first_of("<\\&") != absl::string_view::npos ||
         absl::StrContains(source, "format");
}

void CheckRendered(const std::string& text, bool may_have_control_tokens) {
  WEFT_CHECK_LE(text.size(), kOutputBytesMax);
  const RenderedChat chat = Unmark(text);
  for (size_t i = 0; i < chat.breaks.size(); ++i) {
    WEFT_CHECK(i == 0 || chat.breaks[i - 1] < chat.breaks[i]);
    WEFT_CHECK_LE(chat.breaks[i], chat.text.size());
  }
  Tokenizer::EncodeOptions options;
  options.breaks = chat.breaks;
  const auto encoding = TheTokenizer().Encode(chat.text, options);
  WEFT_CHECK_MSG(encoding.ok(), encoding.status().ToString());
  if (may_have_control_tokens) return;
  for (const TokenId id : encoding->ids) WEFT_CHECK(!TheTokenizer().IsSpecial(id));
}

void Run(absl::string_view input) {
  std::vector<std::string> strings = absl::StrSplit(input, '\0');
  const std::string source = std::move(strings.front());
  strings.erase(strings.begin());
  strings.resize(std::min(strings.size(), 2 * kMessagesMax) / 2 * 2);
  const auto marked = MarkTemplate(TheTokenizer(), source);
  if (!marked.ok()) return;
  const std::optional<std::string> request = Request(strings, *marked);
  if (!request.has_value()) return;
  std::string compile;
  for (const absl::string_view text :
       {absl::string_view(marked->source), absl::string_view("bos"), absl::string_view("eos")}) {
    AppendText(&compile, text);
  }
  Worker worker;
  const auto compiled = worker.Ask(compile);
  if (!compiled.has_value() || compiled->first != WEFT_TEXT_OK) return;
  const auto rendered = worker.Ask(*request);
  if (!rendered.has_value() || rendered->first != WEFT_TEXT_OK) return;
  CheckRendered(rendered->second, WritesControlTokens(source));
}

}  // namespace
}  // namespace weft::router

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  weft::test::ShareCoverageCounters();
  // libFuzzer takes a large allocation for a fault, in the workers too.
  static std::vector<char*> arguments(*argv, *argv + *argc);
  static char no_limit[] = "-malloc_limit_mb=1000000";
  arguments.insert(arguments.begin() + 1, no_limit);
  arguments.push_back(nullptr);
  *argv = arguments.data();
  ++*argc;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::router::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
