/* A back end for specs: devices that are as far from the host as they can be.
**
** - Memory is mapped twice. The addresses that the library sees cannot be
**   accessed; kernels and copies work on the second mapping.
** - Nothing runs when it is launched. A thread for each device runs what
**   somebody waits for, and otherwise only what lies far back: how far changes
**   from piece to piece.
** - Kernels are the processor's. One that fails says so when it runs; what was
**   launched behind it, and on devices that wait for it, is then dropped.
**
** TFDIST_SLOW_DEVICES=n (4), TFDIST_SLOW_TYPE=GPU (SLOW) give number and type
** of the devices. TFDIST_SLOW_WITHOUT=add,matmul leaves kernels out.
** TFDIST_SLOW_FAIL=d:n lets the n-th kernel from now on device d fail, as
** slow_fail_at does; TFDIST_SLOW_REFUSE=text makes the plug-in refuse, and
** TFDIST_SLOW_ABI=n belong to another version. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "backend/plugin.h"

#define DEVICES 16
#define MEMORY ((size_t)4 << 30)
#define PAGE ((size_t)4096)
#define LAG 40 /* pieces that may lie unrun when nobody waits, at most */
#define SLICE_NS 20000000
#define HOLD_S 300 /* ends a hang, on any machine */

static const tfd__plugin_host *host;

/* --- memory --------------------------------------------------------------- */

/* A piece that is in use; in the order of addresses. */
typedef struct span {
  size_t begin;
  size_t end;
  struct span *next;
} span;

typedef struct memory {
  char *seen;   /* what the library is given: no access */
  char *inside; /* the same memory, for kernels */
  span *spans;
} memory;

typedef enum kind { KERNEL, TO_DEVICE, TO_HOST, ACROSS, AFTER, END } kind;

typedef struct slow_stream slow_stream;

/* Something launched. What it points to lies behind it. */
typedef struct launch {
  struct launch *next;
  kind kind;
  uint64_t seq; /* the piece it belongs to */
  tfd__call call;
  void *to;
  const void *from;
  size_t bytes;
  slow_stream *on; /* AFTER: has passed on_seq */
  uint64_t on_seq;
  bool known; /* the library was told already that it failed */
} launch;

/* Pieces from `first` on have no results; up to `last`, once it was said. */
typedef struct failure {
  tfd__error error;
  uint64_t first;
  uint64_t last;
  bool said;
} failure;

struct slow_stream {
  tfd__stream base;
  tfd__stream_config config;
  pthread_mutex_t order; /* held while a piece is taken */
  uint64_t taking;       /* the piece that is being taken */
  /* Under `lock`: */
  launch *queue;
  launch **queue_end;
  uint64_t finished;
  uint64_t wanted; /* somebody waits for it */
  failure failure;
  int64_t fail_in; /* kernels until one fails, 0 = none does */
  bool started;
  bool stop;
  pthread_t thread;
};

/* One lock for all: these devices need not be fast. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static memory memories[DEVICES];
static slow_stream *streams[DEVICES];
static int64_t fail_at[DEVICES];
static int devices = 4;
static slow_stream *held; /* runs nothing; the others run all at once */
static time_t held_until;

static int no_memory(const char *what) {
  return host->fail(TFD_RESOURCE_EXHAUSTED, "slow: no memory for %s", what);
}

/* Memory of the device, mapped twice at first use. */
static int map_memory(memory *m) {
  int file = -1;
  void *seen = NULL;
  void *inside = NULL;

  if (m->seen != NULL) return TFD_OK;
  file = memfd_create("tfdist_slow", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, (off_t)MEMORY) != 0) {
    return no_memory("a device");
  }
  seen = mmap(NULL, MEMORY, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
  inside = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_NORESERVE, file, 0);
  (void)close(file);
  if (seen == MAP_FAILED || inside == MAP_FAILED) return no_memory("a device");
  m->seen = seen;
  m->inside = inside;
  return TFD_OK;
}

static int slow_alloc(int ordinal, size_t bytes, void **data_p) {
  memory *m = &memories[ordinal];
  span *s = malloc(sizeof *s);
  span **link = &m->spans;
  size_t begin = 0;
  int rc;

  if (s == NULL) return no_memory("a block");
  bytes = (bytes + PAGE - 1) / PAGE * PAGE;
  pthread_mutex_lock(&lock);
  rc = map_memory(m);
  while (rc == TFD_OK && *link != NULL && (*link)->begin - begin < bytes) {
    begin = (*link)->end;
    link = &(*link)->next;
  }
  if (rc == TFD_OK && MEMORY - begin < bytes) rc = no_memory("a block");
  if (rc == TFD_OK) {
    *s = (span){.begin = begin, .end = begin + bytes, .next = *link};
    *link = s;
    *data_p = m->seen + begin;
  } else {
    free(s);
  }
  pthread_mutex_unlock(&lock);
  return rc;
}

