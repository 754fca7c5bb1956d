/* A collective under way: what it keeps, and how others recognise it. */
#include <stdio.h>
#include <string.h>

#include "comm/mpi/mpi.h"

/* --- what all must agree on --------------------------------------------------
 */

static void mix(uint64_t *hash, int64_t value) {
  *hash = (*hash ^ (uint64_t)value) * UINT64_C(0x9e3779b97f4a7c15);
  *hash ^= *hash >> 29;
}

void tfd__mpi_describe(const tfd__mpi_work *w, char text[TFD_MPI_TEXT]) {
  const tfd__collective *c = &w->c;
  char file[40];
  size_t n = 0;

  memset(text, 0, TFD_MPI_TEXT); /* all of it is sent */
  tfd__collective_text(w->what, w->count, c->values, text, TFD_MPI_TEXT);
  n = strlen(text);
  if (c->line == 0) return;
  tfd__file_end(c->file, file, sizeof file);
  (void)snprintf(text + n, TFD_MPI_TEXT - n, " at %s:%d", file, c->line);
}

/* Of the elements that go along with a round, where nothing else must move. */
static bool is_small(const tfd__mpi_work *w) {
  size_t bytes = 0;
  int k;

  if (w->c.kind == TFD_COLLECTIVE_BARRIER) return true;
  if (w->c.kind != TFD_COLLECTIVE_ALL_REDUCE) return false;
  for (k = 0; k < w->c.values && bytes <= TFD_MPI_SMALL; k++) {
    bytes += (tfd__view_bytes(&w->parts[k].give.view) + 7) / 8 * 8;
  }
  return bytes <= TFD_MPI_SMALL;
}

void tfd__mpi_sign(const tfd__group *g, tfd__mpi_work *w) {
  const tfd__collective *c = &w->c;
  const tfd__view *v = tfd__leading_view(g, c);
  uint64_t hash = UINT64_C(14695981039346656037);
  int k;
  int r;

  mix(&hash, (int64_t)c->kind);
  mix(&hash, tfd__mpi_reduces(c) ? (int64_t)c->op : -1);
  mix(&hash, tfd__has_root(c->kind) ? c->root : -1);
  mix(&hash, c->values);
  for (k = 0; k < c->values; k++) {
    const tfd__view *leader = tfd__leader(g, c, k)->view;

    mix(&hash, leader->dtype);
    if (!tfd__is_ragged(c->kind)) mix(&hash, leader->numel);
    for (r = 0; c->counts != NULL && r < g->size; r++) {
      mix(&hash, tfd__gather_count(g, c, k, r));
    }
  }
  w->what = tfd__collective_what(c, v == NULL ? 0 : v->dtype);
  mix(&hash, (int64_t)w->what); /* which has the operation's name, too */
  w->hash = hash;
  w->count = v == NULL ? 0 : (uint64_t)v->numel;
  w->is_small = is_small(w);
}

bool tfd__mpi_is_long(const tfd__mpi_group *g, const tfd__mpi_work *w, int k) {
  return w->c.kind == TFD_COLLECTIVE_ALL_REDUCE && g->processes > 1 &&
         (int64_t)tfd__view_bytes(&w->parts[k].give.view) / g->processes >=
             TFD_MPI_SHARE;
}

/* --- making work -------------------------------------------------------------
 */

void tfd__mpi_work_free(tfd__mpi_work *w) {
  int n = w->c.values;
  int k;

  for (k = 0; k < n; k++) {
    if (w->parts[k].owns_give) tfd__release(w->parts[k].give.buffer);
    if (w->parts[k].owns_take) tfd__release(w->parts[k].take.buffer);
  }
  for (k = 0; k < w->pieces; k++) {
    tfd__release(w->in[k].buffer);
    tfd__release(w->out[k].buffer);
  }
  tfd__free(w->requests);
  tfd__free(w->ring.places);
  tfd__free(w);
}

/* n pieces with views of their own from `views` on; buffers are kept alive. */
static void keep_pieces(const tfd__piece *from, int n, tfd__piece *to,
                        tfd__view *views) {
  int i;

  for (i = 0; from != NULL && i < n; i++) {
    if (from[i].buffer == NULL) continue;
    views[i] = *from[i].view;
    tfd__retain(from[i].buffer);
    to[i] = (tfd__piece){from[i].buffer, &views[i]};
  }
}

/* Whether or not it was given some: what has pieces has counts from here on. */
static void keep_counts(const tfd__group *g, const tfd__collective *c,
                        int64_t *counts) {
  int k;
  int r;

  for (k = 0; k < c->values; k++) {
    for (r = 0; r < g->size; r++) {
      counts[(ptrdiff_t)k * g->size + r] = tfd__gather_count(g, c, k, r);
    }
  }
}

/* The next `bytes` of a block; what lies there are pointers and 64-bit numbers.
 */
static void *next_of(char **block_p, size_t bytes) {
  void *p = *block_p;

  *block_p += bytes;
  return p;
}

int tfd__mpi_work_new(const tfd__group *g, const tfd__collective *c,
                      tfd__mpi_work **w_p) {
  size_t n = (size_t)(c->values * g->local);
  size_t pieces = n * sizeof(tfd__piece);
  size_t views = n * sizeof(tfd__view);
  size_t parts = (size_t)c->values * sizeof(tfd__mpi_part);
  size_t seqs = (size_t)g->local * sizeof(uint64_t);
  size_t counts = tfd__is_ragged(c->kind)
                      ? (size_t)(c->values * g->size) * sizeof(int64_t)
                      : 0;
  size_t behind = 2 * (pieces + views) + parts + seqs + counts;
  tfd__mpi_work *w = tfd__alloc(sizeof *w + behind);
  char *block = (char *)(w + 1);
  int64_t *counted = NULL;
  tfd__view *view = NULL;

  if (w == NULL) return tfd__no_memory(sizeof *w + behind, c->what);
  memset(w, 0, offsetof(tfd__mpi_work, round.here)); /* the rest is large */
  memset(block, 0, behind);
  w->c = *c;
  w->in = next_of(&block, pieces);
  w->out = next_of(&block, pieces);
  view = next_of(&block, 2 * views);
  w->parts = next_of(&block, parts);
  w->seqs = next_of(&block, seqs);
  if (counts > 0) counted = next_of(&block, counts);
  w->pieces = (int)n;
  keep_pieces(c->in, w->pieces, w->in, view);
  keep_pieces(c->out, w->pieces, w->out, view + n);
  if (counts > 0) keep_counts(g, c, counted);
  w->c.in = w->in;
  w->c.out = w->out;
  w->c.counts = counted;
  *w_p = w;
  return TFD_OK;
}
