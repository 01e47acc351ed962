#include "tests/router/doors/raw_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace weft::router {

RawClient::RawClient(uint16_t port, int receive_bytes)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  WEFT_CHECK_GE(fd_, 0);
  if (receive_bytes > 0) {
    WEFT_CHECK_EQ(setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes)), 0);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  WEFT_CHECK_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

RawClient::~RawClient() { Close(); }

void RawClient::Send(const std::string& bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t count = send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (count <= 0) return;  // the server has closed: what it said is still to be read
    at += static_cast<size_t>(count);
  }
}

bool RawClient::Fill() {
  if (ended_) return false;
  pollfd one = {fd_, POLLIN, 0};
  if (poll(&one, 1, 10'000) <= 0) return false;
  char buffer[65536];
  const ssize_t count = recv(fd_, buffer, sizeof(buffer), 0);
  if (count <= 0) {
    ended_ = true;
    return false;
  }
  input_.append(buffer, static_cast<size_t>(count));
  return true;
}

std::optional<std::string> RawClient::TakeLine() {
  size_t end;
  while ((end = input_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return std::nullopt;
  }
  std::string line = input_.substr(0, end);
  input_.erase(0, end + 2);
  return line;
}

std::optional<std::string> RawClient::Take(size_t count) {
  while (input_.size() < count) {
    if (!Fill()) return std::nullopt;
  }
  std::string bytes = input_.substr(0, count);
  input_.erase(0, count);
  return bytes;
}

std::optional<RawResponse> RawClient::ReadHead() {
  std::optional<std::string> line = TakeLine();
  if (!line.has_value()) return std::nullopt;
  RawResponse response;
  response.version = line->substr(0, 8);
  response.status = std::atoi(line->substr(9, 3).c_str());
  while ((line = TakeLine()).has_value() && !line->empty()) {
    const size_t colon = line->find(": ");
    if (colon == std::string::npos) return std::nullopt;
    response.headers[absl::AsciiStrToLower(line->substr(0, colon))] = line->substr(colon + 2);
  }
  if (!line.has_value()) return std::nullopt;
  return response;
}

std::string RawClient::ReadChunk() {
  const std::optional<std::string> line = TakeLine();
  if (!line.has_value()) return "";
  const size_t size = std::strtoul(line->c_str(), nullptr, 16);
  std::string bytes = Take(size).value_or("");
  TakeLine();
  return bytes;
}

std::optional<RawResponse> RawClient::Read(bool head) {
  std::optional<RawResponse> response = ReadHead();
  if (!response.has_value() || head) return response;
  if (response->status == 100 || response->status == 204) return response;
  if (response->headers.count("content-length") > 0) {
    size_t size = 0;
    WEFT_CHECK(absl::SimpleAtoi(response->headers["content-length"], &size));
    const std::optional<std::string> body = Take(size);
    if (!body.has_value()) return std::nullopt;
    response->body = *body;
  } else if (response->headers.count("transfer-encoding") > 0) {
    for (std::string chunk = ReadChunk(); !chunk.empty(); chunk = ReadChunk()) {
      response->body += chunk;
      response->chunks.push_back(std::move(chunk));
    }
  } else {
    const std::optional<std::string> body = ReadToEnd();
    if (!body.has_value()) return std::nullopt;
    response->body = *body;
  }
  return response;
}

std::optional<std::string> RawClient::ReadToEnd() {
  while (Fill()) {
  }
  if (!ended_) return std::nullopt;
  return std::move(input_);
}

bool RawClient::WaitClosed() {
  Fill();
  return ended_ && input_.empty();
}

bool RawClient::WaitReadable(int timeout_ms) {
  pollfd one = {fd_, POLLIN, 0};
  return !input_.empty() || poll(&one, 1, timeout_ms) > 0;
}

void RawClient::ReadSome(size_t bytes) {
  pollfd one = {fd_, POLLIN, 0};
  if (poll(&one, 1, 5) <= 0) return;
  std::string dropped(bytes, '\0');
  if (recv(fd_, dropped.data(), bytes, 0) <= 0) ended_ = true;
}

void RawClient::CloseWriting() { shutdown(fd_, SHUT_WR); }

void RawClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::string PostText(const std::string& path, const std::string& body, const std::string& headers) {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\nhost: x\r\ncontent-length: ", body.size(),
                      "\r\n", headers, "\r\n", body);
}

std::string GetText(const std::string& path, const std::string& headers) {
  return absl::StrCat("GET ", path, " HTTP/1.1\r\nhost: x\r\n", headers, "\r\n");
}

RawResponse Fetch(uint16_t port, const std::string& bytes) {
  RawClient client(port);
  client.Send(bytes);
  return client.Read().value_or(RawResponse());
}

}  // namespace weft::router
