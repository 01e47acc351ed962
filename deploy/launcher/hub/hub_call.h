// One question to a hub, with the redirects that it leads through: the token goes to the hub's own
// origin and nowhere else. Used on the thread of its HttpLoop; called back from HttpLoop::Run. It
// tries nothing twice: its caller does (Again).

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "deploy/launcher/hub/answer.h"
#include "deploy/launcher/hub/http.h"
#include "deploy/launcher/hub/settings.h"

namespace weft::hub {

class CallSink {
 public:
  virtual ~CallSink() = default;
  // An answer 2xx of `url` begins. False ends the call.
  virtual bool OnStart(const HttpHead& head, const std::string& url) = 0;
  // The next bytes of its body. False ends the call.
  virtual bool OnBytes(absl::string_view bytes) = 0;
};

class HubCall : public HttpHandler {
 public:
  // All outlive the call.
  HubCall(HttpLoop& loop, const HubSettings& settings, CallSink& sink);
  // Ends it if it runs.
  ~HubCall() override;

  // `asked` says in words what `request` asks for. A HEAD does not follow redirects to other hosts:
  // the hub's own answer is what it is for.
  void Start(const Asked& asked, const HttpRequest& request);

  bool running() const { return running_; }
  // After its end: OK, all of the body came; CANCELLED, the sink ended it; UNAVAILABLE, another try
  // may help; else what to tell the user.
  const absl::Status& status() const { return status_; }
  // How long the server asked to wait before that.
  const absl::optional<absl::Duration>& asked_wait() const { return asked_wait_; }
  // Headers of the last answer that the hub itself gave (and no CDN that it leads to).
  const Headers& hub_headers() const { return hub_headers_; }

 private:
  bool OnHead(const HttpHead& head) override;
  bool OnBytes(absl::string_view bytes) override;
  void OnEnd(const absl::Status& status) override;
  void Ask();
  void End(const absl::Status& status);
  // Goes where the answer leads; an error when that may not be.
  absl::Status Follow();

  HttpLoop& loop_;
  const HubSettings& settings_;
  CallSink& sink_;
  Asked asked_;
  HttpRequest request_;
  HttpHead head_;
  Headers hub_headers_;
  int redirects_ = 0;
  // Of an answer that is not handed on.
  std::string body_;
  size_t body_bytes_ = 0;
  bool running_ = false;
  absl::Status status_;
  absl::optional<absl::Duration> asked_wait_;
};

}  // namespace weft::hub
