#include "tests/sim/router/runner.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/thread.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/spdlog.h"
#include "tests/sim/router/world.h"

namespace weft::router::sim {
namespace {

// A script that takes longer hangs. Virtual time costs nothing, so this is work.
constexpr unsigned kScriptSecondsMax = 120;

struct Shared {
  Counts counts;
  double seconds = 0;
};

// The script's time in lines of the log.
class TimeFlag : public spdlog::custom_flag_formatter {
 public:
  explicit TimeFlag(const World* world) : world_(world) {}
  void format(const spdlog::details::log_msg&, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const std::string time = std::to_string(world_->NowUs());
    line.append(time.data(), time.data() + time.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<TimeFlag>(world_);
  }

 private:
  const World* const world_;
};

// An exception ends the process here and is not carried into the test that forked it.
[[noreturn]] void RunHere(const Script& script, Shared* shared) noexcept {
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGBUS}) {
    std::signal(signal, SIG_DFL);
  }
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  alarm(kScriptSecondsMax);
  // The router has much to say of what is done to it here.
  const char* const level = std::getenv("WEFT_ROUTER_SIM_LOG");
  spdlog::set_level(spdlog::level::from_str(level == nullptr ? "off" : level));
  const int64_t begin_us = ProcessCpuUs();
  {
    World world(script, &shared->counts);
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<TimeFlag>('&', &world).set_pattern("%& us %l %v");
    spdlog::set_formatter(std::move(formatter));
    world.Run();
  }
  shared->seconds = static_cast<double>(ProcessCpuUs() - begin_us) * 1e-6;
  _exit(0);
}

std::string ReadAll(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(descriptor, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

std::string FailureOf(int status, const std::string& words) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (WIFEXITED(status) && WEXITSTATUS(status) == kViolatedExit) return words;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
    return absl::StrCat("broken invariant end.once: the router does not come to an end within ",
                        kScriptSecondsMax, " s of work\n", words);
  }
  return absl::StrCat(words, WIFSIGNALED(status) ? "signal " : "exit code ",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), "\n");
}

}  // namespace

Outcome RunScript(const Script& script) {
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  WEFT_CHECK(memory != MAP_FAILED);
  Shared* const shared = new (memory) Shared;
  int ends[2];
  WEFT_CHECK_EQ(pipe(ends), 0);
  const pid_t child = fork();
  WEFT_CHECK(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    RunHere(script, shared);
  }
  close(ends[1]);
  const std::string words = ReadAll(ends[0]);
  close(ends[0]);
  int status = 0;
  WEFT_CHECK_EQ(waitpid(child, &status, 0), child);
  if (std::getenv("WEFT_ROUTER_SIM_LOG") != nullptr) std::fputs(words.c_str(), stdout);
  Outcome outcome;
  outcome.failure = FailureOf(status, words);
  outcome.counts = shared->counts;
  outcome.seconds = shared->seconds;
  munmap(memory, sizeof(Shared));
  return outcome;
}

std::string KindOfFailure(const std::string& failure) {
  if (absl::StrContains(failure, "broken invariant ")) {
    const size_t begin = failure.find("broken invariant ");
    return failure.substr(begin, failure.find(':', begin) - begin);
  }
  if (absl::StrContains(failure, "CHECK failed")) {
    const size_t begin = failure.find("CHECK failed");
    return failure.substr(begin, failure.find('\n', begin) - begin);
  }
  return failure.substr(0, failure.find('\n'));
}

namespace {

class Shrinker {
 public:
  Shrinker(Script script, std::string kind, double seconds)
      : best_(std::move(script)),
        kind_(std::move(kind)),
        end_us_(MonotonicClock().NowUs() + static_cast<int64_t>(seconds * 1e6)) {}

  Script Run(int* runs) {
    size_t before = 0;
    do {
      before = ToText(best_).size();
      DropActions();
      SimplifyActions();
      SimplifySettings();
    } while (ToText(best_).size() < before && !Late());
    if (runs != nullptr) *runs = runs_;
    return best_;
  }

 private:
  bool Late() const { return MonotonicClock().NowUs() > end_us_; }

  bool Try(Script candidate) {
    if (Late()) return false;
    ++runs_;
    const std::string failure = RunScript(candidate).failure;
    if (failure.empty() || KindOfFailure(failure) != kind_) return false;
    best_ = std::move(candidate);
    return true;
  }

  // Pieces of half, a quarter ... of the actions, down to one.
  void DropActions() {
    for (size_t piece = std::max<size_t>(best_.actions.size() / 2, 1); piece > 0; piece /= 2) {
      // From the end: what comes after the failure goes first.
      for (size_t end = best_.actions.size(); end > 0 && !Late();) {
        const size_t begin = end > piece ? end - piece : 0;
        Script candidate = best_;
        candidate.actions.erase(candidate.actions.begin() + static_cast<ptrdiff_t>(begin),
                                candidate.actions.begin() + static_cast<ptrdiff_t>(end));
        Try(std::move(candidate));
        end = std::min(begin, best_.actions.size());
      }
    }
  }

  void SimplifyActions() {
    constexpr int64_t Action::*kFields[] = {
        &Action::tenant,    &Action::prefix,    &Action::text,         &Action::echo,
        &Action::stop,      &Action::keep_stop, &Action::ignore_eos,   &Action::min_p,
        &Action::penalty,   &Action::logprobs,  &Action::priority,     &Action::deadline_us,
        &Action::bad,       &Action::pause_us,  &Action::leave_tokens, &Action::leave_us,
        &Action::prefix_of, &Action::untold,    &Action::blocks,       &Action::skip,
        &Action::resume,    &Action::allow,     &Action::ban,          &Action::scores};
    for (size_t i = 0; i < best_.actions.size(); ++i) {
      for (int64_t Action::*const field : kFields) {
        if (best_.actions[i].*field == 0) continue;
        Script candidate = best_;
        candidate.actions[i].*field = 0;
        Try(std::move(candidate));
      }
    }
  }

  void SimplifySettings() {
    constexpr int64_t Settings::*kFields[] = {&Settings::world,
                                              &Settings::tenants,
                                              &Settings::window,
                                              &Settings::more_blocks,
                                              &Settings::stream_batches_max,
                                              &Settings::text_threads,
                                              &Settings::queue_timeout_s,
                                              &Settings::queue_tokens_max,
                                              &Settings::queue_requests_max,
                                              &Settings::text_bytes_max,
                                              &Settings::inter_token_target_us,
                                              &Settings::tenant_requests_max,
                                              &Settings::tenant_tokens_per_minute,
                                              &Settings::eos_permille,
                                              &Settings::wire_us_max,
                                              &Settings::wake_us_max,
                                              &Settings::recovery_timeout_s,
                                              &Settings::hang_timeout_ms,
                                              &Settings::restart_us,
                                              &Settings::load_us,
                                              &Settings::block_tokens,
                                              &Settings::kv_blocks,
                                              &Settings::context_tokens,
                                              &Settings::step_us};
    const Settings usual;
    for (int64_t Settings::*const field : kFields) {
      if (best_.settings.*field == usual.*field) continue;
      Script candidate = best_;
      candidate.settings.*field = usual.*field;
      Try(std::move(candidate));
    }
  }

  Script best_;
  const std::string kind_;
  const int64_t end_us_;
  int runs_ = 0;
};

}  // namespace

Script Shrink(const Script& script, const std::string& failure, double seconds, int* runs) {
  return Shrinker(script, KindOfFailure(failure), seconds).Run(runs);
}

}  // namespace weft::router::sim
