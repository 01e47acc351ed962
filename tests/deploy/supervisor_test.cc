#include "deploy/launcher/supervisor.h"

#include <signal.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/local/stream_protocol.hpp"
#include "boost/asio/read_until.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/write.hpp"
#include "tests/common/log_lines.h"
#include "tests/common/temp_dir.h"

namespace weft::launcher {
namespace {

using boost::asio::local::stream_protocol;

// A supervisor over shell scripts that say "up <pid>" and then wait for a signal.
class Fixture {
 public:
  ~Fixture() { supervisor_.reset(); }

  absl::Status Start(const std::string& shard_script, const std::string& router_script) {
    SupervisorOptions options;
    options.socket_path = folder_.path() + "/supervisor.sock";
    options.restart.backoff_first = absl::Milliseconds(1);
    Supervisor::Callbacks callbacks;
    callbacks.on_line = [this](const std::string& child, const std::string& line, bool) {
      lines_.push_back(child + " " + line);
      if (on_line) on_line();
    };
    callbacks.on_hopeless = [this](const std::string& child, const std::string& how,
                                   const std::string& why) {
      hopeless_ = child + ": " + how;
      why_ = why;
      supervisor_->Stop();
    };
    callbacks.on_stopped = [this](bool drained) {
      stopped_ = true;
      drained_ = drained;
    };
    supervisor_ = std::make_unique<Supervisor>(io_, options, std::move(callbacks));
    return supervisor_->Start({{"shard-0", {"/bin/sh", "-c", shard_script}, {}}},
                              {"router", {"/bin/sh", "-c", router_script}, {}});
  }

  // Runs the io_context until `condition` holds; fails after ten seconds.
  void RunUntil(const std::function<bool()>& condition) {
    // The handler of the cancelled timer runs later, in the next call.
    const auto expired = std::make_shared<bool>(false);
    boost::asio::steady_timer timer(io_, std::chrono::seconds(10));
    timer.async_wait([expired](const boost::system::error_code& error) { *expired = !error; });
    while (!condition() && !*expired) io_.run_one();
    REQUIRE_FALSE(*expired);
  }

  size_t Count(const std::string& prefix) const {
    return static_cast<size_t>(
        std::count_if(lines_.begin(), lines_.end(),
                      [&](const std::string& line) { return absl::StartsWith(line, prefix); }));
  }

  boost::asio::io_context io_;
  test::TempDir folder_;
  std::unique_ptr<Supervisor> supervisor_;
  std::vector<std::string> lines_;
  std::function<void()> on_line;
  std::string hopeless_;
  std::string why_;
  bool stopped_ = false;
  bool drained_ = false;
};

// The router's end of the supervisor's socket.
class RouterEnd {
 public:
  explicit RouterEnd(Fixture* fixture) : socket_(fixture->io_) {
    socket_.connect(stream_protocol::endpoint(fixture->folder_.path() + "/supervisor.sock"));
    Read();
  }
  ~RouterEnd() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  void Say(const std::string& line) { boost::asio::write(socket_, boost::asio::buffer(line)); }

  std::vector<std::string> answers;

 private:
  void Read() {
    boost::asio::async_read_until(socket_, boost::asio::dynamic_buffer(input_), '\n',
                                  [this](const boost::system::error_code& error, size_t bytes) {
                                    if (error) return;
                                    answers.push_back(input_.substr(0, bytes - 1));
                                    input_.erase(0, bytes);
                                    Read();
                                  });
  }

