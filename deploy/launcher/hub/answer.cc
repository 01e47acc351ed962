#include "deploy/launcher/hub/answer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/launcher/hub/file_list.h"

namespace weft::hub {
namespace {

// What the hub itself says of the error, in quotes; empty = nothing.
std::string HubSays(const Headers& headers, absl::string_view body) {
  absl::string_view said = HeaderOr(headers, "x-error-message");
  if (said.empty() && absl::StartsWith(body, "{\"error\":\"")) {
    // Its usual form; what lies behind an escaped quote is not worth a parser.
    said = body.substr(10);
    said = said.substr(0, said.find('"'));
  }
  return said.empty() ? "" : absl::StrCat(" (the hub says: ", Shown(said), ")");
}

std::string TokenAdvice(const Asked& asked) {
  return asked.with_token
             ? "its token (HF_TOKEN, or the file token in HF_HOME) is not valid there or gives no "
               "right to it: make one that may read it"
             : "give a token by HF_TOKEN, or in the file token of HF_HOME, that may read it";
}

std::string What(const Asked& asked) {
  return asked.path.empty() ? asked.id.text() : absl::StrCat(asked.id.text(), ": ", asked.path);
}

}  // namespace

absl::string_view HeaderOr(const Headers& headers, const std::string& name) {
  const auto found = headers.find(name);
  return found == headers.end() ? absl::string_view() : absl::string_view(found->second);
}

absl::optional<absl::Duration> AskedWait(const Headers& headers, absl::Time now) {
  const auto bounded = [](absl::Duration wait) {
    return std::min(std::max(wait, absl::ZeroDuration()), kAskedWaitMax);
  };
  const absl::string_view after = absl::StripAsciiWhitespace(HeaderOr(headers, "retry-after"));
  double seconds = 0;
  if (!after.empty() && absl::SimpleAtod(after, &seconds)) {
    return bounded(absl::Seconds(seconds));
  }
  absl::Time date;
  std::string ignored;
  if (!after.empty() &&
      absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", after, absl::UTCTimeZone(), &date, &ignored)) {
    return bounded(date - now);
  }
  // "api";r=0;t=55
  for (const absl::string_view part : absl::StrSplit(HeaderOr(headers, "ratelimit"), ';')) {
    absl::string_view text = absl::StripAsciiWhitespace(part);
    if (absl::ConsumePrefix(&text, "t=") && absl::SimpleAtod(text, &seconds)) {
      return bounded(absl::Seconds(seconds));
    }
  }
  return absl::nullopt;
}

bool IsPassing(int status) {
  return status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501);
}

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

absl::Duration BackOff(uint32_t failures, double random) {
  const uint32_t doublings = std::min<uint32_t>(failures > 0 ? failures - 1 : 0, 6);
  const absl::Duration wait = absl::Milliseconds(500) * (int64_t{1} << doublings);
  return std::min(wait, absl::Seconds(30)) * random;
}

absl::Status RefusalOf(int status, const Headers& headers, absl::string_view body,
                       const Asked& asked) {
  const std::string says = HubSays(headers, body);
  const absl::string_view code = HeaderOr(headers, "x-error-code");
  const std::string page = absl::StrCat(asked.endpoint, "/", asked.id.repository());
  if (code == "GatedRepo") {
    return absl::PermissionDeniedError(
        absl::StrCat(asked.id.text(), " is gated: ask for access at ", page,
                     " with the account that the token belongs to; ", TokenAdvice(asked), says));
  }
  if (code == "RevisionNotFound") {
    return absl::NotFoundError(absl::StrCat(asked.id.repository(), " has no revision ",
                                            asked.id.revision, "; ", page,
                                            "/tree/main lists branches and tags", says));
  }
  if (code == "EntryNotFound") {
    return absl::NotFoundError(
        absl::StrCat(What(asked), " is not there, though the hub's list names it", says));
  }
  if (status == 401) {
    return absl::UnauthenticatedError(absl::StrCat(
        What(asked), ": ", asked.host,
        " answers 401: there is no such model, or it is private; look at its name, or ",
        TokenAdvice(asked), says));
  }
  if (status == 403) {
    return absl::PermissionDeniedError(absl::StrCat(What(asked), ": ", asked.host,
                                                    " answers 403, which forbids it; ",
                                                    TokenAdvice(asked), says));
  }
  if (status == 404) {
    return absl::NotFoundError(absl::StrCat(What(asked), ": ", asked.host,
                                            " answers 404: there is no such model or revision; "
                                            "look at its name (HF_ENDPOINT is ",
                                            asked.endpoint, ")", says));
  }
  const std::string text =
      absl::StrCat(What(asked), ": ", asked.host, " answers ", status,
                   status == 429 ? ", too many requests: wait, or give a token" : "", says);
  return IsPassing(status) ? absl::UnavailableError(text) : absl::FailedPreconditionError(text);
}

absl::optional<ContentRange> ParseContentRange(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "bytes ")) return absl::nullopt;
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('/', 1));
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(halves.first, absl::MaxSplits('-', 1));
  ContentRange range;
  uint64_t last = 0;
  if (!absl::SimpleAtoi(ends.first, &range.from) || !absl::SimpleAtoi(ends.second, &last) ||
      last < range.from || last == UINT64_MAX) {
    return absl::nullopt;
  }
  range.to = last + 1;
  if (halves.second != "*" && !absl::SimpleAtoi(halves.second, &range.all)) return absl::nullopt;
  return range;
}

}  // namespace weft::hub
