/* A CUDA stream with positions. Work is launched inside submit; marks (CUDA
** events with the position they stand behind) are recorded only when somebody
** asks how far the stream is, so a step in steady state records none.
**
** Values that a kernel cannot take (a label out of range) are noted in words
** of mapped host memory, one for each such launch, read when its position has
** passed. The kernel leaves the output of that element alone. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cuda.h"
#include "backend/lay.h"
#include "base/memory.h"
#include "base/thread.h"

enum {
  MARKS = 64,
  WORDS = 512,
  SPIN_NS = 1000000, /* waits end by then, mostly */
  SLEEP_NS = 20000,
  RETURN_NS = 20000000 /* the caller looks for interrupts */
};

#define NOTHING UINT64_MAX

typedef struct mark {
  uint64_t seq;
  CUevent event;
} mark;

typedef struct word {
  uint64_t seq;
  const char *name; /* the op's, static */
  const char *argument;
  int64_t bound;
  int64_t dims[TFD_MAX_RANK]; /* of the argument */
  int rank;
  int replica;
  int line;
  const char *file;
  const char *note;
} word;

typedef struct cuda_stream {
  tfd__stream base;
  tfd__stream_config config;
  CUstream stream;
  pthread_mutex_t lock; /* recursive: kernels run inside submit */
  uint64_t passed;
  mark marks[MARKS]; /* a ring, oldest first */
  int marks_first;
  int marks_n;
  uint64_t *values; /* mapped: what kernels noted, NOTHING = nothing */
  CUdeviceptr values_device;
  word words[WORDS]; /* a ring of the same places */
  int words_first;
  int words_n;
  CUresult lost;    /* the device no longer answers */
  uint64_t spoiled; /* from here on there are no results; 0 = there are */
  tfd_status spoiled_code;
  char spoiled_reason[512];
  tfd__cuda_native native;
  CUdeviceptr scratch[16]; /* of the running kernel, freed in stream order */
  int scratch_n;
  CUdeviceptr workspace;
  size_t workspace_bytes;
} cuda_stream;

static cuda_stream *of(tfd__stream *s) {
  return (cuda_stream *)s;
}

/* --- life -------------------------------------------------------------------
 */

static int make(cuda_stream *s) {
  pthread_mutexattr_t kind;
  void *values = NULL;
  int i;

  pthread_mutexattr_init(&kind);
  pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&s->lock, &kind);
  pthread_mutexattr_destroy(&kind);
  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuStreamCreate(&s->stream, CU_STREAM_NON_BLOCKING),
      "making a stream"));
  TFD_TRY(
      tfd__cuda_check(tfd__cu.cuMemHostAlloc(&values, WORDS * sizeof *s->values,
                                             CU_MEMHOSTALLOC_DEVICEMAP),
                      "mapped memory"));
  s->values = values;
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuMemHostGetDevicePointer(&s->values_device, values, 0),
      "mapped memory"));
  for (i = 0; i < WORDS; i++) s->values[i] = NOTHING;
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
      (void)tfd__cu.cuStreamDestroy(s->stream);
    }
    if (s->values != NULL) (void)tfd__cu.cuMemFreeHost(s->values);
    if (s->workspace != 0) (void)tfd__cu.cuMemFree(s->workspace);
  }
  pthread_mutex_destroy(&s->lock);
  tfd__free(s);
}

/* --- positions: the lock is held ---------------------------------------------
 */

static uint64_t taken(const cuda_stream *s) {
  return tfd__counter_get(&s->base.taken);
}

/* The device is gone: nothing will come any more, so all has passed. */
static void lose(cuda_stream *s, CUresult result) {
  if (s->lost == CUDA_SUCCESS) s->lost = result;
  s->passed = taken(s);
  s->marks_n = 0;
}

static void look(cuda_stream *s) {
  while (s->marks_n > 0) {
    mark *m = &s->marks[s->marks_first];
    CUresult result = tfd__cu.cuEventQuery(m->event);

    if (result == CUDA_ERROR_NOT_READY) return;
    if (result != CUDA_SUCCESS) {
      lose(s, result);
      return;
    }
    s->passed = m->seq;
    s->marks_first = (s->marks_first + 1) % MARKS;
    s->marks_n--;
  }
}

/* A mark behind all that was taken, unless there is one. */
static void set_mark(cuda_stream *s) {
  int last = (s->marks_first + s->marks_n + MARKS - 1) % MARKS;
  mark *m = NULL;
  CUresult result;

  if (s->passed == taken(s)) return;
  if (s->marks_n > 0 && s->marks[last].seq == taken(s)) return;
  if (s->marks_n == MARKS) return; /* the next look will make room */
  m = &s->marks[(last + 1) % MARKS];
  result = tfd__cu.cuEventRecord(m->event, s->stream);
  if (result != CUDA_SUCCESS) {
    lose(s, result);
    return;
  }
  m->seq = taken(s);
  s->marks_n++;
}

