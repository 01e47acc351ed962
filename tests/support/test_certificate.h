// Key and certificate for tests of mutual TLS between router and shard, made while a test runs.
// Test threads only.

#pragma once

#include <string>

namespace weft::testing {

// Certificate and key of one authority, which has signed both, as PEM files in `directory`:
// cert.pem, key.pem and ca.pem. Valid for localhost and 127.0.0.1. `kind` is an elliptic curve, or
// "RSA" with 1,024 bits.
void WriteTestCertificate(const std::string& directory, const char* kind = "P-256");

}  // namespace weft::testing
