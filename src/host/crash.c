/* The last words of a process that dies of its own fault: the signal, the op,
** the Lua lines and the C functions that were running.
**
** All of it runs in a signal handler, on a stack of its own, after a fault
** that may have damaged anything. So it allocates nothing and locks nothing;
** each step may fault again, and the next one goes on from there; at the end
** the signal does what it would have done. */
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/device.h"
#include "host/host.h"
#include "lua/bind.h"
#include "ops/ops.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
enum { FRAMES = 64, LEVELS = 10, GUARD = 1 << 20 };

static const struct fatal {
  int number;
  const char *name;
  const char *meaning;
} fatals[] = {
    {SIGSEGV, "SIGSEGV", "invalid memory access"},
    {SIGBUS, "SIGBUS", "memory that is not there"},
    {SIGFPE, "SIGFPE", "invalid arithmetic"},
    {SIGILL, "SIGILL", "invalid instruction"},
    {SIGABRT, "SIGABRT", "aborted"},
};

/* What the steps need. */
static const struct fatal *why = NULL;
static const siginfo_t *fault = NULL;
static uintptr_t stack_end = 0; /* lowest address of the stack; 0 = no limit */
static _Atomic int dying = 0;   /* the thread that faulted first */
static volatile sig_atomic_t step = 0;

/* --- writing -------------------------------------------------------------- */

static void put(const char *text) {
  ssize_t ignored = write(STDERR_FILENO, text, strlen(text));

  (void)ignored;
}

static void put_number(uintptr_t n, unsigned base) {
  char text[24];
  char *p = text + sizeof text - 1;

  *p = 0;
  do {
    *--p = "0123456789abcdef"[n % base];
    n /= base;
  } while (n > 0);
  put(p);
}

/* --- steps ---------------------------------------------------------------- */

/* Just below the main thread's stack: it has overrun. */
static bool is_overrun(uintptr_t address) {
  return stack_end != 0 && address < stack_end + GUARD / 16 &&
         address + GUARD > stack_end;
}

static void say_signal(void) {
  char thread[32] = "?";
  uintptr_t address = (uintptr_t)fault->si_addr;

  prctl(PR_GET_NAME, thread);
  put("tfdist: ");
  put(why->name);
  put(", ");
  put(why->meaning);
  if (fault->si_code <= 0) {
    put(", sent by process ");
    put_number((uintptr_t)fault->si_pid, 10);
  } else {
    put(" at address 0x");
    put_number(address, 16);
  }
  put(" (process ");
  put_number((uintptr_t)getpid(), 10);
  put(", thread ");
  put(thread);
  put(")\n");
  if (why->number == SIGSEGV && fault->si_code > 0 && is_overrun(address))
    put("C stack overflow: something nests without end\n");
}

/* The op whose kernel the thread runs; of the main thread also one that a
** script has called and that runs no kernel yet. */
static void say_op(void) {
  const char *name = tfd__running_op();
  int called = tfd__lua_running;

  if (name == NULL && called >= 0 && dying == getpid()) {
    name = tfd__op_at(called)->name;
  }
  if (name == NULL) return;
  put("  op ");
  put(name);
  put("\n");
}

static void say_lua(void) {
  lua_State *L = tfd__signals_current();
  lua_Debug ar;
  int level = 0;

  if (L == NULL) return;
  for (level = 0; level < LEVELS && lua_getstack(L, level, &ar); level++) {
    if (!lua_getinfo(L, "Sl", &ar) || ar.currentline < 0) continue;
    put("  lua ");
    put(ar.short_src);
    put(":");
    put_number((uintptr_t)ar.currentline, 10);
    put("\n");
  }
}

static void say_frames(void) {
  void *frames[FRAMES];
  int n = backtrace(frames, FRAMES);

  backtrace_symbols_fd(frames, n, STDERR_FILENO);
}

static void on_crash(int number, siginfo_t *info, void *context) {
  static void (*const steps[])(void) = {say_signal, say_op, say_lua,
                                        say_frames};
  int me = (int)syscall(SYS_gettid);
  int nobody = 0;
  size_t i = 0;

  (void)context;
  if (!atomic_compare_exchange_strong(&dying, &nobody, me) && nobody != me) {
    for (;;) pause();
  }
  if (fault == NULL) {
    for (i = 0; fatals[i].number != number; i++) continue;
    why = &fatals[i];
    fault = info;
  }
  while (step < (int)(sizeof steps / sizeof *steps)) steps[step++]();
  signal(why->number, SIG_DFL);
  raise(why->number);
}

/* --- set-up --------------------------------------------------------------- */

static void find_stack_end(void) {
  struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};

  getrlimit(RLIMIT_STACK, &limit);
  if (limit.rlim_cur != RLIM_INFINITY)
    stack_end = (uintptr_t)__builtin_frame_address(0) - limit.rlim_cur;
}

void tfd__crash_open(void) {
  struct sigaction now;
  void *frame = NULL;
  size_t i = 0;

  find_stack_end();
  (void)backtrace(&frame, 1); /* its first call loads a library */
  memset(&now, 0, sizeof now);
  now.sa_sigaction = on_crash;
  now.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&now.sa_mask);
  for (i = 0; i < sizeof fatals / sizeof *fatals; i++)
    sigaction(fatals[i].number, &now, NULL);
}
#else
void tfd__crash_open(void) {} /* the sanitizer tells more */
#endif
