// Owners of OpenSSL's objects, and its errors in words. Used by what reads certificates, and by its
// tests.

#pragma once

#include <memory>
#include <string>

#include "openssl/bio.h"
#include "openssl/evp.h"
#include "openssl/ssl.h"
#include "openssl/x509.h"

namespace weft {

template <auto kFree>
struct OpensslFree {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

using BioPtr = std::unique_ptr<BIO, OpensslFree<&BIO_free>>;
using X509Ptr = std::unique_ptr<X509, OpensslFree<&X509_free>>;
using EvpKeyPtr = std::unique_ptr<EVP_PKEY, OpensslFree<&EVP_PKEY_free>>;
using SslPtr = std::unique_ptr<SSL, OpensslFree<&SSL_free>>;

// Reads `pem`, which must outlive it.
BioPtr ReadBio(const std::string& pem);

// The reason of this thread's latest OpenSSL error; empties its list of errors, which would
// otherwise be taken for a later call's.
std::string TakeOpensslError();

}  // namespace weft
