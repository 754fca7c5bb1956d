/* Communicators, and what goes with them, from their making to their end. */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "comm/nccl/nccl.h"

static const tfd__driver *driver_of(const tfd__nccl_rank *r) {
  return r->native->driver;
}

#define CUDA(r, call, what) \
  TFD_TRY((r)->native->check(driver_of(r)->call, what))

/* Between two looks at what takes its time. */
static void pause_a_little(int looks) {
  struct timespec nap = {.tv_nsec = 100000};

  if (looks < 100) {
    sched_yield();
  } else {
    nanosleep(&nap, NULL);
  }
}

/* --- streams and events ----------------------------------------------------
 */

static int new_rank(tfd__nccl_group *own, int i) {
  static const char what[] = "preparing NCCL";
  tfd__nccl_rank *r = &own->ranks[i];
  int least = 0;
  int greatest = 0;
  int k;

  TFD_TRY(r->native->use(r->native->ordinal));
  CUDA(r, cuCtxGetStreamPriorityRange(&least, &greatest), what);
  CUDA(r,
       cuStreamCreateWithPriority(&r->stream, CU_STREAM_NON_BLOCKING, greatest),
       what);
  CUDA(r, cuEventCreate(&r->ready, CU_EVENT_DISABLE_TIMING), what);
  CUDA(r, cuEventCreate(&r->over, CU_EVENT_DISABLE_TIMING), what);
  for (k = 0; k < TFD_NCCL_MARKS; k++) {
    CUDA(r, cuEventCreate(&own->marks[k].over[i], CU_EVENT_DISABLE_TIMING),
         what);
  }
  return TFD_OK;
}

int tfd__nccl_ranks_new(tfd__nccl_group *own) {
  int i;

  for (i = 0; i < own->local; i++) TFD_TRY(new_rank(own, i));
  return TFD_OK;
}

static void free_rank(tfd__nccl_group *own, int i) {
  tfd__nccl_rank *r = &own->ranks[i];
  const tfd__driver *cu = driver_of(r);
  int k;

  if (r->native->use(r->native->ordinal) != TFD_OK) return;
  for (k = 0; k < TFD_NCCL_MARKS; k++) {
    if (own->marks[k].over[i] == NULL) continue;
    (void)cu->cuEventDestroy(own->marks[k].over[i]);
  }
  if (r->over != NULL) (void)cu->cuEventDestroy(r->over);
  if (r->ready != NULL) (void)cu->cuEventDestroy(r->ready);
  if (r->stream != NULL) (void)cu->cuStreamDestroy(r->stream);
}

/* --- making ----------------------------------------------------------------
 */

int tfd__nccl_look(const tfd__nccl_group *own, const char *what) {
  int i;

  if (own->control != NULL) TFD_TRY(tfd__staged_check(own->control, what));
  for (i = 0; i < own->local; i++) {
    const tfd__nccl_rank *r = &own->ranks[i];
    ncclResult_t state = ncclSuccess;
    ncclResult_t result = tfd__nc.ncclCommGetAsyncError(r->comm, &state);

    TFD_TRY(tfd__nccl_check(result, r->comm, what));
    TFD_TRY(tfd__nccl_check(state, r->comm, what));
  }
  return TFD_OK;
}

/* The first rank whose communicator is busy, -1 = none is. */
static int busy(const tfd__nccl_group *own) {
  int i;

  for (i = 0; i < own->local; i++) {
    ncclResult_t state = ncclSuccess;

    (void)tfd__nc.ncclCommGetAsyncError(own->ranks[i].comm, &state);
    if (state == ncclInProgress) return i;
  }
  return -1;
}

int tfd__nccl_settle(tfd__nccl_group *own, tfd__deadline until,
                     const char *what) {
  int looks = 0;

  for (;;) {
    int i = 0;

    TFD_TRY(tfd__nccl_look(own, what));
    i = busy(own);
    if (i < 0) return TFD_OK;
    if (tfd__interrupt_get()) {
      return tfd__fail(TFD_CANCELLED, "%s: interrupted while waiting for NCCL",
                       what);
    }
    if (tfd__now_ns() >= until) {
      return tfd__fail(TFD_DEADLINE_EXCEEDED,
                       "%s: NCCL on %s is not ready at the deadline", what,
                       own->ranks[i].device->short_name);
    }
    pause_a_little(looks++);
  }
}

