/* A CUDA stream with positions. Work is launched inside submit; marks (CUDA
** events with the position they stand behind) are recorded only when somebody
** asks how far the stream is, so a step in steady state records none.
**
** Values that a kernel cannot take (a label out of range) are noted in words
** of mapped host memory (refuse.c), one for each such launch, read when its
** position has passed. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/stream.h"
#include "base/memory.h"
#include "base/thread.h"

enum {
  SPIN_NS = 1000000, /* waits end by then, mostly */
  SLEEP_NS = 20000,
  RETURN_NS = 20000000 /* the caller looks for interrupts */
};

static cuda_stream *of(tfd__stream *s) {
  return tfd__cuda_stream_of(s);
}

static uint64_t taken(const cuda_stream *s) {
  return tfd__cuda_taken(s);
}

/* --- life ----------------------------------------------------------------- */

static int make(cuda_stream *s) {
  pthread_mutexattr_t kind;
  int i;

  pthread_mutexattr_init(&kind);
  pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&s->lock, &kind);
  pthread_mutexattr_destroy(&kind);
  pthread_mutex_init(&s->told, NULL);
  s->in.given_up = &s->given_up;
  s->out.given_up = &s->given_up;
  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING),
      "making a stream"));
  TFD_TRY(tfd__cuda_refusals_open(s));
  for (i = 0; i < MARKS; i++) {
    TFD_TRY(tfd__cuda_check(
        tfd__cu.cuEventCreate(&s->marks[i].event, CU_EVENT_DISABLE_TIMING),
        "making an event"));
  }
  return TFD_OK;
}

int tfd__cuda_stream_new(const tfd__stream_config *config,
                         tfd__stream **stream_p) {
  cuda_stream *s = tfd__alloc_aligned(64, sizeof *s);
  int rc;

  if (s == NULL) return tfd__no_memory(sizeof *s, "stream");
  memset(s, 0, sizeof *s);
  s->config = *config;
  atomic_init(&s->base.taken.wake_at, UINT64_MAX);
  atomic_init(&s->base.done.wake_at, UINT64_MAX);
  rc = make(s);
  if (rc != TFD_OK) {
    tfd__cuda_stream_free(&s->base);
    return rc;
  }
  *stream_p = &s->base;
  return TFD_OK;
}

void tfd__cuda_stream_free(tfd__stream *stream) {
  cuda_stream *s = of(stream);
  int i;

  if (s == NULL) return;
  if (tfd__cuda_use(s->config.ordinal) == TFD_OK) {
    for (i = 0; i < MARKS; i++) {
      if (s->marks[i].event != NULL) {
        (void)tfd__cu.cuEventDestroy(s->marks[i].event);
      }
    }
    if (s->stream != NULL) {
      (void)tfd__cu.cuStreamSynchronize(s->stream);
      tfd__cuda_records_close(s);
      (void)tfd__cu.cuStreamDestroy(s->stream);
    }
    tfd__ring_close(&s->in);
    tfd__ring_close(&s->out);
    tfd__cuda_refusals_close(s);
    if (s->workspace != 0) (void)tfd__cu.cuMemFree(s->workspace);
  }
  tfd__error_free(&s->last_told);
  pthread_mutex_destroy(&s->told);
  pthread_mutex_destroy(&s->lock);
  tfd__free(s);
}

/* --- positions: the lock is held ------------------------------------------ */

/* The device is gone: nothing will come any more, so all has passed. */
static void lose(cuda_stream *s, CUresult result) {
  if (s->lost == CUDA_SUCCESS) {
    s->lost = result;
    s->lost_from = s->passed + 1;
  }
  s->passed = taken(s);
  s->words_passed = s->words_all;
  s->marks_n = 0;
  tfd__ring_drop(&s->out);
}

/* A device that cannot be chosen is gone, too: who waits must not wait on. */
static bool choose(cuda_stream *s) {
  CUresult result = tfd__cuda_choose(s->config.ordinal);

  if (result != CUDA_SUCCESS) lose(s, result);
  return result == CUDA_SUCCESS;
}

static void look(cuda_stream *s) {
  if (s->recording != NULL) return;
  if (atomic_load(&s->given_up) && s->lost == CUDA_SUCCESS) {
    lose(s, CUDA_ERROR_LAUNCH_TIMEOUT);
  }
  while (s->marks_n > 0) {
    mark *m = &s->marks[s->marks_first];
    CUresult result = tfd__cu.cuEventQuery(m->event);

    if (result == CUDA_SUCCESS) result = tfd__ring_hand_out(&s->out, m->seq);
    if (result == CUDA_ERROR_NOT_READY) return;
    if (result != CUDA_SUCCESS) {
      lose(s, result);
      return;
    }
    s->passed = m->seq;
    s->words_passed = m->words;
    s->marks_first = (s->marks_first + 1) % MARKS;
    s->marks_n--;
  }
}

