// An HTTP client that sends bytes as they are and reads answers by hand, so that tests can be as
// rude as clients are. Blocking; gives up after 10 s.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft::router {

struct RawResponse {
  int status = 0;
  std::string version;
  // Lower-case names; last one wins.
  std::map<std::string, std::string> headers;
  std::string body;
  // Chunks of a chunked body, each as one string.
  std::vector<std::string> chunks;
};

class RawClient {
 public:
  // `receive_bytes` > 0 shrinks the socket's receive buffer.
  explicit RawClient(uint16_t port, int receive_bytes = 0);
  ~RawClient();

  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Send(const std::string& bytes);
  // A whole answer. Nothing when the connection ended before; `head` leaves out the body.
  std::optional<RawResponse> Read(bool head = false);
  // Status line and headers only; the body follows by ReadChunk.
  std::optional<RawResponse> ReadHead();
  // The next chunk of a chunked body; empty at its end or when the connection ended.
  std::string ReadChunk();
  // Everything until the server closes. Nothing when it does not.
  std::optional<std::string> ReadToEnd();
  // True when the server has closed and nothing is left to read.
  bool WaitClosed();
  // Something can be read, or the server has closed; waits so long for it.
  bool WaitReadable(int timeout_ms);
  // Reads and drops up to `bytes` once they are there; waits 5 ms at most.
  void ReadSome(size_t bytes);
  void CloseWriting();
  void Close();

 private:
  // Reads more; false at the end or after 10 s.
  bool Fill();
  std::optional<std::string> TakeLine();
  std::optional<std::string> Take(size_t count);

  int fd_ = -1;
  bool ended_ = false;
  std::string input_;
};

std::string PostText(const std::string& path, const std::string& body,
                     const std::string& headers = "");
std::string GetText(const std::string& path, const std::string& headers = "");

// One request on a connection of its own.
RawResponse Fetch(uint16_t port, const std::string& bytes);

}  // namespace weft::router
