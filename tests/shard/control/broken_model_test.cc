// What becomes of rows that are no numbers: reported to the router with the step, by rank 0; and of
// a model that gives nothing else: whoever started the shard is told.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/shard/control/executor_rig.h"

namespace weft::shard {
namespace {

TEST_CASE("A warm-up that finds the model broken is answered, and reported once",
          "[shard][executor]") {
  FakeRunnerOptions fake;
  fake.on_warmup = [] { return absl::DataLossError("NaN in its weights"); };
  absl::Notification told;
  std::string why;
  ExecutorOptions options;
  options.on_broken_model = [&](const std::string& text) {
    why = text;
    told.Notify();
  };
  ExecutorRig rig(fake, std::move(options));
  rig.Load();
  CHECK(absl::IsDataLoss(rig.Form(1)));
  told.WaitForNotification();
  CHECK(why == "NaN in its weights");
}

TEST_CASE("A warm-up that fails for another reason leaves the model alone", "[shard][executor]") {
  FakeRunnerOptions fake;
  fake.on_warmup = [] { return absl::InternalError("no luck"); };
  bool told = false;
  ExecutorOptions options;
  options.on_broken_model = [&](const std::string&) { told = true; };
  {
    ExecutorRig rig(fake, std::move(options));
    rig.Load();
    CHECK(absl::IsInternal(rig.Form(1)));
  }
  CHECK_FALSE(told);
}

TEST_CASE("Rows without a token are reported to the router by their index", "[shard][executor]") {
  FakeRunnerOptions fake;
  fake.invalid_rows = {0};
  ExecutorRig rig(fake);
  rig.Load();
  REQUIRE(rig.Form(1).ok());
  PendingPrefill prefill;
  MakePrefill(&prefill, 1, 1);
  REQUIRE(rig.Run(&prefill).ok());
  REQUIRE(prefill.response.invalid_rows_size() == 1);
  CHECK(prefill.response.invalid_rows(0) == 0);
  CHECK(prefill.response.ids_size() == 1);
}

}  // namespace
}  // namespace weft::shard
