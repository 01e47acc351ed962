#include "shard/control/step_service.h"

#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/limits.h"
#include "common/status.h"
#include "shard/control/health_service.h"
#include "shard/control/peer_credentials.h"
#include "weft/shard/v1/shard.grpc.pb.h"

namespace weft::shard {
namespace {

// sockaddr_un holds 108 bytes; the same bound everywhere.
constexpr size_t kSocketPathBytesMax = 99;
constexpr int kConcurrentCallsMax = 64;
// The router pings every 2 s when it hears nothing; anything slower than this is welcome.
constexpr int kPingIntervalMinMs = 1000;
constexpr size_t kErrorBytesMax = 2048;

grpc::Status ToGrpc(const absl::Status& status) {
  // The numbers of absl's codes are those of gRPC.
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kErrorBytesMax)));
}

// One Hold call: its cancellation, by the client or by its connection's end, ends the claim. gRPC
// calls OnCancel only after the method has returned, so that the claim's number is known by then.
class HoldReactor final : public grpc::ServerUnaryReactor {
 public:
  explicit HoldReactor(Executor& executor) : executor_(executor) {}

  void Start(const v1::HoldRequest& request) {
    number_ =
        executor_.Hold(request, [this](const absl::Status& status) { Finish(ToGrpc(status)); });
  }
  void OnCancel() override { executor_.EndHold(number_); }
  void OnDone() override { std::unique_ptr<HoldReactor> ended(this); }

 private:
  Executor& executor_;
  uint64_t number_ = 0;
};

class Service final : public v1::ShardService::CallbackService {
 public:
  Service(Executor& executor, ShardProbe* probe) : executor_(executor), probe_(probe) {}

  grpc::ServerUnaryReactor* Info(grpc::CallbackServerContext* context, const v1::InfoRequest*,
                                 v1::InfoResponse* response) override {
    auto [reactor, done] = Begin(context, "Info");
    executor_.Info(response);
    done(absl::OkStatus());
    return reactor;
  }

  grpc::ServerUnaryReactor* Hold(grpc::CallbackServerContext*, const v1::HoldRequest* request,
                                 v1::HoldResponse*) override {
    auto reactor = std::make_unique<HoldReactor>(executor_);
    reactor->Start(*request);
    return reactor.release();  // ends itself in OnDone
  }

  grpc::ServerUnaryReactor* Rendezvous(grpc::CallbackServerContext* context,
                                       const v1::RendezvousRequest* request,
                                       v1::RendezvousResponse* response) override {
    auto [reactor, done] = Begin(context, "Rendezvous");
    done(executor_.Rendezvous(*request, response));
    return reactor;
  }

  grpc::ServerUnaryReactor* JoinGroup(grpc::CallbackServerContext* context,
                                      const v1::JoinGroupRequest* request,
                                      v1::JoinGroupResponse*) override {
    auto [reactor, done] = Begin(context, "JoinGroup");
    executor_.JoinGroup(*request, std::move(done));
    return reactor;
  }

  grpc::ServerUnaryReactor* LeaveGroup(grpc::CallbackServerContext* context,
                                       const v1::LeaveGroupRequest* request,
                                       v1::LeaveGroupResponse*) override {
    auto [reactor, done] = Begin(context, "LeaveGroup");
    executor_.LeaveGroup(*request, std::move(done));
    return reactor;
  }

  grpc::ServerUnaryReactor* Warmup(grpc::CallbackServerContext* context,
                                   const v1::WarmupRequest* request,
                                   v1::WarmupResponse* response) override {
    auto [reactor, done] = Begin(context, "Warmup");
    executor_.Warmup(*request, response, std::move(done));
    return reactor;
  }

  grpc::ServerUnaryReactor* Prefill(grpc::CallbackServerContext* context,
                                    const v1::PrefillRequest* request,
                                    v1::StepResponse* response) override {
    return Step(context, request, response, "Prefill");
  }

  grpc::ServerUnaryReactor* Decode(grpc::CallbackServerContext* context,
                                   const v1::DecodeRequest* request,
                                   v1::StepResponse* response) override {
    return Step(context, request, response, "Decode");
  }

  grpc::ServerUnaryReactor* FilterBatch(grpc::CallbackServerContext* context,
                                        const v1::FilterBatchRequest* request,
                                        v1::StepResponse* response) override {
    return Step(context, request, response, "FilterBatch");
  }

