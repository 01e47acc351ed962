#include "tests/router/recording/change_records.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "router/recording/records.h"
#include "router/recording/state_layout.h"

namespace weft::router::recording {
namespace {

struct State {
  SchedulerState state;

  template <typename Coder, typename Self>
  static void Code(Coder& c, Self& self) {
    CodeState(c, self.state);
  }
};

using Fields = std::variant<Head, State, GroupFormed, GroupLost, ArrivalRecord, CutLimitRecord,
                            CancelRecord, StepDone, PlanRecord, End, Flush>;

struct Record {
  int64_t delta_us = 0;
  Fields fields;
};

// Goes through the fields like an Encoder and changes the one that it comes to as number `place`.
class Changer {
 public:
  Changer(std::mt19937& random, uint64_t place) : random_(random), place_(place) {}

  uint64_t count() const { return count_; }

  template <typename T>
  void Number(T& value) {
    const auto number = static_cast<uint64_t>(value);
    if (Here(number)) value = static_cast<T>(Other(number));
  }
  // std::vector<bool> is not used; a flag is one bit.
  void Number(bool& value) {
    if (Here(value)) value = !value;
  }
  void Number(Phase& value) {
    if (Here(0)) value = static_cast<Phase>(random_() % 3);
  }
  void Signed(int64_t& value) {
    const auto number = static_cast<uint64_t>(value);
    if (Here(number)) value = static_cast<int64_t>(Other(number));
  }
  void Signed32(int32_t& value) {
    const auto number = static_cast<uint64_t>(static_cast<int64_t>(value));
    if (Here(number)) value = static_cast<int32_t>(Other(number));
  }
  void Fixed(uint64_t& value) { Number(value); }
  void Double(double& value) {
    if (!Here(0)) return;
    constexpr double kOdd[] = {0,
                               -1,
                               1e-300,
                               1e300,
                               std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()};
    value = random_() % 2 == 0 ? value * 2 + 1 : kOdd[random_() % std::size(kOdd)];
  }
  void Text(std::string& text) {
    if (Here(0)) text.clear();
  }
  template <typename T, typename F>
  void List(std::vector<T>& items, F each) {
    if (Here(items.size())) ChangeList(items);
    for (T& item : items) each(item);
  }

 private:
  bool Here(uint64_t value) {
    seen_[count_ % kSeen] = value;
    return count_++ == place_;
  }
  uint64_t Other(uint64_t value) {
    switch (random_() % 6) {
      case 0:
        return value + 1;
      case 1:
        return value - 1;
      case 2:
        return random_() % 32;
      case 3:
        return value ^ uint64_t { 1 } << random_() % 64;
      default:
        // Of a field not long before.
        return seen_[random_() % kSeen];
    }
  }
  template <typename T>
  void ChangeList(std::vector<T>& items) {
    const auto any = [&] { return static_cast<ptrdiff_t>(random_() % items.size()); };
    if (items.empty() || random_() % 8 == 0) {
      items.emplace_back();
    } else if (random_() % 3 == 0) {
      items.erase(items.begin() + any());
    } else if (random_() % 2 == 0) {
      std::swap(items[static_cast<size_t>(any())], items[static_cast<size_t>(any())]);
    } else {
      T copy = items[static_cast<size_t>(any())];
      items.insert(items.begin() + any(), std::move(copy));
    }
  }

  static constexpr size_t kSeen = 64;
  std::mt19937& random_;
  const uint64_t place_;
  uint64_t count_ = 0;
  uint64_t seen_[kSeen] = {};
};

template <typename T>
Fields Read(Decoder& decoder) {
  T fields;
  T::Code(decoder, fields);
  return fields;
}

Fields ReadFields(RecordKind kind, Decoder& decoder) {
  switch (kind) {
    case RecordKind::kHead:
      return Read<Head>(decoder);
    case RecordKind::kState:
      return Read<State>(decoder);
    case RecordKind::kGroupFormed:
      return Read<GroupFormed>(decoder);
    case RecordKind::kGroupLost:
      return Read<GroupLost>(decoder);
    case RecordKind::kArrival:
      return Read<ArrivalRecord>(decoder);
    case RecordKind::kCutLimit:
      return Read<CutLimitRecord>(decoder);
    case RecordKind::kCancel:
      return Read<CancelRecord>(decoder);
    case RecordKind::kStepDone:
      return Read<StepDone>(decoder);
    case RecordKind::kPlan:
      return Read<PlanRecord>(decoder);
    case RecordKind::kEnd:
      return Read<End>(decoder);
    case RecordKind::kFlush:
      return Read<Flush>(decoder);
  }
  decoder.Fail();
  return {};
}

std::vector<Record> ReadRecords(absl::string_view payload) {
  std::vector<Record> records;
  Decoder decoder(payload);
  while (!decoder.at_end()) {
    Record record;
    RecordKind kind{};
    decoder.Number(kind);
    decoder.Signed(record.delta_us);
    if (decoder.ok()) record.fields = ReadFields(kind, decoder);
    if (!decoder.ok()) break;
    records.push_back(std::move(record));
  }
  return records;
}

void Write(const Record& record, std::string* out) {
  Encoder encoder(out);
  // The alternatives are in the order of their kinds.
  encoder.Number(static_cast<RecordKind>(record.fields.index() + 1));
  encoder.Signed(record.delta_us);
  std::visit([&](const auto& fields) { fields.Code(encoder, fields); }, record.fields);
}

void ChangeField(Record& record, std::mt19937& random) {
  const auto go = [&record](Changer changer) {
    changer.Signed(record.delta_us);
    std::visit([&](auto& fields) { fields.Code(changer, fields); }, record.fields);
    return changer.count();
  };
  const uint64_t count = go(Changer(random, std::numeric_limits<uint64_t>::max()));
  go(Changer(random, random() % count));
}

}  // namespace

std::string ChangeRecords(absl::string_view payload, std::mt19937& random) {
  constexpr uint32_t kFieldOnly = 11;
  std::vector<Record> records = ReadRecords(payload);
  for (uint32_t changes = 1 + random() % 4; changes > 0 && !records.empty(); --changes) {
    // Half of them in the beginning, where the state is.
    const size_t at = random() % (random() % 2 == 0 && records.size() > 1 ? 2 : records.size());
    const size_t other = records.size() > 2 ? 2 + random() % (records.size() - 2) : at;
    // Without its head and its state a part is nothing: they stay where they are.
    switch (at < 2 ? kFieldOnly : random() % 12) {
      case 0:
        records.erase(records.begin() + static_cast<ptrdiff_t>(at));
        break;
      case 1: {
        Record copy = records[other];
        records.insert(records.begin() + static_cast<ptrdiff_t>(at), std::move(copy));
        break;
      }
      case 2:
        std::swap(records[at], records[other]);
        break;
      default:
        ChangeField(records[at], random);
    }
  }
  std::string changed;
  for (const Record& record : records) Write(record, &changed);
  return changed;
}

}  // namespace weft::router::recording