static void slow_free(int ordinal, void *data, size_t bytes) {
  memory *m = &memories[ordinal];
  size_t begin = (size_t)((char *)data - m->seen);
  span **link = &m->spans;
  span *s = NULL;

  (void)bytes;
  pthread_mutex_lock(&lock);
  while ((*link)->begin != begin) link = &(*link)->next;
  s = *link;
  *link = s->next;
  pthread_mutex_unlock(&lock);
  /* What is used after this reads zeros. */
  (void)madvise(m->inside + begin, s->end - begin, MADV_REMOVE);
  free(s);
}

/* Where kernels find what the library calls p. */
static void *inside(int ordinal, const void *p) {
  const memory *m = &memories[ordinal];

  if (m->seen == NULL || (const char *)p < m->seen ||
      (const char *)p > m->seen + MEMORY) {
    return NULL;
  }
  return m->inside + ((const char *)p - m->seen);
}

/* --- launches ------------------------------------------------------------- */

static slow_stream *mine(tfd__stream *stream) {
  return (slow_stream *)(void *)stream;
}

static void add(slow_stream *s, launch *l) {
  l->seq = s->taking;
  l->next = NULL;
  pthread_mutex_lock(&lock);
  *s->queue_end = l;
  s->queue_end = &l->next;
  pthread_mutex_unlock(&lock);
}

static launch *launch_new(kind what, size_t more) {
  launch *l = calloc(1, sizeof *l + more);

  if (l == NULL) {
    (void)no_memory("a launch");
    return NULL;
  }
  l->kind = what;
  return l;
}

static int launch_kernel(const tfd__call *call, tfd__kernel kernel) {
  slow_stream *s = mine(call->stream);
  size_t views = (size_t)(call->in_n + call->out_n) * sizeof *call->views;
  size_t ints = (size_t)call->ints_n * sizeof *call->ints;
  size_t reals = (size_t)call->reals_n * sizeof *call->reals;
  launch *l = launch_new(KERNEL, views + ints + reals);
  char *p = (char *)(l + 1);
  int i;

  if (l == NULL) return TFD_RESOURCE_EXHAUSTED;
  l->call = *call;
  l->call.kernel = kernel;
  l->call.views = (tfd__view *)(void *)p;
  l->call.ints = (int64_t *)(void *)(p + views);
  l->call.reals = (double *)(void *)(p + views + ints);
  if (views > 0) memcpy(p, call->views, views);
  if (ints > 0) memcpy(p + views, call->ints, ints);
  if (reals > 0) memcpy(p + views + ints, call->reals, reals);
  for (i = 0; i < call->in_n + call->out_n; i++) {
    tfd__view *v = &((tfd__view *)(void *)p)[i];

    v->data = inside(s->config.ordinal, v->data);
  }
  add(s, l);
  return TFD_OK;
}

/* Launch any kernel on call->stream: for specs with kernels of their own. */
TFD_API int slow_launch(const tfd__call *call, tfd__kernel kernel);
int slow_launch(const tfd__call *call, tfd__kernel kernel) {
  return launch_kernel(call, kernel);
}

