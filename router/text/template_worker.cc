#include "router/text/template_worker.h"

#include <malloc.h>
#include <sys/time.h>

#include <string>

#include "absl/time/time.h"
#include "router/text/ffi_text.h"
#include "router/text/template_channel.h"

namespace weft::router {
namespace {

// Gives the next call its own processor time. The signal of this timer ends the process.
void GrantCpu(uint32_t cpu_ms) {
  itimerval timer = {};
  timer.it_value.tv_sec = cpu_ms / 1000;
  timer.it_value.tv_usec = (cpu_ms % 1000) * 1000;
  setitimer(ITIMER_PROF, &timer, nullptr);
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
  uint32_t fuel = 0, bytes_max = 0, now_unix_s = 0;
  if (!TakeNumber(&fields, &fuel) || !TakeNumber(&fields, &bytes_max) ||
      !TakeNumber(&fields, &now_unix_s)) {
    return false;
  }
  const WeftTemplateLimits limits = {fuel, bytes_max, now_unix_s};
  FfiText text, error;
  const WeftTextStatus status =
      weft_template_render(chat_template, ToSlice(fields), &limits, text.out(), error.out());
  return Answer(socket, status, status == WEFT_TEXT_OK ? text.view() : error.view());
}

}  // namespace

void RunTemplateWorker(int socket, uint32_t cpu_ms) {
  GrantCpu(cpu_ms);
  WeftTemplate* chat_template = nullptr;
  if (!Compile(socket, &chat_template)) return;
  while (true) {
    size_t bytes = 0;
    {
      const auto request = ReceiveFrame(socket, kTemplateRequestBytesMax, absl::InfiniteFuture());
      if (!request.ok()) return;
      bytes = request->size();
      GrantCpu(cpu_ms);
      if (!Render(socket, chat_template, *request)) return;
    }
    // A long conversation leaves nothing behind in a process that may idle for days.
    constexpr size_t kLongBytes = 1u << 20;
    if (bytes > kLongBytes) malloc_trim(0);
  }
}

}  // namespace weft::router
