/* Values that kernels refuse. Each launch that may refuse some has a word of
** mapped host memory, in which the kernel notes the first one; it leaves the
** output of that element alone.
**
** What was launched behind it has no results, but the host learns so later. Of
** that, kernels that write where values show (tfd__call.shows) look at *stop
** first, which a gate has set: a kernel that reads the words before. One is
** launched where such a kernel follows new words, so that it costs nothing
** where nothing can be refused, and about two microseconds for all the
** variables of a step where something can. Streams that wait for this one read
** *first, which lies in host memory, behind a gate of their own.
**
** Work of others that fails (spoil) is a refusal from outside: the host notes
** it in *noted before that work ends, and the first gate behind reads it there.
**
** *stop is reset in the order of the stream, behind all that was launched when
** the failure was told. *first and *noted are not: who reads them knows up to
** where all was told. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/stop_args.h"
#include "backend/cuda/stream.h"
#include "backend/lay.h"

#define EACH_WORD ((1 + TFD_MAX_RANK) * sizeof(uint64_t))

static cuda_stream *of(tfd__stream *s) {
  return tfd__cuda_stream_of(s);
}

/* --- life ----------------------------------------------------------------- */

int tfd__cuda_refusals_open(cuda_stream *s) {
  size_t bytes = PLACES * EACH_WORD + 2 * sizeof *s->first;
  void *values = NULL;
  int i;

  TFD_TRY(tfd__cuda_check(tfd__cu.cuMemHostAlloc(&values, bytes,
                                                 CU_MEMHOSTALLOC_DEVICEMAP |
                                                     CU_MEMHOSTALLOC_PORTABLE),
                          "mapped memory"));
  s->values = values;
  s->refused = (int64_t *)values + PLACES;
  s->first = s->values + PLACES * EACH_WORD / sizeof *s->values;
  s->noted = s->first + 1;
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuMemHostGetDevicePointer(&s->values_device, values, 0),
      "mapped memory"));
  for (i = 0; i < PLACES; i++) s->values[i] = NOTHING;
  *s->first = *s->noted = NOTHING;
  TFD_TRY(tfd__cuda_check(tfd__cu.cuMemAlloc(&s->stop, 2 * sizeof *s->first),
                          "memory of the GPU"));
  return tfd__cuda_check(
      tfd__cu.cuMemcpyHtoDAsync(s->stop, s->first, sizeof *s->first, s->stream),
      "memory of the GPU");
}

void tfd__cuda_refusals_close(cuda_stream *s) {
  if (s->values != NULL) (void)tfd__cu.cuMemFreeHost(s->values);
  if (s->stop != 0) (void)tfd__cu.cuMemFree(s->stop);
}

static uint64_t *device_first(const cuda_stream *s) {
  return (uint64_t *)(uintptr_t)s->values_device + (s->first - s->values);
}

/* --- words ---------------------------------------------------------------- */

/* The first word of the ring is done with. */
static void next_word(cuda_stream *s) {
  int place = s->words[s->words_first].place;

  if (place >= WORDS) s->waiting[place - WORDS]--;
  s->words_first = (s->words_first + 1) % WORDS;
  s->words_n--;
}

/* The number of the first word of the ring, counted from 1. */
static uint64_t first_word(const cuda_stream *s) {
  return s->words_all - (uint64_t)s->words_n + 1;
}

/* Can word i of the ring be read? */
static bool has_passed(const cuda_stream *s, int i) {
  uint64_t number = first_word(s) + (uint64_t)i;

  return s->words[(s->words_first + i) % WORDS].seq <= s->passed &&
         number <= s->words_passed;
}

void tfd__cuda_skip_words(cuda_stream *s, uint64_t words) {
  tfd__cuda_wait_words(s, words);
  while (s->words_n > 0 && first_word(s) <= s->words_passed &&
         s->values[s->words[s->words_first].place] == NOTHING) {
    next_word(s);
  }
}

static uint64_t *device_word(const cuda_stream *s, int place) {
  return (uint64_t *)(uintptr_t)s->values_device + place;
}

int tfd__cuda_make_room(cuda_stream *s, int n, const char *name) {
  int over = s->words_n + n - WORDS;

  if (over <= 0) return TFD_OK;
  tfd__cuda_skip_words(s, first_word(s) + (uint64_t)over - 1);
  if (s->words_n + n <= WORDS) return TFD_OK;
  return tfd__fail(TFD_ABORTED, "%s: earlier work of %s failed", name,
                   s->config.name);
}

