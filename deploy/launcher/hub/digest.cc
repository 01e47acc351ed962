#include "deploy/launcher/hub/digest.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace weft::hub {

Digest::Digest(BlobName::Kind kind, uint64_t bytes) {
  if (kind == BlobName::Kind::kOpaque) return;
  context_.reset(EVP_MD_CTX_new());
  WEFT_CHECK(context_ != nullptr);
  const bool git = kind == BlobName::Kind::kGitBlob;
  WEFT_CHECK(EVP_DigestInit_ex(context_.get(), git ? EVP_sha1() : EVP_sha256(), nullptr) == 1);
  if (git) Add(absl::StrCat("blob ", bytes, absl::string_view("\0", 1)));
}

void Digest::Add(absl::string_view bytes) {
  if (context_ == nullptr) return;
  WEFT_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Digest::Finish() {
  if (context_ == nullptr) return "";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  WEFT_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

}  // namespace weft::hub