/* A mark behind all that was launched, unless there is one. It stands for the
** positions that are complete: the one that runs launches more. Where there is
** no room the last one moves on: streams that wait for it wait for where it
** was. What was refused before it can be seen behind it. */
static void set_mark(cuda_stream *s) {
  int last = (s->marks_first + s->marks_n + MARKS - 1) % MARKS;
  uint64_t seq = taken(s) - s->running;
  mark *m = NULL;
  CUresult result;

  if (s->recording != NULL) return;
  if (s->passed == seq && s->words_passed == s->words_all) return;
  if (s->marks_n > 0 && s->marks[last].seq == seq &&
      s->marks[last].words == s->words_all &&
      (s->marks[last].said || !s->shared)) {
    return;
  }
  result = s->shared ? tfd__cuda_say(s) : CUDA_SUCCESS;
  if (s->marks_n == MARKS) {
    s->marks_n--;
  } else {
    last = (last + 1) % MARKS;
  }
  m = &s->marks[last];
  if (result == CUDA_SUCCESS) {
    result = tfd__cu.cuEventRecord(m->event, s->stream);
  }
  if (result != CUDA_SUCCESS) {
    lose(s, result);
    return;
  }
  m->seq = seq;
  m->words = s->words_all;
  m->said = s->shared;
  s->marks_n++;
}

uint64_t tfd__cuda_poll(tfd__stream *stream) {
  cuda_stream *s = of(stream);
  uint64_t passed = 0;

  pthread_mutex_lock(&s->lock);
  if (choose(s)) {
    look(s);
    if (s->marks_n == 0) set_mark(s);
  }
  passed = s->passed;
  pthread_mutex_unlock(&s->lock);
  return passed;
}

/* True when seq has passed, and so many words. */
static bool look_for(cuda_stream *s, uint64_t seq, uint64_t words) {
  bool there = false;

  pthread_mutex_lock(&s->lock);
  if (choose(s)) {
    look(s);
    if (s->passed < seq || s->words_passed < words) {
      int last = (s->marks_first + s->marks_n + MARKS - 1) % MARKS;

      if (s->marks_n == 0 || s->marks[last].seq < seq ||
          s->marks[last].words < words) {
        set_mark(s);
      }
    }
  }
  there = s->passed >= seq && s->words_passed >= words;
  pthread_mutex_unlock(&s->lock);
  return there;
}

static void wait_for(cuda_stream *s, uint64_t seq, uint64_t words,
                     tfd__deadline until) {
  int64_t start = tfd__now_ns();
  int64_t now = start;

  while (!look_for(s, seq, words) && now < until && now - start < RETURN_NS) {
    now = tfd__now_ns();
    if (now - start < SPIN_NS) {
      sched_yield();
    } else {
      struct timespec nap = {.tv_nsec = SLEEP_NS};

      nanosleep(&nap, NULL);
    }
  }
}

void tfd__cuda_wait(tfd__stream *stream, uint64_t seq, tfd__deadline until) {
  wait_for(of(stream), seq, 0, until);
}

void tfd__cuda_wait_words(cuda_stream *s, uint64_t words) {
  while (s->words_passed < words) wait_for(s, 0, words, TFD_FOREVER);
}

/* --- taking work ---------------------------------------------------------- */

static void take(cuda_stream *s, const tfd__work *work, uint64_t *seq_p) {
  uint64_t seq = taken(s) + 1;
  uint64_t words = s->words_all;

  atomic_store(&s->base.taken.value, seq);
  s->running = true;
  s->config.run(s->config.owner, work, seq);
  s->running = false;
  if (s->asked && s->words_all > words) set_mark(s);
  *seq_p = seq;
}

int tfd__cuda_submit(tfd__stream *stream, const tfd__work *work,
                     uint64_t *seq_p) {
  cuda_stream *s = of(stream);

  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  pthread_mutex_lock(&s->lock);
  take(s, work, seq_p);
  pthread_mutex_unlock(&s->lock);
  return TFD_OK;
}

/* A mark of `on` at on_seq or later, for others to wait for; NULL where that
** has passed. What a lost device made is no input of others. *range_p: what may
** have been refused before. */
static int mark_for(cuda_stream *on, uint64_t on_seq, CUevent *event_p,
                    tfd__refused *range_p) {
  int rc = TFD_OK;
  int i;

  pthread_mutex_lock(&on->lock);
  on->shared = true;
  if (choose(on)) look(on);
  if (on->passed < on_seq) {
    set_mark(on);
    for (i = 0; i < on->marks_n && *event_p == NULL; i++) {
      mark *m = &on->marks[(on->marks_first + i) % MARKS];

      if (m->seq >= on_seq && m->said) *event_p = m->event;
    }
  }
  *range_p = tfd__cuda_losses(on, on_seq, NULL);
  rc = tfd__cuda_lost(on->lost, on->config.name);
  pthread_mutex_unlock(&on->lock);
  return rc;
}

