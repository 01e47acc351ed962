#include "shard/comm/interface_name.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace weft::shard {
namespace {

// The same text for every way to write one address; empty for what is none of a network's.
std::string Canonical(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
              sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof(text));
  }
  return text;
}

std::string Canonical(const std::string& address) {
  sockaddr_in four{};
  sockaddr_in6 six{};
  four.sin_family = AF_INET;
  six.sin6_family = AF_INET6;
  if (inet_pton(AF_INET, address.c_str(), &four.sin_addr) == 1) {
    return Canonical(reinterpret_cast<const sockaddr*>(&four));
  }
  if (inet_pton(AF_INET6, address.c_str(), &six.sin6_addr) == 1) {
    return Canonical(reinterpret_cast<const sockaddr*>(&six));
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> InterfaceName(const std::string& address) {
  const std::string wanted = Canonical(address);
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return absl::InternalError("the kernel lists no interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, &freeifaddrs);
  for (const ifaddrs* one = all.get(); one != nullptr; one = one->ifa_next) {
    if (!wanted.empty() && Canonical(one->ifa_addr) == wanted) return std::string(one->ifa_name);
  }
  return absl::NotFoundError(absl::StrCat("no network interface of this host has ", address));
}

}  // namespace weft::shard
