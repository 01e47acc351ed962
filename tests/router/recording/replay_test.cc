// Recordings of simulated worlds, played again: to the bit, from every part, and with everything
// that can be wrong with the files said by name.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/recording/digest.h"
#include "router/recording/parts.h"
#include "tests/common/temp_dir.h"
#include "tests/router/recording/recorded_world.h"

namespace weft::router {
namespace {

using recording::FindParts;
using recording::Part;
using recording::Replay;
using recording::ReplayReport;

constexpr uint64_t kSmallPart = 20'000;

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<Part> RecordSmallParts(const std::string& path, uint64_t seed, bool kv_windows) {
  recording::RecordOptions options = UnhurriedOptions(path);
  options.part_bytes = kSmallPart;
  const RecordedWorld world = RecordWorld(seed, 600, kv_windows, options);
  CHECK(!world.ended);
  auto parts = FindParts(path);
  REQUIRE(parts.ok());
  return *std::move(parts);
}

// Makes `change` to the payload of each frame of the part, with a checksum that says it is right.
template <typename Change>
void ChangeFrames(const std::string& path, Change change) {
  std::string bytes = recording::PartMagic();
  {
    auto reader = recording::PartReader::Open(path);
    REQUIRE(reader.ok());
    for (size_t i = 0;; ++i) {
      const auto payload = reader->Next();
      if (absl::IsOutOfRange(payload.status())) break;
      REQUIRE(payload.ok());
      std::string changed(*payload);
      change(i, &changed);
      recording::AppendFrame(changed, &bytes);
    }
  }
  WriteFile(path, bytes);
}

TEST_CASE("A recorded world is played again to the bit, as a whole and from every part",
          "[recording]") {
  uint64_t groups_lost = 0;
  uint64_t states = 0;
  for (const bool kv_windows : {false, true}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      CAPTURE(seed, kv_windows);
      test::TempDir dir;
      const std::string path = dir.path() + "/rec";
      const std::vector<Part> parts = RecordSmallParts(path, seed, kv_windows);
      ReplayReport whole;
      REQUIRE(Replay(path, &whole) == absl::OkStatus());
      CHECK(whole.difference == "");
      CHECK(whole.complete);
      CHECK(whole.recordings == 1);
      CHECK(whole.states + 1 == parts.size());
      uint64_t events = 0;
      uint64_t plans = 0;
      for (const Part& part : parts) {
        CAPTURE(part.path);
        ReplayReport alone;
        REQUIRE(Replay(part.path, &alone) == absl::OkStatus());
        CHECK(alone.difference == "");
        CHECK(alone.first_event == events);
        events += alone.events;
        plans += alone.plans;
      }
      CHECK(events == whole.events);
      CHECK(plans == whole.plans);
      states += whole.states;
      groups_lost += whole.plans > 0;
    }
  }
  std::cout << states << " states were where the events led\n";
  CHECK(groups_lost == 12);
  CHECK(states > 30);
}

TEST_CASE("A recording has as many plans as its world had steps", "[recording]") {
  test::TempDir dir;
  const std::string path = dir.path() + "/rec";
  const RecordedWorld world = RecordWorld(3, 600, /*kv_windows=*/false, UnhurriedOptions(path));
  // So that the equality above says something of them.
  CHECK(world.report.groups_lost > 0);
  CHECK(world.report.preemptions > 0);
  CHECK(world.report.prefix_hit_tokens > 0);
  CHECK(world.report.cancelled > 0);
  CHECK(world.report.ended_by_eos > 0);
  CHECK(world.report.flushes > 0);
  ReplayReport report;
  REQUIRE(Replay(path, &report) == absl::OkStatus());
  CHECK(report.plans == world.report.steps);
  CHECK(report.parts == std::vector<std::string>{path + ".1"});
}

// Remembers the digest of one plan.
class DigestOfStep : public EventTap {
 public:
  DigestOfStep(StepNumber step, Recorder* recorder) : step_(step), to_(*recorder) {}

  uint64_t digest = 0;

