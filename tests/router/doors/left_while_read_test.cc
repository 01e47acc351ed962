// A client that leaves while another thread reads its long body: the request that comes of it is
// cancelled before anybody reads its answer.

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/limits.h"
#include "router/doors/door_context.h"
#include "router/doors/http/generate.h"
#include "router/doors/openai/format.h"
#include "tests/router/anonymous.h"
#include "tests/router/doors/fake_entrance.h"

namespace weft::router {
namespace {

// A connection that nothing should reach.
class NoResponder : public HttpResponder {
 public:
  void Reply(HttpReply) override { ++calls; }
  void BeginStream(HttpReply) override { ++calls; }
  void Write(absl::string_view) override { ++calls; }
  void Flush() override { ++calls; }
  void EndStream() override { ++calls; }
  bool writable() const override { return true; }
  int calls = 0;
};

TEST_CASE("A client that leaves while its long body is read cancels the request of it",
          "[router][http]") {
  Probe probe;
  absl::Notification woken;
  // Outlives the entrance, whose thread wakes it.
  IoWaker waker([&] { woken.Notify(); });
  FakeEntrance intake;
  intake.SetScript({});
  const DoorContext doors(&intake, &probe, {});
  NoResponder responder;
  absl::StatusOr<Admission::Permit> permit = doors.Enter(Anonymous(), kLongBodyBytes);
  REQUIRE(permit.ok());
  HttpRequest request;
  request.body.assign(kLongBodyBytes, 'x');
  absl::Notification reading;
  absl::Notification left;
  const GenerationReader read = [&](HttpRequest) -> std::variant<ReadGeneration, HttpReply> {
    reading.Notify();
    left.WaitForNotification();
    GenerateInput input;
    input.prompt = "Hi";
    return MakeGeneration({std::move(input)}, 1, NewOpenAiFormatter({}), {});
  };
  const auto refuse = [](const absl::Status&) { return HttpReply(); };
  const std::shared_ptr<HttpExchange> exchange = GenerateExchange::Start(
      doors, std::move(request), *std::move(permit), read, refuse, responder, waker);
  REQUIRE(exchange != nullptr);
  reading.WaitForNotification();
  exchange->OnGone(CancelReason::kClientGone);
  left.Notify();
  const auto handed_in = intake.WaitRequest(0);
  REQUIRE(handed_in != nullptr);
  CHECK(handed_in->WaitCancelled() == CancelReason::kClientGone);
  // The answer's end, too, comes when nobody is there to read it.
  woken.WaitForNotification();
  waker.Drain();
  CHECK(responder.calls == 0);
}

}  // namespace
}  // namespace weft::router