uint64_t tfd__cuda_poll(tfd__stream *stream) {
  cuda_stream *s = of(stream);
  uint64_t passed = 0;

  pthread_mutex_lock(&s->lock);
  if (tfd__cuda_use(s->config.ordinal) == TFD_OK) {
    look(s);
    if (s->marks_n == 0) set_mark(s);
  }
  passed = s->passed;
  pthread_mutex_unlock(&s->lock);
  return passed;
}

/* True when seq has passed. */
static bool look_for(cuda_stream *s, uint64_t seq) {
  bool there = false;

  pthread_mutex_lock(&s->lock);
  if (tfd__cuda_use(s->config.ordinal) == TFD_OK) {
    look(s);
    if (s->passed < seq) {
      int last = (s->marks_first + s->marks_n + MARKS - 1) % MARKS;

      if (s->marks_n == 0 || s->marks[last].seq < seq) set_mark(s);
    }
  }
  there = s->passed >= seq;
  pthread_mutex_unlock(&s->lock);
  return there;
}

void tfd__cuda_wait(tfd__stream *stream, uint64_t seq, tfd__deadline until) {
  cuda_stream *s = of(stream);
  int64_t start = tfd__now_ns();
  int64_t now = start;

  while (!look_for(s, seq) && now < until && now - start < RETURN_NS) {
    now = tfd__now_ns();
    if (now - start < SPIN_NS) {
      sched_yield();
    } else {
      struct timespec nap = {.tv_nsec = SLEEP_NS};

      nanosleep(&nap, NULL);
    }
  }
}

/* --- taking work
 * -------------------------------------------------------------- */

static void free_scratch(cuda_stream *s) {
  while (s->scratch_n > 0) {
    (void)tfd__cu.cuMemFreeAsync(s->scratch[--s->scratch_n], s->stream);
  }
}

static void take(cuda_stream *s, const tfd__work *work, uint64_t *seq_p) {
  uint64_t seq = taken(s) + 1;

  atomic_store(&s->base.taken.value, seq);
  s->config.run(s->config.owner, work, seq);
  free_scratch(s);
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

/* A mark of `on` at on_seq or later, for others to wait for. */
static CUevent mark_for(cuda_stream *on, uint64_t on_seq) {
  CUevent event = NULL;
  int i;

  pthread_mutex_lock(&on->lock);
  if (tfd__cuda_use(on->config.ordinal) == TFD_OK) look(on);
  if (on->passed < on_seq) {
    set_mark(on);
    for (i = 0; i < on->marks_n && event == NULL; i++) {
      mark *m = &on->marks[(on->marks_first + i) % MARKS];

      if (m->seq >= on_seq) event = m->event;
    }
  }
  pthread_mutex_unlock(&on->lock);
  return event;
}

int tfd__cuda_after(tfd__stream *stream, tfd__stream *on, uint64_t on_seq,
                    const tfd__work *work, uint64_t *seq_p) {
  cuda_stream *s = of(stream);
  CUevent event = mark_for(of(on), on_seq);
  int rc = TFD_OK;

  TFD_TRY(tfd__cuda_use(s->config.ordinal));
  pthread_mutex_lock(&s->lock);
  if (event != NULL) {
    rc = tfd__cuda_check(tfd__cu.cuStreamWaitEvent(s->stream, event, 0),
                         "waiting for another GPU");
  }
  if (rc == TFD_OK) take(s, work, seq_p);
  pthread_mutex_unlock(&s->lock);
  return rc;
}

/* --- for others on the same GPU
 * ------------------------------------------------- */

static void spoil(tfd__stream *stream, uint64_t seq, tfd_status code,
                  const char *reason) {
  cuda_stream *s = of(stream);

  pthread_mutex_lock(&s->lock);
  if (s->spoiled == 0) {
    s->spoiled = seq;
    s->spoiled_code = code;
    (void)snprintf(s->spoiled_reason, sizeof s->spoiled_reason, "%s", reason);
  }
  pthread_mutex_unlock(&s->lock);
}

static void give_up(tfd__stream *stream) {
  cuda_stream *s = of(stream);

  pthread_mutex_lock(&s->lock);
  lose(s, CUDA_ERROR_LAUNCH_TIMEOUT);
  pthread_mutex_unlock(&s->lock);
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
                           .driver = &tfd__cu,
                           .use = tfd__cuda_use,
                           .spoil = spoil,
                           .give_up = give_up};
  }
  pthread_mutex_unlock(&s->lock);
  return &s->native;
}

/* --- copies
 * -------------------------------------------------------------------- */

static CUdeviceptr at(const void *data) {
  return (CUdeviceptr)(uintptr_t)data;
}

