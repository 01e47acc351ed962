// Answers over streams that break: nothing is lost, nothing comes twice, and what cannot go on says
// so.

#include "deploy/launcher/chat/answer.h"

#include <catch2/catch.hpp>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft::launcher {
namespace {

// A server whose answer is "t0 t1 t2 ...", a token an event, as its script has the streams end.
class FakeServer : public ChatServer {
 public:
  struct Part {
    // Tokens of this stream, then how it ends; OK is the answer's end when `whole`.
    uint32_t tokens = 0;
    absl::Status end;
    bool whole = false;
    std::string fingerprint = "f";
    bool inexact = false;
    std::function<void()> before_end = [] {};
  };
  explicit FakeServer(std::deque<Part> parts) : parts_(std::move(parts)) {}

  absl::Status Connect(absl::Duration) override { return absl::OkStatus(); }
  absl::StatusOr<ModelFacts> Facts(Stop&) override { return ModelFacts{"m", 100}; }
  absl::StatusOr<uint32_t> CountTokens(const std::vector<ChatTurn>&, Stop&) override { return 1; }
  absl::Status Stream(const AnswerRequest& request, absl::Duration, Stop&,
                      absl::FunctionRef<bool(const AnswerEvent&)> on_event) override {
    requests.push_back(request);
    if (parts_.empty()) return absl::UnavailableError("nobody there");
    const Part part = parts_.front();
    parts_.pop_front();
    uint32_t next = request.resume ? static_cast<uint32_t>(request.resume->output_ids.size()) : 0;
    for (uint32_t i = 0; i < part.tokens; ++i, ++next) {
      AnswerEvent event;
      event.text = absl::StrCat("t", next, " ");
      event.token_ids = {next};
      event.begins = i == 0;
      event.prompt_tokens = 5;
      event.cached_tokens = request.resume ? 7 : 2;
      event.seed = 11;
      event.fingerprint = part.fingerprint;
      event.inexact = part.inexact;
      if (part.whole && i + 1 == part.tokens) {
        event.finish = Finish::kEnd;
        event.output_tokens = next + 1;
      }
      if (!on_event(event)) return absl::CancelledError("cancelled");
    }
    part.before_end();
    return part.end;
  }
  const std::string& address() const override { return address_; }

  std::vector<AnswerRequest> requests;

