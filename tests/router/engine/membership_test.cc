// Which router serves the shards, and with which model: real engines on mock shards.

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

RigOptions Unsupervised() {
  RigOptions options = TwoShards();
  options.supervisor = false;
  return options;
}

bool Ready(const Core& engine) { return engine.Status().state == ServerState::kReady; }

bool Waits(const Core& engine) {
  return absl::StrContains(engine.Status().detail, "another router holds the shards");
}

// A second router on the shards of a rig, and what it said when it could not go on.
struct SecondRouter {
  SecondRouter(EngineRig& rig, EngineOptions options) {
    options.on_fatal = [this](const absl::Status& status) {
      absl::MutexLock lock(&mutex);
      fatal = status;
    };
    engine = rig.MakeEngine(std::move(options), &probe);
  }
  absl::Status Fatal() {
    absl::MutexLock lock(&mutex);
    return fatal;
  }

  absl::Mutex mutex;
  absl::Status fatal ABSL_GUARDED_BY(mutex);
  Probe probe;
  std::unique_ptr<Core> engine;
};

TEST_CASE("A second router waits while the first shows life, and serves when it ends",
          "[router][engine][membership]") {
  const RigOptions options = Unsupervised();
  EngineRig rig(options);
  rig.WaitReady();
  auto stream = rig.Submit(MakeInput(1, 20, 900));
  stream->WaitTokens(5);
  SecondRouter second(rig, options.engine);
  EngineRig::WaitUntil("the second one says that it waits", [&] { return Waits(*second.engine); });
  // The first one's stream is not touched.
  stream->WaitEnd();
  CHECK(stream->ids() == rig.Expected(MakeInput(1, 20, 900)));
  CHECK(rig.shard(0).stats().epochs == 1);
  CHECK(!rig.has_fatal());
  CHECK(!Ready(*second.engine));
  rig.engine().Shutdown();
  EngineRig::WaitUntil("the second one serves", [&] { return Ready(*second.engine); });
  auto sink = SubmitTo(*second.engine, MakeInput(1, 20, 10));
  sink->WaitEnd();
  CHECK(sink->ids() == rig.Expected(MakeInput(1, 20, 10)));
  CHECK(second.Fatal().ok());
  for (uint32_t rank : {0u, 1u}) CHECK(rig.shard(rank).stats().violations.empty());
}

TEST_CASE("A supervised restart takes over at once, and the start before it ends",
          "[router][engine][membership]") {
  RigOptions options = Unsupervised();
  options.engine.launcher = {/*launcher_id=*/5, /*generation=*/1};
  EngineRig rig(options);
  rig.WaitReady();
  EngineOptions later = options.engine;
  later.launcher.generation = 2;
  SecondRouter second(rig, later);
  EngineRig::WaitUntil("the second one serves", [&] { return Ready(*second.engine); });
  EngineRig::WaitUntil("the first one knows", [&] { return rig.has_fatal(); });
  auto sink = SubmitTo(*second.engine, MakeInput(1, 20, 10));
  sink->WaitEnd();
  CHECK(sink->ids() == rig.Expected(MakeInput(1, 20, 10)));
  CHECK(second.Fatal().ok());
}

TEST_CASE("A router that recovers keeps its shards from a second one that waits",
          "[router][engine][membership]") {
  const RigOptions options = Unsupervised();
  EngineRig rig(options);
  rig.WaitReady();
  SecondRouter second(rig, options.engine);
  EngineRig::WaitUntil("the second one says that it waits", [&] { return Waits(*second.engine); });
  auto stream = rig.Submit(MakeInput(3, 20, 900));
  stream->WaitTokens(5);
  rig.RestartShard(1);
  stream->WaitEnd();
  CHECK(stream->ids() == rig.Expected(MakeInput(3, 20, 900)));
  // Whoever gets rank 0 first, one of the two serves; a router that is not fenced goes on.
  rig.RestartShard(0);
  EngineRig::WaitUntil("one of them serves", [&] {
    return Ready(rig.engine()) || (Ready(*second.engine) && rig.has_fatal());
  });
  CHECK(second.Fatal().ok());
}

TEST_CASE("A router whose tokenizer is not that of the shards' model never serves",
          "[router][engine][membership]") {
  RigOptions options;
  options.shape.vocabulary.size = 320;  // the byte model has 257 ids
  absl::Mutex mutex;
  absl::Status fatal;
  options.engine.on_fatal = [&](const absl::Status& status) {
    absl::MutexLock lock(&mutex);
    fatal = status;
  };
  EngineRig rig(options);
  EngineRig::WaitUntil("it gives up", [&] {
    absl::MutexLock lock(&mutex);
    return !fatal.ok();
  });
  CHECK(absl::IsInvalidArgument(fatal));
  CHECK(
      absl::StrContains(fatal.message(), "the router's tokenizer has 257 ids, rank 0's model 320"));
  CHECK(rig.shard(0).stats().epochs == 0);
  auto refused = rig.Submit(MakeInput(1, 5, 3));
  refused->WaitEnd();
  CHECK(absl::IsUnavailable(refused->status()));
}

}  // namespace
}  // namespace weft::router