  grpc::ServerUnaryReactor* MaskRows(grpc::CallbackServerContext* context,
                                     const v1::MaskRowsRequest* request,
                                     v1::MaskRowsResponse*) override {
    auto [reactor, done] = Begin(context, "MaskRows");
    done(executor_.MaskRows(*request));
    return reactor;
  }

 private:
  struct Call {
    grpc::ServerUnaryReactor* reactor;
    Executor::Done done;
  };

  // Request, response and reactor live until Finish, whatever the client does meanwhile.
  Call Begin(grpc::CallbackServerContext* context, const char* method) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const absl::Time begin = absl::Now();
    return {reactor, [this, reactor, method, begin](const absl::Status& status) {
              if (probe_ != nullptr) probe_->RpcDone(method, absl::Now() - begin);
              reactor->Finish(ToGrpc(status));
            }};
  }

  template <typename Request>
  grpc::ServerUnaryReactor* Step(grpc::CallbackServerContext* context, const Request* request,
                                 v1::StepResponse* response, const char* method) {
    auto [reactor, done] = Begin(context, method);
    StepCall call;
    call.request = request;
    call.response = response;
    call.done = std::move(done);
    executor_.Step(std::move(call));
    return reactor;
  }

  Executor& executor_;
  ShardProbe* const probe_;
};

// Whether somebody listens on `path`. A full backlog (EAGAIN) is a listener that is busy or
// stopped; a listener of another user refuses entry, so only a refused connection proves that none
// is there.
bool IsListenedOn(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return true;
  const absl::Cleanup release = [fd] { close(fd); };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
         (errno != ECONNREFUSED && errno != ENOENT);
}

// Makes the folder when needed and takes a left-over socket away.
absl::Status PrepareSocketPath(const std::string& path) {
  if (path.size() > kSocketPathBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("--socket: ", path, " has ", path.size(),
                                                   " bytes, at most ", kSocketPathBytesMax));
  }
  if (path.front() != '/') {
    return absl::InvalidArgumentError(absl::StrCat("--socket: ", path, " is not absolute"));
  }
  const std::string folder = path.substr(0, path.rfind('/'));
  if (!folder.empty() && mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    const absl::Status why = absl::ErrnoToStatus(errno, absl::StrCat("--socket: making ", folder));
    if (!absl::IsNotFound(why)) return why;
    return absl::NotFoundError(
        absl::StrCat(why.message(), "; only this last folder is made: mkdir -p ", folder));
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("--socket: ", path));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("--socket: ", path, " is not a socket"));
  }
  if (IsListenedOn(path)) {
    return absl::AlreadyExistsError(
        absl::StrCat("--socket: another process, most likely a shard, listens on ", path,
                     "; stop it first, or give this shard another path"));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("--socket: removing ", path));
  }
  return absl::OkStatus();
}

struct Endpoint {
  std::string host;
  uint32_t port = 0;
  bool wildcard = false;
  bool loopback = false;
};

// Who can reach an address.
struct Reach {
  bool wildcard = false;
  bool loopback = true;
};

// Looks at what the name resolves to, so that no spelling of "every interface" passes.
absl::StatusOr<Reach> FindReach(absl::string_view host) {
  std::string name(absl::StripSuffix(absl::StripPrefix(host, "["), "]"));
  if (name.empty() || name == "*") return Reach{true, false};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &list); error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--listen: ", name, ": ", gai_strerror(error)));
  }
  Reach reach;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    bool wildcard = true;
    bool loopback = false;
    if (entry->ai_family == AF_INET) {
      const uint32_t address =
          ntohl(reinterpret_cast<const sockaddr_in*>(entry->ai_addr)->sin_addr.s_addr);
      wildcard = address == INADDR_ANY;
      loopback = (address >> 24) == IN_LOOPBACKNET;
    } else if (entry->ai_family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(entry->ai_addr)->sin6_addr;
      // ::ffff:0.0.0.0 reaches as far as 0.0.0.0.
      const bool mapped_any = IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr32[3] == 0;
      wildcard = IN6_IS_ADDR_UNSPECIFIED(&address) || mapped_any;
      loopback = IN6_IS_ADDR_LOOPBACK(&address);
    }
    reach.wildcard |= wildcard;
    reach.loopback &= loopback;
  }
  freeaddrinfo(list);
  return reach;
}

