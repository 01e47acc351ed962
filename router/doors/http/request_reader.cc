#include "router/doors/http/request_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "router/doors/http/buffers.h"

namespace weft::router {
namespace {

// A body's first buffer; it doubles from there.
constexpr size_t kBodyBytesFirst = 4096;

}  // namespace

RequestReader::RequestReader(const Limits& limits, std::shared_ptr<BodyBudget> budget)
    : limits_(limits), budget_(std::move(budget)), chunked_(limits.body_bytes_max) {}

void RequestReader::Begin() {
  stage_ = Stage::kIdle;
  after_cr_ = false;
  GiveBack(&head_bytes_);
  scanner_ = HeadScanner();
  const RequestHead dropped = std::move(head_);  // with what its strings hold
  head_ = RequestHead();
  refusal_ = HttpRefusal();
  chunked_ = ChunkedDecoder(limits_.body_bytes_max);
  GiveBack(&body_);
  body_bytes_ = 0;
  charge_ = BodyCharge(budget_);
  share_.Release();
}

RequestReader::Event RequestReader::Refuse(HttpRefusal refusal) {
  refusal_ = std::move(refusal);
  GiveBack(&body_);
  charge_.Release();
  share_.Release();
  return Event::kRefused;
}

RequestReader::Event RequestReader::Malformed(absl::string_view problem) {
  return Refuse({400, absl::StrCat("malformed HTTP: ", problem)});
}

RequestReader::Event RequestReader::TooLong() {
  return Refuse({413, absl::StrCat("the body is longer than ", limits_.body_bytes_max, " bytes")});
}

RequestReader::Event RequestReader::Next(absl::string_view* input) {
  if (stage_ == Stage::kIdle) {
    // Empty lines before a request are allowed (RFC 9112, 2.2), a CR or LF alone is not.
    while (!input->empty()) {
      const char c = input->front();
      if (after_cr_ ? c != '\n' : c == '\n') return Malformed("a CR or LF alone");
      if (!after_cr_ && c != '\r') break;
      after_cr_ = c == '\r';
      input->remove_prefix(1);
    }
    if (input->empty()) return Event::kMore;
    Begin();
    stage_ = Stage::kHead;
  }
  return stage_ == Stage::kHead ? NextHead(input) : NextBody(input);
}

RequestReader::Event RequestReader::NextHead(absl::string_view* input) {
  const size_t room = limits_.header_bytes_max - head_bytes_.size();
  const size_t before = head_bytes_.size();
  head_bytes_.append(input->data(), std::min(room, input->size()));
  const HeadScanner::State scanned = scanner_.Scan(head_bytes_);
  if (scanned == HeadScanner::State::kMalformed) return Malformed(scanner_.problem());
  if (scanned == HeadScanner::State::kMore) {
    if (input->size() >= room) {
      return Refuse(
          {431, absl::StrCat("the header is longer than ", limits_.header_bytes_max, " bytes")});
    }
    input->remove_prefix(input->size());
    return Event::kMore;
  }
  input->remove_prefix(scanner_.size() - before);
  head_bytes_.resize(scanner_.size());
  HttpRefusal refusal = ReadRequestHead(head_bytes_, &head_);
  GiveBack(&head_bytes_);
  if (refusal.refused()) return Refuse(std::move(refusal));
  stage_ = Stage::kBody;
  if (head_.content_length > limits_.body_bytes_max) return TooLong();
  return Event::kHead;
}

RequestReader::Event RequestReader::Append(absl::string_view piece) {
  const size_t size = body_.size() + piece.size();
  if (size > limits_.body_bytes_max) return TooLong();
  if (size > body_.capacity()) {
    // Memory follows what has arrived, not what was announced.
    const size_t first =
        head_.chunked ? kBodyBytesFirst : std::min<size_t>(kBodyBytesFirst, head_.content_length);
    const size_t capacity = std::max({size, 2 * body_.capacity(), first});
    if (!share_.GrowTo(capacity)) {
      return Refuse({503, "your requests' bodies hold as many bytes as they may", 1});
    }
    if (!charge_.GrowTo(capacity)) {
      return Refuse({503, "the server holds as many bytes of request bodies as it may", 1});
    }
    body_.reserve(capacity);
  }
  body_.append(piece.data(), piece.size());
  body_bytes_ = size;
  return Event::kMore;
}

RequestReader::Event RequestReader::Complete() {
  stage_ = Stage::kDone;
  share_.Release();
  return Event::kRequest;
}

RequestReader::Event RequestReader::NextBody(absl::string_view* input) {
  if (!head_.chunked) {
    const size_t size =
        static_cast<size_t>(std::min<uint64_t>(head_.content_length - body_bytes_, input->size()));
    if (size > 0 && Append(input->substr(0, size)) == Event::kRefused) return Event::kRefused;
    input->remove_prefix(size);
    if (body_bytes_ < head_.content_length) return Event::kMore;
    return Complete();
  }
  while (true) {
    absl::string_view piece;
    switch (chunked_.Next(input, &piece)) {
      case ChunkedDecoder::State::kData:
        if (Append(piece) == Event::kRefused) return Event::kRefused;
        break;
      case ChunkedDecoder::State::kMore:
        return Event::kMore;
      case ChunkedDecoder::State::kDone:
        return Complete();
      case ChunkedDecoder::State::kTooLong:
        return TooLong();
      case ChunkedDecoder::State::kMalformed:
        return Malformed(chunked_.problem());
    }
  }
}

}  // namespace weft::router
