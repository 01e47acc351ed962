#include "router/router.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "common/freed_memory.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/status.h"
#include "router/doors/anthropic/routes.h"
#include "router/doors/api/openapi.h"
#include "router/doors/grpc/credentials.h"
#include "router/doors/identity/open_address.h"
#include "router/doors/ollama/routes.h"
#include "router/doors/openai/routes.h"
#include "router/doors/ops/open_inference_routes.h"
#include "router/doors/ops/routes.h"
#include "router/doors/ops/server_info.h"
#include "router/doors/responses/routes.h"
#include "router/doors/tgi/routes.h"
#include "router/doors/ui/routes.h"

namespace weft::router {
namespace {

// How often the process is looked at for freed memory, and by how much it may grow before. In a
// flood of large messages hundreds of megabytes are freed in a second.
constexpr int kReturnMemoryMs = 100;
constexpr uint64_t kGrowthBytesMax = 16u << 20;
// Whoever stops all processes of a group at once makes the launcher pass on what this one has had
// already: a second signal so soon is the same wish.
constexpr absl::Duration kEchoTimeout = absl::Seconds(1);
// How often a drain looks for its end and for signals.
constexpr absl::Duration kLookTimeout = absl::Milliseconds(20);
// For answers that are complete to leave their sockets.
constexpr absl::Duration kFlushTimeout = absl::Seconds(1);

GrpcTlsPem PemOf(const TlsMaterial& material) {
  return {material.certificate_chain_pem, material.private_key_pem, material.client_ca_pem};
}

// What kept a port closed, with the flags that name it and the way out.
absl::Status ListenError(const absl::Status& status, absl::string_view host_flag,
                         absl::string_view port_flag, const std::string& host, uint32_t port) {
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(
        absl::StrCat(port_flag, " ", port, ": cannot listen on ", HostPort(host, port),
                     ": address already in use; name another port, 0 for a free one, or end the "
                     "process that listens there"));
  }
  return Annotate(status, absl::StrCat(host_flag, " ", host, ", ", port_flag, " ", port));
}

// Which of the two HTTP ports `status` is about stands in its text alone.
absl::Status HttpError(const absl::Status& status, const HttpServerOptions& options) {
  if (options.admin_port.has_value() &&
      absl::StrContains(status.message(),
                        absl::StrCat(options.admin_host, ":", *options.admin_port, ":"))) {
    return ListenError(status, "--admin-host", "--admin-port", options.admin_host,
                       *options.admin_port);
  }
  return ListenError(status, "--host", "--http-port", options.host, options.port);
}

DoorOptions WithIdentity(DoorOptions options, const Identity* identity) {
  options.identity = identity;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Router>> Router::Create(RouterFlags flags, ShutdownSignals signals) {
  IdentityOptions identity_options;
  identity_options.key_file = flags.key_file;
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Identity> identity, Identity::Create(identity_options));
  std::unique_ptr<TlsState> tls;
  if (flags.tls.has_value()) {
    WEFT_ASSIGN_OR_RETURN(tls, TlsState::Create(*flags.tls));
  }
  return std::unique_ptr<Router>(
      new Router(std::move(flags), std::move(signals), std::move(identity), std::move(tls)));
}

Router::Router(RouterFlags flags, ShutdownSignals signals, std::unique_ptr<Identity> identity,
               std::unique_ptr<TlsState> tls)
    : flags_(std::move(flags)),
      signals_(std::move(signals)),
      identity_(std::move(identity)),
      tls_(std::move(tls)),
      watchdog_(Watchdog::Start({flags_.watchdog_limit,
                                 [this](const std::string& /*thread*/) { probe_.ThreadStuck(); }})),
      timeline_route_(&probe_.timeline()),
      core_(MakeCore(&probe_)),
      doors_(core_.get(), &probe_, WithIdentity(flags_.doors, identity_.get())) {
  probe_.FollowTenants([this] { return identity_->Uses(); });
  probe_.SetCompat(flags_.metrics_compat);
  if (flags_.traces.has_value()) tracer_ = std::make_unique<Tracer>(*flags_.traces, &probe_);
  flags_.engine.tracer = tracer_.get();
  AddTgiRoutes(&doors_, &routes_);
  AddOpenAiRoutes(&doors_, &routes_);
  AddResponsesRoutes(&doors_, &routes_);
  AddAnthropicRoutes(&doors_, &routes_);
  AddOllamaRoutes(&doors_, &routes_);
  AddOpenInferenceRoutes(&doors_, &routes_);
  AddServerInfoRoutes(&doors_, &routes_);
  AddOpenApiRoute(&routes_);
  if (flags_.public_ops) AddOpsRoutes(&doors_, &routes_);
  if (flags_.ui) AddUiRoutes(&routes_);
  AddOpsRoutes(&doors_, &admin_routes_);
  AddConfigRoute(&doors_, &admin_routes_);
  AddFlushRoutes([this] { return core_->FlushPrefixCache(); }, &admin_routes_);
  timeline_route_.AddTo(&admin_routes_);
}

void Router::WatchFiles() {
  if (identity_->has_keys()) {
    reloadables_.Add("keys", [this] { return identity_->Reload(); });
    watch_.Add({flags_.key_file}, [this] { (void)identity_->Reload(); });  // it logs its error
  }
  if (tls_ != nullptr) {
    reloadables_.Add("certificates", [this] { return tls_->Reload(); });
    watch_.Add(
        tls_->paths(), [this] { (void)tls_->Reload(); }, [this] { tls_->WarnOfExpiry(); });
  }
  if (!flags_.reload_path.empty()) {
    ConfigReload::Targets targets;
    targets.queue_limits = [this](const QueueLimits& limits) { core_->SetQueueLimits(limits); };
    targets.config = [this](const std::map<std::string, std::string>& config) {
      doors_.SetConfig(config);
    };
    config_ = std::make_unique<ConfigReload>(flags_, std::move(targets));
    reloadables_.Add("configuration", [this] { return config_->Reload(); });
    watch_.Add({flags_.reload_path}, [this] { (void)config_->Reload(); });
  }
  watch_.Start();
}

void Router::WarnOfOpenAddress() const {
  const bool certificates =
      flags_.tls.has_value() && flags_.tls->clients == ClientCertificates::kRequired;
  const std::string warning =
      OpenAddressWarning(flags_.http.host, identity_->has_keys() || certificates, tls_ != nullptr);
  if (!warning.empty()) WEFT_LOG_WARN("{}", warning);
}

absl::Status Router::Start() {
  if (tls_ != nullptr) flags_.http.tls_context = [this] { return tls_->context(); };
  absl::StatusOr<std::unique_ptr<HttpServer>> http =
      HttpServer::Start(flags_.http, &routes_, &admin_routes_, &probe_);
  if (!http.ok()) return HttpError(http.status(), flags_.http);
  http_ = *std::move(http);
  if (tls_ != nullptr) {
    const TlsState::MaterialRef material = tls_->material();
    WEFT_ASSIGN_OR_RETURN(
        flags_.grpc.credentials,
        GrpcCredentials::Create(PemOf(*material),
                                flags_.tls->clients == ClientCertificates::kRequired));
    tls_->OnChange([credentials = flags_.grpc.credentials](const TlsState::MaterialRef& changed) {
      const absl::Status status = credentials->Update(PemOf(*changed));
      if (!status.ok())
        WEFT_LOG_ERROR("gRPC keeps its certificate: {}", std::string(status.message()));
    });
  }
  absl::StatusOr<std::unique_ptr<GrpcServer>> grpc = GrpcServer::Start(flags_.grpc, &doors_);
  if (!grpc.ok()) {
    return ListenError(grpc.status(), "--host", "--grpc-port", flags_.http.host, flags_.grpc_port);
  }
  grpc_ = *std::move(grpc);
  WarnOfOpenAddress();
  // For scripts and `weft serve`: one line, once.
  std::string line =
      absl::StrCat("listening http=", HostPort(flags_.http.host, http_->port()),
                   " grpc=", HostPort(flags_.http.host, static_cast<uint32_t>(grpc_->port())));
  if (http_->admin_port() != 0) {
    absl::StrAppend(&line, " admin=", HostPort(flags_.http.admin_host, http_->admin_port()));
  }
  PrintLine(line);
  flags_.engine.on_fatal = [this](const absl::Status& status) { news_.SetFatal(status); };
  flags_.engine.on_serving = [this] { news_.SetServing(); };
  WEFT_RETURN_IF_ERROR(core_->Start(flags_.engine));
  // Now there is somebody to take new limits.
  WatchFiles();
  return absl::OkStatus();
}

int Router::Run() {
  bool ready = false;
  FreedMemory freed(kGrowthBytesMax);
  while (true) {
    pollfd fds[2] = {{signals_.fd(), POLLIN, 0}, {news_.fd(), POLLIN, 0}};
    if (poll(fds, 2, kReturnMemoryMs) == 0) {
      freed.ReturnIfGrown(MonotonicClock().NowUs());
      continue;
    }
    news_.Read();
    if (const absl::Status fatal = news_.fatal(); !fatal.ok()) {
      WEFT_LOG_ERROR("ends, because it cannot serve: {}", std::string(fatal.message()));
      Stop();
      return kExitFatal;
    }
    if (const std::optional<int> signal = signals_.Wait(absl::ZeroDuration())) {
      if (!signals_.IsReload(*signal)) return Drain();
      reloadables_.ReloadAll();
    }
    if (!ready && news_.serving()) {
      ready = true;
      PrintLine("ready");
    }
  }
}

void Router::Stop() {
  core_->Shutdown();
  if (http_ != nullptr) {
    http_->WaitIdle(kFlushTimeout);
    http_->Stop();
    timeline_route_.Stop();
  }
  if (grpc_ != nullptr) grpc_->Stop(kFlushTimeout);
  if (tracer_ != nullptr) tracer_->Stop();
}

void Router::EndAtSecondSignal(absl::Time first, absl::Duration timeout) {
  const std::optional<int> signal = signals_.Wait(timeout);
  if (!signal.has_value() || signals_.IsReload(*signal)) return;
  if (absl::Now() - first <= kEchoTimeout) return;
  WEFT_LOG_WARN("second signal: stopping at once");
  FlushLogs();
  std::_Exit(kExitCut);
}

void Router::Leave(absl::Time first) {
  const ServerState state = doors_.Status().state;
  // One that took no requests so far has none to wait for.
  if (state != ServerState::kReady && state != ServerState::kRecovering) return;
  const absl::Time end = first + flags_.shutdown_delay;
  if (absl::Now() >= end) return;
  WEFT_LOG_INFO("not ready any more: new requests are taken for another {} s",
                absl::ToDoubleSeconds(flags_.shutdown_delay));
  doors_.StartLeaving();
  grpc_->StartDrain();
  http_->StartDrain();
  while (absl::Now() < end && news_.fatal().ok()) {
    EndAtSecondSignal(first, kLookTimeout);
  }
}

int Router::Drain() {
  const absl::Time first = absl::Now();
  Leave(first);
  WEFT_LOG_INFO("shutting down: running requests have {} s",
                absl::ToDoubleSeconds(flags_.drain_timeout));
  doors_.StartDrain();
  grpc_->StartDrain();
  http_->StartDrain();
  core_->StartDrain(flags_.drain_timeout);
  const absl::Time end = absl::Now() + flags_.drain_timeout;
  while (!core_->WaitIdle(kLookTimeout) && absl::Now() < end) {
    EndAtSecondSignal(first, absl::ZeroDuration());
  }
  Stop();
  return kExitOk;
}

}  // namespace weft::router
