// Teaches ThreadSanitizer the locks of the distribution's Abseil, which was built without it: each
// call is wrapped (the linker's --wrap) and tells what it orders. Only for builds with
// WEFT_SANITIZE=thread; linked as objects into tests. Acquire and release rather than the
// sanitizer's mutex annotations, because Abseil evaluates the conditions of other waiters inside
// Unlock; reads made there are ignored.

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" {

void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);

#define REAL(symbol) __real_##symbol
#define WRAP(symbol) __wrap_##symbol

// Mutex::Lock, Unlock, TryLock.
void REAL(_ZN4absl7debian35Mutex4LockEv)(void* mutex);
void WRAP(_ZN4absl7debian35Mutex4LockEv)(void* mutex) {
  REAL(_ZN4absl7debian35Mutex4LockEv)(mutex);
  __tsan_acquire(mutex);
}

void REAL(_ZN4absl7debian35Mutex6UnlockEv)(void* mutex);
void WRAP(_ZN4absl7debian35Mutex6UnlockEv)(void* mutex) {
  __tsan_release(mutex);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  REAL(_ZN4absl7debian35Mutex6UnlockEv)(mutex);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

bool REAL(_ZN4absl7debian35Mutex7TryLockEv)(void* mutex);
bool WRAP(_ZN4absl7debian35Mutex7TryLockEv)(void* mutex) {
  const bool locked = REAL(_ZN4absl7debian35Mutex7TryLockEv)(mutex);
  if (locked) __tsan_acquire(mutex);
  return locked;
}

// A wait inside a lock: gives it up, sleeps, takes it again.
#define WRAP_WAIT(type, symbol, mutex, parameters, arguments) \
  type REAL(symbol) parameters;                               \
  type WRAP(symbol) parameters {                              \
    __tsan_release(mutex);                                    \
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);             \
    struct Again {                                            \
      void* held;                                             \
      ~Again() {                                              \
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);           \
        __tsan_acquire(held);                                 \
      }                                                       \
    } again{mutex};                                           \
    return REAL(symbol) arguments;                            \
  }

WRAP_WAIT(void, _ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE, mutex,
          (void* mutex, const void* condition), (mutex, condition))
WRAP_WAIT(bool, _ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE, mutex,
          (void* mutex, const void* condition, absl::Duration timeout), (mutex, condition, timeout))
WRAP_WAIT(bool, _ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE, mutex,
          (void* mutex, const void* condition, absl::Time deadline), (mutex, condition, deadline))
WRAP_WAIT(void, _ZN4absl7debian37CondVar4WaitEPNS0_5MutexE, mutex, (void* variable, void* mutex),
          (variable, mutex))
WRAP_WAIT(bool, _ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE, mutex,
          (void* variable, void* mutex, absl::Duration timeout), (variable, mutex, timeout))
WRAP_WAIT(bool, _ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE, mutex,
          (void* variable, void* mutex, absl::Time deadline), (variable, mutex, deadline))

// Notification.
void REAL(_ZN4absl7debian312Notification6NotifyEv)(void* notification);
void WRAP(_ZN4absl7debian312Notification6NotifyEv)(void* notification) {
  __tsan_release(notification);
  REAL(_ZN4absl7debian312Notification6NotifyEv)(notification);
}

void REAL(_ZNK4absl7debian312Notification19WaitForNotificationEv)(void* notification);
void WRAP(_ZNK4absl7debian312Notification19WaitForNotificationEv)(void* notification) {
  REAL(_ZNK4absl7debian312Notification19WaitForNotificationEv)(notification);
  __tsan_acquire(notification);
}

bool REAL(_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(
    void* notification, absl::Duration timeout);
bool WRAP(_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(
    void* notification, absl::Duration timeout) {
  const bool notified =
      REAL(_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE)(
          notification, timeout);
  if (notified) __tsan_acquire(notification);
  return notified;
}

}  // extern "C"
