// What an accepted connection inherits from its listening socket.

#include "router/doors/http/socket.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"

namespace weft::router {
namespace {

using boost::asio::ip::tcp;

int OptionOf(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  return getsockopt(fd, level, name, &value, &size) == 0 ? value : -1;
}

TEST_CASE("Accepted sockets have the options of the listening one", "[router][http]") {
  boost::asio::io_context io;
  tcp::acceptor acceptor(io, tcp::v4());
  HttpLimits limits;
  HttpSocket::SetInheritedOptions(acceptor.native_handle(), limits);
  acceptor.bind({boost::asio::ip::make_address("127.0.0.1"), 0});
  acceptor.listen();
  tcp::socket client(io);
  client.connect(acceptor.local_endpoint());
  tcp::socket served = acceptor.accept();

  const int fd = served.native_handle();
  CHECK(OptionOf(fd, IPPROTO_TCP, TCP_NODELAY) == 1);
  CHECK(OptionOf(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
  CHECK(OptionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 30);
  CHECK(OptionOf(fd, IPPROTO_TCP, TCP_KEEPINTVL) == 10);
  CHECK(OptionOf(fd, IPPROTO_TCP, TCP_KEEPCNT) == 3);
  CHECK(OptionOf(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == limits.unacknowledged_us() / 1000);
  CHECK(OptionOf(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT) == 128 << 10);
}

}  // namespace
}  // namespace weft::router
