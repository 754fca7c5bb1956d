/* Launches that come again are captured, then started as one CUDA graph.
**
** A graph holds what it was launched with, addresses too, so it serves calls
** with the same ones alone; some are kept for each stretch of launches, those
** used last. The first time they run one by one, which loads
** modules, makes plans and finds how much workspace libraries want: nothing of
** that may happen in a capture.
**
** Kernels that refuse values note them in places of their graph, one for each
** launch; until these were read it is not started again, but another one like
** it. The host is that many calls ahead at most. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/stream.h"
#include "base/memory.h"

enum {
  KEPT = 8,
  SEEN = 8,    /* addresses that did not come again yet */
  TWINS = 4,   /* graphs of the same addresses */
  FAILURES = 3 /* of captures: no more are tried */
};

typedef struct tfd__cuda_record {
  struct tfd__cuda_record *next; /* retired, too */
  CUgraphExec graph;
  int64_t *key;
  CUdeviceptr workspace;
  uint64_t freed;
  bool tf32;
  uint64_t seq; /* when it was started last, */
  uint64_t end; /* and how many of all words there were then */
  word *words;
  int words_n;
  int words_room;
  int gated;     /* of the words, in *stop */
  bool may_stop; /* it was recorded with gates */
} record;

struct tfd__launches {
  cuda_stream *stream;
  int key_n;
  uint64_t seen[SEEN];
  int seen_n;
  int failures;
  record *records[KEPT];
  int records_n;
};

/* --- records ---------------------------------------------------------------
 */

static void drop(cuda_stream *s, record *r) {
  int i;

  if (r->graph != NULL && tfd__cuda_use(s->config.ordinal) == TFD_OK) {
    (void)tfd__cu.cuGraphExecDestroy(r->graph);
  }
  for (i = 0; i < r->words_n; i++) s->kept[r->words[i].place - WORDS] = false;
  free(r->words);
  free(r->key);
  free(r);
}

/* Let go of those that have run. */
static void reap(cuda_stream *s) {
  record **at = &s->retired;

  if (*at == NULL) return;
  (void)tfd__cuda_poll(&s->base);
  while (*at != NULL) {
    record *r = *at;

    if (r->seq > s->passed) {
      at = &r->next;
    } else {
      *at = r->next;
      drop(s, r);
    }
  }
}

static void retire(cuda_stream *s, record *r) {
  if (r->seq <= s->passed) {
    drop(s, r);
    return;
  }
  r->next = s->retired;
  s->retired = r;
}

void tfd__cuda_records_close(cuda_stream *s) {
  while (s->retired != NULL) {
    record *r = s->retired;

    s->retired = r->next;
    drop(s, r);
  }
}

static record *make(const cuda_stream *s, const int64_t *key, int n) {
  size_t bytes = (size_t)n * sizeof *key;
  record *r = calloc(1, sizeof *r);

  if (r == NULL) return NULL;
  r->key = malloc(bytes + 1);
  if (r->key == NULL) {
    free(r);
    return NULL;
  }
  memcpy(r->key, key, bytes);
  r->workspace = s->workspace;
  r->freed = tfd__cuda_freed(s->config.ordinal);
  r->tf32 = tfd__cuda_tf32();
  r->may_stop = s->may_stop;
  return r;
}

/* Would it launch what is asked for? Memory that went back to the driver may
** have come again as something else. */
static bool serves(const cuda_stream *s, const record *r, const int64_t *key,
                   int n) {
  return r->workspace == s->workspace &&
         r->freed == tfd__cuda_freed(s->config.ordinal) &&
         r->tf32 == tfd__cuda_tf32() && r->may_stop == s->may_stop &&
         memcmp(r->key, key, (size_t)n * sizeof *key) == 0;
}

static bool is_read(const cuda_stream *s, const record *r) {
  int i;

  for (i = 0; i < r->words_n; i++) {
    if (s->waiting[r->words[i].place - WORDS] > 0) return false;
  }
  return true;
}

static bool start(cuda_stream *s, record *r) {
  int i;

  if (s->words_n + r->words_n > WORDS) return false;
  if (tfd__cu.cuGraphLaunch(r->graph, s->stream) != CUDA_SUCCESS) return false;
  r->seq = tfd__cuda_taken(s);
  for (i = 0; i < r->words_n; i++) {
    word *w = &s->words[(s->words_first + s->words_n++) % WORDS];

    *w = r->words[i];
    w->seq = r->seq;
    s->waiting[w->place - WORDS]++;
  }
  if (s->gated == s->words_all) s->gated += (uint64_t)r->gated;
  s->words_all += (uint64_t)r->words_n;
  r->end = s->words_all;
  return true;
}

int tfd__cuda_record_word(cuda_stream *s, word **word_p, int *place_p) {
  record *r = s->recording;
  int place = 0;

  while (place < KEPT_PLACES && (s->kept[place] || s->waiting[place] > 0)) {
    place++;
  }
  if (place == KEPT_PLACES) {
    return tfd__fail(TFD_RESOURCE_EXHAUSTED,
                     "records keep places for %d words, no more", KEPT_PLACES);
  }
  if (r->words_n == r->words_room) {
    int room = 2 * r->words_room + 4;
    word *more = realloc(r->words, (size_t)room * sizeof *more);

    if (more == NULL) return tfd__no_memory((size_t)room, "records");
    r->words = more;
    r->words_room = room;
  }
  s->kept[place] = true;
  *place_p = place + WORDS;
  *word_p = &r->words[r->words_n++];
  (*word_p)->place = *place_p;
  return TFD_OK;
}

