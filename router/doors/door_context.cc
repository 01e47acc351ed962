#include "router/doors/door_context.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/status.h"
#include "router/errors.h"

namespace weft::router {
namespace {

std::unique_ptr<Identity> MakeNobody() {
  absl::StatusOr<std::unique_ptr<Identity>> identity = Identity::Create({});
  WEFT_CHECK(identity.ok());  // there is no file to read
  return *std::move(identity);
}

absl::Status NotReady(const ServerStatus& status) {
  return UnavailableError(
      "LOADING",
      absl::StrCat("the model is not ready: ", ServerStateName(status.state), ", ", status.percent,
                   " %", status.detail.empty() ? "" : ", ", status.detail),
      absl::Seconds(1));
}

}  // namespace

DoorContext::DoorContext(Entrance* entrance, Probe* probe, DoorOptions options)
    : entrance_(entrance),
      probe_(probe),
      options_(std::move(options)),
      nobody_(options_.identity == nullptr ? MakeNobody() : nullptr),
      identity_(options_.identity == nullptr ? nobody_.get() : options_.identity),
      config_(options_.config) {}

absl::StatusOr<TenantRef> DoorContext::Authenticate(const Credentials& credentials) const {
  absl::StatusOr<TenantRef> tenant =
      identity_->Authenticate(credentials.authorization, credentials.api_key);
  if (!tenant.ok()) {
    probe_->Rejected(RejectReason::kIdentity);
    probe_->Failed(FailureReason::kValidation);
  }
  return tenant;
}

absl::StatusOr<Admission::Permit> DoorContext::Enter(const TenantRef& tenant,
                                                     size_t body_bytes) const {
  ServerStatus status = entrance_->Status();
  if (stage() == Stage::kDraining) status.state = ServerState::kDraining;
  switch (status.state) {
    case ServerState::kReady:
    case ServerState::kRecovering:  // requests queue until the group is back
      return entrance_->Enter(tenant, body_bytes);
    case ServerState::kDraining:
      probe_->Rejected(RejectReason::kDraining, tenant.get());
      probe_->Failed(FailureReason::kUnavailable);
      return UnavailableError("DRAINING", "the server is shutting down", absl::Seconds(5));
    case ServerState::kStarting:
    case ServerState::kLoading:
    case ServerState::kWarming:
      break;
  }
  probe_->Rejected(RejectReason::kNotReady, tenant.get());
  probe_->Failed(FailureReason::kUnavailable);
  return NotReady(status);
}

absl::StatusOr<ModelFacts> DoorContext::ServedModel() const {
  ModelFacts model = entrance_->Model();
  if (model.shape.context_tokens == 0) return NotReady(Status());
  return model;
}

absl::Status DoorContext::CheckModel(absl::string_view name) const {
  // The placeholders are what clients send that know of one model only: text-generation's own
  // client libraries, huggingface_hub, and those whose user left the name out.
  if (name.empty() || name == "tgi" || name == "dummy" || name == entrance_->Model().model_name) {
    return absl::OkStatus();
  }
  const std::vector<std::string>& aliases = options_.model_aliases;
  if (std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("the model `", name.substr(0, 256),
                                          "` does not exist; served is `",
                                          entrance_->Model().model_name, "`"));
}

ServerStatus DoorContext::Status() const {
  ServerStatus status = entrance_->Status();
  if (stage() != Stage::kHere) status.state = ServerState::kDraining;
  return status;
}

std::map<std::string, std::string> DoorContext::Config() const {
  absl::MutexLock lock(&mutex_);
  return config_;
}

void DoorContext::SetConfig(std::map<std::string, std::string> config) {
  absl::MutexLock lock(&mutex_);
  config_ = std::move(config);
}

absl::string_view ServerStateName(ServerState state) {
  switch (state) {
    case ServerState::kStarting:
      return "starting";
    case ServerState::kLoading:
      return "loading";
    case ServerState::kWarming:
      return "warming";
    case ServerState::kReady:
      return "ready";
    case ServerState::kRecovering:
      return "recovering";
    case ServerState::kDraining:
      return "draining";
  }
  return "unknown";
}

std::string NewRequestId() {
  char bytes[16];
  WEFT_CHECK_EQ(getrandom(bytes, sizeof(bytes), 0), static_cast<ssize_t>(sizeof(bytes)));
  return absl::BytesToHexString(absl::string_view(bytes, sizeof(bytes)));
}

bool IsRequestId(absl::string_view text) {
  if (text.empty() || text.size() > kRequestIdBytesMax) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace weft::router
