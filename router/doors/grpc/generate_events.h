// The events of one request's answers as messages of weft.v1: text or, where the request asks for
// its parts, content, reasoning and calls of tools. Owned by the call that writes them, and used by
// one thread at a time. Never writes anything itself.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "router/answer_parts.h"
#include "router/doors/answers.h"
#include "router/doors/choice_parts.h"
#include "weft/v1/generation.pb.h"

namespace weft::router {

class GenerateEvents {
 public:
  // `request` must outlive this; its prompt may have been freed.
  explicit GenerateEvents(const weft::v1::GenerateRequest* request) : request_(*request) {}

  // The answers are told apart by `spec`; null, or one that tells nothing apart: all is text.
  // Before the first TakeNext.
  void TellApart(std::shared_ptr<const PartsSpec> spec);

  // Reads the next token or end of `answers` into `response`; `ends_only` drops tokens. True when
  // there is something to write or `status` ends the request; *last with its last message.
  bool TakeNext(Answers* answers, bool ends_only, weft::v1::GenerateResponse* response, bool* last,
                absl::Status* status);
  // A token came.
  bool begun() const { return begun_; }

 private:
  // Stays where it is: the choices point into the context.
  struct Parts {
    Parts(std::shared_ptr<const PartsSpec> spec, size_t count)
        : context(std::move(spec)), choices(count) {}

    const PartsContext context;
    std::vector<ChoiceParts> choices;
  };

  void FillText(const AnswerEvent& event, weft::v1::GenerateResponse* response);
  void FillParts(const AnswerEvent& event, weft::v1::GenerateResponse* response);
  void FillToken(const AnswerToken& token, weft::v1::Output* output) const;
  void FillFinish(const AnswerEvent& event, weft::v1::FinishInfo* info) const;
  void FillHead(const Answers& answers, const AnswerHead& head,
                weft::v1::GenerateResponse* response);

  const weft::v1::GenerateRequest& request_;
  // Null: all is text.
  std::unique_ptr<Parts> parts_;
  bool head_sent_ = false;
  bool begun_ = false;
};

}  // namespace weft::router
