#include "deploy/launcher/hub/hub_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "deploy/launcher/hub/file_list.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/urls.h"

namespace weft::hub {
namespace {

constexpr size_t kIgnoredBodyBytesMax = 64u << 10;

bool IsAnswer(int status) { return status >= 200 && status < 300; }

}  // namespace

HubCall::HubCall(HttpLoop& loop, const HubSettings& settings, CallSink& sink)
    : loop_(loop), settings_(settings), sink_(sink) {}

HubCall::~HubCall() {
  if (running_) loop_.Cancel(this);
}

void HubCall::Start(const Asked& asked, const HttpRequest& request) {
  asked_ = asked;
  request_ = request;
  redirects_ = 0;
  running_ = true;
  status_ = absl::OkStatus();
  asked_wait_.reset();
  hub_headers_.clear();
  Ask();
}

void HubCall::Ask() {
  body_.clear();
  body_bytes_ = 0;
  head_ = HttpHead();
  request_.token = IsSameOrigin(request_.url, settings_.endpoint) ? settings_.token : "";
  loop_.Start(request_, this);
}

bool HubCall::OnHead(const HttpHead& head) {
  head_ = head;
  if (IsSameOrigin(request_.url, settings_.endpoint)) hub_headers_ = head.headers;
  return !IsAnswer(head.status) || sink_.OnStart(head, request_.url);
}

bool HubCall::OnBytes(absl::string_view bytes) {
  if (IsAnswer(head_.status)) return sink_.OnBytes(bytes);
  absl::StrAppend(&body_,
                  bytes.substr(0, kErrorBodyBytesMax - std::min(body_.size(), kErrorBodyBytesMax)));
  body_bytes_ += bytes.size();
  return body_bytes_ <= kIgnoredBodyBytesMax;
}

absl::Status HubCall::Follow() {
  if (++redirects_ > kRedirectsMax) {
    return absl::FailedPreconditionError(
        absl::StrCat(HostOf(request_.url), " leads on more than ", kRedirectsMax, " times"));
  }
  const std::string location(HeaderOr(head_.headers, "location"));
  absl::StatusOr<std::string> next = Redirected(request_.url, location);
  if (!next.ok()) return Annotate(next.status(), HostOf(request_.url));
  request_.url = *std::move(next);
  return absl::OkStatus();
}

void HubCall::OnEnd(const absl::Status& status) {
  if (head_.status == 0 || IsAnswer(head_.status)) return End(status);
  // What follows the head of another answer does not matter.
  if (IsRedirect(head_.status)) {
    const std::string from = request_.url;
    if (const absl::Status followed = Follow(); !followed.ok()) return End(followed);
    if (!request_.head || IsSameOrigin(request_.url, from)) return Ask();
    return End(absl::OkStatus());
  }
  Asked asked = asked_;
  asked.host = HostOf(request_.url);
  asked.with_token = !request_.token.empty();
  if (IsPassing(head_.status)) asked_wait_ = AskedWait(head_.headers, absl::Now());
  End(RefusalOf(head_.status, head_.headers, body_, asked));
}

void HubCall::End(const absl::Status& status) {
  running_ = false;
  status_ = status;
}

}  // namespace weft::hub
