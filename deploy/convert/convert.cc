#include "deploy/convert/convert.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/model_path.h"
#include "common/small_file.h"
#include "common/status.h"
#include "deploy/convert/checkpoint.h"
#include "deploy/convert/output_folder.h"
#include "deploy/convert/tokenizer_json.h"
#include "deploy/convert/weights.h"

namespace weft::convert {
namespace {

constexpr size_t kCopiedBytesMax = 64u << 20;
// What stands beside the weights in a new directory. config.json is the last: a directory becomes a
// model with it.
constexpr const char* kCopied[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    kVocabName,
    kMergesName,
    kSentencePieceName,
    "chat_template.jinja",
    "chat_template.json",
    "config.json",
};

bool SameDirectory(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

absl::Status CheckFrom(const ConvertOptions& options) {
  if (options.from.empty()) {
    return absl::InvalidArgumentError(
        "--from: name the model directory, as in --from=models/opt-1.3b");
  }
  std::error_code error;
  if (!std::filesystem::is_directory(options.from, error)) {
    return absl::NotFoundError(absl::StrCat("--from: ", options.from,
                                            " is no directory; expected one with config.json and ",
                                            kTorchSingleName, " or ", kTorchIndexName));
  }
  return absl::OkStatus();
}

// What is to be done, found out before anything is written.
struct Work {
  bool in_place = false;
  std::optional<Checkpoint> checkpoint;
  std::vector<WeightPart> parts;
  std::optional<std::string> tokenizer;

  uint64_t bytes() const {
    uint64_t sum = tokenizer.has_value() ? tokenizer->size() : 0;
    for (const WeightPart& part : parts) sum += part.bytes + HeaderBytes(part.tensors);
    return sum;
  }
};

absl::StatusOr<Work> Plan(const ConvertOptions& options) {
  const ModelFileNames has = FindModelFiles(options.from);
  Work work;
  work.in_place = options.to.empty() || SameDirectory(options.from, options.to);
  if (has.safetensors && !work.in_place) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--to: ", options.from,
        " has its weights as safetensors already; leave --to out, and only what it lacks is added "
        "to it"));
  }
  if (has.torch && !has.safetensors) {
    WEFT_ASSIGN_OR_RETURN(work.checkpoint, Checkpoint::Open(options.from));
    WEFT_ASSIGN_OR_RETURN(work.parts, PlanParts(*work.checkpoint, options.part_bytes));
  }
  if (!has.tokenizer_json && has.tokenizer_sources()) {
    WEFT_ASSIGN_OR_RETURN(work.tokenizer, MakeTokenizerJson(options.from));
  }
  if (!has.torch && !has.safetensors) {
    return absl::NotFoundError(absl::StrCat(options.from, ": has neither ", kTorchSingleName,
                                            " nor ", kTorchIndexName, ", and no safetensors"));
  }
  return work;
}

absl::Status CopyBeside(const std::string& from, OutputFolder* out,
                        std::vector<std::string>* written) {
  for (const char* name : kCopied) {
    const absl::StatusOr<std::string> bytes =
        ReadSmallFile(absl::StrCat(from, "/", name), kCopiedBytesMax);
    if (absl::IsNotFound(bytes.status())) continue;
    WEFT_RETURN_IF_ERROR(bytes.status());
    WEFT_RETURN_IF_ERROR(out->Add(name, *bytes));
    written->push_back(name);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Convert(const ConvertOptions& options,
                                                 absl::FunctionRef<void(const std::string&)> say,
                                                 absl::FunctionRef<absl::Status()> between) {
  WEFT_RETURN_IF_ERROR(CheckFrom(options));
  WEFT_ASSIGN_OR_RETURN(const Work work, Plan(options));
  std::vector<std::string> written;
  if (work.in_place && work.parts.empty() && !work.tokenizer.has_value()) return written;
  absl::StatusOr<OutputFolder> out = OutputFolder::Open(work.in_place ? options.from : options.to);
  WEFT_RETURN_IF_ERROR(Annotate(out.status(), work.in_place ? "--from" : "--to"));
  WEFT_RETURN_IF_ERROR(out->CheckRoom(work.bytes()));
  WEFT_RETURN_IF_ERROR(WriteParts(work.parts, &*out, say, between));
  for (const WeightPart& part : work.parts) written.push_back(part.name);
  if (work.parts.size() > 1) written.emplace_back(kSafetensorsIndexName);
  if (work.tokenizer.has_value()) {
    WEFT_RETURN_IF_ERROR(out->Add(kTokenizerJsonName, *work.tokenizer));
    written.emplace_back(kTokenizerJsonName);
  }
  if (!work.in_place) WEFT_RETURN_IF_ERROR(CopyBeside(options.from, &*out, &written));
  WEFT_RETURN_IF_ERROR(out->Commit());
  return written;
}

}  // namespace weft::convert
