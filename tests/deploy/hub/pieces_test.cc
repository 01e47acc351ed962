#include "deploy/launcher/hub/pieces.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace weft::hub {
namespace {

// Collects what is handed on.
struct Written {
  mutable std::string text;
  absl::Status operator()(absl::string_view bytes) const {
    text.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }
};

TEST_CASE("Pieces come in any order and are handed on in order", "[hub]") {
  const std::string file = "0123456789";
  FilePieces pieces(10, 0, 4);
  Written out;
  const auto first = *pieces.Take();
  const auto second = *pieces.Take();
  const auto third = *pieces.Take();
  CHECK_FALSE(pieces.CanTake());
  CHECK(third.range.from == 8);
  CHECK(third.range.to == 10);
  CHECK(pieces.ahead() == 2);
  CHECK(pieces.Add(third.piece, "89", out).ok());
  CHECK(pieces.Add(second.piece, "45", out).ok());
  CHECK(out.text.empty());
  CHECK(pieces.arrived() == 4);
  CHECK(pieces.Add(first.piece, "0123", out).ok());
  CHECK(out.text == "012345");
  CHECK(pieces.Add(second.piece, "67", out).ok());
  CHECK(out.text == file);
  CHECK(pieces.done());
  CHECK(pieces.in_flight() == 3);
  for (const auto& taken : {first, second, third}) pieces.Release(taken.piece);
  CHECK(pieces.in_flight() == 0);
}

TEST_CASE("What broke off is asked for again from where it broke", "[hub]") {
  FilePieces pieces(10, 2, 8);
  Written out;
  const auto taken = *pieces.Take();
  CHECK(taken.range.from == 2);
  CHECK(pieces.Add(taken.piece, "234", out).ok());
  CHECK_FALSE(pieces.HasBroken());
  pieces.Release(taken.piece);
  CHECK(pieces.HasBroken());
  const auto again = *pieces.Take();
  CHECK(again.range.from == 5);
  CHECK(again.range.to == 10);
  CHECK(pieces.written() == 5);
}

TEST_CASE("More than was asked for is an error", "[hub]") {
  FilePieces pieces(6, 0, 3);
  Written out;
  const auto taken = *pieces.Take();
  CHECK_FALSE(pieces.Add(taken.piece, "0123", out).ok());
  CHECK(pieces.Add(taken.piece, "012", out).ok());
  // The piece is whole, its request still speaks.
  CHECK_FALSE(pieces.Add(taken.piece, "3", out).ok());
  CHECK(out.text == "012");
}

TEST_CASE("A server without ranges is asked for all of the rest at once", "[hub]") {
  FilePieces pieces(10, 0, 3);
  Written out;
  const auto taken = *pieces.Take();
  CHECK(pieces.Add(taken.piece, "01", out).ok());
  pieces.Release(taken.piece);
  pieces.TakeAsOne();
  const auto rest = *pieces.Take();
  CHECK(rest.range.from == 2);
  CHECK(rest.range.to == 10);
  CHECK_FALSE(pieces.CanTake());
}

TEST_CASE("Nothing is lost, doubled or out of order whatever breaks off", "[hub]") {
  const uint64_t seed = test::Seed(15);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::string file(random() % 200, '\0');
    for (char& c : file) c = static_cast<char>(random());
    const uint64_t have = file.empty() ? 0 : random() % (file.size() + 1);
    FilePieces pieces(file.size(), have, 1 + random() % 40);
    Written out{file.substr(0, have)};
    std::vector<FilePieces::Taken> running;
    while (!pieces.done() || !running.empty()) {
      if (running.size() < 5 && pieces.CanTake()) {
        running.push_back(*pieces.Take());
        continue;
      }
      REQUIRE_FALSE(running.empty());
      const size_t i = random() % running.size();
      FilePieces::Taken& taken = running[i];
      const uint64_t left = taken.range.to - taken.range.from;
      if (left == 0 || random() % 8 == 0) {
        pieces.Release(taken.piece);
        running.erase(running.begin() + static_cast<ptrdiff_t>(i));
        continue;
      }
      const uint64_t bytes = 1 + random() % left;
      REQUIRE(pieces.Add(taken.piece, file.substr(taken.range.from, bytes), out).ok());
      taken.range.from += bytes;
      REQUIRE(pieces.written() == out.text.size());
    }
    REQUIRE(out.text == file);
  }
}

}  // namespace
}  // namespace weft::hub
