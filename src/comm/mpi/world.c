/* The thread that talks to MPI: it initialises it, asks it to get on as long as
** anything is under way, and leaves it when the process ends.
**
** The end: MPI_Finalize when all processes have come to their ends, good or
** bad, so that the last words of all are heard; a process that fails and finds
** that others do not come ends them by MPI_Abort. A process that ends well
** waits for the others, as all MPI programs do: whether they live is for the
** program to watch that has started them. */
#define _DEFAULT_SOURCE /* on_exit */
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/mpi/mpi.h"

enum {
  GRACE_SECONDS = 2, /* that failed processes wait for others' last words */
  FINALIZE_SECONDS = 10,
  NOTICE_SECONDS = 30,
  HOST_BYTES = 256,
};
/* The end looks once a second: after longer than this the process was stopped,
** which counts for no limit. */
#define PAUSE_NS INT64_C(2000000000)

tfd__mpi_world tfd__mpi;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pid_t owner;

bool tfd__mpi_is_wanted(void) {
  const char *transport = getenv("TFDIST_TRANSPORT");

  return tfd__starter() != NULL ||
         (transport != NULL && strcmp(transport, "mpi") == 0);
}

/* --- up
 * ----------------------------------------------------------------------- */

/* Open MPI puts handlers of its own behind crashes; the host's stay. */
static int initialise(void) {
  static const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGSEGV};
  enum { CRASHES = sizeof crashes / sizeof crashes[0] };
  struct sigaction before[CRASHES];
  static char buffer[BUFSIZ];
  bool has_buffer;
  int there = 0;
  int level = 0;
  int i;

  (void)MPI_Initialized(&there);
  if (there) {
    (void)MPI_Query_thread(&level);
    tfd__mpi.is_for_all = level == MPI_THREAD_MULTIPLE;
    if (tfd__mpi.is_for_all) return TFD_OK;
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "MPI was initialised without MPI_THREAD_MULTIPLE by "
                     "somebody else in this process");
  }
  for (i = 0; i < CRASHES; i++) (void)sigaction(crashes[i], NULL, &before[i]);
  has_buffer = __fbufsize(stdout) != 1;
  i = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
  if (i != MPI_SUCCESS) return tfd__mpi_error("MPI_Init_thread", i);
  /* Starters pass on what they get: pieces of two processes' lines would mix
  ** where a full buffer ends, or with none, as MPICH has it. */
  if (has_buffer) (void)setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
  for (i = 0; i < CRASHES; i++) (void)sigaction(crashes[i], &before[i], NULL);
  tfd__mpi.ours = true;
  /* MPICH tells it of requests, too, whatever they belong to. */
  (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  tfd__mpi.is_for_all = level >= MPI_THREAD_SERIALIZED;
  if (level >= MPI_THREAD_FUNNELED) return TFD_OK;
  return tfd__fail(TFD_UNAVAILABLE, "this MPI is not made for threads");
}

/* Which cores a process may use says nothing: starters give each one of its
** own. */
static bool is_crowded(const tfd__world *w) {
  int here = 0;
  int p;

  for (p = 0; p < w->processes; p++) {
    here += strcmp(w->hosts[p], w->hosts[w->process]) == 0;
  }
  return here > sysconf(_SC_NPROCESSORS_ONLN);
}

/* Everybody's host, one behind the other, and pointers to them. */
static int gather_hosts(tfd__world *w) {
  size_t processes = (size_t)w->processes;
  char *texts = tfd__calloc(processes, HOST_BYTES);
  const char **hosts = tfd__calloc(processes, sizeof *hosts);
  char mine[HOST_BYTES] = "";
  int i;

  if (texts == NULL || hosts == NULL) {
    tfd__free(texts);
    tfd__free(hosts);
    return tfd__no_memory(processes * HOST_BYTES, "MPI");
  }
  (void)gethostname(mine, sizeof mine - 1);
  i = MPI_Allgather(mine, HOST_BYTES, MPI_CHAR, texts, HOST_BYTES, MPI_CHAR,
                    tfd__mpi.comm);
  if (i != MPI_SUCCESS) return tfd__mpi_error("MPI_Allgather", i);
  for (i = 0; i < w->processes; i++) {
    hosts[i] = texts + (ptrdiff_t)i * HOST_BYTES;
  }
  w->hosts = hosts;
  tfd__mpi.crowded = is_crowded(w);
  return TFD_OK;
}

