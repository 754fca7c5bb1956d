#ifndef TFD_HOST_LAUNCH_H
#define TFD_HOST_LAUNCH_H
/* Processes that `tfdist run` starts: tasks.
**
** Files: task (one process, its pipes, its end), launch (the loop over all of
** them, signals, what goes to the screen). What is decided is decided in Lua.
** L1 Every task leads a process group of its own, so that what it starts ends
**    with it; a task is reaped only after its group was killed. What left the
**    group may hold its pipes: of them is read what they have then, which is
**    all that the task wrote.
** L2 Tasks end with the launcher, whatever ends it: the kernel kills them, and
**    the guard, a process of its own, kills their groups.
** L3 Descriptors are closed on exec but for the three of the task itself and
**    the secret's. */

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { TFD_MAX_TASKS = 512 };

typedef struct tfd__task {
  pid_t pid;   /* 0 = it has ended */
  int in;      /* where its stdin comes from; -1 = nowhere */
  int out[2];  /* what it writes to stdout and stderr; -1 = closed */
  int left[2]; /* when it has ended: bytes that are still to be read there */
} tfd__task;

typedef struct tfd__task_config {
  char **argv; /* argv[0] is looked for as the shell does */
  char **env;
  const sigset_t *mask;           /* signals that the task begins with */
  const struct sigaction *broken; /* what SIGPIPE does to it */
  bool has_input;                 /* else it reads /dev/null */
  bool has_terminal; /* keeps this process's stdin, stdout and stderr, and is
                     ** the terminal's foreground */
} tfd__task_config;

/* errno of what went wrong, exec's too; 0 = it runs. */
int tfd__task_start(const tfd__task_config *c, tfd__task *t);
/* Has it ended? Then its group was killed, and *status_p is what waitpid says.
** No more than t->left bytes of its pipes are its own, without any the pipe is
** closed. */
bool tfd__task_reap(tfd__task *t, int *status_p);
void tfd__task_signal(const tfd__task *t, int number);

/* The process that kills all groups when this one is gone; errno or 0. */
int tfd__guard_start(void);
/* Kill and reap whatever the tasks have left: this process's children but the
** guard. No task runs. */
void tfd__reap_left(void);
/* The guard, too; nothing starts afterwards. */
void tfd__reap_all(void);

#endif
