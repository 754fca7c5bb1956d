/* --profile: a timeline of the whole process. Each of several processes that
** work together has a file of its own. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/host.h"

static const char *asked; /* the file's name as it was given */
static char *path;        /* as far as it is known at the begin */
static const char *program;
static pid_t owner; /* not what it forks */

/* "trace.worker-1.json" of "trace.json". NULL = no memory. */
static char *own_path(void) {
  const char *slash = strrchr(asked, '/');
  const char *base = slash != NULL ? slash + 1 : asked;
  const char *dot = strrchr(base, '.');
  size_t stem =
      dot != NULL && dot != base ? (size_t)(dot - asked) : strlen(asked);
  const char *task = "";
  size_t bytes = 0;
  char *text = NULL;

  (void)tfd_task_name(&task);
  bytes = strlen(asked) + strlen(task) + 2;
  text = malloc(bytes);
  if (text != NULL) {
    (void)snprintf(text, bytes, "%.*s%s%s%s", (int)stem, asked,
                   task[0] != 0 ? "." : "", task, asked + stem);
  }
  return text;
}

/* That there are other processes may be known only at the end. The empty file
** that showed that its place can be written goes then; others may have taken it
** away. */
static void settle_path(void) {
  char *now = own_path();
  struct stat s;

  if (now == NULL) return;
  if (strcmp(now, path) != 0 && stat(path, &s) == 0 && S_ISREG(s.st_mode) &&
      s.st_size == 0) {
    (void)unlink(path);
  }
  free(path);
  path = now;
}

/* The script may have ended the timeline itself. */
static void finish(void) {
  if (getpid() != owner || !tfd_profiler_is_running()) return;
  fflush(stdout);
  settle_path();
  if (tfd_profiler_stop(path) == TFD_OK) {
    fputs(tfd_profiler_table(), stderr);
  } else {
    fprintf(stderr, "%s: %s\n", program, tfd_error_message());
  }
  tfd__signals_end();
}

/* `tfdist --profile run ...` asks for profiles of what it starts. */
static bool is_launcher(const tfd__options *o) {
  return o->script < o->argc && !o->ends_with_dashes &&
         strcmp(o->argv[o->script], "run") == 0;
}

bool tfd__profile_open(const tfd__options *o) {
  FILE *file = NULL;

  if (o->profile == NULL || is_launcher(o)) return true;
  asked = o->profile;
  path = own_path();
  /* Sooner than after hours of work. */
  file = path != NULL ? fopen(path, "we") : NULL;
  if (file == NULL) {
    fprintf(stderr, "%s: --profile: cannot write %s: %s\n", o->program,
            path != NULL ? path : asked, strerror(errno));
    return false;
  }
  fclose(file);
  program = o->program;
  owner = getpid();
  if (tfd_profiler_start() == TFD_OK && atexit(finish) == 0) return true;
  fprintf(stderr, "%s: --profile: %s\n", o->program, tfd_error_message());
  return false;
}
