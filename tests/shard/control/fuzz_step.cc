// Fuzz target: any bytes as the steps of an epoch, messages behind each other. Each is refused with
// the field named, or gives a batch that is safe to run; and it gives the same when it is written
// anew. An input is a list of (kind, size in two bytes, message); the first byte chooses the KV
// groups.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "common/check.h"
#include "google/protobuf/stubs/logging.h"
#include "shard/control/step_inputs.h"
#include "tests/shard/control/batch_fault.h"
#include "tests/shard/control/small_limits.h"
#include "tests/support/fuzz_input.h"

namespace weft::shard {
namespace {

StepLimits Limits(uint8_t choice) {
  StepLimits limits = SmallLimits();
  if (choice % 2 == 1) limits.kv_windows = {0, 9};
  return limits;
}

// "chunks[3].sampling.top_p: ..." and the like: a message begins with what it is about.
bool NamesField(absl::string_view message) {
  const absl::string_view field = message.substr(0, message.find(':'));
  return !field.empty() && field.size() < message.size() &&
         absl::ascii_islower(static_cast<uint8_t>(field[0]));
}

// Two epochs that get the same steps, one of them written anew by us.
class Epochs {
 public:
  explicit Epochs(const StepLimits& limits) : limits_(limits), first_(limits), second_(limits) {}

  // False when the step ends the epoch.
  template <typename Request>
  bool Step(absl::string_view bytes) {
    Request request;
    if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return true;
    StepBatch batch;
    const absl::Status status = first_.Prepare(request, &batch);
    Request again;
    WEFT_CHECK(again.ParseFromString(request.SerializeAsString()));
    StepBatch same;
    const absl::Status other = second_.Prepare(again, &same);
    WEFT_CHECK_EQ(status, other);
    if (!status.ok()) {
      WEFT_CHECK(absl::IsInvalidArgument(status));
      WEFT_CHECK_MSG(NamesField(status.message()), std::string(status.message()));
      return false;
    }
    WEFT_CHECK_EQ(BatchFault(limits_, batch), std::string());
    WEFT_CHECK(batch.ids == same.ids && batch.block_ids == same.block_ids &&
               batch.drops == same.drops && batch.starts.size() == same.starts.size());
    WEFT_CHECK_LE(first_.running(), first_.held());
    WEFT_CHECK_LE(first_.held(), limits_.running_max);
    return true;
  }

 private:
  const StepLimits limits_;
  StepInputs first_;
  StepInputs second_;
};

}  // namespace
}  // namespace weft::shard

// Of texts that are not UTF-8, once each.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::test::FuzzInput input(data, size);
  weft::shard::Epochs epochs(weft::shard::Limits(input.Byte()));
  bool goes_on = true;
  while (goes_on && !input.empty()) {
    const uint8_t kind = input.Byte() % 3;
    const absl::string_view message = input.Piece();
    goes_on = kind == 0   ? epochs.Step<weft::shard::v1::PrefillRequest>(message)
              : kind == 1 ? epochs.Step<weft::shard::v1::DecodeRequest>(message)
                          : epochs.Step<weft::shard::v1::FilterBatchRequest>(message);
  }
  return 0;
}