int tfd__cuda_after(tfd__stream *stream, tfd__stream *on, uint64_t on_seq,
                    const tfd__work *work, uint64_t *seq_p) {
  cuda_stream *s = of(stream);
  CUevent event = NULL;
  tfd__refused range = {0};
  int rc = TFD_OK;

  TFD_TRY(mark_for(of(on), on_seq, &event, &range));
  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  pthread_mutex_lock(&s->lock);
  if (event != NULL) {
    rc = tfd__cuda_check(tfd__cu.cuStreamWaitEvent(s->stream, event, 0),
                         "waiting for another GPU");
  }
  if (rc == TFD_OK) take(s, work, seq_p);
  if (rc == TFD_OK) rc = tfd__cuda_heed(s, of(on), &range);
  pthread_mutex_unlock(&s->lock);
  return rc;
}

/* --- for others on the same GPU ------------------------------------------- */

static void take_stream(tfd__stream *stream) {
  pthread_mutex_lock(&of(stream)->lock);
}

static void let_go_of_stream(tfd__stream *stream) {
  pthread_mutex_unlock(&of(stream)->lock);
}

static void spoil(tfd__stream *stream, uint64_t seq, const tfd__error *reason) {
  cuda_stream *s = of(stream);

  pthread_mutex_lock(&s->told);
  if (s->spoiled == 0) {
    s->spoiled = seq;
    s->spoiled_code = reason->code;
    s->spoiled_exit = reason->exit;
    (void)snprintf(s->spoiled_reason, sizeof s->spoiled_reason, "%s",
                   reason->message == NULL ? "" : reason->message);
    tfd__cuda_note(s, seq);
  }
  pthread_mutex_unlock(&s->told);
}

static int record_mark(tfd__stream *stream, CUevent event, const void *own,
                       tfd__refused *range_p) {
  cuda_stream *s = of(stream);
  CUresult result = CUDA_SUCCESS;

  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  pthread_mutex_lock(&s->lock);
  s->shared = true;
  *range_p = tfd__cuda_losses(s, taken(s), own);
  if (range_p->to > 0) result = tfd__cuda_say(s);
  if (result == CUDA_SUCCESS) {
    result = tfd__cu.cuEventRecord(event, s->stream);
  }
  pthread_mutex_unlock(&s->lock);
  return tfd__cuda_check(result, s->config.name);
}

static int wait_mark(tfd__stream *stream, CUevent event, const void *own) {
  cuda_stream *s = of(stream);
  CUresult result;

  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  pthread_mutex_lock(&s->lock);
  result = tfd__cu.cuStreamWaitEvent(s->stream, event, 0);
  s->may_stop = true;
  if (s->whose != own) s->follows_before = s->follows;
  s->whose = own;
  s->follows = taken(s) + 1;
  pthread_mutex_unlock(&s->lock);
  return tfd__cuda_check(result, s->config.name);
}

static int make_room(tfd__stream *stream, int n) {
  cuda_stream *s = of(stream);
  int rc;

  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  pthread_mutex_lock(&s->lock);
  rc = tfd__cuda_make_room(s, n, "waiting for another GPU");
  pthread_mutex_unlock(&s->lock);
  return rc;
}

static uint64_t may_refuse(tfd__stream *stream, const void *own) {
  cuda_stream *s = of(stream);
  uint64_t seq = 0;

  pthread_mutex_lock(&s->lock);
  s->asked = true;
  seq = tfd__cuda_may_refuse(s, own);
  pthread_mutex_unlock(&s->lock);
  return seq;
}

static int heed(tfd__stream *stream, tfd__stream *other,
                const tfd__refused *range) {
  cuda_stream *s = of(stream);
  int rc;

  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  pthread_mutex_lock(&s->lock);
  rc = tfd__cuda_heed(s, of(other), range);
  pthread_mutex_unlock(&s->lock);
  return rc;
}

static void give_up(tfd__stream *stream) {
  atomic_store(&of(stream)->given_up, true);
}

