// What a model's config.json says, for tests of families: the files are written, and read as a
// model directory's are.

#pragma once

#include <catch2/catch.hpp>

#include "absl/status/statusor.h"
#include "boost/json.hpp"
#include "shard/model/families/registry.h"
#include "tests/common/temp_dir.h"

namespace weft::shard {

// An empty `generation` writes no generation_config.json.
inline absl::StatusOr<ModelDescription> Describe(const boost::json::object& config,
                                                 const boost::json::object& generation = {}) {
  const test::TempDir dir;
  dir.Write("config.json", boost::json::serialize(config));
  if (!generation.empty()) dir.Write("generation_config.json", boost::json::serialize(generation));
  const absl::StatusOr<HfConfig> loaded = HfConfig::Load(dir.path());
  REQUIRE(loaded.ok());
  return DescribeHfModel(*loaded);
}

}  // namespace weft::shard
