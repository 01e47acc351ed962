#include "router/doors/http/chunked.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace weft::router {
namespace {

// A size stops growing here: far beyond any body that is served, and far from an overflow.
constexpr uint64_t kSizeMax = uint64_t{1} << 56;

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

bool IsTokenChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::StrContains("!#$%&'*+-.^_`|~", absl::string_view(&c, 1));
}

bool IsControl(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }

bool SkipToken(absl::string_view* text) {
  size_t size = 0;
  while (size < text->size() && IsTokenChar((*text)[size])) ++size;
  text->remove_prefix(size);
  return size > 0;
}

void SkipBlanks(absl::string_view* text) {
  while (!text->empty() && IsBlank(text->front())) text->remove_prefix(1);
}

bool SkipQuoted(absl::string_view* text) {
  text->remove_prefix(1);
  while (!text->empty() && text->front() != '"') {
    if (text->front() == '\\') text->remove_prefix(1);
    if (text->empty()) return false;
    text->remove_prefix(1);
  }
  if (text->empty()) return false;
  text->remove_prefix(1);
  return true;
}

// chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )
bool IsExtensions(absl::string_view text) {
  while (!text.empty()) {
    SkipBlanks(&text);
    if (text.empty() || text.front() != ';') return false;
    text.remove_prefix(1);
    SkipBlanks(&text);
    if (!SkipToken(&text)) return false;
    absl::string_view rest = text;
    SkipBlanks(&rest);
    if (rest.empty() || rest.front() != '=') continue;
    rest.remove_prefix(1);
    SkipBlanks(&rest);
    if (rest.empty()) return false;
    if (rest.front() == '"' ? !SkipQuoted(&rest) : !SkipToken(&rest)) return false;
    text = rest;
  }
  return true;
}

// RFC 9110, 6.5.1: fields that frame, route or say who asks are no trailers.
bool IsForbiddenTrailer(absl::string_view name) {
  for (const char* forbidden : {"transfer-encoding", "content-length", "host", "authorization",
                                "content-type", "content-encoding", "expect", "connection", "te",
                                "trailer", "upgrade", "cookie", "origin"}) {
    if (absl::EqualsIgnoreCase(name, forbidden)) return true;
  }
  return false;
}

}  // namespace

ChunkedDecoder::State ChunkedDecoder::Malformed(absl::string_view problem) {
  problem_ = problem;
  return State::kMalformed;
}

ChunkedDecoder::State ChunkedDecoder::TakeLine(absl::string_view* input, size_t bytes_max) {
  while (!input->empty()) {
    const char c = input->front();
    input->remove_prefix(1);
    const bool after_cr = !line_.empty() && line_.back() == '\r';
    if (after_cr && c == '\n') {
      line_.pop_back();
      return State::kDone;
    }
    if (after_cr || (c != '\r' && IsControl(c))) {
      return Malformed("a control character in a chunk's line or in a trailer");
    }
    if (line_.size() >= bytes_max) return Malformed("chunk extensions or trailers are too long");
    line_.push_back(c);
  }
  return State::kMore;
}

ChunkedDecoder::State ChunkedDecoder::ReadSizeLine() {
  size_t digits = 0;
  left_ = 0;
  for (; digits < line_.size(); ++digits) {
    const auto c = static_cast<unsigned char>(absl::ascii_tolower(line_[digits]));
    if (!absl::ascii_isxdigit(c)) break;
    left_ = left_ * 16 + static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    left_ = std::min(left_, kSizeMax);
  }
  if (digits == 0) return Malformed("a chunk without a size");
  const absl::string_view extensions = absl::string_view(line_).substr(digits);
  if (!IsExtensions(extensions)) return Malformed("a chunk's extensions");
  extension_bytes_ += extensions.size();
  if (extension_bytes_ > kExtensionBytesFree + data_bytes_) {
    return Malformed("chunk extensions are longer than the body");
  }
  // data_bytes_ is within the bound: every size before this one was.
  if (left_ > data_bytes_max_ - data_bytes_) return State::kTooLong;
  at_ = left_ == 0 ? At::kTrailerLine : At::kData;
  line_.clear();
  return State::kMore;
}

ChunkedDecoder::State ChunkedDecoder::ReadTrailer() {
  absl::string_view value = line_;
  absl::string_view name = value;
  if (!SkipToken(&value) || value.empty() || value.front() != ':') return Malformed("a trailer");
  name = name.substr(0, name.size() - value.size());
  if (IsForbiddenTrailer(name)) return Malformed("a field that must not be a trailer");
  trailer_bytes_ += line_.size() + 2;
  line_.clear();
  return State::kMore;
}

ChunkedDecoder::State ChunkedDecoder::Next(absl::string_view* input, absl::string_view* data) {
  while (true) {
    switch (at_) {
      case At::kSizeLine: {
        const State line = TakeLine(input, kLineBytesMax);
        if (line != State::kDone) return line;
        if (const State size = ReadSizeLine(); size != State::kMore) return size;
        break;
      }
      case At::kData: {
        if (input->empty()) return State::kMore;
        const size_t size = static_cast<size_t>(std::min<uint64_t>(left_, input->size()));
        *data = input->substr(0, size);
        input->remove_prefix(size);
        left_ -= size;
        data_bytes_ += size;
        if (left_ == 0) at_ = At::kDataEnd;
        return State::kData;
      }
      case At::kDataEnd: {
        const State line = TakeLine(input, 1);
        if (line == State::kMore) return line;
        if (line == State::kMalformed || !line_.empty()) {
          return Malformed("a chunk is longer than its size");
        }
        at_ = At::kSizeLine;
        break;
      }
      case At::kTrailerLine: {
        const State line = TakeLine(input, kTrailerBytesMax - trailer_bytes_);
        if (line != State::kDone) return line;
        if (line_.empty()) {
          at_ = At::kDone;
          return State::kDone;
        }
        if (ReadTrailer() == State::kMalformed) return State::kMalformed;
        if (trailer_bytes_ >= kTrailerBytesMax) return Malformed("trailers are too long");
        break;
      }
      case At::kDone:
        return State::kDone;
    }
  }
}

}  // namespace weft::router
