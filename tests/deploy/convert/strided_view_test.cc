// Views of storages: what may be read of them, and in which order it comes out.

#include "deploy/convert/strided_view.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace weft::convert {
namespace {

std::vector<uint8_t> Elements(const StridedView& view, const std::vector<uint8_t>& storage,
                              size_t piece_bytes) {
  std::vector<uint8_t> out;
  const absl::Status status =
      VisitElements(view, storage, piece_bytes, [&](absl::Span<const uint8_t> piece) {
        CHECK(piece.size() <= piece_bytes);
        out.insert(out.end(), piece.begin(), piece.end());
        return absl::OkStatus();
      });
  CHECK(status.ok());
  return out;
}

TEST_CASE("The elements of a view come in the order of its shape", "[deploy][convert]") {
  std::vector<uint8_t> storage(240);
  std::iota(storage.begin(), storage.end(), uint8_t{0});
  const StridedView views[] = {
      {1, 0, {240}, {1}},       {1, 0, {4, 60}, {60, 1}},
      {2, 3, {5, 4}, {1, 6}},   {4, 1, {3, 2, 4}, {1, 24, 4}},
      {8, 2, {7, 3}, {3, 1}},   {1, 9, {2, 1, 3}, {50, 7, 5}},
      {2, 100, {}, {}},         {2, 100, {1, 1}, {900, 1}},
      {1, 999, {0, 4}, {4, 1}},
  };
  for (const StridedView& view : views) {
    REQUIRE(view.Check(storage.size() / view.element_bytes).ok());
    // By the definition, element for element.
    std::vector<uint8_t> expected;
    for (uint64_t i = 0; i < view.elements(); ++i) {
      uint64_t at = view.offset;
      uint64_t rest = i;
      for (size_t d = view.shape.size(); d-- > 0;) {
        at += rest % view.shape[d] * view.strides[d];
        rest /= view.shape[d];
      }
      for (uint64_t b = 0; b < view.element_bytes; ++b) {
        expected.push_back(storage[at * view.element_bytes + b]);
      }
    }
    for (const size_t piece_bytes : {size_t{8}, size_t{16}, size_t{4096}}) {
      CHECK(Elements(view, storage, piece_bytes) == expected);
    }
  }
  CHECK(StridedView{1, 0, {4, 60}, {60, 1}}.contiguous());
  CHECK(StridedView{1, 0, {4, 1, 60}, {60, 7, 1}}.contiguous());
  CHECK(!StridedView{1, 0, {60, 4}, {1, 60}}.contiguous());
}

TEST_CASE("A view that leaves its storage or shares places is refused", "[deploy][convert]") {
  struct Case {
    StridedView view;
    const char* want;
  };
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  const Case cases[] = {
      {{4, 0, {2, 3}, {3, 1}}, ""},
      {{4, 6, {2, 3}, {3, 1}}, ""},
      {{4, 7, {2, 3}, {3, 1}}, "outside its storage of 12 elements"},
      {{4, 0, {13}, {1}}, "outside its storage"},
      {{4, 12, {}, {}}, "outside its storage"},
      {{4, kHuge, {2}, {1}}, "outside its storage"},
      {{4, 0, {kHuge}, {kHuge}}, "overflows"},
      {{4, ~uint64_t{0}, {2}, {1}}, "outside its storage"},
      {{4, 0, {1u << 30}, {0}}, "share a place"},
      {{4, 0, {3, 2}, {1, 2}}, "share a place"},
      {{4, 0, {2, 2}, {1, 1}}, "share a place"},
      {{4, 0, {3, 1}, {2, 0}}, ""},
      {{4, 0, {2, 3}, {3}}, "strides"},
      {{4, 0, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}}, "more than 8"},
      {{4, 99, {0, 7}, {0, 0}}, ""},
      {{4, 0, {0, kHuge, kHuge}, {1, 1, 1}}, "overflows"},
  };
  for (const Case& c : cases) {
    const absl::Status status = c.view.Check(12);
    INFO(status);
    if (*c.want == '\0') {
      CHECK(status.ok());
    } else {
      CHECK(absl::StrContains(status.message(), c.want));
    }
  }
}

}  // namespace
}  // namespace weft::convert
