/* One process that the launcher starts, and the guard over all of them. */
#define _GNU_SOURCE /* execvpe, pipe2 */
#include "host/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int to_guard = -1;
static pid_t the_guard = 0;

static void tell_guard(pid_t said) {
  if (to_guard >= 0) (void)!write(to_guard, &said, sizeof said);
}

/* --- begin ---------------------------------------------------------------- */

static void close_one(int *fd) {
  if (*fd >= 0) (void)close(*fd);
  *fd = -1;
}

/* Between fork and exec: system calls alone. `fds` are the task's own three,
** `report` hears why it does not run. */
static void become(const tfd__task_config *c, const int *fds, int report,
                   pid_t parent) {
  int error = 0;
  int i = 0;

  (void)setpgid(0, 0);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1); /* it died before that was asked for */
  if (c->has_terminal) {
    (void)tcsetpgrp(STDIN_FILENO, getpid());
  } else {
    for (i = 0; i < 3; i++) {
      if (dup2(fds[i], i) < 0) goto failed;
    }
  }
  (void)sigaction(SIGPIPE, c->broken, NULL);
  (void)sigprocmask(SIG_SETMASK, c->mask, NULL);
  (void)execvpe(c->argv[0], c->argv, c->env);

failed:
  error = errno;
  (void)!write(report, &error, sizeof error);
  _exit(127);
}

/* Both ends of stdin, stdout and stderr: `fds` the task's, *t ours. */
static int open_pipes(const tfd__task_config *c, int *fds, tfd__task *t) {
  int ends[2] = {-1, -1};
  int i = 0;

  if (c->has_terminal) return 0;
  if (c->has_input) {
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    fds[0] = ends[0];
    t->in = ends[1];
  } else {
    fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fds[0] < 0) return errno;
  }
  for (i = 0; i < 2; i++) {
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    t->out[i] = ends[0];
    fds[i + 1] = ends[1];
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  return 0;
}

int tfd__task_start(const tfd__task_config *c, tfd__task *t) {
  int fds[3] = {-1, -1, -1};
  int report[2] = {-1, -1};
  pid_t parent = getpid();
  int error = 0;
  int i = 0;

  *t = (tfd__task){.in = -1, .out = {-1, -1}};
  error = open_pipes(c, fds, t);
  if (error == 0 && pipe2(report, O_CLOEXEC) != 0) error = errno;
  if (error == 0) {
    t->pid = fork();
    if (t->pid < 0) error = errno;
    if (t->pid == 0) become(c, fds, report[1], parent);
  }
  for (i = 0; i < 3; i++) close_one(&fds[i]);
  close_one(&report[1]);
  if (error == 0) {
    (void)setpgid(t->pid, t->pid);
    tell_guard(t->pid);
    /* The pipe ends with nothing in it when exec has closed it. */
    if (read(report[0], &error, sizeof error) != sizeof error) error = 0;
    if (error != 0) {
      tell_guard(-t->pid);
      (void)waitpid(t->pid, NULL, 0);
    }
  }
  close_one(&report[0]);
  if (error == 0) return 0;
  close_one(&t->in);
  for (i = 0; i < 2; i++) close_one(&t->out[i]);
  t->pid = 0;
  return error;
}

/* --- end ------------------------------------------------------------------ */

void tfd__task_signal(const tfd__task *t, int number) {
  if (t->pid > 0) (void)kill(-t->pid, number);
}

static void measure_rest(tfd__task *t) {
  int s = 0;

  for (s = 0; s < 2; s++) {
    if (t->out[s] < 0) continue;
    if (ioctl(t->out[s], FIONREAD, &t->left[s]) != 0) t->left[s] = 0;
    if (t->left[s] == 0) close_one(&t->out[s]);
  }
}

bool tfd__task_reap(tfd__task *t, int *status_p) {
  siginfo_t info = {0};

  if (t->pid == 0) return false;
  if (waitid(P_PID, (id_t)t->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != t->pid)
    return false;
  /* While it is there as a zombie its number is nobody else's. */
  (void)kill(-t->pid, SIGKILL);
  tell_guard(-t->pid);
  if (waitpid(t->pid, status_p, 0) != t->pid) return false;
  t->pid = 0;
  close_one(&t->in);
  measure_rest(t);
  return true;
}

/* --- guard ---------------------------------------------------------------- */

/* It must not keep open what others wait to see closed. */
static void close_others(int kept) {
  int null = open("/dev/null", O_RDWR);
  int i = 0;

  for (i = 0; i < 3; i++) {
    if (null != i) (void)dup2(null, i);
  }
#ifdef SYS_close_range
  if ((kept == 3 ||
       syscall(SYS_close_range, 3U, (unsigned)kept - 1, 0U) == 0) &&
      syscall(SYS_close_range, (unsigned)kept + 1, ~0U, 0U) == 0)
    return;
#endif
  for (i = 3; i < 1024; i++) {
    if (i != kept) (void)close(i);
  }
}

/* Hears of groups: n begins, -n has ended. */
static void guard(int from) {
  static pid_t groups[TFD_MAX_TASKS];
  int n = 0;
  pid_t said = 0;
  int i = 0;

  (void)setsid();
  (void)prctl(PR_SET_NAME, "tfdist-guard");
  close_others(from);
  while (read(from, &said, sizeof said) == sizeof said) {
    if (said > 0 && n < TFD_MAX_TASKS) groups[n++] = said;
    for (i = 0; said < 0 && i < n; i++) {
      if (groups[i] != -said) continue;
      groups[i] = groups[--n];
      break;
    }
  }
  for (i = 0; i < n; i++) (void)kill(-groups[i], SIGKILL);
  _exit(0);
}

int tfd__guard_start(void) {
  int ends[2] = {-1, -1};
  pid_t pid = 0;

  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  if (ends[0] < 3) return EBADF;
  pid = fork();
  if (pid == 0) guard(ends[0]);
  (void)close(ends[0]);
  if (pid < 0) {
    (void)close(ends[1]);
    return errno;
  }
  to_guard = ends[1];
  the_guard = pid;
  return 0;
}

/* What left its group and lost its parent is this process's child now, and what
** a killed one leaves in the next round. */
static void reap(pid_t kept) {
  enum { ROUNDS = 100, ROUND_MS = 10 };
  char path[64];
  int round = 0;

  (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
  for (round = 0; round < ROUNDS; round++) {
    FILE *list = fopen(path, "re");
    bool clean = list != NULL;
    int pid = 0;

    while (list != NULL && fscanf(list, "%d", &pid) == 1) {
      if (pid == kept) continue;
      (void)kill(pid, SIGKILL);
      clean = false;
    }
    if (list != NULL) (void)fclose(list);
    if (clean) return;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) continue;
    if (pid < 0) return; /* there are none */
    (void)poll(NULL, 0, ROUND_MS);
  }
}

void tfd__reap_left(void) {
  reap(the_guard);
}

void tfd__reap_all(void) {
  close_one(&to_guard);
  reap(0);
}
