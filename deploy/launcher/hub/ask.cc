#include "deploy/launcher/hub/ask.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "deploy/launcher/hub/hub_call.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/progress.h"
#include "deploy/launcher/hub/urls.h"

namespace weft::hub {
namespace {

constexpr absl::Duration kTurn = absl::Milliseconds(200);

class TextSink : public CallSink {
 public:
  bool OnStart(const HttpHead&, const std::string&) override {
    text_.clear();
    return true;
  }
  bool OnBytes(absl::string_view bytes) override {
    too_long_ = text_.size() + bytes.size() > kListBytesMax;
    if (!too_long_) absl::StrAppend(&text_, bytes);
    return !too_long_;
  }
  bool too_long() const { return too_long_; }
  std::string& text() { return text_; }

 private:
  std::string text_;
  bool too_long_ = false;
};

absl::Status WaitFor(PullContext& context, absl::Duration wait) {
  const absl::Time until = absl::Now() + wait;
  while (absl::Now() < until) {
    context.loop.Run(std::min(kTurn, until - absl::Now()), context.signals.fd());
    WEFT_RETURN_IF_ERROR(CheckInterrupt(context));
  }
  return absl::OkStatus();
}

// Asks until an answer comes that no further try would change.
absl::Status AskWithTries(PullContext& context, const Asked& asked, const HttpRequest& request,
                          TextSink* sink, Headers* hub_headers) {
  std::mt19937_64 random{std::random_device()()};
  for (uint32_t failures = 0;;) {
    HubCall call(context.loop, context.settings, *sink);
    call.Start(asked, request);
    while (call.running()) {
      context.loop.Run(kTurn, context.signals.fd());
      WEFT_RETURN_IF_ERROR(CheckInterrupt(context));
    }
    if (sink->too_long()) {
      return absl::FailedPreconditionError(absl::StrCat(
          asked.id.text(), ": the hub's list of files is longer than ", kListBytesMax, " bytes"));
    }
    const absl::Status status = call.status();
    if (status.ok()) {
      *hub_headers = call.hub_headers();
      return absl::OkStatus();
    }
    if (!absl::IsUnavailable(status)) return status;
    if (++failures > context.options.retries) {
      return Annotate(status, absl::StrCat("given up after ", failures, " tries"));
    }
    const absl::Duration wait =
        std::max(call.asked_wait().value_or(absl::ZeroDuration()),
                 BackOff(failures, std::uniform_real_distribution<double>(0.5, 1)(random)));
    context.reporter.Say(absl::StrCat(status.message(), "; trying again in ",
                                      FormatSeconds(absl::ToDoubleSeconds(wait))));
    WEFT_RETURN_IF_ERROR(WaitFor(context, wait));
  }
}

}  // namespace

absl::StatusOr<ModelFileList> AskFileList(PullContext& context, const ModelId& id) {
  TextSink sink;
  Headers headers;
  HttpRequest request;
  request.url = FileListUrl(context.settings.endpoint, id);
  WEFT_RETURN_IF_ERROR(AskWithTries(context, {id, "", context.settings.endpoint, "", false},
                                    request, &sink, &headers));
  absl::StatusOr<ModelFileList> list = ParseFileList(sink.text());
  if (!list.ok()) return Annotate(list.status(), id.text());
  return list;
}

absl::Status AskFile(PullContext& context, const ModelId& id, const std::string& commit,
                     HubFile* file) {
  TextSink sink;
  Headers headers;
  HttpRequest request;
  request.url = FileUrl(context.settings.endpoint, id, commit, file->path);
  request.head = true;
  WEFT_RETURN_IF_ERROR(AskWithTries(context, {id, file->path, context.settings.endpoint, "", false},
                                    request, &sink, &headers));
  const absl::string_view linked = HeaderOr(headers, "x-linked-etag");
  if (file->blob.empty()) {
    auto blob = ParseBlobName(linked.empty() ? HeaderOr(headers, "etag") : linked);
    if (!blob.ok()) return Annotate(blob.status(), file->path);
    file->blob = *std::move(blob);
  }
  if (!file->bytes.has_value()) {
    const absl::string_view size = HeaderOr(headers, "x-linked-size");
    uint64_t bytes = 0;
    if (!absl::SimpleAtoi(size.empty() ? HeaderOr(headers, "content-length") : size, &bytes) ||
        bytes > kFileBytesMax) {
      return absl::FailedPreconditionError(
          absl::StrCat(file->path, ": neither the hub's list nor its answer says how long it is"));
    }
    file->bytes = bytes;
  }
  return absl::OkStatus();
}

}  // namespace weft::hub