const void *tfd__cuda_native_of(tfd__stream *stream) {
  cuda_stream *s = of(stream);

  pthread_mutex_lock(&s->lock);
  if (s->native.bytes == 0) {
    s->native =
        (tfd__cuda_native){.bytes = sizeof s->native,
                           .ordinal = s->config.ordinal,
                           .device = tfd__cuda_gpu(s->config.ordinal)->device,
                           .stream = s->stream,
                           .word = s->stop + sizeof *s->first,
                           .driver = &tfd__cu,
                           .check = tfd__cuda_check,
                           .use = tfd__cuda_use,
                           .spoil = spoil,
                           .take = take_stream,
                           .let_go = let_go_of_stream,
                           .mark = record_mark,
                           .wait = wait_mark,
                           .heed = heed,
                           .make_room = make_room,
                           .may_refuse = may_refuse,
                           .give_up = give_up};
  }
  pthread_mutex_unlock(&s->lock);
  return &s->native;
}

/* --- copies --------------------------------------------------------------- */

static CUdeviceptr at(const void *data) {
  return (CUdeviceptr)(uintptr_t)data;
}

/* What is the host's, or waits, can be no part of a record. */
static int check_runs(const cuda_stream *s, const char *what) {
  if (TFD_LIKELY(s->recording == NULL)) return TFD_OK;
  return tfd__fail(TFD_FAILED_PRECONDITION, "%s cannot be recorded", what);
}

int tfd__cuda_copy_in(tfd__stream *stream, void *to, const void *host_from,
                      size_t bytes) {
  cuda_stream *s = of(stream);
  int rc;

  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  pthread_mutex_lock(&s->lock);
  rc = check_runs(s, "copying to the GPU");
  if (rc == TFD_OK) {
    rc = tfd__ring_in(&s->in, s->stream, to, host_from, bytes);
  }
  pthread_mutex_unlock(&s->lock);
  return rc;
}

int tfd__cuda_copy_out(tfd__stream *stream, void *host_to, const void *from,
                       size_t bytes) {
  cuda_stream *s = of(stream);
  int rc;

  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  pthread_mutex_lock(&s->lock);
  rc = check_runs(s, "copying from the GPU");
  if (rc == TFD_OK) {
    rc = tfd__ring_out(&s->out, s->stream, taken(s), host_to, from, bytes);
  }
  pthread_mutex_unlock(&s->lock);
  return rc;
}

int tfd__cuda_copy_across(tfd__stream *stream, void *to, int from_ordinal,
                          const void *from, size_t bytes) {
  cuda_stream *s = of(stream);
  CUresult result;

  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  if (tfd__cuda_gpu(from_ordinal)->device ==
      tfd__cuda_gpu(s->config.ordinal)->device) {
    result = tfd__cu.cuMemcpyDtoDAsync(at(to), at(from), bytes, s->stream);
  } else {
    result = tfd__cu.cuMemcpyPeerAsync(
        at(to), tfd__cuda_gpu(s->config.ordinal)->context, at(from),
        tfd__cuda_gpu(from_ordinal)->context, bytes, s->stream);
  }
  return tfd__cuda_check(result, "copying between GPUs");
}

/* --- for kernels ---------------------------------------------------------- */

CUstream tfd__cuda_stream(const tfd__call *call) {
  return of(call->stream)->stream;
}

int tfd__cuda_ordinal(const tfd__call *call) {
  return of(call->stream)->config.ordinal;
}

int tfd__cuda_scratch(const tfd__call *call, size_t bytes, void **data_p) {
  cuda_stream *s = of(call->stream);
  CUdeviceptr data = 0;
  const int most = (int)(sizeof s->scratch / sizeof s->scratch[0]);

  if (s->scratch_n == most) {
    return tfd__fail(TFD_INTERNAL, "%s: too many pieces of scratch memory",
                     call->name);
  }
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuMemAllocAsync(&data, bytes > 0 ? bytes : 1, s->stream),
      "scratch memory of the GPU"));
  s->scratch[s->scratch_n++] = data;
  *data_p = (void *)(uintptr_t)data;
  return TFD_OK;
}

void tfd__cuda_free_scratch(tfd__stream *stream) {
  cuda_stream *s = of(stream);

  while (s->scratch_n > 0) {
    (void)tfd__cu.cuMemFreeAsync(s->scratch[--s->scratch_n], s->stream);
  }
}

int tfd__cuda_workspace(const tfd__call *call, size_t bytes, void **data_p) {
  cuda_stream *s = of(call->stream);

  if (bytes > s->workspace_bytes) {
    TFD_TRY(check_runs(s, "more workspace"));
    /* Freeing waits for what still uses the old piece. */
    if (s->workspace != 0) (void)tfd__cu.cuMemFree(s->workspace);
    s->workspace = 0;
    s->workspace_bytes = 0;
    TFD_TRY(tfd__cuda_check(tfd__cu.cuMemAlloc(&s->workspace, bytes),
                            "workspace of the GPU"));
    s->workspace_bytes = bytes;
  }
  *data_p = (void *)(uintptr_t)s->workspace;
  return TFD_OK;
}