const word *tfd__cuda_record_gate(cuda_stream *s, int *n_p) {
  record *r = s->recording;
  const word *first = r->words + r->gated;

  *n_p = r->words_n - r->gated;
  r->gated = r->words_n;
  return first;
}

/* --- stretches of launches -------------------------------------------------
 */

static tfd__launches *launches_of(cuda_stream *s, tfd__launches **kept_p,
                                  int n) {
  tfd__launches *l = *kept_p;

  if (l != NULL) return l;
  l = calloc(1, sizeof *l);
  if (l == NULL) return NULL;
  l->stream = s;
  l->key_n = n;
  *kept_p = l;
  return l;
}

/* One that can be started now; *twins_p: how many that serve there are. */
static record *find(const tfd__launches *l, const int64_t *key, int *twins_p) {
  record *found = NULL;
  int i;

  for (i = 0; i < l->records_n; i++) {
    record *r = l->records[i];

    if (!serves(l->stream, r, key, l->key_n)) continue;
    ++*twins_p;
    if (found == NULL && is_read(l->stream, r)) found = r;
  }
  return found;
}

/* The host is far ahead: when the one that was started first has run, it can be
** started again. */
static record *wait_for(const tfd__launches *l, const int64_t *key) {
  uint64_t first = UINT64_MAX;
  int twins = 0;
  int i;

  for (i = 0; i < l->records_n; i++) {
    const record *r = l->records[i];

    if (serves(l->stream, r, key, l->key_n) && r->end < first) first = r->end;
  }
  tfd__cuda_skip_words(l->stream, first);
  return find(l, key, &twins);
}

/* Did the same come before? From now on it did. */
static bool was_seen(tfd__launches *l, const int64_t *key) {
  uint64_t hash = tfd__cuda_hash(key, (size_t)l->key_n * sizeof *key);
  int i;

  for (i = 0; i < SEEN && i < l->seen_n; i++) {
    if (l->seen[i] == hash) return true;
  }
  l->seen[l->seen_n++ % SEEN] = hash;
  if (l->seen_n == 2 * SEEN) l->seen_n = SEEN;
  return false;
}

/* The one that was started the longest ago goes. */
static void make_room(tfd__launches *l) {
  int oldest = 0;
  int i;

  if (l->records_n < KEPT) return;
  for (i = 1; i < KEPT; i++) {
    if (l->records[i]->seq < l->records[oldest]->seq) oldest = i;
  }
  retire(l->stream, l->records[oldest]);
  l->records[oldest] = l->records[--l->records_n];
}

static tfd__launching begin(tfd__stream *stream, tfd__launches **kept_p,
                            const int64_t *key, int n) {
  cuda_stream *s = tfd__cuda_stream_of(stream);
  tfd__launches *l = NULL;
  record *r = NULL;
  int twins = 0;

  l = launches_of(s, kept_p, n);
  if (l == NULL || l->failures == FAILURES || s->lost != CUDA_SUCCESS) {
    return TFD_LAUNCH_RUNS;
  }
  reap(s);
  if (s->may_stop && tfd__cuda_gate(s) != CUDA_SUCCESS) return TFD_LAUNCH_RUNS;
  r = find(l, key, &twins);
  if (r == NULL && twins == TWINS) r = wait_for(l, key);
  if (r != NULL) return start(s, r) ? TFD_LAUNCH_DONE : TFD_LAUNCH_RUNS;
  if (twins == TWINS || !was_seen(l, key)) return TFD_LAUNCH_RUNS;
  r = make(s, key, n);
  if (r == NULL) return TFD_LAUNCH_RUNS;
  make_room(l);
  /* What other threads do meanwhile is their affair. */
  if (tfd__cu.cuStreamBeginCapture(
          s->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) != CUDA_SUCCESS) {
    drop(s, r);
    l->failures++;
    return TFD_LAUNCH_RUNS;
  }
  s->recording = r;
  return TFD_LAUNCH_RECORDS;
}

static bool end(tfd__stream *stream, tfd__launches *l, bool good) {
  cuda_stream *s = tfd__cuda_stream_of(stream);
  record *r = s->recording;
  CUgraph graph = NULL;
  CUresult result;

  s->recording = NULL;
  result = tfd__cu.cuStreamEndCapture(s->stream, &graph);
  if (good && result == CUDA_SUCCESS) {
    result = tfd__cu.cuGraphInstantiate(&r->graph, graph, 0);
  }
  if (graph != NULL) (void)tfd__cu.cuGraphDestroy(graph);
  if (good && result == CUDA_SUCCESS && start(s, r)) {
    l->records[l->records_n++] = r;
    return true;
  }
  if (good) l->failures++;
  drop(s, r);
  return false;
}

static int kept(const tfd__launches *l) {
  return l->records_n;
}

static void release(tfd__launches *l) {
  cuda_stream *s = l->stream;
  int i;

  pthread_mutex_lock(&s->lock);
  for (i = 0; i < l->records_n; i++) retire(s, l->records[i]);
  if (tfd__cuda_use(s->config.ordinal) == TFD_OK) reap(s);
  pthread_mutex_unlock(&s->lock);
  free(l);
}

const tfd__launcher tfd__cuda_launcher = {
    .begin = begin, .end = end, .kept = kept, .free = release};
