// Fuzz target: a GGUF file of any bytes is refused or opens, gives all its metadata and tensors
// that lie in it, and loads at every shard count that the slice plan accepts.

#include <cstddef>
#include <cstdint>
#include <map>

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

// Each in the file, and none over another.
void CheckTensors(const GgufFile& file) {
  std::map<const uint8_t*, const uint8_t*> ranges;
  for (const GgufTensor& tensor : file.tensors()) {
    const absl::Span<const uint8_t> bytes = tensor.file->bytes();
    const uint8_t* const end = tensor.data.data() + tensor.data.size();
    WEFT_CHECK(tensor.data.data() >= bytes.data() && end <= bytes.data() + bytes.size());
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.dims) elements *= dim;
    WEFT_CHECK_EQ(tensor.data.size(), BytesOf(tensor.type, elements));
    WEFT_CHECK(file.FindTensor(tensor.name) == &tensor);
    if (!tensor.data.empty()) WEFT_CHECK(ranges.emplace(tensor.data.data(), end).second);
  }
  const uint8_t* before = nullptr;
  for (const auto& [begin, end] : ranges) {
    WEFT_CHECK(before <= begin);
    before = end;
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
  weft::CheckTensors(**file);
  const auto files = weft::shard::ModelFiles::Open(memory.path());
  if (files.ok()) weft::Load(**files);
  return 0;
}
