#include "deploy/convert/unpickler.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace weft::convert {
namespace {

// A checkpoint of a hundred thousand tensors stays below each of these.
constexpr size_t kStackMax = 1u << 18;
constexpr size_t kMemoMax = 1u << 21;
constexpr uint64_t kObjectsMax = 1u << 20;
constexpr uint64_t kItemsMax = 1u << 21;
constexpr uint8_t kProtocol = 2;

// The opcodes by their names in Python's pickletools.
enum Opcode : uint8_t {
  kProto = 0x80,
  kStop = '.',
  kMarkOp = '(',
  kNoneOp = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kLong1 = 0x8a,
  kBinFloat = 'G',
  kBinUnicode = 'X',
  kShortBinString = 'U',
  kBinString = 'T',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kEmptyTuple = ')',
  kTupleOp = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kGlobalOp = 'c',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBuild = 'b',
};

absl::Status Cut() {
  return absl::InvalidArgumentError(
      "the pickle ends in the middle; the file is truncated or damaged: copy or download it again");
}

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace

const char* NameOf(PickleKind kind) {
  switch (kind) {
    case PickleKind::kMark:
      return "a mark";
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return "a truth value";
    case PickleKind::kInt:
      return "an integer";
    case PickleKind::kFloat:
      return "a number";
    case PickleKind::kString:
      return "a text";
    case PickleKind::kGlobal:
      return "a name";
    case PickleKind::kTuple:
      return "a tuple";
    case PickleKind::kList:
      return "a list";
    case PickleKind::kDict:
      return "a dictionary";
    case PickleKind::kStorage:
      return "a storage";
    case PickleKind::kTensor:
      return "a tensor";
  }
  return "nothing";
}

absl::StatusOr<PickleValue> Unpickler::Load() {
  // A pickle begins with nothing on the stack and remembers nothing of the one before it.
  stack_.clear();
  memo_.clear();
  while (true) {
    const size_t at = cursor_.at();
    const auto opcode = cursor_.Number<uint8_t>();
    if (!opcode.has_value()) return Cut();
    if (*opcode == kStop) {
      WEFT_ASSIGN_OR_RETURN(const PickleValue value, Pop());
      if (!stack_.empty()) return Bad("byte ", at, ": the pickle ends with more than one value");
      return value;
    }
    WEFT_RETURN_IF_ERROR(Annotate(Step(*opcode), absl::StrCat("byte ", at)));
  }
}

absl::Status Unpickler::Step(uint8_t opcode) {
  switch (opcode) {
    case kProto: {
      const auto protocol = cursor_.Number<uint8_t>();
      if (!protocol.has_value()) return Cut();
      if (*protocol == kProtocol) return absl::OkStatus();
      return Bad("pickle protocol ", *protocol, "; torch.save writes protocol ", kProtocol,
                 ": save the checkpoint again with torch.save and its defaults");
    }
    case kMarkOp:
    case kNoneOp:
    case kNewTrue:
    case kNewFalse:
    case kBinInt:
    case kBinInt1:
    case kBinInt2:
    case kBinFloat:
      return Constant(opcode);
    case kLong1:
      return Long();
    case kBinUnicode:
    case kBinString:
    case kShortBinString:
      return Text(opcode);
    case kBinPut:
    case kLongBinPut:
    case kBinGet:
    case kLongBinGet:
      return Memo(opcode);
    case kEmptyList:
    case kEmptyDict:
      return Container(opcode);
    case kEmptyTuple:
    case kTupleOp:
    case kTuple1:
    case kTuple2:
    case kTuple3:
      return Tuple(opcode);
    case kAppend:
    case kAppends:
    case kSetItem:
    case kSetItems:
      return Fill(opcode);
    case kGlobalOp:
      return Global();
    case kBinPersId:
      return PersistentId();
    case kReduce:
      return Reduce();
    case kBuild:
      return Build();
    default:
      return Bad("opcode ", absl::StrFormat("0x%02x", opcode),
                 " is none that a pickle of tensors needs: refused, nothing was run");
  }
}

absl::Status Unpickler::Push(PickleValue value) {
  if (stack_.size() == kStackMax) return Bad("more than ", kStackMax, " values on the stack");
  stack_.push_back(value);
  return absl::OkStatus();
}

absl::StatusOr<PickleValue> Unpickler::Pop() {
  if (stack_.empty() || stack_.back().kind == PickleKind::kMark) {
    return Bad("the pickle takes a value that is not there");
  }
  const PickleValue value = stack_.back();
  stack_.pop_back();
  return value;
}

absl::StatusOr<Unpickler::Items> Unpickler::PopToMark() {
  const auto mark = std::find_if(stack_.rbegin(), stack_.rend(), [](const PickleValue& value) {
    return value.kind == PickleKind::kMark;
  });
  if (mark == stack_.rend()) return Bad("the pickle looks for a mark that is not there");
  Items items(mark.base(), stack_.end());
  stack_.erase(mark.base() - 1, stack_.end());
  return items;
}

absl::Status Unpickler::Count(uint64_t objects, uint64_t items) {
  objects_ += objects;
  items_ += items;
  if (objects_ > kObjectsMax) return Bad("more than ", kObjectsMax, " objects");
  if (items_ > kItemsMax) return Bad("more than ", kItemsMax, " values in its objects");
  return absl::OkStatus();
}

absl::Status Unpickler::Constant(uint8_t opcode) {
  switch (opcode) {
    case kMarkOp:
      return Push({PickleKind::kMark});
    case kNoneOp:
      return Push({PickleKind::kNone});
    case kNewTrue:
    case kNewFalse:
      return Push({PickleKind::kBool, opcode == kNewTrue});
    case kBinFloat:
      if (!cursor_.Bytes(sizeof(double)).has_value()) return Cut();
      return Push({PickleKind::kFloat});
    case kBinInt1: {
      const auto number = cursor_.Number<uint8_t>();
      return number.has_value() ? Push({PickleKind::kInt, *number}) : Cut();
    }
    case kBinInt2: {
      const auto number = cursor_.Number<uint16_t>();
      return number.has_value() ? Push({PickleKind::kInt, *number}) : Cut();
    }
    default: {
      const auto number = cursor_.Number<int32_t>();
      return number.has_value() ? Push({PickleKind::kInt, *number}) : Cut();
    }
  }
}

absl::Status Unpickler::Long() {
  const auto size = cursor_.Number<uint8_t>();
  if (!size.has_value()) return Cut();
  const auto bytes = cursor_.Bytes(*size);
  if (!bytes.has_value()) return Cut();
  if (*size > sizeof(int64_t)) return Bad("an integer of ", *size, " bytes; at most 8 are read");
  // Two's complement of any length: its top bit fills what is missing.
  uint64_t number = !bytes->empty() && (bytes->back() & 0x80) != 0 ? ~uint64_t{0} : 0;
  for (size_t i = bytes->size(); i-- > 0;) number = number << 8 | (*bytes)[i];
  return Push({PickleKind::kInt, static_cast<int64_t>(number)});
}

absl::Status Unpickler::Text(uint8_t opcode) {
  uint64_t size = 0;
  if (opcode == kShortBinString) {
    const auto number = cursor_.Number<uint8_t>();
    if (!number.has_value()) return Cut();
    size = *number;
  } else {
    const auto number = cursor_.Number<uint32_t>();
    if (!number.has_value()) return Cut();
    size = *number;
  }
  const auto bytes = cursor_.Bytes(size);
  if (!bytes.has_value()) return Cut();
  return Push({PickleKind::kString, 0, AsText(*bytes)});
}

absl::Status Unpickler::Memo(uint8_t opcode) {
  uint32_t id = 0;
  if (opcode == kBinPut || opcode == kBinGet) {
    const auto number = cursor_.Number<uint8_t>();
    if (!number.has_value()) return Cut();
    id = *number;
  } else {
    const auto number = cursor_.Number<uint32_t>();
    if (!number.has_value()) return Cut();
    id = *number;
  }
  if (opcode == kBinPut || opcode == kLongBinPut) {
    WEFT_ASSIGN_OR_RETURN(const PickleValue value, Pop());
    if (memo_.size() == kMemoMax) return Bad("more than ", kMemoMax, " values are remembered");
    memo_[id] = value;
    return Push(value);
  }
  const auto found = memo_.find(id);
  if (found == memo_.end()) return Bad("value ", id, " is asked for and was never remembered");
  return Push(found->second);
}

absl::Status Unpickler::Container(uint8_t opcode) {
  WEFT_RETURN_IF_ERROR(Count(1, 0));
  if (opcode == kEmptyList) {
    lists_.emplace_back();
    return Push({PickleKind::kList, static_cast<int64_t>(lists_.size() - 1)});
  }
  dicts_.emplace_back();
  return Push({PickleKind::kDict, static_cast<int64_t>(dicts_.size() - 1)});
}

absl::StatusOr<PickleValue> Unpickler::MakeTuple(absl::Span<const PickleValue> items) {
  WEFT_RETURN_IF_ERROR(Count(1, items.size()));
  const auto begin = static_cast<uint32_t>(tuple_items_.size());
  tuple_items_.insert(tuple_items_.end(), items.begin(), items.end());
  tuples_.emplace_back(begin, static_cast<uint32_t>(items.size()));
  return PickleValue{PickleKind::kTuple, static_cast<int64_t>(tuples_.size() - 1)};
}

absl::Status Unpickler::Tuple(uint8_t opcode) {
  Items items;
  if (opcode == kTupleOp) {
    WEFT_ASSIGN_OR_RETURN(items, PopToMark());
  } else if (opcode != kEmptyTuple) {
    items.resize(opcode - kTuple1 + 1u);
    for (size_t i = items.size(); i-- > 0;) {
      WEFT_ASSIGN_OR_RETURN(items[i], Pop());
    }
  }
  WEFT_ASSIGN_OR_RETURN(const PickleValue tuple, MakeTuple(items));
  return Push(tuple);
}

absl::Status Unpickler::Fill(uint8_t opcode) {
  Items items;
  if (opcode == kAppends || opcode == kSetItems) {
    WEFT_ASSIGN_OR_RETURN(items, PopToMark());
  } else {
    items.resize(opcode == kAppend ? 1 : 2);
    for (size_t i = items.size(); i-- > 0;) {
      WEFT_ASSIGN_OR_RETURN(items[i], Pop());
    }
  }
  WEFT_RETURN_IF_ERROR(Count(0, items.size()));
  const bool is_list = opcode == kAppend || opcode == kAppends;
  const PickleKind wanted = is_list ? PickleKind::kList : PickleKind::kDict;
  if (stack_.empty() || stack_.back().kind != wanted) {
    return Bad("values are put into what is not ", NameOf(wanted));
  }
  const auto into = static_cast<size_t>(stack_.back().number);
  if (is_list) {
    lists_[into].insert(lists_[into].end(), items.begin(), items.end());
    return absl::OkStatus();
  }
  if (items.size() % 2 != 0) return Bad("a key without a value is put into a dictionary");
  for (size_t i = 0; i < items.size(); i += 2) dicts_[into].emplace_back(items[i], items[i + 1]);
  return absl::OkStatus();
}

absl::Span<const PickleValue> Unpickler::ItemsOf(const PickleValue& sequence) const {
  const auto at = static_cast<size_t>(sequence.number);
  if (sequence.kind == PickleKind::kList) return lists_[at];
  return absl::MakeConstSpan(tuple_items_).subspan(tuples_[at].first, tuples_[at].second);
}

}  // namespace weft::convert
