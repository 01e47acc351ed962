// Turns a conversation into prompt text with the model's own Jinja template, as transformers'
// apply_chat_template does (trim_blocks, lstrip_blocks, Python string methods, raise_exception,
// strftime_now, tojson; tools, documents, further variables). What templates want otherwise than
// others is found out at the start (chat_traits.h). The template is compiled and run in worker
// processes (template_host.h): instructions, memory, stack, time and output of a call are bounded,
// and a call that goes beyond ends alone (invariants bound.all, scope.one). Made once at start-up
// and shared by all text workers; Render is thread-safe and blocks for the time of a render. The
// source comes from the model only, never from a request; users' text never becomes control tokens
// unless asked (chat_marks.h).

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "router/chat_prompt.h"
#include "router/text/chat_marks.h"
#include "router/text/chat_traits.h"
#include "router/text/template_host.h"
#include "router/text/tokenizer.h"

namespace weft::router {

class ChatTemplate {
 public:
  struct Options {
    // The template's variables of these names.
    std::string bos_token;
    std::string eos_token;
    // Control tokens that users write are read as such. Whoever writes a message can then end it
    // and speak on in any role.
    bool allow_control_tokens = false;
    // Renders at once; more wait. Each is a process of some 2 MB.
    uint32_t workers_max = 2;
    // Of one call, with the time it waits for a worker.
    absl::Duration timeout = absl::Seconds(10);
    // Of the template alone, on a machine that may be busy with other things.
    absl::Duration render_timeout = absl::Milliseconds(1800);
    // What the template takes for now; 0 = the clock's.
    uint32_t now_unix_s = 0;
  };

  // Compiles `source` in a first worker, and renders a few short conversations. `host` and
  // `tokenizer` outlive this. INVALID_ARGUMENT with line and reason when it does not compile, or
  // ends its process over that.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(TemplateHost* host,
                                                              const Tokenizer* tokenizer,
                                                              absl::string_view source,
                                                              Options options);
  ~ChatTemplate();

  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // INVALID_ARGUMENT with the field "messages" when the template refuses the conversation
  // (raise_exception), fails on it, goes beyond a limit (the message names which), or gives more
  // than kTemplateOutputBytesMax bytes; with the field "continue_final_message" when it does not
  // show the last message as it is. Where control tokens are allowed there are no breaks.
  absl::StatusOr<RenderedChat> Render(const ChatPrompt& prompt) const;

  const TemplateTraits& traits() const { return traits_; }

  // Renders a short conversation: what is wrong with the template, known at start-up.
  absl::Status Probe() const;

 private:
  ChatTemplate(TemplateHost* host, const Tokenizer* tokenizer, MarkedTemplate marked,
               Options options);

  // Fills traits_ for the template of this source. UNAVAILABLE when the workers' server is gone.
  absl::Status LearnTraits(absl::string_view source);
  // The rendered text with its marks. `*ended`: the template went beyond a limit.
  absl::StatusOr<std::string> RenderMarked(const ChatPrompt& prompt, const TemplateTraits& traits,
                                           bool* ended) const;
  // The template's answer to one request, which is its text or why there is none.
  absl::StatusOr<std::string> Call(absl::string_view request, bool* ended) const;
  // A worker that has compiled the template; its socket is the caller's.
  absl::StatusOr<TemplateWorker> Start(absl::Time deadline) const;
  absl::StatusOr<TemplateWorker> Acquire(absl::Time deadline) const;
  void Release(const TemplateWorker& worker, bool usable) const;
  // What became of a worker that did not answer within `limit`.
  absl::Status Ended(const absl::Status& why, absl::Duration limit) const;

  TemplateHost* const host_;
  const Tokenizer* const tokenizer_;
  // As the workers get it.
  const MarkedTemplate marked_;
  const Options options_;
  // Written before Create returns.
  TemplateTraits traits_;
  mutable absl::Mutex mutex_;
  mutable std::vector<TemplateWorker> idle_ ABSL_GUARDED_BY(mutex_);
  // Workers that exist, idle or not.
  mutable uint32_t workers_ ABSL_GUARDED_BY(mutex_) = 0;
  // The first death is logged; a template that dies of one conversation may do so of each.
  mutable std::atomic<bool> logged_{false};
};

}  // namespace weft::router
