/* A request to end (SIGTERM) that the program sees and answers when it can. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/status.h"

static volatile sig_atomic_t seen;

static void on_request(int number) {
  (void)number;
  seen = 1;
}

/* Compiled kernels of oneDNN keep values below the stack pointer: the handler
** needs a stack of its own, unless this thread has one for handlers. */
static int have_stack(void) {
  static _Alignas(16) unsigned char memory[1 << 14];
  stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
  stack_t now;

  if (sigaltstack(NULL, &now) != 0) return -1;
  if ((now.ss_flags & SS_DISABLE) == 0) return 0;
  return sigaltstack(&stack, NULL);
}

int tfd_termination_watch(void) {
  struct sigaction action;

  memset(&action, 0, sizeof action);
  action.sa_handler = on_request;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (have_stack() == 0 && sigaction(SIGTERM, &action, NULL) == 0) {
    return TFD_OK;
  }
  return tfd__fail(TFD_UNAVAILABLE, "termination_watch: %s", strerror(errno));
}

bool tfd_termination_seen(void) {
  return seen != 0;
}