 private:
  std::deque<Part> parts_;
  const std::string address_ = "here:1";
};

struct Outcome {
  Answer answer;
  std::string printed;
  std::vector<std::string> notes;
};

Outcome Receive(FakeServer& server, Stop& stop, uint32_t reads = 1000) {
  AnswerLimits limits;
  limits.pause = absl::Milliseconds(1);
  limits.reconnect = absl::Milliseconds(50);
  stop.Arm();
  Outcome outcome;
  outcome.answer = ReceiveAnswer(
      server, {}, limits, stop,
      [&outcome, &reads](absl::string_view text) {
        if (reads == 0) return false;
        --reads;
        absl::StrAppend(&outcome.printed, text);
        return true;
      },
      [&outcome](absl::string_view note) { outcome.notes.emplace_back(note); });
  return outcome;
}

const absl::Status kGone = absl::UnavailableError("the server is gone");

TEST_CASE("An answer in one stream is printed and counted", "[chat]") {
  FakeServer server({{3, absl::OkStatus(), true}});
  Stop stop;
  const Outcome outcome = Receive(server, stop);
  CHECK(outcome.answer.end == Answer::End::kWhole);
  CHECK(outcome.printed == "t0 t1 t2 ");
  CHECK(outcome.answer.text == outcome.printed);
  CHECK(outcome.answer.output_tokens == 3);
  CHECK(outcome.answer.prompt_tokens == 5);
  CHECK(outcome.notes.empty());
}

TEST_CASE("A stream that breaks goes on behind what came, however it broke", "[chat]") {
  FakeServer server({{2, kGone},
                     {0, kGone},
                     {1, absl::InternalError("reset")},
                     {2, absl::OkStatus()},
                     {1, absl::OkStatus(), true}});
  Stop stop;
  const Outcome outcome = Receive(server, stop);
  CHECK(outcome.answer.end == Answer::End::kWhole);
  CHECK(outcome.printed == "t0 t1 t2 t3 t4 t5 ");
  CHECK(outcome.answer.output_tokens == 6);
  REQUIRE(server.requests.size() == 5);
  CHECK_FALSE(server.requests[0].resume.has_value());
  CHECK(server.requests[1].resume->output_ids == std::vector<uint32_t>{0, 1});
  CHECK(server.requests[4].resume->output_ids == std::vector<uint32_t>{0, 1, 2, 3, 4});
  CHECK(server.requests[4].resume->seed == 11);
  CHECK(server.requests[4].resume->fingerprint == "f");
  // The prompt and its cache hits are those of the first part.
  CHECK(outcome.answer.cached_tokens == 2);
  CHECK(outcome.notes.size() == 3);  // a line for each time that it broke after tokens
  CHECK(absl::StrContains(outcome.notes[0], "the server is gone"));
  CHECK(absl::StrContains(outcome.notes[0], "here:1"));
}

TEST_CASE("A rest that may differ is spoken of", "[chat]") {
  FakeServer server({{1, kGone}, {1, absl::OkStatus(), true, "g", true}});
  Stop stop;
  const Outcome outcome = Receive(server, stop);
  REQUIRE(outcome.notes.size() == 2);
  CHECK(absl::StrContains(outcome.notes[1], "may differ"));
}

TEST_CASE("A server that does not come back fails the answer, which keeps what came", "[chat]") {
  FakeServer server({{2, kGone}});
  Stop stop;
  const Outcome outcome = Receive(server, stop);
  CHECK(outcome.answer.end == Answer::End::kFailed);
  CHECK(absl::IsUnavailable(outcome.answer.error));
  CHECK(outcome.answer.text == "t0 t1 ");
  CHECK(outcome.answer.output_tokens == 2);
  CHECK(server.requests.size() > 3);
}

TEST_CASE("A refusal is final, and a doubtful error is not tried for ever", "[chat]") {
  Stop stop;
  FakeServer refused({{0, absl::InvalidArgumentError("messages[0].role: bad")}});
  CHECK(Receive(refused, stop).answer.error.message() == "messages[0].role: bad");
  CHECK(refused.requests.size() == 1);
  FakeServer resumed({{2, kGone}, {0, absl::InvalidArgumentError("resume.output_ids: bad")}});
  const Outcome outcome = Receive(resumed, stop);
  CHECK(outcome.answer.end == Answer::End::kFailed);
  CHECK(outcome.answer.text == "t0 t1 ");
  const absl::Status busy = absl::ResourceExhaustedError("queue full");
  FakeServer full({{0, busy}, {0, busy}, {0, busy}, {0, busy}});
  CHECK(Receive(full, stop).answer.error == busy);
  CHECK(full.requests.size() == 3);
}

TEST_CASE("A server that cannot resume is not asked to", "[chat]") {
  FakeServer server({{2, kGone, false, ""}, {1, absl::OkStatus(), true}});
  Stop stop;
  const Outcome outcome = Receive(server, stop);
  CHECK(outcome.answer.end == Answer::End::kFailed);
  CHECK(server.requests.size() == 1);
}

TEST_CASE("A stop keeps what came and is no error", "[chat]") {
  Stop stop;
  FakeServer server(
      {{2, absl::CancelledError("x"), false, "f", false, [&stop] { stop.Request(); }}});
  const Outcome outcome = Receive(server, stop);
  CHECK(outcome.answer.end == Answer::End::kStopped);
  CHECK(outcome.answer.error.ok());
  CHECK(outcome.answer.text == "t0 t1 ");
  // Also while the server is waited for.
  FakeServer gone({{2, kGone, false, "f", false, [&stop] { stop.Request(); }}});
  CHECK(Receive(gone, stop).answer.end == Answer::End::kStopped);
  CHECK(gone.requests.size() == 1);
}

TEST_CASE("An answer that nobody reads any more is ended", "[chat]") {
  FakeServer server({{5, absl::OkStatus(), true}});
  Stop stop;
  const Outcome outcome = Receive(server, stop, /*reads=*/2);
  CHECK(outcome.answer.end == Answer::End::kUnread);
  CHECK(outcome.printed == "t0 t1 ");
  CHECK(server.requests.size() == 1);
}

}  // namespace
}  // namespace weft::launcher
