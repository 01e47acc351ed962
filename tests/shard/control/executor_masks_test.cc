// The executor and masked rows: a step samples once the masks of all its rows are there, however
// they come, and no end of an epoch waits for masks that do not.

#include <atomic>
#include <catch2/catch.hpp>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/shard/control/executor_rig.h"

namespace weft::shard {
namespace {

constexpr uint32_t kVocab = 1000;

// Says when so many steps have been launched.
struct Launches {
  absl::Mutex mutex;
  int count = 0;

  void Add() {
    absl::MutexLock lock(&mutex);
    ++count;
  }
  void Await(int wanted) {
    absl::MutexLock lock(&mutex);
    const auto here = [&] { return count >= wanted; };
    mutex.Await(absl::Condition(&here));
  }
  int Count() {
    absl::MutexLock lock(&mutex);
    return count;
  }
};

v1::MaskRowsRequest MasksOf(uint64_t epoch, uint64_t step) {
  v1::MaskRowsRequest request;
  request.set_epoch(epoch);
  request.set_step(step);
  return request;
}

void AddOnly(v1::MaskRowsRequest* request, uint32_t slot, std::initializer_list<uint32_t> ids) {
  v1::RowMask* row = request->add_rows();
  row->set_slot(slot);
  for (const uint32_t id : ids) row->mutable_only()->add_ids(id);
}

// `launches` as of FakeRunnerOptions: 1 is a device that waits in its sampler, 2 one that samples
// when it is told to.
struct MaskRig {
  explicit MaskRig(uint32_t launches) : rig(Options(launches)) {
    rig.Load();
    REQUIRE(rig.Form(1).ok());
  }

  FakeRunnerOptions Options(uint32_t launches) {
    FakeRunnerOptions options;
    options.vocab_size = kVocab;
    options.launches = launches;
    options.ready = [this] { return ready.load(); };
    options.on_launch = [this](const StepBatch&) { launched.Add(); };
    options.on_run = [this](const StepBatch&) {
      running.Add();
      return absl::OkStatus();
    };
    return options;
  }

  // Sequence 5 in slot 0 is masked; sequence 6 in slot 1 is not.
  static void MakeMasked(PendingPrefill* call, uint64_t epoch, uint64_t step) {
    MakePrefill(call, epoch, step);
    call->request.mutable_chunks(0)->set_masked(true);
    AddBlocks(call->request.mutable_header(), 1, {1});
    AddFirstChunk(&call->request, 1, 6, {4, 5}, true, 2);
  }
  absl::Status Send(uint64_t step, uint32_t slot, std::initializer_list<uint32_t> ids,
                    uint64_t epoch = 1) {
    v1::MaskRowsRequest request = MasksOf(epoch, step);
    AddOnly(&request, slot, ids);
    return rig.executor->MaskRows(request);
  }

