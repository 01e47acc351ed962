// Permits: what they take, in which stage, and that all of it comes back.

#include "router/admission.h"

#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/clock.h"
#include "router/errors.h"
#include "tests/router/anonymous.h"

namespace weft::router {
namespace {

TEST_CASE("New limits of the queue hold for newcomers, and take nobody's place away",
          "[router][admission]") {
  ManualClock clock(1);
  Admission admission({/*running_max=*/1, {/*queue_requests_max=*/3, 1000, 1000}}, &clock);
  std::vector<Admission::Permit> permits;
  for (int i = 0; i < 4; ++i) permits.push_back(*admission.Enter(Anonymous(), 100));
  admission.SetQueueLimits({1, 10, 100});
  CHECK(admission.waiting() == 4);
  CHECK(ErrorReason(admission.Enter(Anonymous(), 0).status()) == "QUEUE_FULL");
  for (int i = 0; i < 3; ++i) permits.pop_back();
  CHECK(ErrorReason(admission.Enter(Anonymous(), 100).status()) == "TEXT_BYTES_FULL");
  REQUIRE(permits[0].AddTokens(10).ok());
  auto next = admission.Enter(Anonymous(), 0);
  CHECK(ErrorReason(next->AddTokens(1)) == "QUEUE_TOKENS_FULL");
  CHECK(admission.requests_max() == 2);
  admission.SetQueueLimits({5, 1000, 1000});
  CHECK(next->AddTokens(1).ok());
  CHECK(admission.Enter(Anonymous(), 500).ok());
}

TEST_CASE("A permit gives back what it took, wherever its request was", "[router][admission]") {
  ManualClock clock(1);
  Admission admission({/*running_max=*/1, /*queue_requests_max=*/1, /*queue_tokens_max=*/10},
                      &clock);
  auto first = admission.Enter(Anonymous(), 0);
  auto second = admission.Enter(Anonymous(), 0);
  REQUIRE(first.ok());
  REQUIRE(second.ok());  // a free running place is a place in the queue
  CHECK(ErrorReason(admission.Enter(Anonymous(), 0).status()) == "QUEUE_FULL");
  REQUIRE(first->AddTokens(100).ok());  // alone in the queue
  CHECK(ErrorReason(second->AddTokens(1)) == "QUEUE_TOKENS_FULL");
  first->MarkRunning();
  first->MarkRunning();
  CHECK(admission.running() == 1);
  CHECK(admission.waiting() == 1);
  REQUIRE(second->AddTokens(1).ok());
  CHECK(ErrorReason(admission.Enter(Anonymous(), 0).status()) == "QUEUE_FULL");
  first->MarkWritten();
  first->MarkWritten();
  CHECK(admission.running() == 0);
  CHECK(admission.written() == 1);
  // An answer that nobody has read yet takes a place of the queue, beside the one that waits.
  CHECK(ErrorReason(admission.Enter(Anonymous(), 0).status()) == "QUEUE_FULL");
  *first = Admission::Permit();
  CHECK(admission.written() == 0);
  second->Release();
  second->Release();
  CHECK(admission.running() == 0);
  CHECK(admission.waiting() == 0);
  admission.Close(UnavailableError("DRAINING", "bye", absl::Seconds(1)));
  CHECK(ErrorReason(admission.Enter(Anonymous(), 0).status()) == "DRAINING");
  admission.Open();
  CHECK(admission.Enter(Anonymous(), 0).ok());
}

TEST_CASE("A tenant's use is who came in, and prompts that began to run", "[router][admission]") {
  ManualClock clock(1);
  Admission admission({/*running_max=*/1, /*queue_requests_max=*/1, /*queue_tokens_max=*/10},
                      &clock);
  const TenantRef tenant = Anonymous();
  const TenantUseCounts before = tenant->meter->use().Read();
  const auto grown = [&](uint64_t TenantUseCounts::*count) {
    return tenant->meter->use().Read().*count - before.*count;
  };
  auto first = admission.Enter(tenant, 0);
  auto second = admission.Enter(tenant, 0);
  REQUIRE((first.ok() && second.ok()));
  CHECK(!admission.Enter(tenant, 0).ok());
  CHECK(grown(&TenantUseCounts::requests) == 2);
  REQUIRE(first->AddTokens(8).ok());
  REQUIRE(!second->AddTokens(5).ok());
  CHECK(grown(&TenantUseCounts::prompt_tokens) == 0);
  first->MarkRunning();
  first->MarkRunning();
  CHECK(grown(&TenantUseCounts::prompt_tokens) == 8);
  first->ChargeGenerated(3);
  first->Release();
  CHECK(grown(&TenantUseCounts::generated_tokens) == 3);
}

TEST_CASE("As many requests come in as the limit says, wherever they are", "[router][admission]") {
  ManualClock clock(1);
  Admission admission({/*running_max=*/5, /*queue_requests_max=*/3, /*queue_tokens_max=*/10},
                      &clock);
  CHECK(admission.requests_max() == 8);
  admission.SetRunningMax(2);  // the shards' memory allows no more
  CHECK(admission.requests_max() == 5);
  for (const size_t running : {0, 1, 2}) {
    std::vector<Admission::Permit> permits;
    while (true) {
      auto permit = admission.Enter(Anonymous(), 0);
      if (!permit.ok()) break;
      permits.push_back(*std::move(permit));
      if (permits.size() <= running) permits.back().MarkRunning();
    }
    CHECK(permits.size() == admission.requests_max());
  }
}

TEST_CASE("No more come in while ends of those that ran are still to be written",
          "[router][admission]") {
  ManualClock clock(1);
  Admission admission({/*running_max=*/1, /*queue_requests_max=*/2, /*queue_tokens_max=*/10},
                      &clock);
  std::vector<Admission::Permit> permits;
  for (int i = 0; i < 2; ++i) permits.push_back(*admission.Enter(Anonymous(), 0));
  // The second one has the place in the batch of the first, whose end nobody has written.
  for (Admission::Permit& permit : permits) permit.MarkRunning();
  CHECK(admission.running() == 2);
  permits.push_back(*admission.Enter(Anonymous(), 0));
  CHECK(ErrorReason(admission.Enter(Anonymous(), 0).status()) == "QUEUE_FULL");
  permits.front().Release();
  CHECK(admission.Enter(Anonymous(), 0).ok());
}

TEST_CASE("Retry-After follows the rate at which requests leave", "[router][admission]") {
  ManualClock clock(1);
  Admission admission({/*running_max=*/1, /*queue_requests_max=*/4, 1000}, &clock);
  std::vector<Admission::Permit> waiting;
  for (int i = 0; i < 5; ++i) {
    auto permit = admission.Enter(Anonymous(), 0);
    permit->MarkRunning();
    permit->MarkWritten();
    clock.AdvanceUs(4'000'000);
  }
  for (int i = 0; i < 5; ++i) waiting.push_back(*admission.Enter(Anonymous(), 0));
  const absl::Status full = admission.Enter(Anonymous(), 0).status();
  CHECK(RetryAfter(full) == absl::Seconds(20));  // five wait, one leaves every 4 s
}

TEST_CASE("Lengths are checked against the longest request", "[router][admission]") {
  ManualClock clock(1);
  Admission admission({}, &clock);
  admission.SetRequestTokensMax(100);
  CHECK(admission.OutputTokens(60, std::nullopt).value() == 40);
  CHECK(admission.OutputTokens(60, 40).value() == 40);
  for (const auto& [status, field] :
       {std::pair(admission.OutputTokens(60, 41).status(), "max_tokens"),
        std::pair(admission.OutputTokens(100, 1).status(), "prompt")}) {
    CHECK(ErrorField(status) == field);
    CHECK(ErrorReason(status) == "CONTEXT_LENGTH_EXCEEDED");
    CHECK(absl::StrContains(status.message(), "this model's maximum context length is 100 tokens"));
    // A door names the field as it is called there; the reason stays.
    CHECK(ErrorReason(RenameField(status, "inputs")) == "CONTEXT_LENGTH_EXCEEDED");
  }
}

TEST_CASE("Bytes are counted from the body to the last unread token", "[router][admission]") {
  ManualClock clock(1);
  Admission admission({/*running_max=*/8, /*queue_requests_max=*/8, 1000, /*text_bytes_max=*/100},
                      &clock);
  auto alone = admission.Enter(Anonymous(), 500);
  REQUIRE(alone.ok());  // alone, so never refused
  CHECK(ErrorReason(admission.Enter(Anonymous(), 1).status()) == "TEXT_BYTES_FULL");
  REQUIRE(alone->AddBytes(500).ok());
  CHECK(admission.bytes() == 1000);
  alone->ReleaseTextBytes();
  CHECK(admission.bytes() == 0);
  auto second = admission.Enter(Anonymous(), 40);
  REQUIRE(second.ok());
  CHECK(ErrorReason(second->AddBytes(70)) == "");  // nobody else holds any
  alone->ChargeBytes(30);
  CHECK(ErrorReason(second->AddBytes(1)) == "TEXT_BYTES_FULL");
  CHECK(admission.bytes() == 140);
  alone->GiveBackBytes(10);
  CHECK(admission.bytes() == 130);
  alone->Release();
  second->Release();
  CHECK(admission.bytes() == 0);
  CHECK(admission.WaitIdle(absl::ZeroDuration()));
}

TEST_CASE("Text calls are let in while generations are not", "[router][admission]") {
  ManualClock clock(1);
  Admission admission({}, &clock);
  admission.Close(UnavailableError("LOADING", "not yet", absl::Seconds(1)));
  CHECK(ErrorReason(admission.Enter(Anonymous(), 0).status()) == "LOADING");
  CHECK(admission.EnterText(Anonymous(), 0).ok());
}

}  // namespace
}  // namespace weft::router