static int new_word(cuda_stream *s, const char *name, word **word_p,
                    int *place_p) {
  TFD_TRY(tfd__cuda_make_room(s, 1, name));
  *place_p = (s->words_first + s->words_n) % WORDS;
  *word_p = &s->words[*place_p];
  s->words_n++;
  s->words_all++;
  return TFD_OK;
}

int tfd__cuda_error_words(const tfd__call *call, const tfd__cuda_refusal *what,
                          uint64_t **word_p, int64_t **refused_p) {
  cuda_stream *s = of(call->stream);
  word *w = NULL;
  int place = 0;

  if (s->recording == NULL) {
    TFD_TRY(new_word(s, call->name, &w, &place));
  } else {
    TFD_TRY(tfd__cuda_record_word(s, &w, &place));
  }
  s->may_stop = true;
  *w = (word){.seq = tfd__cuda_taken(s),
              .place = place,
              .name = call->name,
              .argument = what->argument,
              .depth = what->depth,
              .rising = what->rising,
              .say = what->say,
              .rank = what->values->rank,
              .replica = call->replica,
              .line = call->line,
              .file = call->file,
              .note = call->note};
  memcpy(w->bounds, what->bounds, sizeof w->bounds);
  memcpy(w->dims, what->values->dims, sizeof w->dims);
  *word_p = device_word(s, place);
  *refused_p = (int64_t *)(uintptr_t)s->values_device + PLACES +
               (ptrdiff_t)place * TFD_MAX_RANK;
  return TFD_OK;
}

int tfd__cuda_error_word(const tfd__call *call, const char *argument,
                         const tfd__view *values, int64_t bound,
                         uint64_t **word_p) {
  tfd__cuda_refusal what = {
      .argument = argument, .values = values, .bounds = {bound}};
  int64_t *refused = NULL;

  return tfd__cuda_error_words(call, &what, word_p, &refused);
}

/* --- gates ---------------------------------------------------------------- */

static tfd_cu_gate gate_of(const cuda_stream *s) {
  return (tfd_cu_gate){.stop = (uint64_t *)(uintptr_t)s->stop,
                       .refused = device_first(s),
                       .told = s->void_to,
                       .words = device_word(s, 0),
                       .seq = tfd__cuda_taken(s),
                       .clear = s->stop_is_old};
}

static CUresult launch(cuda_stream *s, const tfd_cu_gate *a) {
  static tfd__cuda_kernel gate = {"stop", "gate", {0}};
  void *parameters[1] = {(void *)(uintptr_t)a};
  int ordinal = s->config.ordinal;

  if (tfd__cuda_find(&gate, ordinal, sizeof *a) != TFD_OK) {
    return CUDA_ERROR_NOT_FOUND;
  }
  return tfd__cu.cuLaunchKernel(gate.function[ordinal], 1, 1, 1, TFD_CU_THREADS,
                                1, 1, 0, s->stream, parameters, NULL);
}

/* Something runs behind work of others, which no gate has looked at. */
static bool must_follow(const cuda_stream *s) {
  return s->gated_at < s->follows && s->follows <= tfd__cuda_taken(s);
}

/* Of words from + 1 .. words_all, those that were not let go of. */
static CUresult gate_words(cuda_stream *s, uint64_t from) {
  CUresult result = CUDA_SUCCESS;

  if (from + 1 < first_word(s)) from = first_word(s) - 1;
  while (result == CUDA_SUCCESS &&
         (from < s->words_all || s->stop_is_old || must_follow(s))) {
    tfd_cu_gate a = gate_of(s);

    while (a.n < TFD_CU_GATED && from < s->words_all) {
      uint64_t at = (uint64_t)s->words_first + from++ + 1 - first_word(s);
      const word *w = &s->words[at % WORDS];

      a.places[a.n] = w->place;
      a.seqs[a.n++] = w->seq;
    }
    result = launch(s, &a);
    if (result != CUDA_SUCCESS) return result;
    s->stop_is_old = false;
    s->gated_at = a.seq;
  }
  return result;
}

