#include "router/doors/tls/state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status.h"
#include "router/doors/tls/context.h"

namespace weft::router {

absl::StatusOr<std::unique_ptr<TlsState>> TlsState::Create(TlsFiles files,
                                                           std::function<absl::Time()> wall_now) {
  std::unique_ptr<TlsState> state(new TlsState(std::move(files), std::move(wall_now)));
  absl::MutexLock lock(&state->reload_mutex_);
  WEFT_RETURN_IF_ERROR(state->Load());
  return state;
}

std::shared_ptr<SSL_CTX> TlsState::context() const {
  absl::ReaderMutexLock lock(&mutex_);
  return context_;
}

TlsState::MaterialRef TlsState::material() const {
  absl::ReaderMutexLock lock(&mutex_);
  return material_;
}

void TlsState::OnChange(Listener listener) {
  absl::MutexLock lock(&reload_mutex_);
  listener(material());
  listeners_.push_back(std::move(listener));
}

absl::Status TlsState::Reload() {
  absl::MutexLock lock(&reload_mutex_);
  const absl::Status status = Load();
  switch (news_.Look(status)) {
    case ReloadNews::Kind::kBad:
      WEFT_LOG_ERROR("TLS goes on with the certificate that it has: {}",
                     std::string(status.message()));
      break;
    case ReloadNews::Kind::kGoodAgain:
      WEFT_LOG_INFO("the TLS files are good again");
      break;
    case ReloadNews::Kind::kNone:
      break;
  }
  return status;
}

absl::Status TlsState::Load() {
  WEFT_ASSIGN_OR_RETURN(const MaterialRef fresh, LoadTlsMaterial(files_, wall_now_()));
  const MaterialRef old = material();
  if (old != nullptr && old->certificate_chain_pem == fresh->certificate_chain_pem &&
      old->private_key_pem == fresh->private_key_pem &&
      old->client_ca_pem == fresh->client_ca_pem) {
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<SSL_CTX> context, MakeServerContext(*fresh));
  WEFT_LOG_INFO("TLS certificate of {}, valid until {}", fresh->subject,
                absl::FormatTime("%Y-%m-%d", fresh->expires, absl::UTCTimeZone()));
  {
    absl::MutexLock lock(&mutex_);
    context_ = std::move(context);
    material_ = fresh;
  }
  warned_ = absl::InfinitePast();
  for (Listener& listener : listeners_) listener(fresh);
  return absl::OkStatus();
}

std::string TlsState::WarnOfExpiry() {
  const MaterialRef served = material();
  const absl::Time now = wall_now_();
  const absl::Duration left = served->expires - now;
  if (left > kWarnBefore) return "";
  absl::MutexLock lock(&reload_mutex_);
  if (now - warned_ < kWarnEvery) return "";
  warned_ = now;
  const std::string line =
      absl::StrCat(served->files.certificate_chain, ": the TLS certificate of ", served->subject,
                   left > absl::ZeroDuration() ? " expires" : " expired", " on ",
                   absl::FormatTime("%Y-%m-%d %H:%M UTC", served->expires, absl::UTCTimeZone()),
                   "; renew it (new files are taken over without a restart)");
  WEFT_LOG_WARN("{}", line);
  return line;
}

}  // namespace weft::router
