#include "deploy/launcher/doctor/files.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "deploy/launcher/run_dir.h"
#include "deploy/launcher/shard_count.h"
#include "router/doors/identity/key_file.h"
#include "router/doors/identity/open_address.h"
#include "router/doors/tls/state.h"

namespace weft::launcher {
namespace {

absl::StatusOr<std::unique_ptr<shard::ModelFiles>> OpenServed(const ServeOptions& options,
                                                              std::string* path) {
  WEFT_ASSIGN_OR_RETURN(*path, ResolveModel(options));
  WEFT_RETURN_IF_ERROR(CheckShardCount(*path, options));
  return OpenModel(*path, options.shard.weights, /*serves=*/true);
}

std::string Day(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

}  // namespace

std::unique_ptr<shard::ModelFiles> CheckModel(const ServeOptions& options, Report* report) {
  std::string path;
  absl::StatusOr<std::unique_ptr<shard::ModelFiles>> files = OpenServed(options, &path);
  if (!files.ok() && options.pull && absl::IsNotFound(files.status())) {
    report->Warn("model", std::string(files.status().message()),
                 "--pull fetches it before the start");
    return nullptr;
  }
  if (!files.ok()) {
    report->Fail("model", files.status());
    return nullptr;
  }
  const shard::DecoderSpec& spec = (*files)->spec();
  report->Ok(
      "model",
      absl::StrCat(path, ": ", spec.family, ", ", spec.parameters() / 1'000'000, " M parameters, ",
                   (*files)->total_bytes() >> 20, " MiB of tensors, complete headers, ",
                   options.shards, options.shards == 1 ? " shard" : " shards",
                   options.replicas == 1
                       ? std::string()
                       : absl::StrCat(" in each of ", options.replicas, " replicas")));
  return *std::move(files);
}

void CheckRunDir(const std::vector<std::string>& parents, Report* report) {
  const absl::StatusOr<std::unique_ptr<RunDir>> dir = RunDir::Create(parents);
  if (!dir.ok()) return report->Fail("run directory", dir.status());
  const std::string& path = (*dir)->path();
  const std::string parent = path.substr(0, path.rfind('/'));
  if (const std::string& why = (*dir)->passed_over(); !why.empty()) {
    return report->Warn("run directory", absl::StrCat("in ", parent, ", because ", why),
                        "set XDG_RUNTIME_DIR to a writable directory with a short path");
  }
  report->Ok("run directory", absl::StrCat("one can be made in ", parent));
}

void CheckKeys(const Host& host, const ServeOptions& options, Report* report) {
  const std::string& path = options.router.api_keys;
  if (path.empty()) return;
  const absl::StatusOr<router::KeyFile> file = router::LoadKeyFile(path);
  if (!file.ok()) return report->Fail("keys", Annotate(file.status(), "--api-keys"));
  size_t good = 0;
  for (const router::TenantEntry& tenant : file->tenants) {
    for (const router::KeyEntry& key : tenant.keys) good += key.expires > host.Now() ? 1 : 0;
  }
  const std::string found = absl::StrCat(path, ": ", file->tenants.size(), " tenants, ", good,
                                         " of ", file->keys(), " keys are valid");
  if (good == 0) {
    report->Warn("keys", absl::StrCat(found, ", so that nobody is let in"),
                 absl::StrCat("weft key new --tenant NAME --file ", path));
  } else if (host.OthersRead(path)) {
    report->Warn("keys", absl::StrCat(found, "; everybody on this host may read it"),
                 absl::StrCat("chmod 600 ", path));
  } else {
    report->Ok("keys", found);
  }
}

void CheckTls(const Host& host, const ServeOptions& options, Report* report) {
  const router::RouterFlagValues& flags = options.router;
  const auto files = router::TlsFilesOf(flags.tls_cert, flags.tls_key, flags.tls_client_ca,
                                        flags.tls_client_certs);
  if (!files.ok()) return report->Fail("certificate", files.status());
  if (!files->has_value()) return;
  const auto material = router::LoadTlsMaterial(**files, host.Now());
  if (!material.ok()) return report->Fail("certificate", material.status());
  const std::string found =
      absl::StrCat(flags.tls_cert, ": ", (*material)->subject, ", valid until ",
                   Day((*material)->expires), ", with its key");
  if ((*material)->expires - host.Now() < router::TlsState::kWarnBefore) {
    report->Warn("certificate", found, "renew it: changed files are taken over within a second");
  } else if (host.OthersRead(flags.tls_key)) {
    report->Warn("certificate", absl::StrCat(found, "; everybody on this host may read the key"),
                 absl::StrCat("chmod 600 ", flags.tls_key));
  } else {
    report->Ok("certificate", found);
  }
}

void CheckOpenAddress(const ServeOptions& options, Report* report) {
  const router::RouterFlagValues& flags = options.router;
  const bool has_keys = !flags.api_keys.empty() || flags.tls_client_certs == "required";
  const std::string warning =
      router::OpenAddressWarning(flags.host, has_keys, !flags.tls_cert.empty());
  if (!warning.empty()) {
    report->Warn("public address", std::string(absl::StripPrefix(warning, "OPEN ADDRESS: ")), "");
  }
}

}  // namespace weft::launcher
