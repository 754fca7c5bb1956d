/* A timeline as Chrome's trace format, which Perfetto reads too, and as a
** table.
**
** A thread's spans lie inside each other; a span's own time is what those
** inside it leave. What no span of the host's thread covers is Lua's: so own
** times of that thread add up to the whole. Replicas' turns and ranges of the
** script, between which the host changes, have tracks of their own. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/profile.h"

static const char *const categories[TFD_SPAN_KINDS] = {
    "op", "graph", "transfer", "collective", "wait", "replica", "user", "lua"};
static const char *const titles[TFD_SPAN_KINDS] = {
    "ops",     "graphs",   "transfers", "collectives",
    "waiting", "replicas", "ranges",    "Lua"};

/* Track numbers of the file. */
enum { REPLICAS = 1000, RANGES = 2000 };
/* Rows of the table, and names that it tells apart. */
enum { ROWS = 12, NAMES = 1024 };

typedef struct row {
  const char *name;
  int64_t calls;
  int64_t ns;
} row;

typedef struct timeline {
  int64_t from;
  int64_t to;
  int64_t host_from;           /* what is kept of the host begins there */
  FILE *file;                  /* NULL = none */
  bool first;                  /* nothing stands before the next event */
  int64_t own[TFD_SPAN_KINDS]; /* of the host's thread */
  int64_t busy;                /* of all others */
  int64_t lost;
  int64_t steps;
  int64_t steps_ns;
  row rows[NAMES];
  int rows_n;
} timeline;

/* --- the file ------------------------------------------------------------- */

static void put_text(FILE *f, const char *text) {
  const unsigned char *c = (const unsigned char *)text;

  fputc('"', f);
  for (; *c != 0; c++) {
    if (*c == '"' || *c == '\\') {
      fprintf(f, "\\%c", *c);
    } else if (*c < 0x20) {
      fprintf(f, "\\u%04x", *c);
    } else {
      fputc(*c, f);
    }
  }
  fputc('"', f);
}

static void separate(timeline *t) {
  fputs(t->first ? "\n" : ",\n", t->file);
  t->first = false;
}

static void put_track(timeline *t, int number, const char *name) {
  if (t->file == NULL) return;
  separate(t);
  fprintf(t->file,
          "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\","
          "\"args\":{\"name\":",
          (int)getpid(), number);
  put_text(t->file, name);
  fputs("}}", t->file);
}

/* Microseconds, to the nanosecond. */
static void put_time(timeline *t, const char *key, int64_t ns) {
  fprintf(t->file, "\"%s\":%" PRId64 ".%03d,", key, ns / 1000,
          (int)(ns % 1000));
}

static void put_span(timeline *t, int track, const tfd__span *s) {
  if (t->file == NULL) return;
  separate(t);
  fputs("{\"ph\":\"X\",\"name\":", t->file);
  put_text(t->file, s->name);
  fprintf(t->file, ",\"cat\":\"%s\",", categories[s->kind]);
  put_time(t, "ts", s->begin - t->from);
  put_time(t, "dur", s->end - s->begin);
  fprintf(t->file, "\"pid\":%d,\"tid\":%d", (int)getpid(), track);
  if (s->step >= 0) {
    fprintf(t->file, ",\"args\":{\"step\":%" PRId64 "}", s->step);
  } else if (s->replica >= 0) {
    fprintf(t->file, ",\"args\":{\"replica\":%d}", s->replica);
  }
  fputc('}', t->file);
}

/* --- own times ------------------------------------------------------------ */

static void add_row(timeline *t, const tfd__span *s, int64_t own) {
  int i = 0;

  while (i < t->rows_n && t->rows[i].name != s->name &&
         strcmp(t->rows[i].name, s->name) != 0) {
    i++;
  }
  if (i == NAMES) return;
  if (i == t->rows_n) t->rows[t->rows_n++] = (row){.name = s->name};
  t->rows[i].calls++;
  t->rows[i].ns += own;
}

static void count(timeline *t, bool host, const tfd__span *s, int64_t own) {
  bool works = s->kind == TFD_SPAN_OP || s->kind == TFD_SPAN_TRANSFER ||
               s->kind == TFD_SPAN_COLLECTIVE;

  if (works) add_row(t, s, own);
  if (host) {
    t->own[s->kind] += own;
  } else {
    t->busy += own;
  }
}

static void lua_until(timeline *t, int track, int64_t from, int64_t to) {
  tfd__span gap = {.begin = from,
                   .end = to,
                   .name = "Lua",
                   .step = -1,
                   .replica = -1,
                   .kind = TFD_SPAN_LUA};

  if (to <= from) return;
  t->own[TFD_SPAN_LUA] += to - from;
  put_span(t, track, &gap);
}

