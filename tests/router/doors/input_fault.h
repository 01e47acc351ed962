// What every door promises of a GenerateInput that it hands in (router/request.h), for fuzz
// targets: each field in its range, each text valid UTF-8. And an input in words, to compare two.
// Pure.

#pragma once

#include <string>

#include "router/request.h"

namespace weft::router {

// The first promise that `input` breaks, by its field; empty when it keeps all.
std::string InputFault(const GenerateInput& input);

// Every field, so that equal texts mean equal inputs.
std::string InputText(const GenerateInput& input);

}  // namespace weft::router
