#include "router/doors/identity/api_key.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "openssl/rand.h"

namespace weft::router {
namespace {

constexpr char kKeyPrefix[] = "weft-";
constexpr size_t kKeyRandomBytes = 32;
constexpr char kDigestPrefix[] = "sha256:";

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

bool AllHex(absl::string_view text) {
  for (const char c : text) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

}  // namespace

KeyHasher::KeyHasher() : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr)) {
  WEFT_CHECK_MSG(algorithm_ != nullptr, "OpenSSL has no SHA-256");
}

KeyDigest KeyHasher::Hash(absl::string_view key) const {
  KeyDigest digest;
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  // Fails only where memory does, which ends a process everywhere else too.
  WEFT_CHECK(context != nullptr &&
             EVP_DigestInit_ex2(context.get(), algorithm_.get(), nullptr) == 1 &&
             EVP_DigestUpdate(context.get(), key.data(), key.size()) == 1 &&
             EVP_DigestFinal_ex(context.get(), digest.bytes.data(), nullptr) == 1);
  return digest;
}

absl::StatusOr<std::string> NewApiKey() {
  std::string bits(kKeyRandomBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bits.data()), kKeyRandomBytes) != 1) {
    return absl::UnavailableError("the system gives no random bits for a key");
  }
  std::string key = absl::StrCat(kKeyPrefix, absl::WebSafeBase64Escape(bits));
  OPENSSL_cleanse(bits.data(), bits.size());
  return key;
}

std::string FormatKeyDigest(const KeyDigest& digest) {
  const absl::string_view bytes(reinterpret_cast<const char*>(digest.bytes.data()),
                                digest.bytes.size());
  return absl::StrCat(kDigestPrefix, absl::BytesToHexString(bytes));
}

absl::StatusOr<KeyDigest> ParseKeyDigest(absl::string_view text) {
  KeyDigest digest;
  if (!absl::ConsumePrefix(&text, kDigestPrefix) || text.size() != 2 * digest.bytes.size() ||
      !AllHex(text)) {
    return absl::InvalidArgumentError(
        "expected `sha256:` and 64 hex digits, as `weft key new` writes them; a key itself does "
        "not belong into this file");
  }
  const std::string bytes = absl::HexStringToBytes(text);
  std::copy(bytes.begin(), bytes.end(), digest.bytes.begin());
  return digest;
}

}  // namespace weft::router