/* Spans sorted by begin, the longer first. They nest, so that those that are
** open make a stack. */
enum { DEPTH = 64 };

static void walk(timeline *t, int track, bool host, const tfd__span *spans,
                 size_t n, int64_t from) {
  const tfd__span *open[DEPTH];
  int64_t inside[DEPTH]; /* what lies in them */
  int64_t at = from;
  int depth = 0;
  size_t i;

  for (i = 0; i <= n; i++) {
    const tfd__span *s = i < n ? &spans[i] : NULL;

    while (depth > 0 && (s == NULL || s->begin >= open[depth - 1]->end)) {
      const tfd__span *o = open[--depth];

      count(t, host, o, o->end - o->begin - inside[depth]);
      if (depth > 0) inside[depth - 1] += o->end - o->begin;
    }
    if (s == NULL || depth == DEPTH) continue;
    if (depth == 0 && host) lua_until(t, track, at, s->begin);
    if (depth == 0) at = s->end;
    put_span(t, track, s);
    open[depth] = s;
    inside[depth++] = 0;
  }
  if (host) lua_until(t, track, at, t->to);
}

/* --- tracks --------------------------------------------------------------- */

static int by_time(const void *a, const void *b) {
  const tfd__span *x = a;
  const tfd__span *y = b;

  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end > y->end ? -1 : 1;
  /* Noted at once: what holds others is of a higher kind. */
  return (int)y->kind - (int)x->kind;
}

/* The host goes from one to the other: a track for each replica. */
static bool stands_apart(timeline *t, const tfd__span *s) {
  int track = s->kind == TFD_SPAN_REPLICA ? REPLICAS : RANGES;

  if (s->kind != TFD_SPAN_REPLICA && s->kind != TFD_SPAN_USER) return false;
  put_span(t, track + 1 + s->replica, s);
  if (s->step >= 0) {
    t->steps++;
    t->steps_ns += s->end - s->begin;
  }
  return true;
}

/* The spans of a thread that are inside the timeline, into `list`. */
static size_t take(timeline *t, const tfd__track *track, tfd__span *list) {
  uint64_t end = atomic_load_explicit(&track->n, memory_order_acquire);
  /* The oldest one may be being overwritten. */
  uint64_t i = end < TFD_TRACK_SPANS ? 0 : end - TFD_TRACK_SPANS + 1;
  uint64_t first = i;
  size_t n = 0;

  for (; i < end; i++) {
    const tfd__span *s = &track->spans[i % TFD_TRACK_SPANS];

    if (s->end < t->from) continue;
    if (i == first && first > 0) t->lost++;
    if (s->begin < t->from || s->end > t->to || stands_apart(t, s)) continue;
    list[n++] = *s;
  }
  return n;
}

static int write_track(timeline *t, const tfd__track *track, int number) {
  tfd__span *list = tfd__alloc(TFD_TRACK_SPANS * sizeof *list);
  int64_t lost = t->lost;
  int64_t from = t->from;
  size_t n = 0;

  if (list == NULL) {
    return tfd__no_memory(TFD_TRACK_SPANS * sizeof *list, "profiler");
  }
  n = take(t, track, list);
  qsort(list, n, sizeof *list, by_time);
  if (t->lost > lost && n > 0) from = list[0].begin;
  if (n > 0 || track->host) {
    put_track(t, number, track->host ? "host" : track->name);
  }
  if (track->host) t->host_from = from;
  walk(t, number, track->host, list, n, from);
  tfd__free(list);
  return TFD_OK;
}

/* Of the replicas that are here, which are `first` and more among all. */
static void name_tracks(timeline *t, int first, int end) {
  char name[64];
  int i;

  put_track(t, RANGES, "ranges");
  for (i = first; i < end; i++) {
    (void)snprintf(name, sizeof name, "replica %d", i);
    put_track(t, REPLICAS + 1 + i, name);
    (void)snprintf(name, sizeof name, "ranges of replica %d", i);
    put_track(t, RANGES + 1 + i, name);
  }
}

static void find_replicas(const tfd__track *track, int *first_p, int *end_p) {
  int first = INT_MAX;
  int end = 0;

  for (; track != NULL; track = track->next) {
    uint64_t n = atomic_load_explicit(&track->n, memory_order_acquire);
    uint64_t i = n < TFD_TRACK_SPANS ? 0 : n - TFD_TRACK_SPANS + 1;

    for (; i < n; i++) {
      const tfd__span *s = &track->spans[i % TFD_TRACK_SPANS];

      if (s->replica >= end) end = s->replica + 1;
      if (s->replica >= 0 && s->replica < first) first = s->replica;
    }
  }
  *first_p = first;
  *end_p = end;
}