  void OnGroupFormed(const GroupInfo& group, int64_t now_us,
                     absl::Span<const Ended> ended) override {
    to_.OnGroupFormed(group, now_us, ended);
  }
  void OnGroupLost(int64_t now_us, absl::Span<const Ended> ended) override {
    to_.OnGroupLost(now_us, ended);
  }
  void OnArrival(const Arrival& arrival, uint32_t prompt_tokens, int64_t now_us,
                 const absl::Status& status) override {
    to_.OnArrival(arrival, prompt_tokens, now_us, status);
  }
  void OnCutLimit(SequenceId id, uint32_t tokens_max, int64_t now_us,
                  const absl::Status& status) override {
    to_.OnCutLimit(id, tokens_max, now_us, status);
  }
  void OnCancel(SequenceId id, int64_t now_us, absl::Span<const Ended> ended) override {
    to_.OnCancel(id, now_us, ended);
  }
  void OnFlush(int64_t now_us) override { to_.OnFlush(now_us); }
  void OnStepDone(StepNumber step, const StepTime& time, int64_t now_us,
                  absl::Span<const Emitted> emitted, absl::Span<const Ended> ended) override {
    to_.OnStepDone(step, time, now_us, emitted, ended);
  }
  void OnPlan(const StepPlan* plan, int64_t now_us) override {
    to_.OnPlan(plan, now_us);
    if (plan != nullptr && plan->step == step_) digest = recording::DigestOf(*plan);
  }

