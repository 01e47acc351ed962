// weft doctor: would `weft serve`, given the same flags, start here and serve?

#include "deploy/launcher/doctor/doctor.h"

#include <cstdio>
#include <memory>
#include <string>

#include "common/cgroup.h"
#include "common/exit_code.h"
#include "common/flags.h"
#include "common/log.h"
#include "common/status.h"
#include "deploy/launcher/commands.h"
#include "deploy/launcher/doctor/files.h"
#include "deploy/launcher/doctor/gpu.h"
#include "deploy/launcher/doctor/limits.h"
#include "deploy/launcher/doctor/memory.h"
#include "deploy/launcher/doctor/ports.h"
#include "deploy/launcher/run_command.h"
#include "deploy/launcher/run_dir.h"
#include "deploy/launcher/shard_count.h"
#include "shard/device/cpu/memory_plan.h"
#include "shard/device/cuda/runner.h"

namespace weft::launcher {

Report Diagnose(const Host& host, const ServeOptions& options) {
  Report report;
  // In less than the least server takes the kernel might end this process before its last check.
  const MemoryLimit memory = HostMemoryLimit(host.root());
  if (memory.bytes > 0 && memory.bytes < shard::HostProcessBytes(1)) {
    report.Fail("memory", CheckProcessMemory(memory, options));
    return report;
  }
  // Before GPUs are opened: it asks for them in a process of its own.
  const std::unique_ptr<shard::ModelFiles> files = CheckModel(options, &report);
  CheckKeys(host, options, &report);
  CheckTls(host, options, &report);
  CheckRunDir(RunDir::DefaultParents(), &report);
  CheckPorts(host, options, &report);
  CheckOpenAddress(options, &report);
  const shard::GpuSurvey gpus = options.shard.device == "cpu" ? shard::GpuSurvey() : host.Gpus();
  const bool cuda = TakesGpus(options, gpus);
  CheckGpuDevices(options, gpus, &report);
  CheckExchange(host, options, gpus, &report);
  if (files != nullptr) {
    CheckMemory(host, options, *files, gpus, &report);
  } else {
    report.Warn("memory", "not looked at, since the model cannot be read", "see model");
  }
  CheckOpenFiles(host, options, &report);
  CheckProcesses(host, options, cuda, &report);
  CheckCores(host, options, cuda, &report);
  if (!cuda) CheckInstructionSet(host, options, &report);
  CheckClock(host, &report);
  return report;
}

int RunDoctor(int argc, char** argv) {
  ServeOptions options;
  bool json = false;
  bool failed = false;
  Flags flags("weft doctor",
              "Says whether weft serve, with the same flags, would start here and serve.");
  flags.AddSwitch("json", &json, "Print one JSON object");
  DeclareServeFlags(flags, &options);
  const int outcome = RunCommand(flags, argc, argv, [&]() -> absl::Status {
    // What checks log on their way stands in the report.
    WEFT_RETURN_IF_ERROR(InitLogging("doctor", LogFormat::kText, "error"));
    WarnOfVariables("weft doctor", flags);
    shard::PrepareCudaEnvironment();
    const Report report = Diagnose(*ThisHost(), options);
    std::fputs((json ? report.Json() + "\n" : report.Text()).c_str(), stdout);
    failed = report.Count(Verdict::kFail) > 0;
    return absl::OkStatus();
  });
  if (outcome != kExitOk) return outcome;
  return failed ? kExitStartup : kExitOk;
}

}  // namespace weft::launcher