CUresult tfd__cuda_gate(cuda_stream *s) {
  CUresult result = gate_words(s, s->gated);

  if (result != CUDA_SUCCESS) return result;
  if (s->said >= s->gated) s->said = s->words_all;
  s->gated = s->words_all;
  return result;
}

CUresult tfd__cuda_say(cuda_stream *s) {
  if (s->said < s->gated) s->gated = s->said;
  return s->said == s->words_all ? CUDA_SUCCESS : tfd__cuda_gate(s);
}

/* What is recorded is launched at other positions: only *stop can say so. All
** words before it are gated when it starts. */
static CUresult record_gate(cuda_stream *s) {
  CUresult result = CUDA_SUCCESS;
  int n = 0;
  const word *w = tfd__cuda_record_gate(s, &n);

  while (result == CUDA_SUCCESS && n > 0) {
    tfd_cu_gate a = {.stop = (uint64_t *)(uintptr_t)s->stop,
                     .words = device_word(s, 0)};

    while (a.n < TFD_CU_GATED && n > 0) {
      a.places[a.n++] = w->place;
      w++;
      n--;
    }
    result = launch(s, &a);
  }
  return result;
}

int tfd__cuda_stop(const tfd__call *call, const uint64_t **stop_p) {
  cuda_stream *s = of(call->stream);

  *stop_p = NULL;
  if (!call->shows || !s->may_stop) return TFD_OK;
  TFD_TRY(tfd__cuda_check(
      s->recording != NULL ? record_gate(s) : tfd__cuda_gate(s), call->name));
  *stop_p = (const uint64_t *)(uintptr_t)s->stop;
  return TFD_OK;
}

/* --- streams that wait for others ----------------------------------------- */

void tfd__cuda_note(cuda_stream *s, uint64_t seq) {
  _Atomic(uint64_t) *noted = (_Atomic(uint64_t) *)s->noted;
  uint64_t before = atomic_load(noted);

  if (seq > s->void_to && (before <= s->void_to || before > seq)) {
    atomic_store(noted, seq);
  }
}

/* What the host knows before who waits: it says so itself. */
static void note_first(cuda_stream *s, uint64_t seq) {
  pthread_mutex_lock(&s->told);
  tfd__cuda_note(s, seq);
  pthread_mutex_unlock(&s->told);
}

tfd__refused tfd__cuda_refusals(cuda_stream *s, uint64_t seq) {
  bool may = false;
  int i;

  for (i = 0; i < s->words_n && !may; i++) {
    const word *w = &s->words[(s->words_first + i) % WORDS];

    if (w->seq > seq) break;
    if (w->seq <= s->void_to) continue;
    may = !has_passed(s, i) || s->values[w->place] != NOTHING;
    if (may && has_passed(s, i)) note_first(s, w->seq);
  }
  return (tfd__refused){.after = s->void_to, .to = may ? seq : 0};
}

/* The last position behind work of others, but for what is `own`. */
static uint64_t follows_others(const cuda_stream *s, const void *own) {
  return own != NULL && own == s->whose ? s->follows_before : s->follows;
}

static uint64_t may_have_refused(const cuda_stream *s) {
  int i = s->words_n;

  while (i-- > 0) {
    const word *w = &s->words[(s->words_first + i) % WORDS];

    if (w->seq <= s->void_to) return 0;
    if (!has_passed(s, i) || s->values[w->place] != NOTHING) return w->seq;
  }
  return 0;
}

uint64_t tfd__cuda_may_refuse(cuda_stream *s, const void *own) {
  uint64_t follows = follows_others(s, own);
  uint64_t seq = may_have_refused(s);

  pthread_mutex_lock(&s->told);
  if (follows > s->passed && follows > seq) seq = follows;
  if (s->spoiled > seq) seq = s->spoiled;
  pthread_mutex_unlock(&s->told);
  return seq;
}

/* Work of others that has passed may be spoiled, but was not told yet. */
tfd__refused tfd__cuda_losses(cuda_stream *s, uint64_t seq, const void *own) {
  tfd__refused range = tfd__cuda_refusals(s, seq);

  pthread_mutex_lock(&s->told);
  if (seq > s->passed && follows_others(s, own) > s->passed) range.to = seq;
  if (s->spoiled != 0 && s->spoiled <= seq) range.to = seq;
  pthread_mutex_unlock(&s->told);
  return range;
}

