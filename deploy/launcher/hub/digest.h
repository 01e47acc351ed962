// The digest of a file's bytes as they come: SHA-256, or SHA-1 of git's blob (which begins with
// "blob LENGTH" and a zero byte). By OpenSSL; pure, one owner.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "deploy/launcher/hub/file_list.h"
#include "openssl/evp.h"

namespace weft::hub {

class Digest {
 public:
  // Of a file of `bytes`. With BlobName::Kind::kOpaque nothing is computed.
  Digest(BlobName::Kind kind, uint64_t bytes);

  void Add(absl::string_view bytes);
  // In hexadecimal digits; empty where nothing is computed. Called once, last.
  std::string Finish();

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  // Null = nothing is computed.
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace weft::hub
