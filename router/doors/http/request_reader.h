// Turns the bytes of one connection into requests, one after the other: empty lines, head, body,
// next request. Knows the limits in bytes and the budget of bodies, but neither sockets nor time.
// Owned by a connection, on its thread; fuzzed by itself.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "router/doors/http/body_budget.h"
#include "router/doors/http/body_shares.h"
#include "router/doors/http/chunked.h"
#include "router/doors/http/request_head.h"

namespace weft::router {

class RequestReader {
 public:
  struct Limits {
    size_t header_bytes_max = 0;
    size_t body_bytes_max = 0;
  };
  enum class Event {
    kMore,     // all bytes are taken, the request goes on
    kHead,     // head() is complete and may be refused before its body is read; call Next again
    kRequest,  // the body is complete too
    kRefused   // refusal() says why; what follows cannot be understood any more
  };
  // What the reader waits for.
  enum class Stage { kIdle, kHead, kBody, kDone };

  RequestReader(const Limits& limits, std::shared_ptr<BodyBudget> budget);

  // Takes bytes from the front of *input. Not to be called after kRefused, nor after kRequest
  // before Begin.
  Event Next(absl::string_view* input);
  // Forgets the request: its buffers are given back.
  void Begin();

  Stage stage() const { return stage_; }
  const RequestHead& head() const { return head_; }
  RequestHead& head() { return head_; }
  const HttpRefusal& refusal() const { return refusal_; }
  // Of the body, read so far.
  uint64_t body_bytes() const { return body_bytes_; }
  std::string TakeBody() { return std::move(body_); }
  // After kHead: the body is counted to the share of `owner` while it is read.
  void SetOwner(BodyShares* shares, std::string owner) { share_.Begin(shares, std::move(owner)); }
  // The bytes of the budget that the body holds.
  BodyCharge TakeCharge() { return std::move(charge_); }

 private:
  Event NextHead(absl::string_view* input);
  Event NextBody(absl::string_view* input);
  // Appends a piece to the body; kMore when that is done.
  Event Append(absl::string_view piece);
  Event Complete();
  Event Refuse(HttpRefusal refusal);
  Event Malformed(absl::string_view problem);
  // 413: beyond the bound, whether it is here or only announced.
  Event TooLong();

  const Limits limits_;
  const std::shared_ptr<BodyBudget> budget_;
  Stage stage_ = Stage::kIdle;
  bool after_cr_ = false;  // of an empty line before the request
  std::string head_bytes_;
  HeadScanner scanner_;
  RequestHead head_;
  HttpRefusal refusal_;
  ChunkedDecoder chunked_;
  std::string body_;
  uint64_t body_bytes_ = 0;
  BodyCharge charge_;
  BodyShare share_;
};

}  // namespace weft::router
