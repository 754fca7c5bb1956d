/* --profile: a timeline of the whole process. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/host.h"

static const char *path;
static const char *program;
static pid_t owner; /* not what it forks */

/* The script may have ended the timeline itself. */
static void finish(void) {
  if (getpid() != owner || !tfd_profiler_is_running()) return;
  fflush(stdout);
  if (tfd_profiler_stop(path) == TFD_OK) {
    fputs(tfd_profiler_table(), stderr);
  } else {
    fprintf(stderr, "%s: %s\n", program, tfd_error_message());
  }
  tfd__signals_end();
}

bool tfd__profile_open(const tfd__options *o) {
  FILE *file = NULL;

  if (o->profile == NULL) return true;
  file = fopen(o->profile, "we"); /* sooner than after hours of work */
  if (file == NULL) {
    fprintf(stderr, "%s: --profile: cannot write %s: %s\n", o->program,
            o->profile, strerror(errno));
    return false;
  }
  fclose(file);
  path = o->profile;
  program = o->program;
  owner = getpid();
  if (tfd_profiler_start() == TFD_OK && atexit(finish) == 0) return true;
  fprintf(stderr, "%s: --profile: %s\n", o->program, tfd_error_message());
  return false;
}
