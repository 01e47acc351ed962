// API keys and their digests. A key is `weft-` and 256 random bits in base64url; only its SHA-256
// is kept. A slow hash would add nothing, since nobody guesses 256 bits, and would let strangers
// burn the router's CPU with wrong keys. Used by doors' threads and by `weft key`; thread-safe.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "openssl/crypto.h"
#include "openssl/evp.h"

namespace weft::router {

// SHA-256 of a whole key text.
struct KeyDigest {
  std::array<uint8_t, 32> bytes{};

  // Takes the same time wherever two digests differ. The bucket that a table looks into does depend
  // on the digest; that helps nobody, for to choose digests one must find keys by trying, and a
  // digest that shares bits with a stored one is no step towards its key.
  friend bool operator==(const KeyDigest& a, const KeyDigest& b) {
    return CRYPTO_memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
  }
  friend bool operator!=(const KeyDigest& a, const KeyDigest& b) { return !(a == b); }
  template <typename H>
  friend H AbslHashValue(H state, const KeyDigest& digest) {
    return H::combine_contiguous(std::move(state), digest.bytes.data(), digest.bytes.size());
  }
};

// SHA-256, looked up in OpenSSL once and not for each key.
class KeyHasher {
 public:
  KeyHasher();

  // Never refuses a length: bounding it is the caller's business.
  KeyDigest Hash(absl::string_view key) const;

 private:
  struct Free {
    void operator()(EVP_MD* algorithm) const { EVP_MD_free(algorithm); }
  };
  std::unique_ptr<EVP_MD, Free> algorithm_;
};

// A fresh key, 48 characters. UNAVAILABLE when the system gives no random bits.
absl::StatusOr<std::string> NewApiKey();

// `sha256:` and 64 hex digits, in lower case when written. INVALID_ARGUMENT, without the text (it
// may be a key, put where its digest belongs), otherwise.
std::string FormatKeyDigest(const KeyDigest& digest);
absl::StatusOr<KeyDigest> ParseKeyDigest(absl::string_view text);

}  // namespace weft::router
