// A safetensors file taken apart, also with dtypes that no shard reads: what a conversion wrote is
// compared by it. The file is trusted.

#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "boost/json.hpp"

namespace weft::test {

struct TensorBytes {
  std::string dtype;
  // As JSON.
  std::string shape;
  std::string bytes;

  bool operator==(const TensorBytes&) const = default;
};

inline std::map<std::string, TensorBytes> ReadTensors(const std::string& file) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const std::string data = file.substr(sizeof(header_bytes) + header_bytes);
  std::map<std::string, TensorBytes> out;
  const auto header = boost::json::parse(file.substr(sizeof(header_bytes), header_bytes));
  for (const auto& [name, value] : header.as_object()) {
    if (name == "__metadata__") continue;
    const auto begin = value.at("data_offsets").at(0).to_number<uint64_t>();
    const auto end = value.at("data_offsets").at(1).to_number<uint64_t>();
    out[std::string(name)] = {std::string(value.at("dtype").as_string()),
                              boost::json::serialize(value.at("shape")),
                              data.substr(begin, end - begin)};
  }
  return out;
}

}  // namespace weft::test
