#include "deploy/launcher/load_stream.h"

#include <chrono>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/ip/address.hpp"
#include "boost/asio/ssl/host_name_verification.hpp"
#include "boost/asio/ssl/stream.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/core/tcp_stream.hpp"
#include "boost/beast/http.hpp"
#include "boost/json.hpp"
#include "common/clock.h"

namespace weft::launcher {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using TlsStream = boost::asio::ssl::stream<beast::tcp_stream>;

// Over `Layer`, a TCP stream or TLS on one. Keeps itself alive through its handlers.
template <typename Layer>
class Stream : public std::enable_shared_from_this<Stream<Layer>> {
 public:
  // `layer_arguments` are the Layer's.
  template <typename... LayerArguments>
  explicit Stream(LoadStream::Done done, LayerArguments&... layer_arguments)
      : stream_(layer_arguments...), done_(std::move(done)) {}

  void Start(const LoadTarget& target, std::string body, int64_t due_us, int64_t timeout_us) {
    result_.due_us = due_us;
    request_.method(http::verb::post);
    request_.target(target.path);
    request_.version(11);
    // An IPv6 address stands in brackets.
    request_.set(http::field::host, absl::StrContains(target.host, ':')
                                        ? absl::StrCat("[", target.host, "]:", target.port)
                                        : absl::StrCat(target.host, ":", target.port));
    request_.set(http::field::content_type, "application/json");
    if (!target.api_key.empty()) {
      request_.set(http::field::authorization, absl::StrCat("Bearer ", target.api_key));
    }
    request_.body() = std::move(body);
    request_.prepare_payload();
    tcp().expires_after(std::chrono::microseconds(timeout_us));
    result_.sent_us = MonotonicClock().NowUs();
    tcp().async_connect(
        target.endpoint, [self = this->shared_from_this(), host = target.host](error_code error) {
          if (error) return self->Finish(absl::StrCat(kConnectError, error.message()));
          error_code ignored;
          self->tcp().socket().set_option(boost::asio::ip::tcp::no_delay(true), ignored);
          if constexpr (kTls) {
            self->Handshake(host);
          } else {
            self->Send();
          }
        });
  }

 private:
  static constexpr bool kTls = !std::is_same_v<Layer, beast::tcp_stream>;

  beast::tcp_stream& tcp() { return beast::get_lowest_layer(stream_); }

  void Handshake(const std::string& host) {
    stream_.set_verify_callback(boost::asio::ssl::host_name_verification(host));
    // An address is no server name (RFC 6066, 3).
    error_code no_address;
    boost::asio::ip::make_address(host, no_address);
    if (no_address) SSL_set_tlsext_host_name(stream_.native_handle(), host.c_str());
    stream_.async_handshake(
        boost::asio::ssl::stream_base::client,
        [self = this->shared_from_this()](const error_code& error) {
          if (error) return self->Finish(absl::StrCat("TLS (see --ca): ", error.message()));
          self->Send();
        });
  }

  void Send() {
    http::async_write(stream_, request_,
                      [self = this->shared_from_this()](const error_code& error, size_t) {
                        if (error) return self->Finish(absl::StrCat("send: ", error.message()));
                        self->ReadHeader();
                      });
  }

  void ReadHeader() {
    parser_.body_limit(boost::none);
    on_chunk_ = [this](uint64_t, boost::beast::string_view body, error_code& error) {
      OnBytes({body.data(), body.size()});
      error = {};
      return body.size();
    };
    parser_.on_chunk_body(on_chunk_);
    http::async_read_header(
        stream_, buffer_, parser_,
        [self = this->shared_from_this()](const error_code& error, size_t) {
          if (error) {
            return self->Finish(
                absl::StrCat("no HTTP answer (is --connect the HTTP address?): ", error.message()));
          }
          self->ReadBody();
        });
  }