 private:
  const StepNumber step_;
  Recorder& to_;
};

TEST_CASE("A plan that another build made otherwise is found and named", "[recording]") {
  test::TempDir dir;
  const std::string path = dir.path() + "/rec";
  auto recorder = Recorder::Create(UnhurriedOptions(path), 1);
  REQUIRE(recorder.ok());
  DigestOfStep tap(40, recorder->get());
  SimulationOptions simulation;
  simulation.requests = 100;
  simulation.worlds = 1;
  simulation.on_scheduler = [&](const SchedulerConfig& config, Scheduler* scheduler) {
    (*recorder)->Begin(config, scheduler);
    scheduler->SetTap(&tap);
  };
  RunSimulation(simulation);
  (*recorder)->Finish();
  REQUIRE(tap.digest != 0);

  std::string digest;
  recording::Encoder(&digest).Fixed(tap.digest);
  int found = 0;
  ChangeFrames(path + ".1", [&](size_t, std::string* payload) {
    const size_t place = payload->find(digest);
    if (place == std::string::npos) return;
    ++found;
    (*payload)[place] = static_cast<char>((*payload)[place] ^ 1);
  });
  REQUIRE(found == 1);
  ReplayReport report;
  REQUIRE(Replay(path, &report) == absl::OkStatus());
  INFO(report.difference);
  CHECK(absl::StartsWith(report.difference, "part 1, event "));
  CHECK(absl::StrContains(report.difference, "the recorded plan is step 40 of "));
  CHECK(absl::StrContains(report.difference, "this build's is step 40 of "));
  CHECK(!report.complete);
  CHECK(report.plans >= 40);
}

TEST_CASE("A state that another build came to is found and named", "[recording]") {
  test::TempDir dir;
  const std::string path = dir.path() + "/rec";
  REQUIRE(RecordSmallParts(path, 2, false).size() > 2);
  // The last 8 bytes of a state are the cost of a token of context.
  ChangeFrames(path + ".2", [](size_t frame, std::string* payload) {
    if (frame == 0) (*payload)[payload->size() - 4] ^= 1;
  });
  ReplayReport report;
  REQUIRE(Replay(path, &report) == absl::OkStatus());
  CHECK(absl::StrContains(report.difference, "the state recorded here"));
}

TEST_CASE("A part that is missing, cut, damaged or foreign is named", "[recording]") {
  test::TempDir dir;
  const std::string path = dir.path() + "/rec";
  const std::vector<Part> parts = RecordSmallParts(path, 4, false);
  REQUIRE(parts.size() > 3);
  const auto message = [](const std::string& file, uint64_t* plans = nullptr) {
    ReplayReport report;
    const absl::Status status = Replay(file, &report);
    if (plans != nullptr) *plans = report.plans;
    CHECK(report.difference == "");
    return std::string(status.message());
  };
  const std::string bytes = test::ReadFile(parts[1].path);

  SECTION("cut at every length") {
    uint64_t cut = 0;
    for (size_t length = 1; length < bytes.size(); length += 97) {
      WriteFile(parts[1].path, bytes.substr(0, length));
      const std::string said = message(parts[1].path);
      // Whole frames are whole: it has no end, which the report says.
      const bool is_cut = absl::StrContains(
          said, parts[1].path + " is cut: it ends at byte " + absl::StrCat(length));
      cut += is_cut;
      CHECK((is_cut || said == "" || absl::StrContains(said, "is no part of a recording")));
    }
    CHECK(cut > 100);
  }
  SECTION("cut in its last frame: what came before is played") {
    std::filesystem::resize_file(parts.back().path, parts.back().bytes - 3);
    uint64_t plans = 0;
    CHECK(absl::StrContains(message(path, &plans), parts.back().path + " is cut"));
    CHECK(plans > 0);
  }
  SECTION("damaged in any byte") {
    for (size_t place = 0; place < bytes.size(); place += 61) {
      std::string damaged = bytes;
      damaged[place] = static_cast<char>(damaged[place] ^ 0x10);
      WriteFile(parts[1].path, damaged);
      CAPTURE(place);
      CHECK(absl::StrContains(message(parts[1].path), parts[1].path));
    }
  }
  SECTION("missing") {
    std::filesystem::remove(parts[1].path);
    CHECK(absl::StrContains(
        message(path), absl::StrCat(path, ".2 is missing between ", path, ".1 and ", path, ".3")));
    CHECK(message(parts[2].path) == "");
  }
  SECTION("the first ones were rotated away") {
    std::filesystem::remove(parts[0].path);
    ReplayReport report;
    REQUIRE(Replay(path, &report) == absl::OkStatus());
    CHECK(report.difference == "");
    CHECK(report.first_event > 0);
    CHECK(report.complete);
  }
  SECTION("of another format") {
    std::string foreign = bytes;
    foreign[7] = '9';
    WriteFile(parts[1].path, foreign);
    CHECK(absl::StrContains(message(parts[1].path), "has format 9; this build reads 1"));
  }
  SECTION("emptied") {
    for (const Part& part : {parts[0], parts[1], parts.back()}) {
      WriteFile(part.path, recording::PartMagic());
      CHECK(absl::StrContains(message(part.path), part.path + " holds no event"));
    }
    CHECK(absl::StrContains(message(path), parts[0].path + " holds no event"));
    WriteFile(parts[1].path, bytes);
    RecordSmallParts(dir.path() + "/other", 3, false);
    std::filesystem::copy_file(dir.path() + "/other.1", parts[0].path,
                               std::filesystem::copy_options::overwrite_existing);
    WriteFile(parts[1].path, recording::PartMagic());
    CHECK(absl::StrContains(message(path), parts[1].path + " holds no event"));
  }
  SECTION("killed as the next part began") {
    WriteFile(recording::PartPath(path, parts.back().number + 1), recording::PartMagic());
    CHECK(message(path) == "");
  }
  SECTION("of another recording") {
    RecordSmallParts(dir.path() + "/other", 3, false);
    std::filesystem::copy_file(dir.path() + "/other.2", parts[1].path,
                               std::filesystem::copy_options::overwrite_existing);
    uint64_t plans = 0;
    CHECK(
        absl::StrContains(message(path, &plans), "a part of another recording, behind its event"));
    CHECK(plans > 0);
  }
  SECTION("a link that leads nowhere") {
    const std::string link = recording::PartPath(path, parts.back().number + 1);
    std::filesystem::create_symlink("nowhere", link);
    CHECK(absl::StrContains(message(path), link));
  }
  SECTION("with more behind its end") {
    size_t last = 0;
    ChangeFrames(parts.back().path, [&](size_t frame, std::string*) { last = frame; });
    ChangeFrames(parts.back().path, [&](size_t frame, std::string* payload) {
      if (frame != last) return;
      // A Plan() that had nothing to do.
      std::string record;
      recording::Encoder encoder(&record);
      encoder.Number(recording::RecordKind::kPlan);
      encoder.Signed(0);
      encoder.Number(uint64_t{0});
      *payload += record;
    });
    const std::string said = message(parts.back().path);
    CHECK(absl::StrContains(said, "behind the end of its recording"));
  }
  SECTION("none at all") {
    CHECK(absl::StrContains(message(dir.path() + "/other"), "there is no "));
    CHECK(absl::StrContains(message(dir.path() + "/nowhere/rec"), "cannot list "));
  }
}

TEST_CASE("What no scheduler was ever told is refused, not played", "[recording]") {
  test::TempDir dir;
  const std::string path = dir.path() + "/rec";
  RecordSmallParts(path, 5, true);
  // Frames with right checksums and wrong contents.
  const std::string before = test::ReadFile(path + ".2");
  uint64_t refused = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    WriteFile(path + ".2", before);
    ChangeFrames(path + ".2", [i](size_t frame, std::string* payload) {
      if (frame == 1) payload->resize(payload->size() * (i + 1) / 201);
    });
    ReplayReport report;
    const absl::Status status = Replay(path + ".2", &report);
    if (status.ok()) continue;
    ++refused;
    CHECK(absl::StrContains(status.message(), "event "));
  }
  CHECK(refused > 100);
}

}  // namespace
}  // namespace weft::router