absl::StatusOr<Endpoint> ParseListen(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  Endpoint endpoint;
  if (colon == std::string::npos || !absl::SimpleAtoi(listen.substr(colon + 1), &endpoint.port) ||
      endpoint.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--listen: ", listen, " is not host:port"));
  }
  endpoint.host = listen.substr(0, colon);
  WEFT_ASSIGN_OR_RETURN(const Reach reach, FindReach(endpoint.host));
  endpoint.wildcard = reach.wildcard;
  endpoint.loopback = reach.loopback;
  // Every address, of IPv4 too, as gRPC writes it.
  if (endpoint.host.empty() || endpoint.host == "*") endpoint.host = "[::]";
  return endpoint;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeCredentials(
    const ListenOptions& options, const Endpoint& endpoint) {
  const int given = !options.tls_cert.empty() + !options.tls_key.empty() + !options.tls_ca.empty();
  if (given == 0 && endpoint.loopback) return grpc::InsecureServerCredentials();
  if (given != 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen: ", options.listen, endpoint.wildcard ? " is a wildcard address: it" : "",
        " needs --tls-cert, --tls-key and --tls-ca together",
        endpoint.wildcard ? "; or name the one the router uses" : ""));
  }
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<PeerTlsSource> source,
      PeerTlsSource::Open("--tls", {options.tls_cert, options.tls_key, options.tls_ca}));
  return MakePeerCredentials(std::move(source));
}

}  // namespace

struct ShardServer::Impl {
  Impl(Executor& executor, ShardProbe* probe, std::function<bool()> serving)
      : service(executor, probe), health(std::move(serving)) {}

  Service service;
  HealthService health;
  // Asked at each handshake, for as long as the server lives.
  std::shared_ptr<grpc::ServerCredentials> credentials;
  std::unique_ptr<grpc::Server> server;
  std::string address;
  // Removed at the end; empty with TCP.
  std::string socket;
};

absl::StatusOr<std::unique_ptr<ShardServer>> ShardServer::Start(const ListenOptions& options,
                                                                Executor& executor,
                                                                ShardProbe* probe) {
  if (options.socket.empty() == options.listen.empty()) {
    return absl::InvalidArgumentError("give either --socket or --listen");
  }
  auto impl = std::make_unique<Impl>(executor, probe, options.serving);
  grpc::ServerBuilder builder;
  int port = 0;
  Endpoint endpoint;
  if (!options.socket.empty()) {
    WEFT_RETURN_IF_ERROR(PrepareSocketPath(options.socket));
    impl->socket = options.socket;
    impl->address = absl::StrCat("unix:", options.socket);
    builder.AddListeningPort(impl->address, grpc::InsecureServerCredentials(), &port);
  } else {
    WEFT_ASSIGN_OR_RETURN(endpoint, ParseListen(options.listen));
    WEFT_ASSIGN_OR_RETURN(impl->credentials, MakeCredentials(options, endpoint));
    builder.AddListeningPort(absl::StrCat(endpoint.host, ":", endpoint.port), impl->credentials,
                             &port);
  }
  builder.RegisterService(&impl->service);
  builder.RegisterService(&impl->health);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kShardMessageBytesMax));
  builder.SetMaxSendMessageSize(static_cast<int>(kShardMessageBytesMax));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kConcurrentCallsMax);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kPingIntervalMinMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // A router that is frozen or cut off keeps its connection: one that answers no ping is closed,
  // and its claim ends. Pings go on for as long as the connection is idle.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(options.ping_interval)));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(options.ping_timeout)));
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // The socket is for this user alone, whatever the folder allows.
  const mode_t mask = umask(0077);
  impl->server = builder.BuildAndStart();
  umask(mask);
  if (impl->server == nullptr || port == 0) {
    return absl::UnavailableError(
        options.socket.empty()
            ? absl::StrCat("--listen: cannot listen on ", options.listen,
                           ", is the port taken or the address not of this machine?")
            : absl::StrCat("--socket: cannot listen on ", options.socket));
  }
  if (options.socket.empty()) impl->address = absl::StrCat(endpoint.host, ":", port);
  return std::unique_ptr<ShardServer>(new ShardServer(std::move(impl)));
}

ShardServer::ShardServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ShardServer::~ShardServer() { Shutdown(absl::ZeroDuration()); }

const std::string& ShardServer::address() const { return impl_->address; }

void ShardServer::Shutdown(absl::Duration grace) {
  if (impl_->server == nullptr) return;
  impl_->server->Shutdown(absl::ToChronoTime(absl::Now() + grace));
  impl_->server.reset();
  if (!impl_->socket.empty()) unlink(impl_->socket.c_str());
}

}  // namespace weft::shard
