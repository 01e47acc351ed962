// ThreadSanitizer builds only: tells the sanitizer of the order that gRPC guarantees. The packaged
// gRPC is not instrumented, so its atomics are unseen and every callback would look like a race
// with whoever started the operation. Nothing is suppressed here: the functions below stand before
// the library's own, add the missing edge and call on. The edges, each for one object:
//   - an operation was started -> its completion runs (the tag);
//   - an operation is complete -> its completion runs (the tag). Whoever reads a connection makes
//     a call's context, and its handler runs on another thread without any start;
//   - a reaction gave up its reference to a call -> OnDone (the call's counter);
//   - a call's OnDone returned -> the server is destroyed (all calls of the process).
// Linked into executables, whose symbols come first when libgrpc++ looks for them. Not instrumented
// itself. Written against gRPC 1.51.

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <link.h>
#include <sanitizer/tsan_interface.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace {

template <typename Function>
Function* Next(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// -- Completions by callback ---------------------------------------------------------------------

// A tag of the callback API is a functor that the library runs. The few functions that functors
// carry (one or two a class) are replaced, each by a wrapper with its index.
using Functor = grpc_completion_queue_functor;
using Run = void (*)(Functor*, int);
constexpr size_t kRunFunctions = 32;
std::array<std::atomic<Run>, kRunFunctions> run_functions;

template <size_t kIndex>
void RunCompletion(Functor* functor, int ok) {
  __tsan_acquire(functor);
  run_functions[kIndex].load()(functor, ok);
}

template <size_t... kIndexes>
constexpr std::array<Run, kRunFunctions> Wrappers(std::index_sequence<kIndexes...>) {
  return {&RunCompletion<kIndexes>...};
}
constexpr std::array<Run, kRunFunctions> kWrappers =
    Wrappers(std::make_index_sequence<kRunFunctions>());

Run WrapperOf(Run run) {
  for (size_t i = 0; i < kRunFunctions; ++i) {
    Run known = nullptr;
    if (kWrappers[i] == run) return run;
    if (run_functions[i].compare_exchange_strong(known, run) || known == run) return kWrappers[i];
  }
  std::abort();
}

struct AddressRange {
  uintptr_t begin;
  uintptr_t end;
};

int AddCode(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    static_cast<std::vector<AddressRange>*>(out)->push_back({begin, begin + segment.p_memsz});
  }
  return 0;
}

// A functor begins with a function; a tag of the synchronous API is an object with a table of
// virtual functions, which is not code.
bool IsFunctor(const void* tag) {
  static const std::vector<AddressRange>* code = [] {
    auto* ranges = new std::vector<AddressRange>;
    dl_iterate_phdr(&AddCode, ranges);
    return ranges;
  }();
  const auto first = *static_cast<const uintptr_t*>(tag);
  for (const AddressRange& range : *code) {
    if (first >= range.begin && first < range.end) return true;
  }
  return false;
}

void OnStart(void* tag) {
  if (tag == nullptr) return;
  if (IsFunctor(tag)) {
    auto* functor = static_cast<Functor*>(tag);
    functor->functor_run = WrapperOf(functor->functor_run);
  }
  __tsan_release(tag);
}

grpc_event OnEvent(grpc_event event) {
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

char calls_done;

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t op_count,
                                      void* tag, void* reserved) {
  static const auto next = Next("grpc_call_start_batch", &grpc_call_start_batch);
  OnStart(tag);
  return next(call, ops, op_count, tag, reserved);
}

grpc_call_error grpc_server_request_registered_call(grpc_server* server, void* method,
                                                    grpc_call** call, gpr_timespec* deadline,
                                                    grpc_metadata_array* metadata,
                                                    grpc_byte_buffer** payload,
                                                    grpc_completion_queue* call_queue,
                                                    grpc_completion_queue* queue, void* tag) {
  static const auto next =
      Next("grpc_server_request_registered_call", &grpc_server_request_registered_call);
  OnStart(tag);
  return next(server, method, call, deadline, metadata, payload, call_queue, queue, tag);
}

// grpc_cq_end_op, which the library calls when an operation is complete. It takes an absl::Status
// by value, which is a pointer to the caller.
#define WEFT_CQ_END_OP                                                                  \
  "_Z14grpc_cq_end_opP21grpc_completion_queuePvN4absl7debian36StatusEPFvS1_P18grpc_cq_" \
  "completionES1_S6_b"
using Done = void (*)(void*, struct grpc_cq_completion*);
void EndOperation(grpc_completion_queue* queue, void* tag, void* status, Done done, void* argument,
                  struct grpc_cq_completion* storage, bool internal) asm(WEFT_CQ_END_OP);
void EndOperation(grpc_completion_queue* queue, void* tag, void* status, Done done, void* argument,
                  struct grpc_cq_completion* storage, bool internal) {
  static const auto next = Next(WEFT_CQ_END_OP, &EndOperation);
  OnStart(tag);
  next(queue, tag, status, done, argument, storage, internal);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static const auto next = Next("grpc_completion_queue_next", &grpc_completion_queue_next);
  return OnEvent(next(queue, deadline, reserved));
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static const auto next = Next("grpc_completion_queue_pluck", &grpc_completion_queue_pluck);
  return OnEvent(next(queue, tag, deadline, reserved));
}

// The last thing that a server's call does after OnDone.
void grpc_call_unref(grpc_call* call) {
  static const auto next = Next("grpc_call_unref", &grpc_call_unref);
  __tsan_release(&calls_done);
  next(call);
}

void grpc_server_destroy(grpc_server* server) {
  static const auto next = Next("grpc_server_destroy", &grpc_server_destroy);
  next(server);
  __tsan_acquire(&calls_done);
}

// grpc::internal::ServerCallbackCall::ScheduleOnDone(bool), called when the last reference is given
// up. The counter lies behind the table of virtual functions and one other counter; where the
// library's own code decrements it last, the decrements in our code have to be acquired here.
#define WEFT_SCHEDULE_ON_DONE "_ZN4grpc8internal18ServerCallbackCall14ScheduleOnDoneEb"
void ScheduleOnDone(char* call, bool inline_ondone) asm(WEFT_SCHEDULE_ON_DONE);
void ScheduleOnDone(char* call, bool inline_ondone) {
  static const auto next = Next(WEFT_SCHEDULE_ON_DONE, &ScheduleOnDone);
  __tsan_acquire(call + sizeof(void*) + sizeof(std::atomic_int));
  next(call, inline_ondone);
}

}  // extern "C"
