// What a thread of text in does for a generation: from what a client sent to a request that is
// ready to run. Stateless; any thread.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "common/clock.h"
#include "router/admission.h"
#include "router/answer.h"
#include "router/engine/stages.h"
#include "router/observe/probe.h"
#include "router/request.h"
#include "router/text/chat_template.h"
#include "router/text/grammar/engine.h"
#include "router/text/tokenizer.h"

namespace weft::router {

// Shared by all threads of text in; all of it outlives them.
struct TextModel {
  const Tokenizer* tokenizer = nullptr;
  // Null when the model has none.
  const ChatTemplate* chat_template = nullptr;
  // Ids that end an answer, ascending.
  const std::vector<TokenId>* eos_ids = nullptr;
  // Null: requests with a grammar are refused.
  GrammarEngine* grammars = nullptr;
};

// A request as its door handed it over.
struct ArrivedRequest {
  // Of each choice, at least one.
  std::vector<AnswerWriter> writers;
  GenerateInput input;
  // Of the first choice; the others' follow from it.
  uint64_t seed = 0;
  // How many workers text out has.
  uint32_t text_workers = 1;
  int64_t arrival_us = 0;
};

// Bytes of text that reading the request takes: what decides on its lane.
size_t TextBytes(const GenerateInput& input);
size_t TextBytes(const std::variant<std::string, ChatPrompt>& prompt);

// Renders, tokenises, truncates, reads what a resumed request's client has had, checks what only
// the model decides and counts prompt and resumed part on the permit of each choice. Fills
// `prepared`, the first choice with the others as its followers, whose writers are the arrived
// ones'. These are left alone on an error: DEADLINE_EXCEEDED or CANCELLED when the request was
// cancelled, RESOURCE_EXHAUSTED when the queue's tokens are taken, INVALID_ARGUMENT with the field
// otherwise. `vocab_size` is what the shards know.
absl::Status Prepare(const TextModel& model, const Admission& admission, uint32_t vocab_size,
                     const std::optional<PrefixHasher>& hasher, const Clock& clock, Probe* probe,
                     ArrivedRequest* arrived, PreparedRequest* prepared);

}  // namespace weft::router
