#include "router/doors/identity/identity.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/status.h"
#include "router/doors/identity/key_file.h"

namespace weft::router {
namespace {

// The key after "Bearer " (RFC 9110: schemes have no case); empty when it is something else.
absl::string_view BearerKey(absl::string_view authorization) {
  static constexpr absl::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return {};
  return absl::StripAsciiWhitespace(authorization.substr(kScheme.size()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Identity>> Identity::Create(IdentityOptions options) {
  std::unique_ptr<Identity> identity(new Identity(std::move(options)));
  if (!identity->has_keys()) return identity;
  absl::MutexLock lock(&identity->reload_mutex_);
  WEFT_RETURN_IF_ERROR(Annotate(identity->Load(), "--api-keys"));
  return identity;
}

Identity::Identity(IdentityOptions options)
    : options_(std::move(options)),
      uses_(kTenantIndexMax),
      no_key_(absl::UnauthenticatedError(
          "an API key is needed: send it as `authorization: Bearer KEY` or `x-api-key: KEY`")),
      unknown_key_(absl::UnauthenticatedError("the API key is not known")),
      expired_key_(absl::UnauthenticatedError("the API key has expired")),
      directory_(options_.clock, &uses_),
      news_({options_.key_file}, kKeyFileBytesMax),
      table_(std::make_shared<Table>()) {
  absl::MutexLock lock(&reload_mutex_);
  anonymous_ = directory_.anonymous();
}

absl::StatusOr<TenantRef> Identity::Authenticate(absl::string_view authorization,
                                                 absl::string_view x_api_key) const {
  if (!has_keys()) return anonymous_;
  absl::string_view key = BearerKey(authorization);
  if (key.empty()) key = absl::StripAsciiWhitespace(x_api_key);
  if (key.empty()) return no_key_;
  // Hashing what cannot be a key is work that strangers would choose the size of.
  if (key.size() > kApiKeyBytesMax) return unknown_key_;
  const KeyDigest digest = hasher_.Hash(key);
  const std::shared_ptr<const Table> table = this->table();
  const auto found = table->keys.find(digest);
  if (found == table->keys.end()) return unknown_key_;
  if (options_.wall_now() >= found->second.expires) return expired_key_;
  return found->second.tenant;
}

absl::Status Identity::Reload() {
  if (!has_keys()) return absl::OkStatus();
  absl::MutexLock lock(&reload_mutex_);
  const absl::Status status = Load();
  switch (news_.Look(status)) {
    case ReloadNews::Kind::kBad:
      WEFT_LOG_ERROR("the keys stay as they were: {}", std::string(status.message()));
      break;
    case ReloadNews::Kind::kGoodAgain:
      WEFT_LOG_INFO("{}: is good again", options_.key_file);
      break;
    case ReloadNews::Kind::kNone:
      break;
  }
  return status;
}

absl::Status Identity::Load() {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadKeyFile(options_.key_file));
  const KeyDigest text_digest = hasher_.Hash(text);
  if (text_digest_ == text_digest) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const KeyFile file, ParseKeyFile(options_.key_file, text));
  WEFT_ASSIGN_OR_RETURN(const std::vector<TenantRef> tenants, directory_.Update(file));
  auto table = std::make_shared<Table>();
  table->tenants = tenants.size();
  size_t expired = 0;
  const absl::Time now = options_.wall_now();
  for (size_t i = 0; i < tenants.size(); ++i) {
    for (const KeyEntry& key : file.tenants[i].keys) {
      table->keys.emplace(key.digest, Key{tenants[i], key.expires});
      if (now >= key.expires) ++expired;
    }
  }
  WEFT_LOG_INFO("{}: {} tenants, {} keys, {} of them expired", options_.key_file, table->tenants,
                table->keys.size(), expired);
  if (table->keys.size() == expired) {
    WEFT_LOG_WARN("{}: no key is valid, so every request is refused; `weft key new` makes one",
                  options_.key_file);
  }
  std::shared_ptr<const Table> old = std::move(table);
  {
    absl::MutexLock table_lock(&table_mutex_);
    table_.swap(old);
  }
  text_digest_ = text_digest;
  return absl::OkStatus();
}

}  // namespace weft::router
