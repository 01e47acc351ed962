// Changes of recordings that a fuzz target makes: they are read as records, a few fields get other
// values (often those of other fields, for then a lie stays plausible), records come twice, go or
// change places, and all is written again. So a change does not shift what stands behind it, as one
// of bytes would. Pure but for the random numbers.

#pragma once

#include <random>
#include <string>

#include "absl/strings/string_view.h"

namespace weft::router::recording {

// `payload`: records without frames; what cannot be read is left off. Empty when that is all.
std::string ChangeRecords(absl::string_view payload, std::mt19937& random);

}  // namespace weft::router::recording
