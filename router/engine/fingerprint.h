// A name for all that the tokens of an answer depend on beside its request: the model as its files
// describe it, tokenizer, types, device and instruction set, number of shards, mode and build. Two
// groups of one name give the same tokens for the same request and seed where rows do not depend on
// their neighbours (invariant num.row), so that either may go on with what the other began. Pure
// functions.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "router/shards/forming.h"

namespace weft::router {

// "weft-VERSION-" and 16 hexadecimal digits; at most kFingerprintBytesMax bytes. `model` is the
// name that requests use: files are told apart by it, and by names, types and shapes of their
// tensors, but not by what these hold.
std::string GroupFingerprint(absl::string_view model, const FormedGroup& group);

}  // namespace weft::router
