#include "deploy/launcher/key.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/exit_code.h"
#include "common/flags.h"
#include "common/limits.h"
#include "common/small_file.h"
#include "common/status.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/run_command.h"
#include "router/doors/identity/key_file.h"

namespace weft::launcher {
namespace {

using router::KeyEntry;
using router::KeyFile;
using router::TenantEntry;

constexpr size_t kIdDigitsMin = 8;
constexpr size_t kIdDigitsShown = 12;

// Holds the folder of a key file while the file is read, changed and replaced: the file itself is
// another one afterwards.
class FolderLock {
 public:
  static absl::StatusOr<FolderLock> Take(const std::string& file) {
    std::error_code error;
    // Made absolute first: of a name alone whose file is not there yet no folder would be left.
    std::filesystem::path whole = std::filesystem::absolute(file, error);
    if (!error) whole = std::filesystem::weakly_canonical(whole, error);
    const std::string folder = error ? "." : whole.parent_path().string();
    const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
      absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("--file: ", folder));
      if (!absl::IsNotFound(status)) return status;
      return absl::NotFoundError(absl::StrCat("--file: the folder ", folder,
                                              " does not exist; make it first: mkdir -p ", folder));
    }
    FolderLock lock(fd);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, folder);
    return absl::UnavailableError(
        absl::StrCat(file, ": another `weft key` is changing it; try again"));
  }
  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_;
};

// The hex digits alone.
std::string Digits(const KeyEntry& key) {
  return router::FormatKeyDigest(key.digest).substr(std::strlen("sha256:"));
}

// A line for people.
std::string Describe(const TenantEntry& tenant, const KeyEntry& key) {
  return absl::StrCat("key ", Digits(key).substr(0, kIdDigitsShown),
                      key.name.empty() ? "" : absl::StrCat(" \"", key.name, "\""), " of tenant ",
                      tenant.name);
}

absl::Status NeedFile(const std::string& file) {
  if (!file.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--file: name the file with the keys, as in --file=keys.json");
}

// The keys in a file that should be there.
absl::StatusOr<KeyFile> LoadKeys(const std::string& file) {
  absl::StatusOr<KeyFile> keys = router::LoadKeyFile(file);
  if (!absl::IsNotFound(keys.status())) return keys;
  return absl::NotFoundError(absl::StrCat("--file: ", file,
                                          " does not exist; weft key new --tenant NAME --file ",
                                          file, " makes it with a first key"));
}

absl::Status AddToFile(const NewKeyOptions& options, const KeyEntry& entry, bool* tenant_is_new) {
  WEFT_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(options.file));
  absl::StatusOr<KeyFile> file = router::LoadKeyFile(options.file);
  if (absl::IsNotFound(file.status())) file = KeyFile();
  WEFT_RETURN_IF_ERROR(file.status());
  TenantEntry* tenant = file->Find(options.tenant);
  *tenant_is_new = tenant == nullptr;
  if (tenant == nullptr) {
    file->tenants.emplace_back();
    tenant = &file->tenants.back();
    tenant->name = options.tenant;
  }
  tenant->keys.push_back(entry);
  const std::string text = router::FormatKeyFile(*file);
  // What would not be read back (too many keys, say) is not written.
  WEFT_RETURN_IF_ERROR(router::ParseKeyFile(options.file, text).status());
  return WriteFileAtomically(options.file, text);
}

absl::Status PrintNewKey(const NewKeyOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const NewKey made, MakeKey(options, absl::Now()));
  if (options.file.empty()) {
    std::fprintf(stderr, "Among the keys of tenant %s belongs: %s\n", options.tenant.c_str(),
                 made.entry.c_str());
  } else {
    std::fprintf(stderr, "%s: its digest is in. The key is shown this once:\n",
                 options.file.c_str());
  }
  if (made.tenant_is_new) {
    std::fprintf(stderr, "Tenant %s is new there, with weight 1 and no limits.\n",
                 options.tenant.c_str());
  }
  std::printf("%s\n", made.key.c_str());
  return absl::OkStatus();
}

int RunKeyNew(int argc, char** argv) {
  NewKeyOptions options;
  Flags flags("weft key new", "Makes an API key, prints it once and keeps its digest.");
  flags.Add("tenant", &options.tenant, "Whose key it is");
  flags.Add("file", &options.file, "Key file to add its digest to, made if need be; empty = none");
  flags.Add("name", &options.name, "What lists call it, at most 128 bytes");
  flags.Add("expires", &options.expires,
            "When it ends: 2027-01-31 (its first moment, UTC) or RFC 3339; empty = never");
  return RunCommand(flags, argc, argv, [&options] { return PrintNewKey(options); });
}

int RunKeyList(int argc, char** argv) {
  std::string file;
  Flags flags("weft key list",
              "Lists the keys of a key file by the first digits of their digests.");
  flags.Add("file", &file, "Key file");
  return RunCommand(flags, argc, argv, [&file]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const std::string table, ListKeys(file, absl::Now()));
    std::fputs(table.c_str(), stdout);
    return absl::OkStatus();
  });
}