  stream_protocol::socket socket_;
  std::string input_;
};

// Waits in the shell itself, so that no grandchild holds the pipes after a SIGKILL.
constexpr char kRuns[] = "echo up; kill -STOP $$";
constexpr char kEndsOnTerm[] =
    "trap 'exit 0' TERM; echo up; while :; do read -r x </dev/null; done";

TEST_CASE("A killed shard is started again once start-up has succeeded", "[launcher]") {
  Fixture fixture;
  REQUIRE(fixture.Start(kRuns, kRuns).ok());
  fixture.RunUntil([&] { return fixture.Count("shard-0 up") == 1; });
  fixture.supervisor_->MarkHealthy();
  for (size_t round = 1; round <= 3; ++round) {
    kill(fixture.supervisor_->ShardPid(0), SIGKILL);
    fixture.RunUntil([&] { return fixture.Count("shard-0 up") == round + 1; });
  }
  CHECK(fixture.hopeless_.empty());
}

TEST_CASE("A child that leaves by itself during start-up is hopeless", "[launcher]") {
  Fixture fixture;
  REQUIRE(fixture.Start("exit 1", kEndsOnTerm).ok());
  fixture.RunUntil([&] { return fixture.stopped_; });
  CHECK(fixture.hopeless_ == "shard-0: exit code 1");
}

TEST_CASE("A child that is given up is given up with its own words", "[launcher]") {
  struct Case {
    const char* shard;
    const char* router;
    const char* why;
  };
  for (const Case& c :
       {Case{"echo weft-shard: no memory >&2; echo bye >&2; exit 1", kEndsOnTerm, "no memory"},
        Case{kEndsOnTerm, "echo weft-router: no port >&2; exit 1", "no port"},
        Case{kEndsOnTerm, "echo 01:02:03.004 error router: no keys >&2; exit 1", "no keys"},
        // What is printed is for the launcher, and who is killed has said nothing of that.
        Case{"echo weft-shard: x; exit 1", kEndsOnTerm, ""},
        Case{"echo weft-shard: x >&2; kill -KILL $$", kEndsOnTerm, ""}}) {
    Fixture fixture;
    REQUIRE(fixture.Start(c.shard, c.router).ok());
    fixture.RunUntil([&] { return fixture.stopped_; });
    CAPTURE(c.shard, c.router, fixture.hopeless_);
    CHECK(fixture.why_ == c.why);
  }
}

TEST_CASE("A shard that loses its device during start-up is started again, and not for ever",
          "[launcher]") {
  Fixture fixture;
  REQUIRE(fixture.Start("echo up; exit 3", kEndsOnTerm).ok());
  fixture.RunUntil([&] { return fixture.stopped_; });
  CHECK(fixture.Count("shard-0 up") == 4);
  CHECK(fixture.hopeless_ == "shard-0: exit code 3");
}

TEST_CASE("A shard that a signal ends during start-up is started again, and not for ever",
          "[launcher]") {
  Fixture fixture;
  REQUIRE(fixture.Start("echo up; kill -SEGV $$", kEndsOnTerm).ok());
  fixture.RunUntil([&] { return fixture.stopped_; });
  CHECK(fixture.Count("shard-0 up") == 4);
  CHECK(fixture.hopeless_ == "shard-0: signal 11 (Segmentation fault)");
}

TEST_CASE("A router whose shards do not fit is not started again", "[launcher]") {
  Fixture fixture;
  REQUIRE(fixture.Start(kEndsOnTerm, "echo up; exit 4").ok());
  fixture.RunUntil([&] { return fixture.stopped_; });
  CHECK(fixture.Count("router up") == 1);
  CHECK(fixture.hopeless_ == "router: exit code 4");
}

TEST_CASE("A signal for the router reaches the router alone", "[launcher]") {
  Fixture fixture;
  const std::string script =
      "trap 'echo reloads' HUP; trap 'exit 0' TERM; echo up; while :; do read -r x </dev/null; "
      "done";
  REQUIRE(fixture.Start(script, script).ok());
  fixture.RunUntil([&] { return fixture.Count("shard-0 up") + fixture.Count("router up") == 2; });
  fixture.supervisor_->SignalRouter(SIGHUP);
  fixture.RunUntil([&] { return fixture.Count("router reloads") == 1; });
  CHECK(fixture.Count("shard-0 reloads") == 0);
  fixture.supervisor_->Stop();
  fixture.RunUntil([&] { return fixture.stopped_; });
}

TEST_CASE("Stop ends the router first, then the shards", "[launcher]") {
  Fixture fixture;
  const std::string shard =
      "trap 'echo bye; exit 0' TERM; echo up; while :; do read -r x "
      "</dev/null; done";
  REQUIRE(fixture.Start(shard, shard).ok());
  fixture.RunUntil([&] { return fixture.Count("shard-0 up") + fixture.Count("router up") == 2; });
  fixture.supervisor_->Stop();
  fixture.RunUntil([&] { return fixture.stopped_; });
  REQUIRE(fixture.lines_.size() == 4);
  CHECK(fixture.lines_[2] == "router bye");
  CHECK(fixture.lines_[3] == "shard-0 bye");
}

TEST_CASE("A shard that dies while the router drains is started again", "[launcher]") {
  Fixture fixture;
  // Says that it drains, and goes when it is told a second time.
  const std::string router =
      "trap 'if [ $n ]; then exit 0; fi; n=1; echo drains' TERM; echo up; while :; do read -r x "
      "</dev/null; done";
  REQUIRE(fixture.Start(kEndsOnTerm, router).ok());
  fixture.RunUntil([&] { return fixture.Count("shard-0 up") + fixture.Count("router up") == 2; });
  fixture.supervisor_->MarkHealthy();
  fixture.supervisor_->Stop();
  fixture.RunUntil([&] { return fixture.Count("router drains") == 1; });
  kill(fixture.supervisor_->ShardPid(0), SIGKILL);
  fixture.RunUntil([&] { return fixture.Count("shard-0 up") == 2; });
  CHECK_FALSE(fixture.stopped_);
  fixture.supervisor_->Stop();
  fixture.RunUntil([&] { return fixture.stopped_; });
}

TEST_CASE("A router that dies while it drains has not drained", "[launcher]") {
  struct Case {
    const char* on_term;
    bool ready;
    bool drained;
  };
  // Ended as told; died; stopped at once; SIGTERM came before it listened to it; never ready.
  for (const Case& c :
       {Case{"exit 0", true, true}, Case{"kill -KILL $$", true, false}, Case{"exit 2", true, false},
        Case{"trap - TERM; kill -TERM $$", true, true}, Case{"kill -KILL $$", false, true}}) {
    Fixture fixture;
    const std::string router = absl::StrCat("trap '", c.on_term,
                                            "' TERM; echo up; while :; do read -r x </dev/null; "
                                            "done");
    REQUIRE(fixture.Start(kEndsOnTerm, router).ok());
    fixture.RunUntil([&] { return fixture.Count("shard-0 up") + fixture.Count("router up") == 2; });
    if (c.ready) fixture.supervisor_->MarkHealthy();
    fixture.supervisor_->Stop();
    fixture.RunUntil([&] { return fixture.stopped_; });
    CAPTURE(c.on_term, c.ready);
    CHECK(fixture.drained_ == c.drained);
  }
}

TEST_CASE("The socket takes restart orders and tells of deaths", "[launcher]") {
  Fixture fixture;
  REQUIRE(fixture.Start("trap 'echo alive' USR1; echo up; while :; do kill -STOP $$; done", kRuns)
              .ok());
  fixture.RunUntil([&] { return fixture.Count("shard-0 up") == 1; });
  fixture.supervisor_->MarkHealthy();
  const pid_t pid = fixture.supervisor_->ShardPid(0);

  RouterEnd router(&fixture);
  SECTION("a hung shard is killed and replaced") {
    router.Say(absl::StrCat("restart 0 ", pid, " no heartbeat for 5000 ms\n"));
    fixture.RunUntil(
        [&] { return router.answers.size() == 2 && fixture.Count("shard-0 up") == 2; });
    CHECK(router.answers[0] == "ok");
    CHECK(router.answers[1] == absl::StrCat("died 0 ", pid));
    CHECK(fixture.supervisor_->ShardPid(0) != pid);
  }
  SECTION("an order for a process that is gone changes nothing") {
    router.Say("restart 0 1 stale\n");
    fixture.RunUntil([&] { return router.answers.size() == 1; });
    CHECK(router.answers[0] == "ok");
    // One that was killed would not answer any more.
    for (const int signal : {SIGUSR1, SIGCONT}) REQUIRE(kill(pid, signal) == 0);
    fixture.RunUntil([&] { return fixture.Count("shard-0 alive") == 1; });
    CHECK(fixture.supervisor_->ShardPid(0) == pid);
    CHECK(router.answers.size() == 1);
  }
  SECTION("nonsense is answered by an error") {
    router.Say("restart 7 1 x\nhello\n");
    fixture.RunUntil([&] { return router.answers.size() == 2; });
    CHECK(absl::StartsWith(router.answers[0], "error no shard"));
    CHECK(absl::StartsWith(router.answers[1], "error expected"));
  }
}

TEST_CASE("A shard that had ended already is not said to be killed by the router's order",
          "[launcher]") {
  Fixture fixture;
  // Its end is told when its pipes are closed, which the process that it leaves behind holds.
  REQUIRE(fixture.Start("sleep 60 & echo up $!; kill -STOP $$", kRuns).ok());
  const auto holder = [&fixture](size_t nth) {
    for (const std::string& line : fixture.lines_) {
      absl::string_view text = line;
      pid_t pid = 0;
      if (absl::ConsumePrefix(&text, "shard-0 up ") && nth-- == 0 && absl::SimpleAtoi(text, &pid)) {
        return pid;
      }
    }
    return pid_t{0};
  };
  fixture.RunUntil([&] { return fixture.Count("shard-0 up") == 1; });
  fixture.supervisor_->MarkHealthy();
  const pid_t pid = fixture.supervisor_->ShardPid(0);
  RouterEnd router(&fixture);
  const test::LogLines log;
  REQUIRE(kill(pid, SIGKILL) == 0);
  siginfo_t ended = {};
  REQUIRE(waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOWAIT) == 0);
  router.Say(absl::StrCat("restart 0 ", pid, " connection lost\n"));
  fixture.RunUntil([&] { return router.answers.size() == 1; });
  CHECK(router.answers[0] == "ok");
  CHECK(log.Count("is killed on the router's word") == 0);
  CHECK(log.Count("had ended already when the router gave it up: connection lost") == 1);
  REQUIRE(holder(0) > 0);
  REQUIRE(kill(holder(0), SIGKILL) == 0);
  fixture.RunUntil([&] { return fixture.Count("shard-0 up") == 2; });
  CHECK(log.Count("ended with signal 9") == 1);
  REQUIRE(holder(1) > 0);
  CHECK(kill(holder(1), SIGKILL) == 0);
}

}  // namespace
}  // namespace weft::launcher
