// weft convert: safetensors and tokenizer.json for model directories that lack them.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/flags.h"
#include "common/shutdown.h"
#include "common/status.h"
#include "deploy/convert/convert.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/run_command.h"
#include "shard/kv/memory_texts.h"

namespace weft::launcher {
namespace {

constexpr uint64_t kPartBytesLeast = uint64_t{1} << 20;
constexpr uint64_t kPartBytesMost = uint64_t{1} << 40;

absl::Status RunConversion(convert::ConvertOptions options, const std::string& part_size) {
  const absl::StatusOr<uint64_t> part_bytes = shard::ParseBytes(part_size);
  if (!part_bytes.ok() || *part_bytes < kPartBytesLeast || *part_bytes > kPartBytesMost) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--part-size: ", part_size, " is not in 1MiB .. 1024GiB, as in 512MiB or 5GiB"));
  }
  options.part_bytes = *part_bytes;
  WEFT_ASSIGN_OR_RETURN(ShutdownSignals signals, ShutdownSignals::Create(Hangup::kStops));
  const auto between = [&signals]() -> absl::Status {
    if (!signals.Wait(absl::ZeroDuration()).has_value()) return absl::OkStatus();
    return absl::CancelledError("interrupted; nothing was left behind");
  };
  const auto say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> written,
                        convert::Convert(options, say, between));
  const std::string& where = options.to.empty() ? options.from : options.to;
  if (written.empty()) {
    std::printf("%s lacks nothing that can be converted\n", where.c_str());
  } else {
    std::printf("%s: wrote %s\n", where.c_str(), absl::StrJoin(written, ", ").c_str());
  }
  return absl::OkStatus();
}

}  // namespace

int RunConvert(int argc, char** argv) {
  convert::ConvertOptions options;
  std::string part_size = "5GiB";
  Flags flags("weft convert",
              "Writes safetensors from .bin checkpoints and tokenizer.json from older files.");
  flags.Add("from", &options.from,
            "Model directory with pytorch_model.bin or its parts, or without tokenizer.json");
  flags.Add("to", &options.to,
            "Directory to write, made if need be; empty = --from itself. Nothing is overwritten");
  flags.Add("part-size", &part_size,
            "Most bytes of tensors in a file, as in 5GiB; 1MiB .. 1024GiB");
  flags.AddArgument("path", &options.from, "The same as --from");
  return RunCommand(flags, argc, argv,
                    [&options, &part_size] { return RunConversion(options, part_size); });
}

}  // namespace weft::launcher