/* --- the table ------------------------------------------------------------ */

static int by_ns(const void *a, const void *b) {
  const row *x = a;
  const row *y = b;

  return x->ns > y->ns ? -1 : x->ns < y->ns ? 1 : strcmp(x->name, y->name);
}

static void print_rows(timeline *t, FILE *out) {
  int64_t all = 0;
  int i;

  for (i = 0; i < t->rows_n; i++) all += t->rows[i].ns;
  if (all == 0) return;
  qsort(t->rows, (size_t)t->rows_n, sizeof *t->rows, by_ns);
  fprintf(out, "%10s %6s %9s %10s  op\n", "ms", "share", "calls", "us each");
  for (i = 0; i < t->rows_n && i < ROWS; i++) {
    const row *r = &t->rows[i];

    fprintf(out, "%10.3f %5.1f%% %9" PRId64 " %10.2f  %.60s\n",
            (double)r->ns / 1e6, 100.0 * (double)r->ns / (double)all, r->calls,
            (double)r->ns / 1e3 / (double)r->calls, r->name);
  }
  if (t->rows_n > ROWS) fprintf(out, "  ... %d more\n", t->rows_n - ROWS);
}

static void print(timeline *t, FILE *out, const char *path) {
  double kept = (double)(t->to - t->host_from);
  int k;

  fprintf(out, "profile of %.3f s, host", (double)(t->to - t->from) / 1e9);
  if (t->host_from > t->from) fprintf(out, " in the last %.3f s", kept / 1e9);
  fputc(':', out);
  for (k = 0; k < TFD_SPAN_KINDS; k++) {
    if (t->own[k] == 0) continue;
    fprintf(out, " %s %.1f ms (%.0f%%)", titles[k], (double)t->own[k] / 1e6,
            100.0 * (double)t->own[k] / kept);
  }
  if (t->busy > 0) {
    fprintf(out, "; other threads: %.1f ms", (double)t->busy / 1e6);
  }
  fputc('\n', out);
  if (t->steps > 0) {
    fprintf(out, "%" PRId64 " steps of %.3f ms\n", t->steps,
            (double)t->steps_ns / 1e6 / (double)t->steps);
  }
  print_rows(t, out);
  if (t->lost > 0) {
    fprintf(out, "the latest %d spans of each thread are shown\n",
            TFD_TRACK_SPANS);
  }
  if (path[0] != 0) {
    fprintf(out, "timeline: %s (ui.perfetto.dev, chrome://tracing)\n", path);
  }
}

static int write_table(timeline *t, const char *path, char **table_p) {
  char *text = NULL;
  size_t n = 0;
  FILE *out = open_memstream(&text, &n);

  if (out == NULL) return tfd__no_memory(1, "profiler");
  print(t, out, path);
  if (fclose(out) == 0) *table_p = tfd__strdup(text);
  free(text); /* the C library's */
  return *table_p != NULL ? TFD_OK : tfd__no_memory(n, "profiler");
}

/* --- the whole ------------------------------------------------------------ */

static int write_tracks(timeline *t, const tfd__track *tracks) {
  const tfd__track *track = NULL;
  int number = 0;
  int first = 0;
  int end = 0;

  if (t->file != NULL) {
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", t->file);
  }
  find_replicas(tracks, &first, &end);
  name_tracks(t, first, end);
  for (track = tracks; track != NULL; track = track->next) {
    TFD_TRY(write_track(t, track, ++number));
  }
  if (t->file != NULL) fputs("\n]}\n", t->file);
  return TFD_OK;
}

static int cannot_write(const char *path) {
  return tfd__fail(errno == ENOENT ? TFD_NOT_FOUND : TFD_UNAVAILABLE,
                   "profiler: cannot write %s: %s", path, strerror(errno));
}

int tfd__timeline_write(tfd__track *tracks, int64_t from, int64_t to,
                        const char *path, char **table_p) {
  timeline *t = tfd__calloc(1, sizeof *t);
  int rc = TFD_OK;
  bool bad = false;

  if (t == NULL) return tfd__no_memory(sizeof *t, "profiler");
  t->from = from;
  t->host_from = from;
  t->to = to;
  t->first = true;
  if (path[0] != 0) {
    t->file = fopen(path, "we");
    if (t->file == NULL) rc = cannot_write(path);
  }
  if (rc == TFD_OK) rc = write_tracks(t, tracks);
  if (t->file != NULL) {
    bad = ferror(t->file) != 0;
    bad = fclose(t->file) != 0 || bad;
  }
  if (rc == TFD_OK && bad) rc = cannot_write(path);
  if (rc == TFD_OK) rc = write_table(t, path, table_p);
  tfd__free(t);
  return rc;
}
