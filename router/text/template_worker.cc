#include "router/text/template_worker.h"

#include <malloc.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "router/text/ffi_text.h"
#include "router/text/template_channel.h"

namespace weft::router {
namespace {

// Gives the next call its own processor seconds: the kernel counts those of the whole process and
// ends it at the soft limit.
void GrantCpu(uint32_t seconds) {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  const rlim_t total = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
  const rlimit limit = {total + seconds + 1, RLIM_INFINITY};
  setrlimit(RLIMIT_CPU, &limit);
}

bool Answer(int socket, WeftTextStatus status, absl::string_view text) {
  std::string reply;
  reply.reserve(text.size() + 8);
  AppendNumber(&reply, static_cast<uint32_t>(status));
  AppendText(&reply, text);
  return SendFrame(socket, reply, absl::InfiniteFuture()).ok();
}

// False when the router is gone or the template does not compile.
bool Compile(int socket, WeftTemplate** chat_template) {
  const auto request = ReceiveFrame(socket, kTemplateRequestBytesMax, absl::InfiniteFuture());
  if (!request.ok()) return false;
  absl::string_view fields = *request;
  absl::string_view source, bos_token, eos_token;
  if (!TakeText(&fields, &source) || !TakeText(&fields, &bos_token) ||
      !TakeText(&fields, &eos_token)) {
    return false;
  }
  FfiText error;
  const WeftTextStatus status = weft_template_compile(
      ToSlice(source), ToSlice(bos_token), ToSlice(eos_token), chat_template, error.out());
  return Answer(socket, status, error.view()) && status == WEFT_TEXT_OK;
}

bool Render(int socket, const WeftTemplate* chat_template, absl::string_view fields) {
  uint32_t add_generation_prompt = 0, fuel = 0, bytes_max = 0, count = 0;
  if (!TakeNumber(&fields, &add_generation_prompt) || !TakeNumber(&fields, &fuel) ||
      !TakeNumber(&fields, &bytes_max) || !TakeNumber(&fields, &count)) {
    return false;
  }
  std::vector<WeftMessage> messages;
  for (uint32_t i = 0; i < count; ++i) {
    absl::string_view role, content;
    if (!TakeText(&fields, &role) || !TakeText(&fields, &content)) return false;
    messages.push_back({ToSlice(role), ToSlice(content)});
  }
  FfiText text, error;
  const WeftTextStatus status =
      weft_template_render(chat_template, messages.data(), messages.size(),
                           add_generation_prompt != 0, fuel, bytes_max, text.out(), error.out());
  return Answer(socket, status, status == WEFT_TEXT_OK ? text.view() : error.view());
}

}  // namespace

void RunTemplateWorker(int socket, uint32_t cpu_seconds) {
  GrantCpu(cpu_seconds);
  WeftTemplate* chat_template = nullptr;
  if (!Compile(socket, &chat_template)) return;
  while (true) {
    size_t bytes = 0;
    {
      const auto request = ReceiveFrame(socket, kTemplateRequestBytesMax, absl::InfiniteFuture());
      if (!request.ok()) return;
      bytes = request->size();
      GrantCpu(cpu_seconds);
      if (!Render(socket, chat_template, *request)) return;
    }
    // A long conversation leaves nothing behind in a process that may idle for days.
    constexpr size_t kLongBytes = 1u << 20;
    if (bytes > kLongBytes) malloc_trim(0);
  }
}

}  // namespace weft::router