static void at_exit(int status, void *unused);

static int bring_up(void) {
  tfd__world *w = &tfd__mpi.world;
  int code;

  TFD_TRY(initialise());
  code = MPI_Comm_dup(MPI_COMM_WORLD, &tfd__mpi.comm);
  if (code == MPI_SUCCESS) {
    code = MPI_Comm_dup(MPI_COMM_WORLD, &tfd__mpi.farewell);
  }
  if (code != MPI_SUCCESS) return tfd__mpi_error("MPI_Comm_dup", code);
  (void)MPI_Comm_set_errhandler(tfd__mpi.comm, MPI_ERRORS_RETURN);
  (void)MPI_Comm_rank(tfd__mpi.comm, &w->process);
  (void)MPI_Comm_size(tfd__mpi.comm, &w->processes);
  (void)MPI_Op_create(tfd__mpi_least, 1, &tfd__mpi.least);
  (void)MPI_Op_create(tfd__mpi_most, 1, &tfd__mpi.most);
  (void)on_exit(at_exit, NULL);
  return gather_hosts(w);
}

/* Until the process ends, when nobody else drives any more. */
static void serve(void) {
  bool leaving = false;
  bool waited = false;
  int idle = 0;

  tfd__lock(&tfd__mpi.lock);
  while (!leaving) {
    bool moving = false;
    bool busy = false;

    tfd__mpi_take();
    tfd__mpi.more = false;
    tfd__unlock(&tfd__mpi.lock);
    busy = tfd__mpi_step_all(&moving);
    tfd__lock(&tfd__mpi.lock);
    leaving = tfd__mpi.leaving;
    if (leaving) break;
    tfd__mpi_leave();
    if (busy) {
      waited = tfd__mpi.callers > 0;
      tfd__unlock(&tfd__mpi.lock);
      tfd__mpi_rest(++idle, moving, waited);
      tfd__lock(&tfd__mpi.lock);
    } else if (!tfd__mpi.more) {
      (void)tfd__cond_wait(&tfd__mpi.news, &tfd__mpi.lock, tfd__deadline_in(1));
      idle = 0;
    }
  }
  tfd__unlock(&tfd__mpi.lock);
}

/* --- the end
 * ---------------------------------------------------------------------- */

/* Groups that are open end with the process. True if one has failed or is in
** the middle of something. */
static bool close_groups(int status) {
  tfd__mpi_group *g = NULL;
  bool bad = false;
  bool given_up = false; /* before it was open: nobody is in the middle of it */

  tfd__lock(&tfd__mpi.lock);
  g = tfd__mpi.groups;
  tfd__unlock(&tfd__mpi.lock);
  for (; g != NULL; g = g->next) {
    if (status != 0 && !g->closing) {
      (void)tfd__fail(TFD_ABORTED, "process %d has ended with exit status %d",
                      g->process, status);
      tfd__mpi_fail(g, true);
    }
    tfd__lock(&tfd__mpi.lock);
    given_up = g->closing && !g->open;
    bad = bad || (g->error.code != TFD_OK && !given_up) || g->first != NULL;
    g->closing = true;
    tfd__unlock(&tfd__mpi.lock);
  }
  return bad || status != 0;
}

