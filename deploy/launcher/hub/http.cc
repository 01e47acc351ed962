#include "deploy/launcher/hub/http.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/version.h"
#include "deploy/launcher/hub/limits.h"
#include "deploy/launcher/hub/urls.h"

namespace weft::hub {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(20);
constexpr long kBufferBytes = 256 << 10;

// How a request ended that curl ended, in words.
absl::Status StatusOfCurl(CURLcode code, const char* detail, const std::string& url,
                          const HttpOptions& options) {
  const std::string what =
      absl::StrCat(HostOf(url), ": ", detail[0] != '\0' ? detail : curl_easy_strerror(code));
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
      return absl::FailedPreconditionError(absl::StrCat(
          what, "; name the authority's certificate by SSL_CERT_FILE, if you trust this host"));
    case CURLE_SSL_CACERT_BADFILE:
      return absl::FailedPreconditionError(absl::StrCat(
          what, options.ca_file.empty()
                    ? "; install the package ca-certificates, or name a file by SSL_CERT_FILE"
                    : "; SSL_CERT_FILE (or CURL_CA_BUNDLE) names no file of certificates"));
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_OUT_OF_MEMORY:
      return absl::FailedPreconditionError(what);
    default:
      return absl::UnavailableError(what);
  }
}

}  // namespace

struct HttpLoop::Transfer {
  ~Transfer() {
    if (easy != nullptr) curl_easy_cleanup(easy);
    curl_slist_free_all(lines);
  }

  CURL* easy = nullptr;
  curl_slist* lines = nullptr;
  HttpHandler* handler = nullptr;
  std::string url;
  HttpHead head;
  size_t header_bytes = 0;
  bool ended_by_handler = false;
  char error[CURL_ERROR_SIZE] = "";
};

HttpLoop::HttpLoop(const HttpOptions& options) : options_(options) {}

absl::StatusOr<std::unique_ptr<HttpLoop>> HttpLoop::Create(const HttpOptions& options) {
  if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return absl::InternalError("libcurl cannot be set up");
  }
  std::unique_ptr<HttpLoop> loop(new HttpLoop(options));
  loop->multi_ = curl_multi_init();
  if (loop->multi_ == nullptr) return absl::ResourceExhaustedError("libcurl cannot be set up");
  return loop;
}

HttpLoop::~HttpLoop() {
  for (const auto& transfer : transfers_) curl_multi_remove_handle(multi_, transfer->easy);
  transfers_.clear();
  curl_multi_cleanup(multi_);
}

size_t HttpLoop::OnHeaderLine(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const absl::string_view raw(data, size * count);
  transfer.header_bytes += raw.size();
  if (transfer.header_bytes > kHeaderBytesMax) return 0;
  const absl::string_view line = absl::StripAsciiWhitespace(raw);
  if (absl::StartsWith(line, "HTTP/")) {
    // A 100 may have come before.
    transfer.head = HttpHead();
  } else if (!line.empty()) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) return raw.size();
    transfer.head.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  } else {
    long status = 0;
    curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200) return raw.size();
    transfer.head.status = static_cast<int>(status);
    if (!transfer.handler->OnHead(transfer.head)) {
      transfer.ended_by_handler = true;
      return 0;
    }
  }
  return raw.size();
}

size_t HttpLoop::OnBody(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  if (transfer.handler->OnBytes({data, size * count})) return size * count;
  transfer.ended_by_handler = true;
  return 0;
}

void HttpLoop::Prepare(const HttpRequest& request, Transfer* transfer) {
  CURL* const easy = transfer->easy;
  const auto line = [transfer](const std::string& text) {
    transfer->lines = curl_slist_append(transfer->lines, text.c_str());
  };
  if (!request.token.empty()) line(absl::StrCat("Authorization: Bearer ", request.token));
  if (!request.if_range.empty()) line(absl::StrCat("If-Range: ", request.if_range));
  // Sizes and digests are those of the bytes as they are.
  line("Accept-Encoding: identity");
  if (request.range.has_value()) {
    const std::string range = absl::StrCat(request.range->from, "-", request.range->to - 1);
    curl_easy_setopt(easy, CURLOPT_RANGE, range.c_str());
  }
  if (request.head) curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->lines);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, absl::StrCat("weft/", Version()).c_str());
  // Requests that share a connection would share its window as well.
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(absl::ToInt64Milliseconds(kConnectTimeout)));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME,
                   static_cast<long>(absl::ToInt64Seconds(options_.stall_timeout)));
  if (!options_.ca_file.empty()) {
    curl_easy_setopt(easy, CURLOPT_CAINFO, options_.ca_file.c_str());
  }
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->error);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &HttpLoop::OnHeaderLine);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &HttpLoop::OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
  curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
}

void HttpLoop::Start(const HttpRequest& request, HttpHandler* handler) {
  auto transfer = std::make_unique<Transfer>();
  transfer->easy = curl_easy_init();
  WEFT_CHECK(transfer->easy != nullptr);
  transfer->handler = handler;
  transfer->url = request.url;
  Prepare(request, transfer.get());
  WEFT_CHECK(curl_multi_add_handle(multi_, transfer->easy) == CURLM_OK);
  transfers_.push_back(std::move(transfer));
}

std::unique_ptr<HttpLoop::Transfer> HttpLoop::Remove(Transfer* transfer) {
  const auto found =
      std::find_if(transfers_.begin(), transfers_.end(),
                   [transfer](const auto& entry) { return entry.get() == transfer; });
  WEFT_CHECK(found != transfers_.end());
  curl_multi_remove_handle(multi_, transfer->easy);
  std::unique_ptr<Transfer> owned = std::move(*found);
  transfers_.erase(found);
  return owned;
}

void HttpLoop::Cancel(HttpHandler* handler) {
  for (const auto& transfer : transfers_) {
    if (transfer->handler != handler) continue;
    Remove(transfer.get());
    return;
  }
}

void HttpLoop::Finish(Transfer* transfer, CURLcode code) {
  const std::unique_ptr<Transfer> owned = Remove(transfer);
  absl::Status status;
  if (owned->ended_by_handler) {
    status = absl::CancelledError("ended");
  } else if (code != CURLE_OK) {
    status = StatusOfCurl(code, owned->error, owned->url, options_);
  }
  owned->handler->OnEnd(status);
}

void HttpLoop::Run(absl::Duration timeout, int interrupt_fd) {
  int running = 0;
  curl_multi_perform(multi_, &running);
  int left = 0;
  bool ended = false;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    ended = true;
    void* transfer = nullptr;
    const CURLcode code = message->data.result;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    Finish(static_cast<Transfer*>(transfer), code);
  }
  // Whoever heard of an end may have something to begin.
  if (ended) return;
  curl_waitfd interrupt{interrupt_fd, CURL_WAIT_POLLIN, 0};
  curl_multi_poll(multi_, &interrupt, interrupt_fd < 0 ? 0 : 1,
                  static_cast<int>(absl::ToInt64Milliseconds(timeout)), nullptr);
}

}  // namespace weft::hub