static int make(tfd__nccl_group *own) {
  static const char what[] = "connecting GPUs";
  int rc = TFD_OK;
  int i;

  TFD_TRY(tfd__nccl_check(tfd__nc.ncclGroupStart(), NULL, what));
  for (i = 0; rc == TFD_OK && i < own->local; i++) {
    tfd__nccl_rank *r = &own->ranks[i];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 0;
    rc = r->native->use(r->native->ordinal);
    if (rc != TFD_OK) break;
    rc = tfd__nccl_check(tfd__nc.ncclCommInitRankConfig(&r->comm, own->size,
                                                        own->id, own->base + i,
                                                        &config),
                         NULL, what);
  }
  if (rc != TFD_OK) {
    (void)tfd__nc.ncclGroupEnd();
    return rc;
  }
  TFD_TRY(tfd__nccl_check(tfd__nc.ncclGroupEnd(), NULL, what));
  for (i = 0; i < own->local; i++) {
    if (own->ranks[i].comm != NULL) continue;
    return tfd__fail(TFD_INTERNAL, "%s: NCCL made no communicator for %s", what,
                     own->ranks[i].device->short_name);
  }
  return TFD_OK;
}

static int wait_for_first(const tfd__nccl_group *own, tfd__deadline until) {
  int looks = 0;
  int i;

  for (i = 0; i < own->local; i++) {
    const tfd__nccl_rank *r = &own->ranks[i];
    CUresult result = CUDA_ERROR_NOT_READY;

    for (;;) {
      TFD_TRY(r->native->use(r->native->ordinal));
      result = driver_of(r)->cuEventQuery(r->over);
      if (result != CUDA_ERROR_NOT_READY) break;
      TFD_TRY(tfd__nccl_look(own, "connecting GPUs"));
      if (tfd__interrupt_get()) {
        return tfd__fail(TFD_CANCELLED,
                         "interrupted while GPUs are being connected");
      }
      if (tfd__now_ns() >= until) {
        return tfd__fail(TFD_DEADLINE_EXCEEDED,
                         "NCCL's first collective does not end on %s",
                         r->device->short_name);
      }
      pause_a_little(looks++);
    }
    TFD_TRY(r->native->check(result, "connecting GPUs"));
  }
  return TFD_OK;
}

/* What CUDA and NCCL load when they are first used they load now, while no
** kernel runs that waits for one that cannot be loaded meanwhile. */
static int warm_up(tfd__nccl_group *own, tfd__deadline until) {
  static const char what[] = "connecting GPUs";
  int rc = TFD_OK;
  int i;

  TFD_TRY(tfd__nccl_check(tfd__nc.ncclGroupStart(), NULL, what));
  for (i = 0; rc == TFD_OK && i < own->local; i++) {
    tfd__nccl_rank *r = &own->ranks[i];
    void *word = (void *)(uintptr_t)r->native->word;

    rc = r->native->use(r->native->ordinal);
    if (rc != TFD_OK) break;
    rc = tfd__nccl_check(tfd__nc.ncclAllReduce(word, word, 1, ncclInt32,
                                               ncclSum, r->comm, r->stream),
                         r->comm, what);
  }
  if (rc != TFD_OK) {
    (void)tfd__nc.ncclGroupEnd();
    return rc;
  }
  TFD_TRY(tfd__nccl_check(tfd__nc.ncclGroupEnd(), NULL, what));
  TFD_TRY(tfd__nccl_settle(own, until, what));
  for (i = 0; i < own->local; i++) {
    tfd__nccl_rank *r = &own->ranks[i];

    TFD_TRY(r->native->use(r->native->ordinal));
    CUDA(r, cuEventRecord(r->over, r->stream), what);
  }
  return wait_for_first(own, until);
}

static int make_and_try(tfd__nccl_group *own, tfd__deadline until) {
  if (own->control == NULL) {
    TFD_TRY(tfd__nccl_check(tfd__nc.ncclGetUniqueId(&own->id), NULL,
                            "connecting GPUs"));
  }
  TFD_TRY(make(own));
  TFD_TRY(tfd__nccl_settle(own, until, "connecting GPUs"));
  return warm_up(own, until);
}

static int wait_for_end(tfd__nccl_group *own) {
  tfd__deadline until = tfd__deadline_in(2 * TFD_NCCL_END_SECONDS);

  while (own->ending && tfd__now_ns() < until) {
    (void)tfd__cond_wait(&tfd__nccl.changed, &tfd__nccl.lock, until);
  }
  if (!own->ending) return TFD_OK;
  return tfd__fail(TFD_UNAVAILABLE, "NCCL does not end communicators that "
                                    "failed: this process must be restarted");
}

