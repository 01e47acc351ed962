// A pickle of tensors and of nothing else. Knows the opcodes that torch.save writes (protocol 2)
// and the few names that tensors need; what stands under any other name, and any other opcode, is
// refused with its offset. Nothing named in a pickle is ever looked up, imported or called: the
// names are compared, and what they would make is made here, as plain data. Stack, memo, objects
// and their contents are bounded. Used while a checkpoint is opened, by one thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "deploy/convert/little_endian.h"
#include "deploy/convert/torch_type.h"

namespace weft::convert {

enum class PickleKind : uint8_t {
  kMark,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kGlobal,
  kTuple,
  kList,
  kDict,
  kStorage,
  kTensor,
};

// What a value is, for messages.
const char* NameOf(PickleKind kind);

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  // kInt and kBool: the number. kGlobal: a row of the table of names. From kTuple on: a position in
  // the list of that kind below.
  int64_t number = 0;
  // kString. Lies in the pickle.
  absl::string_view text = {};
};

struct PickledStorage {
  const TorchType* type = nullptr;
  absl::string_view key;
  uint64_t elements = 0;
};

struct PickledTensor {
  size_t storage = 0;
  uint64_t offset = 0;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> strides;
};

class Unpickler {
 public:
  using Items = std::vector<PickleValue>;
  using Pairs = std::vector<std::pair<PickleValue, PickleValue>>;

  // Reads from byte `at` of `bytes`, which must live as long as what was read.
  explicit Unpickler(absl::Span<const uint8_t> bytes, size_t at = 0) : cursor_(bytes, at) {}

  // The value of the next pickle. INVALID_ARGUMENT, with the byte and what stands there, for all
  // that is refused.
  absl::StatusOr<PickleValue> Load();
  // Behind the last pickle that was loaded.
  size_t at() const { return cursor_.at(); }

  absl::Span<const PickleValue> ItemsOf(const PickleValue& sequence) const;
  const Pairs& PairsOf(const PickleValue& dict) const {
    return dicts_[static_cast<size_t>(dict.number)];
  }
  const PickledTensor& TensorOf(const PickleValue& tensor) const {
    return tensors_[static_cast<size_t>(tensor.number)];
  }
  const std::vector<PickledStorage>& storages() const { return storages_; }

 private:
  absl::Status Step(uint8_t opcode);
  absl::Status Constant(uint8_t opcode);
  absl::Status Text(uint8_t opcode);
  absl::Status Long();
  absl::Status Memo(uint8_t opcode);
  absl::Status Container(uint8_t opcode);
  absl::Status Tuple(uint8_t opcode);
  absl::Status Fill(uint8_t opcode);
  absl::Status Global();
  absl::Status PersistentId();
  absl::Status Reduce();
  absl::Status Build();
  absl::StatusOr<PickleValue> RebuildTensor(absl::Span<const PickleValue> arguments);

  absl::Status Push(PickleValue value);
  absl::StatusOr<PickleValue> Pop();
  // The values above the topmost mark, which goes with them.
  absl::StatusOr<Items> PopToMark();
  // Accounts for one object more and `items` values in objects.
  absl::Status Count(uint64_t objects, uint64_t items);
  absl::StatusOr<PickleValue> MakeTuple(absl::Span<const PickleValue> items);

  ByteCursor cursor_;
  Items stack_;
  absl::flat_hash_map<uint32_t, PickleValue> memo_;
  // A tuple is a range of `tuple_items_`.
  std::vector<std::pair<uint32_t, uint32_t>> tuples_;
  Items tuple_items_;
  std::vector<Items> lists_;
  std::vector<Pairs> dicts_;
  std::vector<PickledStorage> storages_;
  absl::flat_hash_map<absl::string_view, size_t> storage_by_key_;
  std::vector<PickledTensor> tensors_;
  uint64_t objects_ = 0;
  uint64_t items_ = 0;
};

}  // namespace weft::convert
