// Preloaded into the processes of a soak run (soak.py), which steers it through a file that all of
// them map: a jump of the wall clock that only they see, and the leaks that a run plants to prove
// that its gates can fail.
//
// The machine's clock is not touched: others live by it. What reads CLOCK_REALTIME is answered with
// an offset, and absolute deadlines by that clock are handed to the kernel without it. A wait that
// has begun before a jump ends when it would have ended without one; under a real jump forward it
// would end early.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// soak_disturb.py writes the same fields in the same order.
struct Control {
  volatile int64_t clock_offset_s;
  // Of the router alone, each second.
  volatile int64_t leak_bytes;
  volatile int64_t leak_descriptors;
  volatile int64_t leak_threads;
};

static struct Control nothing;
static struct Control* control = &nothing;

static int raw_clock(clockid_t clock, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  return real(clock, now);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = raw_clock(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += control->clock_offset_s;
  }
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

static struct timespec by_the_kernel(const struct timespec* deadline) {
  struct timespec moved = *deadline;
  moved.tv_sec -= control->clock_offset_s;
  if (moved.tv_sec < 0) moved.tv_sec = moved.tv_nsec = 0;
  return moved;
}

// Abseil waits by futex(2) with absolute deadlines of CLOCK_REALTIME.
long syscall(long number, ...) {
  static long (*real)(long, ...);
  if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  long a[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  struct timespec moved;
  if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) && a[3] && control->clock_offset_s) {
    moved = by_the_kernel((const struct timespec*)a[3]);
    a[3] = (long)&moved;
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int pthread_cond_timedwait(pthread_cond_t* restrict condition, pthread_mutex_t* restrict mutex,
                           const struct timespec* restrict deadline) {
  static int (*real)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*);
  if (!real) {
    real = (int (*)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*))dlvsym(
        RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  }
  // glibc's mark of a condition whose clock is CLOCK_MONOTONIC.
  if (condition->__data.__wrefs & 2) return real(condition, mutex, deadline);
  const struct timespec moved = by_the_kernel(deadline);
  return real(condition, mutex, &moved);
}

static void* sleep_for_ever(void* unused) {
  for (;;) pause();
  return unused;
}

static void* leak(void* unused) {
  for (;;) {
    sleep(1);
    if (control->leak_bytes) memset(malloc(control->leak_bytes), 1, control->leak_bytes);
    for (int64_t i = 0; i < control->leak_descriptors; ++i) open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int64_t i = 0; i < control->leak_threads; ++i) {
      pthread_t thread;
      pthread_create(&thread, NULL, sleep_for_ever, NULL);
    }
  }
  return unused;
}

__attribute__((constructor)) static void begin(void) {
  const char* const path = getenv("WEFT_SOAK_CONTROL");
  const int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* const mapped = mmap(NULL, sizeof(struct Control), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return;
  control = mapped;
  if (strcmp(program_invocation_short_name, "weft-router") == 0 &&
      (control->leak_bytes || control->leak_descriptors || control->leak_threads)) {
    // The router's main thread, which has not begun, will take signals; a thread that is older than
    // its mask would end the process by the first SIGHUP.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    pthread_create(&thread, NULL, leak, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
  }
}