/* Wait for all others to come to their ends; bad ones do so for a moment. */
static bool all_arrive(int bad) {
  tfd__deadline until = bad ? tfd__deadline_in(GRACE_SECONDS) : TFD_FOREVER;
  tfd__deadline notice = tfd__deadline_in(NOTICE_SECONDS);
  MPI_Request r = MPI_REQUEST_NULL;
  bool moving = false;
  int worst = 0;
  int there = 0;
  int idle = 0;

  if (MPI_Iallreduce(&bad, &worst, 1, MPI_INT, MPI_MAX, tfd__mpi.farewell,
                     &r) != MPI_SUCCESS) {
    return false;
  }
  while (!there && tfd__now_ns() < until) {
    (void)tfd__mpi_step_all(&moving);
    if (MPI_Test(&r, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (tfd__now_ns() > notice) {
      tfd__log(TFD_LOG_WARNING, "process %d has ended and waits for the others",
               tfd__mpi.world.process);
      notice = TFD_FOREVER;
    }
    tfd__mpi_rest(++idle, false, false);
  }
  return there != 0;
}

static void leave(void) {
  int status = tfd__mpi.status;
  bool bad = close_groups(status);

  if (!all_arrive(bad)) {
    (void)MPI_Abort(MPI_COMM_WORLD,
                    status == 0 ? TFD_EXIT_PEER_FAILED : status);
    return;
  }
  tfd__lock(&tfd__mpi.lock);
  tfd__mpi.limit = tfd__deadline_in(FINALIZE_SECONDS);
  tfd__unlock(&tfd__mpi.lock);
  if (tfd__mpi.ours) (void)MPI_Finalize();
}

/* MPI is left before its own library is; a process that cannot is ended. */
static void at_exit(int status, void *unused) {
  (void)unused;
  if (getpid() != owner) return; /* a fork has no thread */
  tfd__lock(&tfd__mpi.lock);
  tfd__mpi.leaving = true;
  tfd__mpi.status = status;
  tfd__cond_broadcast(&tfd__mpi.news);
  tfd__mpi.limit = status == 0
                       ? TFD_FOREVER
                       : tfd__deadline_in(GRACE_SECONDS + FINALIZE_SECONDS);
  tfd__cond_broadcast(&tfd__mpi.changed);
  while (!tfd__mpi.over && tfd__now_ns() < tfd__mpi.limit) {
    int64_t took = tfd__now_ns();

    (void)tfd__cond_wait(&tfd__mpi.changed, &tfd__mpi.lock,
                         tfd__deadline_in(1));
    took = tfd__now_ns() - took;
    if (took > PAUSE_NS && tfd__mpi.limit != TFD_FOREVER) {
      tfd__mpi.limit += took;
    }
  }
  if (!tfd__mpi.over) _exit(status == 0 ? TFD_EXIT_PEER_FAILED : status);
  tfd__unlock(&tfd__mpi.lock);
}

/* --- start
 * ------------------------------------------------------------------------ */

static void run(void *unused) {
  bool good = bring_up() == TFD_OK;

  (void)unused;
  tfd__lock(&tfd__mpi.lock);
  if (!good) tfd__error_save(&tfd__mpi.error);
  tfd__mpi.up = true;
  tfd__cond_broadcast(&tfd__mpi.changed);
  tfd__unlock(&tfd__mpi.lock);
  if (good) {
    serve();
    leave();
  }
  tfd__lock(&tfd__mpi.lock);
  tfd__mpi.over = true;
  tfd__cond_broadcast(&tfd__mpi.changed);
  tfd__unlock(&tfd__mpi.lock);
}

static void prepare(void) {
  owner = getpid();
  if (tfd__mutex_init(&tfd__mpi.lock, 4) != TFD_OK ||
      tfd__cond_init(&tfd__mpi.changed) != TFD_OK ||
      tfd__cond_init(&tfd__mpi.news) != TFD_OK) {
    tfd__mpi.up = true;
    (void)tfd__fail(TFD_RESOURCE_EXHAUSTED, "MPI: no mutex");
    tfd__error_save(&tfd__mpi.error);
  }
}

int tfd__mpi_start(double start_timeout) {
  tfd__deadline until =
      tfd__deadline_in(start_timeout > 0 ? start_timeout : 300);
  tfd__thread thread;
  int rc = TFD_OK;

  (void)pthread_once(&once, prepare);
  tfd__lock(&tfd__mpi.lock);
  if (!tfd__mpi.started && !tfd__mpi.up) {
    rc = tfd__thread_start(&thread, "tfdist-mpi", run, NULL);
    tfd__mpi.started = rc == TFD_OK;
  }
  while (rc == TFD_OK && !tfd__mpi.up) {
    (void)tfd__cond_wait(&tfd__mpi.changed, &tfd__mpi.lock,
                         tfd__deadline_in(0.05));
    if (tfd__interrupt_get()) {
      rc = tfd__fail(TFD_CANCELLED, "interrupted while MPI starts");
    } else if (tfd__now_ns() >= until) {
      rc = tfd__fail(TFD_DEADLINE_EXCEEDED,
                     "MPI has not started: not all processes are there");
    }
  }
  if (rc == TFD_OK && tfd__mpi.error.code != TFD_OK) {
    rc = tfd__error_raise(&tfd__mpi.error);
  }
  tfd__unlock(&tfd__mpi.lock);
  return rc;
}