/* Pageable memory: the driver has copied it to its own when this returns. */
int tfd__cuda_copy_in(tfd__stream *stream, void *to, const void *host_from,
                      size_t bytes) {
  TFD_TRY(tfd__cuda_use(of(stream)->config.ordinal));
  return tfd__cuda_check(
      tfd__cu.cuMemcpyHtoDAsync(at(to), host_from, bytes, of(stream)->stream),
      "copying to the GPU");
}

int tfd__cuda_copy_out(tfd__stream *stream, void *host_to, const void *from,
                       size_t bytes) {
  TFD_TRY(tfd__cuda_use(of(stream)->config.ordinal));
  return tfd__cuda_check(
      tfd__cu.cuMemcpyDtoHAsync(host_to, at(from), bytes, of(stream)->stream),
      "copying from the GPU");
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

/* --- for kernels
 * ---------------------------------------------------------------- */

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

int tfd__cuda_workspace(const tfd__call *call, size_t bytes, void **data_p) {
  cuda_stream *s = of(call->stream);

  if (bytes > s->workspace_bytes) {
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

/* --- values that kernels refuse
 * --------------------------------------------------- */

int tfd__cuda_error_word(const tfd__call *call, const char *argument,
                         const tfd__view *values, int64_t bound,
                         uint64_t **word_p) {
  cuda_stream *s = of(call->stream);
  int place = (s->words_first + s->words_n) % WORDS;

  /* Full: the oldest are read when they have passed. */
  if (s->words_n == WORDS) {
    tfd__cuda_wait(call->stream, s->words[place].seq, TFD_FOREVER);
    while (s->words_n > 0 && s->words[s->words_first].seq <= s->passed &&
           s->values[s->words_first] == NOTHING) {
      s->words_first = (s->words_first + 1) % WORDS;
      s->words_n--;
    }
    if (s->words_n == WORDS) {
      return tfd__fail(TFD_ABORTED, "%s: earlier work of %s failed", call->name,
                       s->config.name);
    }
  }
  s->words[place] = (word){.seq = taken(s),
                           .name = call->name,
                           .argument = argument,
                           .bound = bound,
                           .rank = values->rank,
                           .replica = call->replica,
                           .line = call->line,
                           .file = call->file,
                           .note = call->note};
  memcpy(s->words[place].dims, values->dims, sizeof s->words[place].dims);
  s->words_n++;
  *word_p = (uint64_t *)(uintptr_t)s->values_device + place;
  return TFD_OK;
}

/* The texts of the CPU's kernels. */
static void tell(const word *w, int64_t at, int64_t value) {
  char text[TFD_POSITION_TEXT];

  if (strcmp(w->argument, "labels") == 0) {
    char replica[32] = "";

    if (w->replica >= 0) {
      (void)snprintf(replica, sizeof replica, " of replica %d", w->replica);
    }
    (void)tfd__fail(TFD_INVALID_ARGUMENT,
                    "%s: label %lld at position %lld%s is outside 0..%lld "
                    "(logits have %lld classes; labels count from 0)",
                    w->name, (long long)value, (long long)at, replica,
                    (long long)w->bound - 1, (long long)w->bound);
    return;
  }
  (void)tfd__fail(TFD_INVALID_ARGUMENT, "%s: %s%s = %lld is outside [0, %lld)",
                  w->name, w->argument,
                  tfd__position_text(w->dims, w->rank, at, text),
                  (long long)value, (long long)w->bound);
}

static int raise_word(const word *w, uint64_t noted) {
  char where[256] = "";

  if (w->file != NULL && w->line > 0) {
    (void)snprintf(where, sizeof where, "%s:%d", w->file, w->line);
  }
  tell(w, (int64_t)(noted >> 32), (int32_t)(uint32_t)noted);
  (void)tfd__error_set_place(w->replica, where);
  (void)tfd__error_set_note(w->note);
  return tfd__blame(w->name, w->argument, w->bound);
}

int tfd__cuda_failed(tfd__stream *stream, uint64_t *seq_p) {
  cuda_stream *s = of(stream);
  int rc = TFD_OK;

  pthread_mutex_lock(&s->lock);
  while (rc == TFD_OK && s->words_n > 0 &&
         s->words[s->words_first].seq <= s->passed) {
    const word *w = &s->words[s->words_first];
    uint64_t value = s->values[s->words_first];

    if (value != NOTHING) {
      s->values[s->words_first] = NOTHING;
      *seq_p = w->seq;
      rc = raise_word(w, value);
    }
    s->words_first = (s->words_first + 1) % WORDS;
    s->words_n--;
  }
  if (rc == TFD_OK && s->spoiled != 0 && s->spoiled <= s->passed) {
    *seq_p = s->spoiled;
    s->spoiled = 0;
    rc = tfd__fail(s->spoiled_code, "%s", s->spoiled_reason);
  }
  if (rc == TFD_OK && s->lost != CUDA_SUCCESS) {
    *seq_p = s->passed;
    rc = tfd__cuda_check(s->lost, s->config.name);
  }
  pthread_mutex_unlock(&s->lock);
  return rc;
}
