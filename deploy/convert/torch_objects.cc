// The names that a pickle of tensors may use, and what they make: the other half of Unpickler.

#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "deploy/convert/unpickler.h"

namespace weft::convert {
namespace {

enum class Role : uint8_t { kOrderedDict, kRebuildTensor, kRebuildParameter, kSize };

struct KnownName {
  const char* module;
  const char* name;
  Role role;
};

// Storage classes follow them in the numbers of kGlobal values.
constexpr KnownName kNames[] = {
    {"collections", "OrderedDict", Role::kOrderedDict},
    {"torch._utils", "_rebuild_tensor_v2", Role::kRebuildTensor},
    {"torch._utils", "_rebuild_parameter", Role::kRebuildParameter},
    {"torch", "Size", Role::kSize},
};
constexpr int64_t kFirstStorage = std::size(kNames);

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status Unexpected(absl::string_view what) {
  return Bad(what, " is not as torch.save writes it");
}

bool IsUint(const PickleValue& value) {
  return value.kind == PickleKind::kInt && value.number >= 0;
}

}  // namespace

absl::Status Unpickler::Global() {
  const auto module = cursor_.Line();
  const auto name = module.has_value() ? cursor_.Line() : std::nullopt;
  if (!name.has_value()) return Bad("the pickle ends in the middle of a name");
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (*module != kNames[i].module || *name != kNames[i].name) continue;
    return Push({PickleKind::kGlobal, static_cast<int64_t>(i)});
  }
  if (*module == "torch") {
    for (size_t i = 0; i < std::size(kTorchTypes); ++i) {
      if (*name != kTorchTypes[i].storage_class) continue;
      return Push({PickleKind::kGlobal, kFirstStorage + static_cast<int64_t>(i)});
    }
  }
  return Bad("it names ", absl::CHexEscape(module->substr(0, 80)), ".",
             absl::CHexEscape(name->substr(0, 80)),
             ", which tensors of a checkpoint do not need: refused, nothing was run");
}

// ("storage", class, key, device, elements), and in the old format a sixth that is None.
absl::Status Unpickler::PersistentId() {
  WEFT_ASSIGN_OR_RETURN(const PickleValue id, Pop());
  if (id.kind != PickleKind::kTuple) return Unexpected("the name of a storage");
  const absl::Span<const PickleValue> parts = ItemsOf(id);
  if (parts.size() < 5 || parts.size() > 6 || parts[0].kind != PickleKind::kString ||
      parts[0].text != "storage" || parts[1].kind != PickleKind::kGlobal ||
      parts[1].number < kFirstStorage || parts[2].kind != PickleKind::kString ||
      !IsUint(parts[4]) || (parts.size() == 6 && parts[5].kind != PickleKind::kNone)) {
    return Unexpected("the name of a storage");
  }
  const PickledStorage storage = {&kTorchTypes[parts[1].number - kFirstStorage], parts[2].text,
                                  static_cast<uint64_t>(parts[4].number)};
  const auto [known, is_new] = storage_by_key_.emplace(storage.key, storages_.size());
  if (is_new) {
    WEFT_RETURN_IF_ERROR(Count(1, 0));
    storages_.push_back(storage);
  }
  const PickledStorage& first = storages_[known->second];
  if (first.type != storage.type || first.elements != storage.elements) {
    return Bad("storage ", absl::CHexEscape(storage.key), " appears with two types or two sizes");
  }
  return Push({PickleKind::kStorage, static_cast<int64_t>(known->second)});
}

// (storage, offset, shape, strides, requires_grad, hooks), perhaps with metadata behind.
absl::StatusOr<PickleValue> Unpickler::RebuildTensor(absl::Span<const PickleValue> arguments) {
  if (arguments.size() < 6 || arguments[0].kind != PickleKind::kStorage || !IsUint(arguments[1]) ||
      arguments[2].kind != PickleKind::kTuple || arguments[3].kind != PickleKind::kTuple) {
    return Unexpected("a tensor");
  }
  PickledTensor tensor;
  tensor.storage = static_cast<size_t>(arguments[0].number);
  tensor.offset = static_cast<uint64_t>(arguments[1].number);
  for (const size_t part : {2, 3}) {
    std::vector<uint64_t>& out = part == 2 ? tensor.shape : tensor.strides;
    for (const PickleValue& number : ItemsOf(arguments[part])) {
      if (number.kind != PickleKind::kInt) return Unexpected("the shape of a tensor");
      if (number.number < 0) {
        return Bad("a tensor has the ", part == 2 ? "size " : "stride ", number.number,
                   "; expected 0 or more");
      }
      out.push_back(static_cast<uint64_t>(number.number));
    }
  }
  WEFT_RETURN_IF_ERROR(Count(1, tensor.shape.size() + tensor.strides.size()));
  tensors_.push_back(std::move(tensor));
  return PickleValue{PickleKind::kTensor, static_cast<int64_t>(tensors_.size() - 1)};
}

absl::Status Unpickler::Reduce() {
  WEFT_ASSIGN_OR_RETURN(const PickleValue argument, Pop());
  WEFT_ASSIGN_OR_RETURN(const PickleValue name, Pop());
  if (name.kind != PickleKind::kGlobal || name.number >= kFirstStorage ||
      argument.kind != PickleKind::kTuple) {
    return Unexpected("an object");
  }
  const absl::Span<const PickleValue> arguments = ItemsOf(argument);
  switch (kNames[name.number].role) {
    case Role::kOrderedDict:
      if (!arguments.empty()) return Unexpected("a dictionary");
      WEFT_RETURN_IF_ERROR(Count(1, 0));
      dicts_.emplace_back();
      return Push({PickleKind::kDict, static_cast<int64_t>(dicts_.size() - 1)});
    case Role::kRebuildTensor: {
      WEFT_ASSIGN_OR_RETURN(const PickleValue tensor, RebuildTensor(arguments));
      return Push(tensor);
    }
    case Role::kRebuildParameter:
      // (tensor, requires_grad, hooks): the tensor itself.
      if (arguments.empty() || arguments[0].kind != PickleKind::kTensor) {
        return Unexpected("a parameter");
      }
      return Push(arguments[0]);
    case Role::kSize:
      if (arguments.size() != 1 || arguments[0].kind != PickleKind::kTuple) {
        return Unexpected("a torch.Size");
      }
      return Push(arguments[0]);
  }
  return Unexpected("an object");
}

// Attributes of a dictionary: a state dict has the versions of its modules there, which nobody
// needs.
absl::Status Unpickler::Build() {
  WEFT_RETURN_IF_ERROR(Pop().status());
  if (!stack_.empty() && stack_.back().kind == PickleKind::kDict) return absl::OkStatus();
  return Bad("attributes are given to what is no dictionary: refused, nothing was run");
}

}  // namespace weft::convert
