// Text that is held back because a stop string may come of it: when the answer ends before one
// does, it is part of the answer.

#include <catch2/catch.hpp>
#include <string>

#include "tests/router/engine/engine_rig.h"

namespace weft::router {
namespace {

TEST_CASE("Text held back for a stop string comes with the end when none came of it",
          "[router][engine]") {
  EngineRig rig({});
  rig.WaitReady();
  GenerateInput input = MakeInput(21, 30, 40);
  std::string full;
  for (const TokenId id : rig.Expected(input)) full.push_back(static_cast<char>(id));
  // Its last three letters begin a stop string that the length limit cuts.
  const std::string held = full.substr(full.size() - 3);
  REQUIRE(full.find(held) == full.size() - 3);
  input.stop_sequences = {held + "!"};
  auto sink = rig.Submit(input);
  sink->WaitEnd();
  REQUIRE(sink->status().ok());
  CHECK(sink->finished().reason == FinishReason::kLength);
  CHECK(sink->finished().text == held);
  CHECK(sink->text() == full);
  CHECK(sink->finished().output_tokens == 40);
  rig.CheckClean();
}

TEST_CASE("A character that the end cuts is shown as a replacement, after what was held back",
          "[router][engine]") {
  RigOptions options;
  // Lead bytes of two-byte characters, none of which is ever complete.
  options.shape.vocabulary.first = 0xC3;
  options.shape.vocabulary.count = 1;
  EngineRig rig(options);
  rig.WaitReady();
  const std::string replacement = "\xEF\xBF\xBD";
  GenerateInput input = MakeInput(1, 10, 3);
  input.stop_sequences = {replacement + replacement + replacement + "!"};
  auto sink = rig.Submit(input);
  sink->WaitEnd();
  REQUIRE(sink->status().ok());
  CHECK(sink->text() == replacement + replacement + replacement);
}

}  // namespace
}  // namespace weft::router
