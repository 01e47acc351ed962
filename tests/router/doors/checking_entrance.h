// The entrance of fuzz targets: looks at each request that a door hands in, ends the process when
// the door has let something through that it must refuse, and takes no request. Runs everything on
// the thread that calls, and keeps nothing but the last request's words.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/check.h"
#include "router/doors/entrance.h"
#include "router/errors.h"
#include "tests/router/doors/input_fault.h"

namespace weft::router {

class CheckingEntrance : public Entrance {
 public:
  // The words of what was handed in since the last call; empty when nothing was.
  std::string TakeSeen() { return std::exchange(seen_, {}); }

  absl::StatusOr<Admission::Permit> Enter(const TenantRef& tenant, size_t body_bytes) override {
    return admission_.Enter(tenant, body_bytes);
  }
  absl::StatusOr<Admission::Permit> EnterText(const TenantRef& tenant, size_t body_bytes) override {
    return admission_.EnterText(tenant, body_bytes);
  }
  bool Run(size_t, absl::AnyInvocable<void()>&& read) override {
    read();
    return true;
  }

  absl::StatusOr<std::vector<std::shared_ptr<Answer>>> SubmitChoices(
      GenerateInput input, std::vector<Admission::Permit>, std::shared_ptr<AnswerSink>) override {
    See(input);
    return Busy();
  }
  void Tokenize(std::variant<std::string, ChatPrompt> prompt, bool add_special_tokens,
                Admission::Permit, std::shared_ptr<const TextCall>,
                absl::AnyInvocable<void(absl::StatusOr<TokenizeResult>)> done) override {
    GenerateInput input;
    std::visit([&input](auto&& value) { input.prompt = std::move(value); }, std::move(prompt));
    input.add_special_tokens = add_special_tokens;
    See(input);
    done(Busy());
  }
  void Detokenize(std::vector<TokenId> ids, bool, Admission::Permit,
                  std::shared_ptr<const TextCall>,
                  absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) override {
    if (ids.empty()) {
      seen_ = "no ids";
    } else {
      GenerateInput input;
      input.prompt = std::move(ids);
      See(input);
    }
    done(Busy());
  }
  bool Cancel(const Tenant&, const std::string&) override { return false; }

  ModelFacts Model() const override {
    ModelFacts model;
    model.model_name = "m";
    model.has_chat_template = true;
    model.shape.vocab_size = 300;
    model.shape.context_tokens = 2048;
    return model;
  }
  ServerStatus Status() const override {
    ServerStatus status;
    status.state = ServerState::kReady;
    return status;
  }

 private:
  static absl::Status Busy() {
    return OverloadedError("FUZZ", "no request is taken", absl::ZeroDuration());
  }

  void See(const GenerateInput& input) {
    WEFT_CHECK_EQ(InputFault(input), std::string());
    seen_ = InputText(input);
  }

  Admission admission_{{}, &MonotonicClock()};
  std::string seen_;
};

}  // namespace weft::router