  std::atomic<bool> ready{true};
  Launches launched;
  Launches running;
  PendingPrefill first;
  PendingDecode second, third;
  ExecutorRig rig;
};

TokenId Next(const std::vector<TokenId>& log) { return FakeModelRunner::NextToken(log, kVocab); }

TEST_CASE("A masked row samples from its mask alone, whether it comes early or late",
          "[shard][executor][masks]") {
  const uint32_t launches = GENERATE(1u, 2u);
  const bool early = GENERATE(true, false);
  MaskRig test(launches);
  MaskRig::MakeMasked(&test.first, 1, 1);
  MakeDecode(&test.second, 1, 2);
  if (early) {
    REQUIRE(test.Send(1, 0, {17}).ok());
    REQUIRE(test.Send(2, 0, {44, 800}).ok());
  }
  test.rig.Start(&test.first);
  test.rig.Start(&test.second);
  if (!early) {
    CHECK_FALSE(test.first.done.HasBeenNotified());
    REQUIRE(test.Send(1, 0, {17}).ok());
    REQUIRE(test.first.Wait().ok());
    CHECK_FALSE(test.second.done.HasBeenNotified());
    REQUIRE(test.Send(2, 0, {44, 800}).ok());
  }
  REQUIRE(test.first.Wait().ok());
  REQUIRE(test.second.Wait().ok());
  REQUIRE(test.first.response.ids_size() == 2);
  CHECK(test.first.response.ids(0) == 17);
  // The row beside it is as it is alone.
  std::vector<TokenId> plain = {4, 5};
  plain.push_back(Next(plain));
  CHECK(test.first.response.ids(1) == plain.back());
  REQUIRE(test.second.response.ids_size() == 2);
  const TokenId free = Next({1, 2, 3, 17});
  CHECK(test.second.response.ids(0) == (free > 44 && free <= 800 ? 800 : 44));
  CHECK(test.second.response.ids(1) == Next(plain));
}

TEST_CASE("A step waits for all parts of its masks", "[shard][executor][masks]") {
  MaskRig test(GENERATE(1u, 2u));
  MaskRig::MakeMasked(&test.first, 1, 1);
  test.first.request.mutable_chunks(1)->set_masked(true);
  const bool early = GENERATE(true, false);
  if (early) REQUIRE(test.Send(1, 1, {9}).ok());
  test.rig.Start(&test.first);
  if (!early) REQUIRE(test.Send(1, 1, {9}).ok());
  CHECK(absl::IsAlreadyExists(test.Send(1, 1, {10})));
  CHECK_FALSE(test.first.done.HasBeenNotified());
  REQUIRE(test.Send(1, 0, {8}).ok());
  REQUIRE(test.first.Wait().ok());
  CHECK(test.first.response.ids(0) == 8);
  CHECK(test.first.response.ids(1) == 9);
}

TEST_CASE("A chunk that is not the last of its prompt waits for no mask",
          "[shard][executor][masks]") {
  MaskRig test(GENERATE(1u, 2u));
  SetHeader(test.first.request.mutable_header(), 1, 1);
  AddBlocks(test.first.request.mutable_header(), 0, {0});
  AddFirstChunk(&test.first.request, 0, 5, {1, 2}, false, 3)->set_masked(true);
  REQUIRE(test.rig.Run(&test.first).ok());
  CHECK(test.first.response.ids_size() == 0);
  PendingPrefill last;
  SetHeader(last.request.mutable_header(), 1, 2);
  AddChunk(&last.request, 0, 5, 2, {3}, true);
  test.rig.Start(&last);
  REQUIRE(test.Send(2, 0, {70}).ok());
  REQUIRE(last.Wait().ok());
  CHECK(last.response.ids(0) == 70);
}

TEST_CASE("Masks of another epoch, another step or no row are refused",
          "[shard][executor][masks]") {
  MaskRig test(GENERATE(1u, 2u));
  CHECK(absl::IsFailedPrecondition(test.Send(1, 0, {1}, /*epoch=*/2)));
  CHECK(absl::IsFailedPrecondition(test.Send(1 + StepOrder::kWindow, 0, {1})));
  CHECK(absl::IsInvalidArgument(test.Send(0, 0, {1})));
  CHECK(absl::IsInvalidArgument(test.Send(1, 0, {kVocab})));
  CHECK(absl::IsInvalidArgument(test.Send(1, 8, {1})));
  MaskRig::MakeMasked(&test.first, 1, 1);
  test.rig.Start(&test.first);
  // None of those counts.
  CHECK_FALSE(test.first.done.HasBeenNotified());
  REQUIRE(test.Send(1, 0, {17}).ok());
  REQUIRE(test.first.Wait().ok());
  CHECK(test.first.response.ids(0) == 17);
  while (!absl::IsAlreadyExists(test.Send(1, 0, {17}))) {
    // Its answer has been sent, and is counted next.
  }
  // A later epoch knows nothing of them.
  REQUIRE(test.Send(2, 0, {5}).ok());
  REQUIRE(test.rig.Leave(1).ok());
  CHECK(absl::IsFailedPrecondition(test.Send(2, 0, {5})));
  REQUIRE(test.rig.Form(2).ok());
  CHECK(absl::IsFailedPrecondition(test.Send(1, 0, {5}, /*epoch=*/1)));
  PendingPrefill again;
  MaskRig::MakeMasked(&again, 2, 1);
  test.rig.Start(&again);
  PendingDecode next;
  MakeDecode(&next, 2, 2);
  test.rig.Start(&next);
  REQUIRE(test.Send(1, 0, {18}, 2).ok());
  REQUIRE(again.Wait().ok());
  CHECK(again.response.ids(0) == 18);
  CHECK_FALSE(next.done.HasBeenNotified());
  REQUIRE(test.Send(2, 0, {19}, 2).ok());
  REQUIRE(next.Wait().ok());
  CHECK(next.response.ids(0) == 19);
}

TEST_CASE("A mask for a row that is not masked ends the epoch", "[shard][executor][masks]") {
  MaskRig test(GENERATE(1u, 2u));
  MaskRig::MakeMasked(&test.first, 1, 1);
  SECTION("early, at the step") {
    REQUIRE(test.Send(1, 1, {1}).ok());
    REQUIRE(test.Send(1, 0, {1}).ok());
    test.rig.Start(&test.first);
    CHECK(absl::IsInvalidArgument(test.first.Wait()));
  }
  SECTION("early, where the step has no masked row at all") {
    test.first.request.mutable_chunks(0)->set_masked(false);
    REQUIRE(test.Send(1, 1, {1}).ok());
    test.rig.Start(&test.first);
    CHECK(absl::IsInvalidArgument(test.first.Wait()));
  }
  SECTION("late, at the call") {
    test.rig.Start(&test.first);
    (test.rig.runner->launches_max() == 1 ? test.running : test.launched).Await(1);
    CHECK(absl::IsInvalidArgument(test.Send(1, 1, {1})));
    REQUIRE(test.Send(1, 0, {1}).ok());
    CHECK(test.first.Wait().ok());
  }
}

TEST_CASE("LeaveGroup ends a step that waits for masks", "[shard][executor][masks]") {
  const uint32_t launches = GENERATE(1u, 2u);
  MaskRig test(launches);
  MaskRig::MakeMasked(&test.first, 1, 1);
  MakeDecode(&test.second, 1, 2);
  test.rig.Start(&test.first);
  test.rig.Start(&test.second);
  (launches == 1 ? test.running : test.launched).Await(1);
  const int64_t begin_us = MonotonicClock().NowUs();
  CHECK(test.rig.Leave(1).ok());
  CHECK(MonotonicClock().NowUs() - begin_us < kMaskWaitUsMax / 2);
  CHECK(absl::IsAborted(test.first.Wait()));
  CHECK(absl::IsAborted(test.second.Wait()));
  CHECK_FALSE(test.rig.stuck.load());
  REQUIRE(test.rig.Form(2).ok());
  PendingPrefill again;
  MakePrefill(&again, 2, 1);
  CHECK(test.rig.Run(&again).ok());
}

TEST_CASE("A step that waits for masks finishes when the shard shuts down",
          "[shard][executor][masks]") {
  const uint32_t launches = GENERATE(1u, 2u);
  MaskRig test(launches);
  MaskRig::MakeMasked(&test.first, 1, 1);
  test.rig.Start(&test.first);
  (launches == 1 ? test.running : test.launched).Await(1);
  Thread shutdown("shutdown", [&] { test.rig.executor->Shutdown(absl::Seconds(60)); });
  REQUIRE(test.Send(1, 0, {17}).ok());
  CHECK(test.first.Wait().ok());
  shutdown.Join();
}

TEST_CASE("A shard that waits for masks shows life", "[shard][executor][masks]") {
  const uint32_t launches = GENERATE(1u, 2u);
  MaskRig test(launches);
  MaskRig::MakeMasked(&test.first, 1, 1);
  test.rig.Start(&test.first);
  (launches == 1 ? test.running : test.launched).Await(1);
  const int64_t begin_us = MonotonicClock().NowUs();
  uint64_t oldest_us = 0;
  while (MonotonicClock().NowUs() - begin_us < 500'000) {
    oldest_us = std::max(oldest_us, test.rig.Info().heartbeat_age_us());
  }
  CHECK(oldest_us < 400'000);
  REQUIRE(test.Send(1, 0, {17}).ok());
  CHECK(test.first.Wait().ok());
}

TEST_CASE("Nothing is launched behind a step whose masks are not there",
          "[shard][executor][masks]") {
  MaskRig test(2);
  test.ready = false;
  MaskRig::MakeMasked(&test.first, 1, 1);
  MakeDecode(&test.second, 1, 2);
  MakeDecode(&test.third, 1, 3);
  test.rig.Start(&test.first);
  test.rig.Start(&test.second);
  test.rig.Start(&test.third);
  test.launched.Await(1);
  CHECK(test.running.Count() == 0);
  REQUIRE(test.Send(1, 0, {17}).ok());
  // It samples, and the second is launched before the first has ended; its own sampling waits.
  test.launched.Await(2);
  CHECK(test.running.Count() == 1);
  CHECK_FALSE(test.first.done.HasBeenNotified());
  // The first is answered while the sampling of the second is due: its mask depends on it.
  test.ready = true;
  REQUIRE(test.first.Wait().ok());
  CHECK_FALSE(test.second.done.HasBeenNotified());
  CHECK(test.launched.Count() == 2);
  REQUIRE(test.Send(2, 0, {18}).ok());
  REQUIRE(test.second.Wait().ok());
  REQUIRE(test.Send(3, 0, {19}).ok());
  REQUIRE(test.third.Wait().ok());
  CHECK(test.first.response.ids(0) == 17);
  CHECK(test.second.response.ids(0) == 18);
  CHECK(test.third.response.ids(0) == 19);
}

TEST_CASE("LeaveGroup ends two launched steps of which the second waits for masks",
          "[shard][executor][masks]") {
  MaskRig test(2);
  test.ready = false;
  MaskRig::MakeMasked(&test.first, 1, 1);
  MakeDecode(&test.second, 1, 2);
  REQUIRE(test.Send(1, 0, {17}).ok());
  test.rig.Start(&test.first);
  test.rig.Start(&test.second);
  test.launched.Await(2);
  CHECK(test.rig.Leave(1).ok());
  CHECK(absl::IsAborted(test.first.Wait()));
  CHECK(absl::IsAborted(test.second.Wait()));
  test.ready = true;
  REQUIRE(test.rig.Form(2).ok());
  PendingPrefill again;
  MakePrefill(&again, 2, 1);
  CHECK(test.rig.Run(&again).ok());
}

}  // namespace
}  // namespace weft::shard