  void ReadBody() {
    if (parser_.is_done()) return Complete();
    http::async_read_some(stream_, buffer_, parser_,
                          [self = this->shared_from_this()](const error_code& error, size_t) {
                            if (error && error != http::error::end_of_stream) {
                              return self->Finish(absl::StrCat("body: ", error.message()));
                            }
                            if (error) return self->Complete();
                            self->ReadBody();
                          });
  }

  void OnBytes(absl::string_view bytes) {
    if (parser_.get().result() != http::status::ok) {
      absl::StrAppend(&error_body_, bytes);
      return;
    }
    const int64_t now_us = MonotonicClock().NowUs();
    absl::StrAppend(&pending_, bytes);
    size_t begin = 0;
    for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const absl::string_view line(pending_.data() + begin, end - begin);
      // llama.cpp writes "data: {", TGI's event streams "data:{".
      if (absl::StartsWith(line, "data:")) OnEvent(line.substr(line[5] == ' ' ? 6 : 5), now_us);
    }
    pending_.erase(0, begin);
  }

  // Looks for marks in the text first: parsing every event would make the generator the bottleneck.
  void OnEvent(absl::string_view event, int64_t now_us) {
    if (event == "[DONE]") return;
    if (absl::StrContains(event, "\"error\"")) error_body_ = std::string(event);
    const bool has_usage = absl::StrContains(event, "\"completion_tokens\":");
    const bool empty_choices = absl::StrContains(event, "\"choices\":[]");
    // The last event of a chat stream has an empty delta and the finish reason: no token.
    const bool only_finish = absl::StrContains(event, "\"delta\":{}");
    const bool tgi_token = absl::StrContains(event, "\"token\":");
    if (!empty_choices && !only_finish &&
        (absl::StrContains(event, "\"choices\":[{") || tgi_token)) {
      result_.token_us.push_back(now_us);
    }
    if (has_usage) ReadUsage(event);
  }

  void ReadUsage(absl::string_view event) {
    error_code error;
    const auto value = boost::json::parse({event.data(), event.size()}, error);
    if (error || !value.is_object()) return;
    const auto* usage = value.as_object().if_contains("usage");
    if (usage == nullptr || !usage->is_object()) return;
    const auto number = [&](const char* key) -> uint32_t {
      const auto* entry = usage->as_object().if_contains(key);
      return entry != nullptr && entry->is_int64() ? static_cast<uint32_t>(entry->as_int64()) : 0;
    };
    result_.prompt_tokens = number("prompt_tokens");
    result_.output_tokens = number("completion_tokens");
  }

  void Complete() {
    const auto& response = parser_.get();
    if (response.result() != http::status::ok) {
      if (error_body_.empty()) error_body_ = response.body();
      return Finish(absl::StrCat("HTTP ", response.result_int(), ": ", error_body_.substr(0, 300)));
    }
    Finish(error_body_.substr(0, 300));
  }

  void Finish(std::string error) {
    if (!done_) return;
    result_.error = std::move(error);
    result_.end_us = MonotonicClock().NowUs();
    error_code ignored;
    tcp().socket().shutdown(boost::asio::ip::tcp::socket::shutdown_both, ignored);
    auto done = std::move(done_);
    done_ = nullptr;
    done(std::move(result_));
  }

  Layer stream_;
  LoadStream::Done done_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  beast::flat_buffer buffer_;
  std::function<size_t(uint64_t, boost::beast::string_view, error_code&)> on_chunk_;
  std::string pending_;
  std::string error_body_;
  StreamResult result_;
};

}  // namespace

void LoadStream::Start(boost::asio::io_context& io, const LoadTarget& target, std::string body,
                       int64_t due_us, int64_t timeout_us, Done done) {
  const auto start = [&](const auto& stream) {
    stream->Start(target, std::move(body), due_us, timeout_us);
  };
  if (target.tls != nullptr) {
    start(std::make_shared<Stream<TlsStream>>(std::move(done), io, *target.tls));
  } else {
    start(std::make_shared<Stream<beast::tcp_stream>>(std::move(done), io));
  }
}

}  // namespace weft::launcher
