// A grammar as the engine sees it: each token of the answer is one that it allows. Made by text in,
// one object an answer; run by mask workers, one at a time.

#pragma once

#include <memory>
#include <string>

#include "router/engine/constraint.h"
#include "router/text/grammar/matcher.h"

namespace weft::router {

// Errors name `field`, by which the request asked for the grammar.
std::unique_ptr<TokenConstraint> FollowGrammar(std::unique_ptr<GrammarMatcher> matcher,
                                               std::string field);

}  // namespace weft::router