int tfd__nccl_connect(tfd__nccl_group *own) {
  tfd__deadline until = tfd__deadline_in(own->timeout);
  int version = 0;

  TFD_TRY(wait_for_end(own));
  if (own->there) return TFD_OK;
  own->epoch++;
  if (make_and_try(own, until) != TFD_OK) return tfd__nccl_break(own);
  own->there = true;
  (void)tfd__nc.ncclGetVersion(&version);
  tfd__log(TFD_LOG_INFO,
           "%d GPUs of %d are connected by NCCL %d.%d.%d, epoch %d", own->local,
           own->size, version / 10000, version / 100 % 100, version % 100,
           own->epoch);
  return TFD_OK;
}

/* --- ending ----------------------------------------------------------------
 */

static void spoil(tfd__nccl_group *own, const tfd__error *e) {
  const tfd__nccl_mark *oldest = &own->marks[own->marks_first];
  int i;

  for (i = 0; own->marks_n > 0 && i < own->local; i++) {
    tfd__nccl_rank *r = &own->ranks[i];

    r->native->spoil(r->device->stream, oldest->seq[i], e);
  }
}

/* Streams go on once their kernels have ended; one that does not belongs to a
** GPU that is lost. */
static void see_streams_go_on(tfd__nccl_group *own) {
  tfd__deadline until = tfd__deadline_in(TFD_NCCL_END_SECONDS);
  int i;

  for (i = 0; i < own->local; i++) {
    tfd__nccl_rank *r = &own->ranks[i];
    const tfd__driver *cu = driver_of(r);
    CUresult result = CUDA_ERROR_NOT_READY;
    int looks = 0;

    if (r->native->use(r->native->ordinal) != TFD_OK) continue;
    if (cu->cuEventRecord(r->over, r->stream) != CUDA_SUCCESS) continue;
    while ((result = cu->cuEventQuery(r->over)) == CUDA_ERROR_NOT_READY &&
           tfd__now_ns() < until) {
      pause_a_little(looks++);
    }
    if (result == CUDA_ERROR_NOT_READY) r->native->give_up(r->device->stream);
  }
}

/* The lock is let go of meanwhile: N1. */
static void abort_all(tfd__nccl_group *own) {
  ncclComm_t comms[TFD_MAX_LOCAL_RANKS];
  int i;

  own->there = false;
  own->ending = true;
  for (i = 0; i < own->local; i++) {
    comms[i] = own->ranks[i].comm;
    own->ranks[i].comm = NULL;
  }
  tfd__unlock(&tfd__nccl.lock);
  for (i = 0; i < own->local; i++) {
    if (comms[i] != NULL) (void)tfd__nc.ncclCommAbort(comms[i]);
  }
  see_streams_go_on(own);
  tfd__lock(&tfd__nccl.lock);
  own->marks_n = 0;
  own->ending = false;
  tfd__cond_broadcast(&tfd__nccl.changed);
}

int tfd__nccl_break(tfd__nccl_group *own) {
  tfd__error now = {0};
  int rc;

  tfd__error_save(&now);
  if (own->control != NULL &&
      (now.exit == TFD_EXIT_ANY || now.exit == TFD_EXIT_INTERNAL)) {
    now.exit = TFD_EXIT_PEER_FAILED; /* a start anew may help */
  }
  spoil(own, &now);
  if (own->control != NULL) {
    (void)tfd__error_raise(&now);
    (void)tfd__group_fail(own->control);
  }
  abort_all(own);
  rc = tfd__error_raise(&now);
  tfd__error_free(&now);
  return rc;
}

void tfd__nccl_group_free(tfd__nccl_group *own) {
  tfd__deadline until = tfd__deadline_in(TFD_NCCL_END_SECONDS);
  int i;

  for (i = 0; i < own->local && own->there; i++) {
    (void)tfd__nc.ncclCommFinalize(own->ranks[i].comm);
  }
  if (own->there && tfd__nccl_settle(own, until, "ending NCCL") == TFD_OK) {
    for (i = 0; i < own->local; i++) {
      (void)tfd__nc.ncclCommDestroy(own->ranks[i].comm);
    }
  } else if (own->there) {
    abort_all(own);
  }
  for (i = 0; i < own->local; i++) free_rank(own, i);
  tfd__free(own);
}
