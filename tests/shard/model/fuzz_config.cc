// Fuzz target: a config.json of any bytes is refused or gives a spec within the limits.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "common/check.h"
#include "common/limits.h"
#include "shard/model/families/registry.h"
#include "tests/common/temp_dir.h"
#include "tests/shard/weights/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A link to memory: writing a file each time would be most of the work.
  static const weft::test::TempDir dir;
  const weft::test::MemoryFile memory(data, size);
  const std::string link = dir.path() + "/config.json";
  std::filesystem::remove(link);
  std::filesystem::create_symlink(memory.path(), link);
  const auto config = weft::shard::HfConfig::Load(dir.path());
  if (!config.ok()) return 0;
  const auto model = weft::shard::DescribeHfModel(*config);
  if (!model.ok()) return 0;
  WEFT_CHECK_LE(model->spec.layers, weft::kLayersMax);
  WEFT_CHECK_EQ(model->spec.heads % model->spec.kv_heads, 0u);
  WEFT_CHECK_EQ(weft::shard::RopeInverseFrequencies(model->spec.attention_kinds[0].rope).size(),
                model->spec.attention_kinds[0].rope.dims / 2);
  WEFT_CHECK_GT(model->spec.parameters(), 0u);
  return 0;
}
