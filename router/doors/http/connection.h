// One HTTP/1.x connection: reads requests one after the other, hands them to their handlers and
// writes the answers. Lives on one worker's thread and is touched by no other. While an answer is
// in the making it keeps reading, to see the client leave; a request that was pipelined waits in
// the input buffer, whose limit is the back-pressure.
//
// A client that ends its side while it waits for an answer may have left, or may only have said
// that it has no more to ask (RFC 9112 allows that): both look alike until something is sent to
// it. So it is sent something that costs nothing: an interim `100 Continue`, which every client
// skips, or, once the answer has begun, the sign of life that a stream sends in a silence. A
// machine whose client has left answers with a reset, and the request is cancelled; one that still
// reads gets its answer. Where nothing can be sent (HTTP/1.0 has no interim answers, and a whole
// answer no signs of life) the end of its side counts as leaving.
//
// Included by the server's own files only: Boost is in here.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "boost/asio/ip/tcp.hpp"
#include "router/doors/http/message.h"
#include "router/doors/http/pace.h"
#include "router/doors/http/request_reader.h"
#include "router/doors/http/router.h"
#include "router/doors/http/socket.h"
#include "router/doors/http/waiting_order.h"
#include "router/doors/http/worker.h"

namespace weft::router {

class HttpConnection : public HttpResponder,
                       public Waiting,
                       public std::enable_shared_from_this<HttpConnection> {
 public:
  // `admin` picks the counter of open connections; `context` null = plain HTTP.
  HttpConnection(boost::asio::ip::tcp::socket socket, std::shared_ptr<SSL_CTX> context,
                 HttpWorker* worker, const HttpRouter* routes, bool admin);
  ~HttpConnection() override;

  // On the worker's thread: begins to read, or says that there is no place and closes.
  void Start();
  void TurnAway();
  // Ends what has run out of time.
  void CheckDeadline(int64_t now_us);
  void Close(CancelReason reason);
  bool admin() const { return admin_; }

  void Reply(HttpReply reply) override;
  void BeginStream(HttpReply head) override;
  void Write(absl::string_view bytes) override;
  void Flush() override;
  void EndStream() override;
  bool writable() const override { return output_.size() - output_at_ < kOutputBytesHigh; }

 private:
  enum class Phase : uint8_t { kHandshake, kIdle, kHeader, kBody, kBusy, kLinger, kClosed };

  // Unsent bytes at which a stream keeps its events back.
  static constexpr size_t kOutputBytesHigh = 64u << 10;
  // Unparsed bytes at which reading stops; while a request is under way it is less, because what
  // comes then waits.
  static constexpr size_t kInputBytesMax = 64u << 10;
  static constexpr size_t kPipelinedBytesMax = 16u << 10;

  // Reading (connection.cc).
  size_t InputRoom() const;
  void Read();
  void OnReadable();
  void OnEnd();
  void Handshake();
  void Parse();
  // Handles one event of the reader; false when more input is needed or the phase has changed.
  bool ParseOnce();
  // The head is complete: what can be refused is, before a byte of the body is read or charged.
  void OnHead();
  // Finds route and tenant; or the refusal, for the origin, path, method, type, coding or key.
  std::optional<HttpReply> CheckHead(const RequestHead& head);
  std::optional<HttpReply> CheckMethod(const RequestHead& head) const;
  // Whose share of the budget the body is counted to.
  std::string BodyOwner() const;
  void Enter(Phase phase, int64_t timeout_us);
  WaitingFor PlaceOf(Phase phase) const;
  bool HasTooSlowPeer(int64_t now_us);
  void CheckClient(int64_t now_us);
  // Whose fault a broken connection is: the kernel may run out of patience with a reader before its
  // pace does.
  CancelReason WhyLost() const;

  // Answering (connection_answer.cc).
  void Dispatch();
  // Takes over from the head what every answer needs.
  void BeginAnswer();
  void AnswerOptions(const HttpRequest& request);
  // Answers a request that its head is enough to refuse; closes unless all of it is here.
  void RefuseHead(HttpReply reply);
  // Answers a request that was refused before it was complete, and closes.
  void Refuse(const HttpRefusal& refusal);
  // By the table of routes; "-" where it has none for this path.
  absl::string_view RouteOf(const std::string& path) const;
  void AppendHead(const HttpReply& reply, absl::string_view framing);
  void FinishResponse();
  // One line for the request that ended; `cause` when it ended early.
  void LogRequest(absl::string_view cause);
  void NextRequest();
  void Linger();
  // Makes the machine of a client that has left answer with a reset.
  void ProbeClient();

  HttpSocket socket_;
  HttpWorker* const worker_;
  const HttpRouter* const routes_;
  const bool admin_;
  bool turned_away_ = false;
  std::string peer_;
  std::string client_subject_;
  Phase phase_ = Phase::kIdle;
  // When the present phase is over time; 0 = never.
  int64_t deadline_us_ = 0;

  // Reading.
  bool reading_ = false;
  bool parsing_ = false;
  bool ended_ = false;   // the client sends no more
  bool probed_ = false;  // and was asked whether it still reads
  bool served_ = false;  // made a request before
  std::string input_;
  size_t input_at_ = 0;
  RequestReader reader_;
  Pace body_pace_;

  // The request being answered.
  std::shared_ptr<HttpExchange> exchange_;
  // By the table of routes; the handler is null where there is none, `allow_` then has the methods
  // that the path takes.
  const HttpHandler* handler_ = nullptr;
  std::string allow_;
  // Whose key was accepted; null before that, and where none is asked for.
  TenantRef tenant_;
  std::string path_;
  std::string request_id_;
  std::string origin_lines_;
  std::string traceparent_;
  int status_ = 0;
  // When it was complete; 0 = none is under way.
  int64_t request_us_ = 0;
  absl::string_view route_ = "other";
  // Of a request that was refused before it was complete: its route, or "-"; for the log alone.
  absl::string_view refused_route_;
  bool keep_alive_ = false;
  bool http_1_1_ = true;
  bool head_only_ = false;
  bool chunked_ = false;
  bool answering_ = false;  // its status line is on its way
  // When something was last written to the client, or its request came.
  int64_t spoken_us_ = 0;

  // Writing.
  std::string output_;
  size_t output_at_ = 0;
  bool waiting_write_ = false;
  bool wrote_ = false;  // the exchange, since it was last asked for a sign of life
  bool finishing_ = false;
  Pace reader_pace_;
};

}  // namespace weft::router