#define KERNEL(name)                                                   \
  static int slow_##name(const tfd__call *call) {                      \
    return launch_kernel(call, host->cpu->kernels[TFD_KERNEL_##name]); \
  }
#include "backend/kernels/all.def"
#undef KERNEL

static tfd__kernel kernels[TFD_KERNEL_N] = {
#define KERNEL(name) [TFD_KERNEL_##name] = slow_##name,
#include "backend/kernels/all.def"
#undef KERNEL
};

static const struct {
  const char *name;
  tfd__kernel_id id;
} names[] = {
#define KERNEL(name) {#name, TFD_KERNEL_##name},
#include "backend/kernels/all.def"
#undef KERNEL
};

static int copy_in(tfd__stream *stream, void *to, const void *from,
                   size_t bytes) {
  slow_stream *s = mine(stream);
  launch *l = launch_new(TO_DEVICE, bytes);

  if (l == NULL) return TFD_RESOURCE_EXHAUSTED;
  memcpy(l + 1, from, bytes);
  l->to = inside(s->config.ordinal, to);
  l->from = l + 1;
  l->bytes = bytes;
  add(s, l);
  return TFD_OK;
}

static int copy_out(tfd__stream *stream, void *to, const void *from,
                    size_t bytes) {
  slow_stream *s = mine(stream);
  launch *l = launch_new(TO_HOST, 0);

  if (l == NULL) return TFD_RESOURCE_EXHAUSTED;
  l->to = to;
  l->from = inside(s->config.ordinal, from);
  l->bytes = bytes;
  add(s, l);
  return TFD_OK;
}

static int copy_across(tfd__stream *stream, void *to, int from_ordinal,
                       const void *from, size_t bytes) {
  slow_stream *s = mine(stream);
  launch *l = launch_new(ACROSS, 0);

  if (l == NULL) return TFD_RESOURCE_EXHAUSTED;
  l->to = inside(s->config.ordinal, to);
  l->from = inside(from_ordinal, from);
  l->bytes = bytes;
  add(s, l);
  return TFD_OK;
}

/* --- running: `lock` is held ---------------------------------------------- */

static struct timespec in_a_slice(void) {
  struct timespec t;

  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  t.tv_nsec += SLICE_NS;
  if (t.tv_nsec >= 1000000000) {
    t.tv_nsec -= 1000000000;
    t.tv_sec++;
  }
  return t;
}

static void want(slow_stream *s, uint64_t seq) {
  if (s->wanted >= seq) return;
  s->wanted = seq;
  pthread_cond_broadcast(&changed);
}

/* Has piece seq no results? */
static bool is_lost(const slow_stream *s, uint64_t seq) {
  const failure *f = &s->failure;

  return f->error.code != TFD_OK && f->first <= seq &&
         (!f->said || seq <= f->last);
}

/* The thread's error is that of piece seq. */
static void fail(slow_stream *s, uint64_t seq) {
  host->error_save(&s->failure.error);
  s->failure.first = seq;
  s->failure.said = false;
}

/* The lock is given back while the kernel runs. */
static void run_kernel(slow_stream *s, launch *l) {
  bool injected = s->fail_in > 0 && --s->fail_in == 0;
  char where[256] = "";
  int rc;

  pthread_mutex_unlock(&lock);
  host->use_threads(s->config.threads);
  rc = injected ? host->fail(TFD_DATA_LOSS, "%s: injected failure on %s",
                             l->call.name, s->config.name)
                : l->call.kernel(&l->call);
  host->scratch_reset();
  pthread_mutex_lock(&lock);
  if (rc == TFD_OK) return;
  if (l->call.file != NULL && l->call.line > 0) {
    (void)snprintf(where, sizeof where, "%s:%d", l->call.file, l->call.line);
  }
  (void)host->error_set_place(l->call.replica, where);
  (void)host->error_set_note(l->call.note);
  fail(s, l->seq);
}

static void pass_on(slow_stream *s, const launch *l) {
  if (l->known || !is_lost(l->on, l->on_seq) || is_lost(s, l->seq)) return;
  (void)host->error_raise(&l->on->failure.error);
  fail(s, l->seq);
}

static void run(slow_stream *s, launch *l) {
  if (l->kind == AFTER) {
    pass_on(s, l);
  } else if (l->kind == END) {
    s->finished = l->seq;
    pthread_cond_broadcast(&changed);
  } else if (l->kind == KERNEL) {
    if (!is_lost(s, l->seq)) run_kernel(s, l);
  } else if (l->kind != ACROSS || !is_lost(s, l->seq)) {
    memcpy(l->to, l->from, l->bytes);
  }
}

/* Pieces that may lie unrun now. */
static uint64_t lag(const slow_stream *s) {
  return (s->finished * 2654435761u >> 7) % LAG;
}

static bool is_held(const slow_stream *s) {
  return s == held && time(NULL) < held_until;
}

/* Must the first one wait? It says for what. */
static bool must_wait(slow_stream *s) {
  const launch *l = s->queue;

  if (l == NULL || is_held(s)) return true;
  if (held == NULL && s->wanted < l->seq &&
      tfd__counter_get(&s->base.taken) < s->finished + lag(s)) {
    return true;
  }
  if (l->kind != AFTER || l->on->finished >= l->on_seq) return false;
  want(l->on, l->on_seq);
  return true;
}

static void *thread_main(void *arg) {
  slow_stream *s = arg;

  pthread_mutex_lock(&lock);
  while (!s->stop) {
    launch *l = s->queue;

    if (must_wait(s)) {
      struct timespec at = in_a_slice();

      (void)pthread_cond_timedwait(&changed, &lock, &at);
      continue;
    }
    run(s, l);
    s->queue = l->next;
    if (s->queue == NULL) s->queue_end = &s->queue;
    free(l);
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* --- the table's streams -------------------------------------------------- */

static int start_thread(slow_stream *s) {
  if (s->started) return TFD_OK;
  s->config.starting();
  if (host->check_running() != TFD_OK) return TFD_FAILED_PRECONDITION;
  if (pthread_create(&s->thread, NULL, thread_main, s) != 0) {
    return no_memory("a thread");
  }
  s->started = true;
  return TFD_OK;
}

/* `first` (or NULL) goes before the work. */
static int take(slow_stream *s, launch *first, const tfd__work *work,
                uint64_t *seq_p) {
  launch *end = launch_new(END, 0);
  int rc = end == NULL ? TFD_RESOURCE_EXHAUSTED : TFD_OK;

  pthread_mutex_lock(&s->order);
  if (rc == TFD_OK) rc = start_thread(s);
  if (rc == TFD_OK) {
    s->taking++;
    if (first != NULL) add(s, first);
    s->config.run(s->config.owner, work, s->taking);
    add(s, end);
    atomic_store(&s->base.taken.value, s->taking);
    *seq_p = s->taking;
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
  } else {
    free(end);
    free(first);
  }
  pthread_mutex_unlock(&s->order);
  return rc;
}

static int slow_submit(tfd__stream *stream, const tfd__work *work,
                       uint64_t *seq_p) {
  return take(mine(stream), NULL, work, seq_p);
}

static int slow_after(tfd__stream *stream, tfd__stream *on, uint64_t on_seq,
                      const tfd__work *work, uint64_t *seq_p) {
  launch *l = launch_new(AFTER, 0);

  if (l == NULL) return TFD_RESOURCE_EXHAUSTED;
  l->on = mine(on);
  l->on_seq = on_seq;
  pthread_mutex_lock(&lock);
  l->known = is_lost(l->on, on_seq) && l->on->failure.said;
  pthread_mutex_unlock(&lock);
  return take(mine(stream), l, work, seq_p);
}

static void slow_wait(tfd__stream *stream, uint64_t seq, tfd__deadline until) {
  slow_stream *s = mine(stream);
  struct timespec at = in_a_slice();

  (void)until; /* a slice later than it at most */
  pthread_mutex_lock(&lock);
  want(s, seq);
  while (s->finished < seq &&
         pthread_cond_timedwait(&changed, &lock, &at) == 0) {
    continue;
  }
  pthread_mutex_unlock(&lock);
}

static uint64_t slow_poll(tfd__stream *stream) {
  uint64_t finished = 0;

  pthread_mutex_lock(&lock);
  finished = mine(stream)->finished;
  pthread_mutex_unlock(&lock);
  return finished;
}

static void (*when_told)(void);

/* From now on fn is called before a failure is handed over. */
TFD_API void slow_when_told(void (*fn)(void));
void slow_when_told(void (*fn)(void)) {
  when_told = fn;
}

static int slow_failed(tfd__stream *stream, uint64_t *seq_p) {
  slow_stream *s = mine(stream);
  failure *f = &s->failure;
  int rc = TFD_OK;

  pthread_mutex_lock(&s->order); /* nothing is taken meanwhile */
  pthread_mutex_lock(&lock);
  if (f->error.code != TFD_OK && !f->said) {
    f->said = true;
    f->last = s->taking;
    *seq_p = f->first;
    rc = host->error_raise(&f->error);
  }
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&s->order);
  if (rc != TFD_OK && when_told != NULL) when_told();
  return rc;
}

static int slow_stream_new(const tfd__stream_config *config,
                           tfd__stream **stream_p) {
  slow_stream *s = host->alloc_aligned(64, sizeof *s);

  if (s == NULL) return no_memory("a stream");
  *s = (slow_stream){.config = *config, .fail_in = fail_at[config->ordinal]};
  s->queue_end = &s->queue;
  pthread_mutex_init(&s->order, NULL);
  streams[config->ordinal] = s;
  *stream_p = &s->base;
  return TFD_OK;
}

static void slow_stream_free(tfd__stream *stream) {
  slow_stream *s = mine(stream);

  host->error_free(&s->failure.error);
  pthread_mutex_destroy(&s->order);
  streams[s->config.ordinal] = NULL;
  host->free(s);
}

static void discard(slow_stream *s) {
  while (s->queue != NULL) {
    launch *next = s->queue->next;

    free(s->queue);
    s->queue = next;
  }
  s->queue_end = &s->queue;
  s->finished = s->taking;
}

static void slow_stop(void) {
  int i;

  pthread_mutex_lock(&lock);
  for (i = 0; i < devices; i++) {
    if (streams[i] != NULL) streams[i]->stop = true;
  }
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  for (i = 0; i < devices; i++) {
    if (streams[i] == NULL || !streams[i]->started) continue;
    pthread_join(streams[i]->thread, NULL);
    streams[i]->started = false;
  }
  for (i = 0; i < devices; i++) {
    if (streams[i] != NULL) discard(streams[i]);
  }
}

/* --- what there is -------------------------------------------------------- */

static int slow_discover(int *count_p) {
  *count_p = devices;
  return TFD_OK;
}

static int slow_describe(int ordinal, tfd__device_info *info_p) {
  (void)ordinal;
  (void)snprintf(info_p->model, sizeof info_p->model, "slow device");
  info_p->memory = (int64_t)MEMORY;
  info_p->cores = 1;
  return TFD_OK;
}

static tfd__backend table = {
    .abi = TFD_BACKEND_ABI,
    .kernels_n = TFD_KERNEL_N,
    .name = "slow",
    .device_type = "SLOW",
    .asynchronous = true,
    .discover = slow_discover,
    .describe = slow_describe,
    .stop = slow_stop,
    .alloc = slow_alloc,
    .free = slow_free,
    .stream_new = slow_stream_new,
    .stream_free = slow_stream_free,
    .submit = slow_submit,
    .after = slow_after,
    .wait = slow_wait,
    .poll = slow_poll,
    .failed = slow_failed,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_across = copy_across,
    .kernels = kernels,
};

/* Let the n-th kernel from now fail on device `ordinal`; 0 = none. */
TFD_API void slow_fail_at(int ordinal, int64_t n);
void slow_fail_at(int ordinal, int64_t n) {
  pthread_mutex_lock(&lock);
  fail_at[ordinal] = n;
  if (streams[ordinal] != NULL) streams[ordinal]->fail_in = n;
  pthread_mutex_unlock(&lock);
}

static int hold(slow_stream *s) {
  pthread_mutex_lock(&lock);
  held = s;
  held_until = time(NULL) + HOLD_S;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  return 0;
}

/* Functions for package.loadlib: device 0 runs nothing until it is let go, so
** that what another one finishes meanwhile did not wait for it. */
TFD_API int slow_hold(void *lua);
int slow_hold(void *lua) {
  (void)lua;
  return hold(streams[0]);
}

TFD_API int slow_let_go(void *lua);
int slow_let_go(void *lua) {
  (void)lua;
  return hold(NULL);
}

static void leave_out(const char *list) {
  size_t i;

  while (*list != '\0') {
    size_t n = strcspn(list, ",");

    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
      if (strlen(names[i].name) == n && memcmp(names[i].name, list, n) == 0) {
        kernels[names[i].id] = NULL;
      }
    }
    list += n;
    if (*list == ',') list++;
  }
}

TFD_API int tfd_backend_plugin(const tfd__plugin_host *given,
                               const tfd__backend **backend_p);
int tfd_backend_plugin(const tfd__plugin_host *given,
                       const tfd__backend **backend_p) {
  const char *count = getenv("TFDIST_SLOW_DEVICES");
  const char *type = getenv("TFDIST_SLOW_TYPE");
  const char *without = getenv("TFDIST_SLOW_WITHOUT");
  const char *failing = getenv("TFDIST_SLOW_FAIL");
  const char *refuse = getenv("TFDIST_SLOW_REFUSE");
  const char *abi = getenv("TFDIST_SLOW_ABI");
  pthread_condattr_t monotonic;
  int ordinal = 0;
  long n = 0;

  host = given;
  table.fuser = host->cpu->fuser;
  if (refuse != NULL) return host->fail(TFD_UNAVAILABLE, "%s", refuse);
  if (count != NULL) devices = atoi(count);
  if (devices < 0 || devices > DEVICES) devices = DEVICES;
  if (abi != NULL) table.abi = atoi(abi);
  if (type != NULL) table.device_type = type;
  if (without != NULL) leave_out(without);
  leave_out("row_blocks"); /* calls kernels of its device, which launch here */
  if (failing != NULL && sscanf(failing, "%d:%ld", &ordinal, &n) == 2 &&
      ordinal >= 0 && ordinal < DEVICES) {
    fail_at[ordinal] = n;
  }
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  *backend_p = &table;
  return TFD_OK;
}