int tfd__cuda_heed(cuda_stream *s, cuda_stream *on, const tfd__refused *range) {
  tfd_cu_gate a;
  word *w = NULL;
  int place = 0;

  if (range->to == 0) return TFD_OK;
  TFD_TRY(new_word(s, "waiting for another GPU", &w, &place));
  s->may_stop = true;
  a = gate_of(s);
  *w = (word){.seq = a.seq, .place = place, .from = on};
  a.other = device_first(on);
  a.other_told = range->after;
  a.until = range->to;
  a.noted = device_word(s, place);
  TFD_TRY(tfd__cuda_check(launch(s, &a), "waiting for another GPU"));
  s->stop_is_old = false;
  return TFD_OK;
}

/* --- the texts of the CPU's kernels --- */

static int label_outside(const word *w, int64_t at, int64_t value) {
  char replica[32] = "";

  if (w->replica >= 0) {
    (void)snprintf(replica, sizeof replica, " of replica %d", w->replica);
  }
  (void)tfd__fail(TFD_INVALID_ARGUMENT,
                  "%s: label %lld at position %lld%s is outside 0..%lld "
                  "(logits have %lld classes; labels count from 0)",
                  w->name, (long long)value, (long long)at, replica,
                  (long long)w->bounds[0] - 1, (long long)w->bounds[0]);
  return tfd__blame(w->name, w->argument, w->bounds[0]);
}

static int value_outside(const word *w, int64_t at, int64_t value) {
  char text[TFD_POSITION_TEXT];

  (void)tfd__fail(TFD_INVALID_ARGUMENT, "%s: %s%s = %lld is outside [0, %lld)",
                  w->name, w->argument,
                  tfd__position_text(w->dims, w->rank, at, text),
                  (long long)value, (long long)w->bounds[0]);
  return tfd__blame(w->name, w->argument, w->bounds[0]);
}

static int coordinates_outside(const word *w, int64_t at,
                               const int64_t *refused) {
  char given[TFD_SHAPE_TEXT];
  char shape[TFD_SHAPE_TEXT];

  return tfd__fail(
      TFD_INVALID_ARGUMENT, "%s: %s[%lld] = %s is outside shape %s", w->name,
      w->argument, (long long)at, tfd__dims_text(refused, w->depth, given),
      tfd__dims_text(w->bounds, w->depth, shape));
}

static int number_falls(const word *w, int64_t at, const int64_t *refused) {
  const char *a = w->argument;
  long long value = refused[0];

  if (value < 0) return value_outside(w, at, value);
  if (value >= w->bounds[0]) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: %s must not fall, but %s[%lld] = %lld is above the "
                     "last, %lld",
                     w->name, a, a, (long long)at, value,
                     (long long)w->bounds[0] - 1);
  }
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s must not fall, but %s[%lld] = %lld comes after %lld",
                   w->name, a, a, (long long)at, value, (long long)refused[1]);
}

static int raise_word(const cuda_stream *s, const word *w) {
  const int64_t *refused = s->refused + (ptrdiff_t)w->place * TFD_MAX_RANK;
  uint64_t noted = s->values[w->place];
  int64_t at = (int64_t)(noted >> 32);
  int64_t value = (int32_t)(uint32_t)noted;
  char where[256] = "";
  int rc;

  if (w->file != NULL && w->line > 0) {
    (void)snprintf(where, sizeof where, "%s:%d", w->file, w->line);
  }
  if (w->say != NULL) {
    rc = w->say(w->name, at, value);
  } else if (w->rising) {
    rc = number_falls(w, at, refused);
  } else if (w->depth > 0) {
    rc = coordinates_outside(w, at, refused);
  } else if (strcmp(w->argument, "labels") == 0) {
    rc = label_outside(w, at, value);
  } else {
    rc = value_outside(w, at, value);
  }
  (void)tfd__error_set_place(w->replica, where);
  (void)tfd__error_set_note(w->note);
  return rc;
}

/* --- telling -------------------------------------------------------------- */

/* The first word that has something to be told. */
static const word *first_noted(const cuda_stream *s) {
  int i;

  for (i = 0; i < s->words_n; i++) {
    const word *w = &s->words[(s->words_first + i) % WORDS];

    if (!has_passed(s, i)) return NULL;
    if (w->seq > s->void_to && s->values[w->place] != NOTHING) return w;
  }
  return NULL;
}

