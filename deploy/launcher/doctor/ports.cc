#include "deploy/launcher/doctor/ports.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"

namespace weft::launcher {
namespace {

struct Port {
  std::string flag;
  std::string host;
  uint32_t number;
};

std::vector<Port> PortsOf(const ServeOptions& options) {
  const router::RouterFlagValues& router = options.router;
  std::vector<Port> ports = {{"--http-port", router.host, router.http_port},
                             {"--grpc-port", router.host, router.grpc_port}};
  if (router.admin_port >= 0) {
    ports.push_back({"--admin-port", router.admin_host, static_cast<uint32_t>(router.admin_port)});
  }
  // 0 = a free one for each shard.
  if (options.shard_metrics_port > 0) {
    for (uint32_t rank = 0; rank < options.all_shards(); ++rank) {
      ports.push_back({"--shard-metrics-port", options.shard.metrics_host,
                       static_cast<uint32_t>(options.shard_metrics_port) + rank});
    }
  }
  return ports;
}

}  // namespace

void CheckPorts(const Host& host, const ServeOptions& options, Report* report) {
  // By number: the flag that has it.
  std::map<uint32_t, std::string> taken;
  for (const Port& port : PortsOf(options)) {
    const std::string what = absl::StrCat(port.flag, " ", port.number);
    if (port.number == 0) {
      report->Ok(what, "a free one is chosen at the start");
      continue;
    }
    const auto [other, is_new] = taken.emplace(port.number, port.flag);
    if (!is_new) {
      report->Fail(what, absl::StrCat("is ", other->second, " too"), "name another port");
      continue;
    }
    const std::string address = HostPort(port.host, port.number);
    const absl::Status status = host.Listen(port.host, port.number);
    if (status.ok()) {
      report->Ok(what, absl::StrCat(address, " is free"));
    } else if (absl::IsAlreadyExists(status)) {
      report->Fail(what, absl::StrCat("cannot listen on ", address, ": address already in use"),
                   "name another port, 0 for a free one, or end the process that listens there");
    } else if (absl::IsPermissionDenied(status)) {
      report->Fail(what, absl::StrCat("cannot listen on ", address, ": ", status.message()),
                   "ports below 1024 need CAP_NET_BIND_SERVICE; name a higher one");
    } else {
      report->Fail(what, absl::StrCat("cannot listen on ", address, ": ", status.message()),
                   "name an address of this host");
    }
  }
}

}  // namespace weft::launcher
