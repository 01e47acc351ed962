#include "deploy/convert/weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "boost/json.hpp"
#include "common/model_path.h"
#include "common/status.h"

namespace weft::convert {
namespace {

constexpr size_t kPartsMax = 1024;
// The reader of safetensors takes 16 MiB.
constexpr uint64_t kHeaderBytesMax = 16u << 20;

}  // namespace

absl::StatusOr<std::vector<WeightPart>> PlanParts(const Checkpoint& checkpoint,
                                                  uint64_t part_bytes) {
  std::vector<WeightPart> parts(1);
  for (const SourceTensor& source : checkpoint.tensors()) {
    const uint64_t bytes = source.tensor->view.bytes();
    if (!parts.back().tensors.empty() && parts.back().bytes + bytes > part_bytes) {
      parts.emplace_back();
    }
    parts.back().tensors.push_back(source);
    parts.back().bytes += bytes;
  }
  if (parts.size() > kPartsMax) {
    return absl::InvalidArgumentError(absl::StrCat("--part-size: ", part_bytes, " bytes give ",
                                                   parts.size(), " parts; at most ", kPartsMax,
                                                   " are read: make it larger"));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].name = parts.size() == 1
                        ? std::string(kSafetensorsSingleName)
                        : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, parts.size());
    if (HeaderBytes(parts[i].tensors) <= kHeaderBytesMax) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--part-size: ", parts[i].name, " would have ", parts[i].tensors.size(),
                     " tensors, whose header is larger than the ", kHeaderBytesMax,
                     " bytes that are read: make it smaller"));
  }
  return parts;
}

absl::Status WriteParts(const std::vector<WeightPart>& parts, OutputFolder* out,
                        absl::FunctionRef<void(const std::string&)> say,
                        absl::FunctionRef<absl::Status()> between) {
  boost::json::object map;
  uint64_t total = 0;
  for (const WeightPart& part : parts) {
    say(absl::StrFormat("%s: %d tensors, %.1f MiB", part.name, part.tensors.size(),
                        static_cast<double>(part.bytes) / (1 << 20)));
    WEFT_ASSIGN_OR_RETURN(const int fd, out->Begin(part.name));
    WEFT_RETURN_IF_ERROR(Annotate(WriteSafetensors(fd, part.tensors, between),
                                  absl::StrCat(out->path(), "/", part.name)));
    WEFT_RETURN_IF_ERROR(out->End());
    for (const SourceTensor& source : part.tensors) map[source.tensor->name] = part.name;
    total += part.bytes;
  }
  if (parts.size() <= 1) return absl::OkStatus();
  const boost::json::object index = {{"metadata", {{"total_size", total}}},
                                     {"weight_map", std::move(map)}};
  return out->Add(std::string(kSafetensorsIndexName), boost::json::serialize(index) + "\n");
}

}  // namespace weft::convert