/* What others spoiled at position *seq_p, not behind `until`, untold. */
static int raise_spoiled(cuda_stream *s, uint64_t until, uint64_t *seq_p) {
  int rc = TFD_OK;

  pthread_mutex_lock(&s->told);
  if (s->spoiled != 0 && s->spoiled <= until) {
    *seq_p = s->spoiled;
    (void)tfd__fail(s->spoiled_code, "%s", s->spoiled_reason);
    rc = tfd__exit_with(s->spoiled_exit);
  }
  pthread_mutex_unlock(&s->told);
  return rc;
}

/* The error of what `s` refused first and did not tell, or told last. Streams
** that wait for each other have words of each other: what came first is none.
*/
static int raise_of(cuda_stream *s) {
  const word *w = NULL;
  int rc = TFD_OK;

  while (rc == TFD_OK) {
    cuda_stream *next = NULL;
    uint64_t at = 0;

    pthread_mutex_lock(&s->lock);
    w = first_noted(s);
    rc = raise_spoiled(s, w == NULL ? NOTHING : w->seq, &at);
    if (rc != TFD_OK) {
      w = NULL;
    } else if (w != NULL && w->from != NULL) {
      next = w->from;
    } else if (w != NULL) {
      rc = raise_word(s, w);
    } else if (s->last_told.code != TFD_OK) {
      rc = tfd__error_raise(&s->last_told);
    } else {
      rc = tfd__fail(TFD_INTERNAL, "%s: earlier work failed", s->config.name);
    }
    pthread_mutex_unlock(&s->lock);
    if (next != NULL) s = next;
  }
  return rc;
}

/* What was launched up to now has no results. */
static void tell(cuda_stream *s, uint64_t seq) {
  pthread_mutex_lock(&s->told);
  tfd__cuda_note(s, seq);
  s->void_to = tfd__cuda_taken(s);
  if (s->spoiled <= s->void_to) s->spoiled = 0; /* it was behind */
  pthread_mutex_unlock(&s->told);
  s->gated = s->said = s->words_all;
  s->stop_is_old = true;
  tfd__error_save(&s->last_told);
}

/* Of all words that have passed, the first that has something is told; for one
** of another stream that is `theirs`. */
static int tell_words(cuda_stream *s, const tfd__error *theirs,
                      uint64_t *seq_p) {
  int rc = TFD_OK;

  while (rc == TFD_OK && s->words_n > 0 && has_passed(s, 0)) {
    const word *w = &s->words[s->words_first];

    if (s->values[w->place] != NOTHING && w->seq > s->void_to) {
      *seq_p = w->seq;
      rc = w->from != NULL ? tfd__error_raise(theirs) : raise_word(s, w);
      tell(s, w->seq);
    }
    s->values[w->place] = NOTHING;
    next_word(s);
  }
  return rc;
}

/* What others spoiled, once the stream has come there, unless a word comes
** before it. */
static int tell_spoiled(cuda_stream *s, uint64_t *seq_p) {
  const word *w = first_noted(s);
  uint64_t until = w != NULL && w->seq < s->passed ? w->seq : s->passed;
  int rc = raise_spoiled(s, until, seq_p);

  if (rc != TFD_OK) tell(s, *seq_p);
  return rc;
}

int tfd__cuda_failed(tfd__stream *stream, uint64_t *seq_p) {
  cuda_stream *s = of(stream);
  tfd__error theirs = {0};
  const word *w = NULL;
  int rc = TFD_OK;

  pthread_mutex_lock(&s->lock);
  while ((w = first_noted(s)) != NULL && w->from != NULL &&
         theirs.code == TFD_OK) {
    cuda_stream *from = w->from;

    pthread_mutex_unlock(&s->lock);
    (void)raise_of(from);
    tfd__error_save(&theirs);
    pthread_mutex_lock(&s->lock);
  }
  rc = tell_spoiled(s, seq_p);
  if (rc == TFD_OK) rc = tell_words(s, &theirs, seq_p);
  if (rc == TFD_OK && s->lost != CUDA_SUCCESS) {
    *seq_p = s->lost_from < s->passed ? s->lost_from : s->passed;
    s->lost_from = s->passed + 1;
    rc = tfd__cuda_lost(s->lost, s->config.name);
  }
  pthread_mutex_unlock(&s->lock);
  tfd__error_free(&theirs);
  return rc;
}
