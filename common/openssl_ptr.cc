#include "common/openssl_ptr.h"

#include "common/check.h"
#include "openssl/err.h"

namespace weft {

BioPtr ReadBio(const std::string& pem) {
  BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  WEFT_CHECK(bio != nullptr);
  return bio;
}

std::string TakeOpensslError() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* const reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : "no reason given";
}

}  // namespace weft
