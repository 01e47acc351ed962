#include "deploy/launcher/hub/progress.h"

#include <catch2/catch.hpp>

namespace weft::hub {
namespace {

TEST_CASE("Bytes and times are short", "[hub]") {
  CHECK(FormatBytes(0) == "0 B");
  CHECK(FormatBytes(999) == "999 B");
  CHECK(FormatBytes(1024) == "1.00 KiB");
  CHECK(FormatBytes(12.34 * 1024 * 1024) == "12.3 MiB");
  CHECK(FormatBytes(15.01e9) == "14.0 GiB");
  CHECK(FormatBytes(999.0 * 1024 * 1024) == "999 MiB");
  CHECK(FormatSeconds(6.2) == "7 s");
  CHECK(FormatSeconds(200) == "3 min 20 s");
  CHECK(FormatSeconds(7500) == "2 h 05 min");
}

TEST_CASE("The rate is that of the last seconds, and what was there before is none", "[hub]") {
  const absl::Time start = absl::UnixEpoch();
  Progress progress(2, 100 << 20, 50 << 20);
  CHECK(progress.Line() == "50.0 MiB of 100 MiB (50 %), 0 of 2 files");
  for (int s = 0; s <= 5; ++s) {
    progress.OnArrived((50u << 20) + static_cast<uint64_t>(s) * (5 << 20),
                       start + absl::Seconds(s));
  }
  progress.OnFileDone();
  CHECK(progress.Line() == "75.0 MiB of 100 MiB (75 %), 5.00 MiB/s, 5 s left, 1 of 2 files");
  // Silence slows it down.
  for (int s = 6; s <= 30; ++s) progress.OnArrived(75 << 20, start + absl::Seconds(s));
  CHECK(progress.bytes_per_s() == 0);
  CHECK(progress.Line() == "75.0 MiB of 100 MiB (75 %), 1 of 2 files");
}

TEST_CASE("What is thrown away is no negative rate, and an empty model is whole", "[hub]") {
  Progress progress(1, 100, 0);
  progress.OnArrived(90, absl::UnixEpoch());
  progress.OnArrived(95, absl::UnixEpoch() + absl::Seconds(1));
  progress.OnArrived(10, absl::UnixEpoch() + absl::Seconds(2));
  CHECK(progress.bytes_per_s() == 0);
  CHECK(Progress(1, 0, 0).Line() == "0 B of 0 B (100 %), 0 of 1 file");
}

}  // namespace
}  // namespace weft::hub
