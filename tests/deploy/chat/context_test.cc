// A conversation that outgrows the context goes on without its oldest exchanges.

#include "deploy/launcher/chat/context.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"

namespace weft::launcher {
namespace {

// A token a byte.
absl::StatusOr<uint32_t> Count(const std::vector<ChatTurn>& messages) {
  uint32_t tokens = 0;
  for (const ChatTurn& turn : messages) tokens += static_cast<uint32_t>(turn.content.size());
  return tokens;
}

// Exchanges of 20 tokens, and a question of 10.
Conversation Of(int exchanges) {
  Conversation conversation;
  for (int i = 0; i < exchanges; ++i) {
    conversation.Ask(std::string(10, 'q'));
    conversation.Answer(std::string(10, 'a'));
  }
  conversation.Ask(std::string(10, 'q'));
  return conversation;
}

TEST_CASE("What fits is sent as it is, with the rest for the answer", "[chat]") {
  Conversation conversation = Of(3);
  const absl::StatusOr<Room> room = MakeRoom(100, 0, Count, &conversation);
  REQUIRE(room.ok());
  CHECK(room->prompt_tokens == 70);
  CHECK(room->answer_tokens_max == 30);
  CHECK(room->dropped == 0);
  CHECK(MakeRoom(100, 8, Count, &conversation)->answer_tokens_max == 8);
}

TEST_CASE("The oldest exchanges make room, with some to spare", "[chat]") {
  Conversation conversation = Of(4);  // 90 tokens of 100; at most 75 beside an answer
  const absl::StatusOr<Room> room = MakeRoom(100, 0, Count, &conversation);
  REQUIRE(room.ok());
  CHECK(room->dropped == 2);  // 70 would do, 63 leaves an eighth
  CHECK(room->prompt_tokens == 50);
  CHECK(room->answer_tokens_max == 50);
  CHECK(conversation.dropped() == 2);
  // The next question does not change the beginning again.
  conversation.Answer("aaaa");
  conversation.Ask("qqqq");
  CHECK(MakeRoom(100, 0, Count, &conversation)->dropped == 0);
}

TEST_CASE("A long answer that was asked for has half of the context at most", "[chat]") {
  Conversation conversation = Of(2);  // 50
  CHECK(MakeRoom(100, 4000, Count, &conversation)->dropped == 0);
  conversation.Answer("a");
  conversation.Ask("q");
  const absl::StatusOr<Room> room = MakeRoom(100, 4000, Count, &conversation);
  CHECK(room->dropped == 1);
  CHECK(room->answer_tokens_max == 100 - room->prompt_tokens);
}

TEST_CASE("A last question that does not fit alone is refused", "[chat]") {
  Conversation conversation = Of(2);
  conversation.Answer("a");
  conversation.Ask(std::string(100, 'q'));
  const absl::StatusOr<Room> room = MakeRoom(100, 0, Count, &conversation);
  CHECK(absl::IsInvalidArgument(room.status()));
  CHECK(absl::StrContains(room.status().message(), "100 tokens"));
  // One that leaves a single token is not.
  conversation.Unask();
  conversation.Ask(std::string(99, 'q'));
  CHECK(MakeRoom(100, 0, Count, &conversation)->answer_tokens_max == 1);
}

TEST_CASE("What the count says passes through", "[chat]") {
  Conversation conversation = Of(1);
  const auto fails = [](const std::vector<ChatTurn>&) -> absl::StatusOr<uint32_t> {
    return absl::UnavailableError("gone");
  };
  CHECK(absl::IsUnavailable(MakeRoom(100, 0, fails, &conversation).status()));
}

}  // namespace
}  // namespace weft::launcher
