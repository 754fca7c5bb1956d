#include "base/profile.h"

#include <string.h>
#include <sys/prctl.h>

#include "base/given.h"
#include "base/memory.h"
#include "tfdist.h"

atomic_bool tfd__profiling;

/* Under the lock: the list of tracks, which only grows; names; the timeline. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tfd__track *_Atomic tracks;
static int64_t started;
static char *table;

static _Thread_local tfd__track *mine;

/* --- spans ---------------------------------------------------------------- */

/* NULL without memory: then the thread's spans are lost. */
static tfd__track *track_of_thread(void) {
  if (TFD_LIKELY(mine != NULL)) return mine;
  mine = tfd__calloc(1, sizeof *mine);
  if (mine == NULL) return NULL;
  (void)prctl(PR_GET_NAME, mine->name); /* 16 bytes at most */
  (void)pthread_mutex_lock(&lock);
  mine->next = atomic_load(&tracks);
  atomic_store(&tracks, mine);
  (void)pthread_mutex_unlock(&lock);
  return mine;
}

void tfd__span_note(const tfd__span *span) {
  tfd__track *t = track_of_thread();
  uint64_t n = 0;

  if (t == NULL) return;
  n = atomic_load_explicit(&t->n, memory_order_relaxed);
  t->spans[n % TFD_TRACK_SPANS] = *span;
  atomic_store_explicit(&t->n, n + 1, memory_order_release);
}

/* --- names ---------------------------------------------------------------- */

enum { HEADS = 256 };

typedef struct label {
  struct label *next;
  char text[];
} label;

static label *names[HEADS];

static unsigned hash_of(const char *text) {
  unsigned h = 5381;

  for (; *text != 0; text++) h = h * 33 + (unsigned char)*text;
  return h % HEADS;
}

static label *add_name(label **head, const char *text) {
  size_t bytes = strlen(text) + 1;
  label *n = tfd__alloc(sizeof *n + bytes);

  if (n == NULL) return NULL;
  memcpy(n->text, text, bytes);
  n->next = *head;
  *head = n;
  return n;
}

const char *tfd__span_name(const char *text) {
  label **head = &names[hash_of(text)];
  label *n = NULL;

  (void)pthread_mutex_lock(&lock);
  for (n = *head; n != NULL && strcmp(n->text, text) != 0;) n = n->next;
  if (n == NULL) n = add_name(head, text);
  (void)pthread_mutex_unlock(&lock);
  return n == NULL ? "(no memory)" : n->text;
}

/* --- the timeline --------------------------------------------------------- */

int tfd_profiler_start(void) {
  tfd__track *host = NULL;
  tfd__track *t = NULL;

  if (atomic_load(&tfd__profiling)) {
    (void)tfd__fail(TFD_ALREADY_EXISTS, "profiler: it runs already");
    return tfd__hint("tf.profiler.experimental.stop() ends it");
  }
  host = track_of_thread();
  if (host == NULL) return tfd__no_memory(sizeof *host, "profiler");
  for (t = atomic_load(&tracks); t != NULL; t = t->next) t->host = t == host;
  started = tfd__now_ns();
  atomic_store(&tfd__profiling, true);
  return TFD_OK;
}

bool tfd_profiler_is_running(void) {
  return atomic_load(&tfd__profiling);
}

int64_t tfd_profiler_now(void) {
  return tfd__now_ns();
}

int tfd_profiler_note(const char *name, int64_t begin, int64_t step,
                      int replica) {
  TFD_GIVEN_POINTER(name);
  if (!atomic_load(&tfd__profiling)) return TFD_OK;
  if (begin < started) begin = started;
  tfd__span_note(&(tfd__span){.begin = begin,
                              .end = tfd__now_ns(),
                              .name = tfd__span_name(name),
                              .step = step,
                              .replica = replica,
                              .kind = TFD_SPAN_USER});
  return TFD_OK;
}

int tfd_profiler_stop(const char *path) {
  TFD_GIVEN_POINTER(path);

  char *text = NULL;

  if (!atomic_exchange(&tfd__profiling, false)) {
    (void)tfd__fail(TFD_UNAVAILABLE, "profiler: it does not run");
    return tfd__hint("tf.profiler.experimental.start(logdir) begins it");
  }
  TFD_TRY(tfd__timeline_write(atomic_load(&tracks), started, tfd__now_ns(),
                              path, &text));
  tfd__free(table);
  table = text;
  return TFD_OK;
}

const char *tfd_profiler_table(void) {
  return table == NULL ? "" : table;
}