int RunKeyRevoke(int argc, char** argv) {
  std::string file;
  std::string id;
  std::string tenant;
  Flags flags("weft key revoke",
              "Takes a key out of a key file; a router that watches the file refuses it at once.");
  flags.Add("file", &file, "Key file");
  flags.Add("tenant", &tenant, "Only among this tenant's keys; empty = all");
  flags.AddArgument("id", &id,
                    "8 or more first digits of the key's digest (weft key list), its name, "
                    "or the key itself");
  return RunCommand(flags, argc, argv, [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const std::string what, RevokeKey(file, id, tenant));
    std::printf("%s is revoked\n", what.c_str());
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<NewKey> MakeKey(const NewKeyOptions& options, absl::Time now) {
  if (options.tenant.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tenant: name whose key it is, as in --tenant=search; 1 to ",
                     kTenantNameBytesMax, " of letters, digits, `.`, `_` and `-`"));
  }
  WEFT_RETURN_IF_ERROR(Annotate(router::CheckTenantName(options.tenant), "--tenant"));
  KeyEntry entry;
  entry.name = options.name;
  if (entry.name.size() > kApiKeyNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--name: is longer than ", kApiKeyNameBytesMax, " bytes"));
  }
  if (!options.expires.empty()) {
    const absl::StatusOr<absl::Time> expires = router::ParseExpiry(options.expires);
    if (!expires.ok()) return Annotate(expires.status(), "--expires");
    if (*expires <= now) {
      return absl::InvalidArgumentError(
          absl::StrCat("--expires: ", options.expires, " is in the past"));
    }
    entry.expires = *expires;
  }
  NewKey made;
  WEFT_ASSIGN_OR_RETURN(made.key, router::NewApiKey());
  entry.digest = router::KeyHasher().Hash(made.key);
  made.entry = router::FormatKeyEntry(entry);
  if (!options.file.empty()) {
    WEFT_RETURN_IF_ERROR(AddToFile(options, entry, &made.tenant_is_new));
  }
  return made;
}

absl::StatusOr<std::string> ListKeys(const std::string& file, absl::Time now) {
  WEFT_RETURN_IF_ERROR(NeedFile(file));
  WEFT_ASSIGN_OR_RETURN(const KeyFile keys, LoadKeys(file));
  std::string table =
      absl::StrFormat("%-14s %-24s %-24s %s\n", "DIGEST", "TENANT", "EXPIRES", "NAME");
  for (const TenantEntry& tenant : keys.tenants) {
    for (const KeyEntry& key : tenant.keys) {
      std::string expires = "never";
      if (key.expires != absl::InfiniteFuture()) {
        expires =
            absl::StrCat(router::FormatExpiry(key.expires), now >= key.expires ? " (over)" : "");
      }
      absl::StrAppendFormat(&table, "%-14s %-24s %-24s %s\n", Digits(key).substr(0, kIdDigitsShown),
                            tenant.name, expires, key.name);
    }
  }
  return table;
}

absl::StatusOr<std::string> RevokeKey(const std::string& file, const std::string& id,
                                      const std::string& tenant) {
  WEFT_RETURN_IF_ERROR(NeedFile(file));
  if (id.empty()) {
    return absl::InvalidArgumentError("which key? Give its id, as `weft key list` shows it");
  }
  WEFT_ASSIGN_OR_RETURN(const FolderLock lock, FolderLock::Take(file));
  WEFT_ASSIGN_OR_RETURN(KeyFile keys, LoadKeys(file));
  if (!tenant.empty() && keys.Find(tenant) == nullptr) {
    return absl::NotFoundError(absl::StrCat("--tenant: ", file, " has no tenant ", tenant));
  }
  const router::KeyDigest digest = router::KeyHasher().Hash(id);
  std::string found;
  int matches = 0;
  for (TenantEntry& entry : keys.tenants) {
    if (!tenant.empty() && entry.name != tenant) continue;
    for (size_t i = 0; i < entry.keys.size();) {
      const KeyEntry& key = entry.keys[i];
      const bool by_digits = id.size() >= kIdDigitsMin && absl::StartsWith(Digits(key), id);
      if (!by_digits && key.name != id && key.digest != digest) {
        ++i;
        continue;
      }
      absl::StrAppend(&found, matches++ == 0 ? "" : ", ", Describe(entry, key));
      entry.keys.erase(entry.keys.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  // Neither message repeats the id: it may be a key.
  if (matches == 0) {
    return absl::NotFoundError(
        absl::StrCat(file, ": no key has this name or a digest that begins so (", kIdDigitsMin,
                     " digits or more); `weft key list` shows them"));
  }
  if (matches > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": this names several keys: ", found,
                     "; give the digits instead, or --tenant where tenants differ"));
  }
  WEFT_RETURN_IF_ERROR(WriteFileAtomically(file, router::FormatKeyFile(keys)));
  return found;
}

int RunKey(int argc, char** argv) {
  const char* const what = argc >= 2 ? argv[1] : "";
  if (std::strcmp(what, "new") == 0) return RunKeyNew(argc - 1, argv + 1);
  if (std::strcmp(what, "list") == 0) return RunKeyList(argc - 1, argv + 1);
  if (std::strcmp(what, "revoke") == 0) return RunKeyRevoke(argc - 1, argv + 1);
  const bool help = std::strcmp(what, "--help") == 0;
  std::fputs(
      "weft key new     makes an API key for a tenant and prints it once\n"
      "weft key list    shows which keys a key file knows\n"
      "weft key revoke  takes a key out of a key file\n"
      "\n"
      "weft key COMMAND --help lists the flags of each.\n",
      help ? stdout : stderr);
  return help ? kExitOk : kExitStartup;
}

}  // namespace weft::launcher
