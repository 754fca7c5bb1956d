/* Kernels where threads cannot be started: fewer, not the end of the process.
** A process of its own: its memory is bounded, its team small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"

enum { N = 1000, THREADS = 4, DEADLINE_S = 60 };

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

static atomic_int seen[N];

static void visit(void *arg, int64_t begin, int64_t end) {
  (void)arg;
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&seen[i], 1);
}

/* Room for half a thread's stack more than is used. */
static bool bound_memory(void) {
  struct rlimit stack, memory;
  unsigned long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  bool read = f != NULL && fscanf(f, "%lu", &pages) == 1;

  if (f != NULL) fclose(f);
  if (!read || getrlimit(RLIMIT_STACK, &stack) != 0) return false;
  if (stack.rlim_cur == RLIM_INFINITY) stack.rlim_cur = 2 << 20;
  memory.rlim_cur = memory.rlim_max =
      pages * (rlim_t)sysconf(_SC_PAGESIZE) + stack.rlim_cur / 2;
  return setrlimit(RLIMIT_AS, &memory) == 0;
}

static int bounded(void) {
  if (!bound_memory()) return 2;
  tfd__threads_set(THREADS);
  if (tfd__threads_get() != 1) return 3;
  tfd__parallel_for(N, 1, visit, NULL);
  for (int i = 0; i < N; i++)
    if (seen[i] != 1) return 4;
  return 0;
}

static void loops_run_where_threads_do_not_start(void **state) {
  pid_t child = fork();
  int status = 0;

  (void)state;
  assert_true(child >= 0);
  if (child == 0) {
    alarm(DEADLINE_S);
    _exit(bounded());
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

#else

static void loops_run_where_threads_do_not_start(void **state) {
  (void)state;
  print_message("sanitizers need more memory than the bound leaves\n");
  skip();
}

#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loops_run_where_threads_do_not_start),
  };

  return cmocka_run_group_tests_name("base/team", tests, NULL, NULL);
}
