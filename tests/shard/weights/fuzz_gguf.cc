// Fuzz target: a GGUF file of any bytes is refused or opens, gives all its metadata, and loads at
// every shard count that the slice plan accepts.

#include <cstddef>
#include <cstdint>

#include "common/gguf.h"
#include "shard/weights/loader.h"
#include "tests/shard/weights/collecting_sink.h"
#include "tests/shard/weights/memory_file.h"

namespace weft {
namespace {

constexpr const char* kKeys[] = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                 "tokenizer.ggml.merges", "tokenizer.ggml.model",
                                 "llama.block_count",     "llama.rope.freq_base"};

void ReadKeys(const GgufFile& file) {
  for (const char* key : kKeys) {
    (void)file.GetUint(key);
    (void)file.GetFloat(key);
    (void)file.GetBool(key);
    (void)file.GetString(key);
    (void)file.GetStrings(key);
    (void)file.GetInts(key);
    (void)file.GetFloats(key);
  }
}

void Load(shard::ModelFiles& files) {
  for (const uint32_t world : {1u, 2u, 3u}) {
    const auto plan = shard::MakeSlicePlan(files.spec(), world - 1, world, files.mlp_multiple());
    if (!plan.ok()) continue;
    test::CollectingSink sink;
    shard::LoadProgress progress;
    const std::atomic<bool> cancel{false};
    const absl::Status status = files.Load(*plan, 1, sink, progress, cancel);
    // The only refusal left is a head that is no whole number of blocks.
    WEFT_CHECK(status.ok() || absl::IsInvalidArgument(status));
    WEFT_CHECK(!status.ok() || progress.bytes_done == progress.bytes_total);
  }
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const weft::test::MemoryFile memory(data, size);
  const auto file = weft::GgufFile::Open(memory.path());
  if (!file.ok()) return 0;
  weft::ReadKeys(**file);
  const auto files = weft::shard::ModelFiles::Open(memory.path());
  if (files.ok()) weft::Load(**files);
  return 0;
}
