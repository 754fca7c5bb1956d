/* Every collective over sizes, dtypes and operations, for any provider: a
** world is one process's part of a group, and check_world runs all cases on
** it. Every process of the group runs the same cases. Expected values are
** whole numbers added up one by one, so small that every dtype holds them. */
#ifndef SPEC_COMM_CASES_H
#define SPEC_COMM_CASES_H

#include "device_support.h"

#include "comm/comm.h"
#include "slower.h"

/* Whether pieces lie in memory that the group lends; SOME is other ones in each
** process. */
typedef enum lending { LENDS_NONE = 0, LENDS_ALL, LENDS_SOME } lending;

typedef struct world {
  tfd__group *group;
  bool small; /* few of the long sizes: for worlds that are made often */
  lending lends;
} world;

/* What the local ranks have, and where their results go. */
typedef struct pieces {
  tfd__view views[TFD_MAX_LOCAL_RANKS];
  tfd__piece list[TFD_MAX_LOCAL_RANKS];
} pieces;

static const int64_t case_sizes[] = {0,    1,    63,   64,   1000,
                                     8191, 8192, 8193, 30011};
enum { CASE_SIZES = sizeof case_sizes / sizeof case_sizes[0] };

/* Element j of rank r: 1, 2 or 3, for products 1 or 2, for truths 0 or 1. */
static inline double case_value(int64_t j, int r, int dtype, tfd_reduce_op op) {
  int64_t x = j * 5 + r * 7 + j / 64;

  if (dtype == TFD_BOOL) return (double)(x % 2);
  return (double)(op == TFD_REDUCE_PROD ? x % 2 + 1 : x % 3 + 1);
}

/* Element j of the reduction over all ranks; halves and floats divide as
** floats do. */
static inline double case_reduced(const tfd__group *g, int64_t j, int dtype,
                                  tfd_reduce_op op) {
  double total = case_value(j, 0, dtype, op);
  int r;

  for (r = 1; r < g->size; r++) {
    double x = case_value(j, r, dtype, op);

    switch (op) {
    case TFD_REDUCE_MIN:
      total = x < total ? x : total;
      break;
    case TFD_REDUCE_MAX:
      total = x > total ? x : total;
      break;
    case TFD_REDUCE_PROD:
      total *= x;
      break;
    default:
      total += x;
      break;
    }
  }
  if (op != TFD_REDUCE_MEAN) return total;
  if (dtype == TFD_FLOAT64) return total / g->size;
  return (double)((float)total / (float)g->size);
}

static inline tfd__buffer *room_for(const world *w, int i, size_t bytes) {
  static _Thread_local int made;
  tfd__buffer *b = NULL;
  bool lent = w->lends == LENDS_ALL ||
              (w->lends == LENDS_SOME && (made + w->group->base) / 2 % 2 == 0);

  made++;
  if (!lent) return buffer(w->group->devices[i], bytes);
  assert_int_equal(TFD_OK, tfd__group_buffer(w->group, i, bytes, &b));
  return b;
}

static inline void make_piece(const world *w, pieces *p, int i, int dtype,
                              int64_t n) {
  size_t bytes = (size_t)n * tfd__dtype_size(dtype);
  tfd__buffer *b = room_for(w, i, bytes == 0 ? 1 : bytes);

  assert_int_equal(TFD_OK, tfd__view_set(&p->views[i], dtype, &n, 1));
  p->views[i].data = b->data;
  p->list[i] = (tfd__piece){b, &p->views[i]};
}

static inline void make_pieces(const world *w, pieces *p, int dtype,
                               int64_t n) {
  int i;

  for (i = 0; i < w->group->local; i++) make_piece(w, p, i, dtype, n);
}

static inline void drop_pieces(const world *w, pieces *p) {
  int i;

  for (i = 0; i < w->group->local; i++) tfd__release(p->list[i].buffer);
}

/* A piece may be a part of another one. */
static inline size_t offset_of(const tfd__piece *p) {
  return (size_t)((char *)p->view->data - (char *)p->buffer->data);
}

static inline void fill_piece(const tfd__piece *p, int rank, tfd_reduce_op op) {
  size_t size = tfd__dtype_size(p->view->dtype);
  char *bytes = calloc((size_t)p->view->numel + 1, size);
  int64_t j;

  assert_non_null(bytes);
  for (j = 0; j < p->view->numel; j++) {
    tfd__store(bytes + (size_t)j * size, p->view->dtype,
               case_value(j, rank, p->view->dtype, op));
  }
  assert_int_equal(TFD_OK, tfd__host_write(p->buffer, offset_of(p), bytes,
                                           tfd__view_bytes(p->view)));
  free(bytes);
}

static inline void fill_pieces(const world *w, pieces *p, tfd_reduce_op op) {
  int i;

  for (i = 0; i < w->group->local; i++) {
    fill_piece(&p->list[i], w->group->base + i, op);
  }
}

/* Are elements [at, at + n) those of rank r (r < 0: the reduction), beginning
** with its element `from`? */
static inline void expect_run(const world *w, const tfd__piece *p, int64_t at,
                              int64_t n, int r, int64_t from,
                              tfd_reduce_op op) {
  int dtype = p->view->dtype;
  size_t size = tfd__dtype_size(dtype);
  char *bytes = calloc((size_t)n + 1, size);
  int64_t j;

  assert_non_null(bytes);
  assert_int_equal(TFD_OK,
                   tfd__host_read(p->buffer, offset_of(p) + (size_t)at * size,
                                  bytes, (size_t)n * size));
  for (j = 0; j < n; j++) {
    char cell[8];
    double x = r < 0 ? case_reduced(w->group, from + j, dtype, op)
                     : case_value(from + j, r, dtype, op);

    tfd__store(cell, dtype, x);
    if (memcmp(cell, bytes + (size_t)j * size, size) == 0) continue;
    fail_msg("%s of %lld: element %lld is %g, not %g", tfd__dtype_name(dtype),
             (long long)n, (long long)(at + j),
             tfd__load(bytes + (size_t)j * size, dtype),
             tfd__load(cell, dtype));
  }
  free(bytes);
}

static inline tfd__collective collective(tfd__collective_kind kind,
                                         tfd_reduce_op op, const pieces *in,
                                         const pieces *out) {
  return (tfd__collective){.kind = kind,
                           .op = op,
                           .values = 1,
                           .what = tfd__collective_name(kind),
                           .in = in->list,
                           .out = out->list};
}

/* Begin, wait, end. */
static inline void complete(const world *w, const tfd__collective *c) {
  tfd__ticket *t = NULL;

  if (tfd__group_begin(w->group, c, &t) != TFD_OK) {
    fail_msg("%s", tfd_error_message());
  }
  if (tfd__ticket_wait(t, tfd__deadline_in(300)) != TFD_OK) {
    fail_msg("%s", tfd_error_message());
  }
  tfd__ticket_end(t);
}

/* --- one case each -------------------------------------------------------- */

static inline void case_reductions(const world *w, int dtype, int64_t n,
                                   tfd_reduce_op op) {
  const tfd__group *g = w->group;
  pieces in;
  pieces out;
  tfd__collective c = collective(TFD_COLLECTIVE_ALL_REDUCE, op, &in, &out);
  int i;

  make_pieces(w, &in, dtype, n);
  make_pieces(w, &out, dtype, n);
  fill_pieces(w, &in, op);
  complete(w, &c);
  for (i = 0; i < g->local; i++) {
    expect_run(w, &out.list[i], 0, n, -1, 0, op);
    expect_run(w, &in.list[i], 0, n, g->base + i, 0, op);
  }
  c.kind = TFD_COLLECTIVE_REDUCE;
  for (c.root = 0; c.root<g->size; c.root += g->size> 2 ? 2 : 1) {
    int here = c.root - g->base;

    fill_pieces(w, &out, op); /* what was there must go */
    complete(w, &c);
    if (here >= 0 && here < g->local) {
      expect_run(w, &out.list[here], 0, n, -1, 0, op);
    }
  }
  c = collective(TFD_COLLECTIVE_ALL_REDUCE, op, &in, &in);
  complete(w, &c);
  for (i = 0; i < g->local; i++) {
    expect_run(w, &in.list[i], 0, n, -1, 0, op);
  }
  drop_pieces(w, &in);
  drop_pieces(w, &out);
}

static inline void case_scatter(const world *w, int dtype, int64_t each,
                                tfd_reduce_op op) {
  const tfd__group *g = w->group;
  pieces in;
  pieces out;
  tfd__collective c = collective(TFD_COLLECTIVE_REDUCE_SCATTER, op, &in, &out);
  int i;

  make_pieces(w, &in, dtype, each * g->size);
  make_pieces(w, &out, dtype, each);
  fill_pieces(w, &in, op);
  complete(w, &c);
  for (i = 0; i < g->local; i++) {
    expect_run(w, &out.list[i], 0, each, -1, (g->base + i) * each, op);
  }
  drop_pieces(w, &in);
  drop_pieces(w, &out);
}

static inline void case_broadcast(const world *w, int dtype, int64_t n) {
  const tfd__group *g = w->group;
  pieces p;
  tfd__collective c =
      collective(TFD_COLLECTIVE_BROADCAST, TFD_REDUCE_SUM, &p, &p);
  int i;

  make_pieces(w, &p, dtype, n);
  for (c.root = 0; c.root < g->size; c.root++) {
    fill_pieces(w, &p, c.op);
    complete(w, &c);
    for (i = 0; i < g->local; i++) {
      expect_run(w, &p.list[i], 0, n, c.root, 0, c.op);
    }
  }
  drop_pieces(w, &p);
}

/* Rank r gives n + r elements, the last rank of several none. */
static inline int64_t ragged(const tfd__group *g, int64_t n, int r) {
  return r > 0 && r == g->size - 1 ? 0 : n + r;
}

static inline void case_gather(const world *w, int dtype, int64_t n,
                               bool even) {
  const tfd__group *g = w->group;
  int64_t counts[TFD_MAX_LOCAL_RANKS];
  pieces in;
  pieces out;
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_GATHER, TFD_REDUCE_SUM, &in, &out);
  int64_t total = 0;
  int64_t at = 0;
  int i;
  int r;

  for (r = 0; r < g->size; r++) {
    counts[r] = even ? n : ragged(g, n, r);
    total += counts[r];
  }
  if (!even) c.counts = counts;
  for (i = 0; i < g->local; i++) {
    make_piece(w, &in, i, dtype, counts[g->base + i]);
  }
  make_pieces(w, &out, dtype, total);
  fill_pieces(w, &in, c.op);
  complete(w, &c);
  for (r = 0; r < g->size; r++) {
    for (i = 0; i < g->local; i++) {
      expect_run(w, &out.list[i], at, counts[r], r, 0, c.op);
    }
    at += counts[r];
  }
  drop_pieces(w, &in);
  drop_pieces(w, &out);
}

/* Values of a gather or a scatter: the root has the whole, each rank a part,
** which is the root's own place in the whole where it works in place. */
typedef struct rooted {
  const world *w;
  tfd__collective c;
  int64_t counts[2 * TFD_MAX_LOCAL_RANKS];
  pieces parts[2];
  pieces whole[2];
  tfd__piece lists[2][2 * TFD_MAX_LOCAL_RANKS]; /* of parts, of the whole */
} rooted;

static inline int64_t offset_in_whole(const rooted *v, int k, int r) {
  int64_t at = 0;
  int i;

  for (i = 0; i < r; i++) at += v->counts[k * v->w->group->size + i];
  return at;
}

static inline void make_rooted(rooted *v, int k, int dtype, bool in_place) {
  const tfd__group *g = v->w->group;
  int here = v->c.root - g->base;
  tfd__piece *whole = v->whole[k].list;
  int i;

  for (i = 0; i < g->local; i++) {
    make_piece(v->w, &v->parts[k], i, dtype,
               v->counts[k * g->size + g->base + i]);
  }
  if (here >= 0 && here < g->local) {
    make_piece(v->w, &v->whole[k], here, dtype, offset_in_whole(v, k, g->size));
    if (in_place) {
      tfd__release(v->parts[k].list[here].buffer);
      tfd__retain(whole[here].buffer);
      v->parts[k].list[here].buffer = whole[here].buffer;
      v->parts[k].views[here].data =
          (char *)whole[here].view->data +
          (size_t)offset_in_whole(v, k, v->c.root) * tfd__dtype_size(dtype);
    }
  }
  memcpy(v->lists[0] + k * g->local, v->parts[k].list,
         (size_t)g->local * sizeof *whole);
  memcpy(v->lists[1] + k * g->local, whole, (size_t)g->local * sizeof *whole);
}

/* What is given comes last: what was there must go. */
static inline void fill_rooted(const rooted *v, bool parts) {
  const tfd__group *g = v->w->group;
  int i;

  for (i = 0; i < v->c.values * g->local; i++) {
    const tfd__piece *p = &v->lists[parts ? 0 : 1][i];

    if (p->buffer != NULL) fill_piece(p, g->base + i % g->local, v->c.op);
  }
}

static inline void expect_rooted(const rooted *v, int k) {
  const tfd__group *g = v->w->group;
  bool gathers = v->c.kind == TFD_COLLECTIVE_GATHER;
  int r;

  for (r = 0; r < g->size; r++) {
    int64_t at = offset_in_whole(v, k, r);
    int i = (gathers ? v->c.root : r) - g->base;

    if (i < 0 || i >= g->local) continue;
    expect_run(v->w, &v->c.out[k * g->local + i], gathers ? at : 0,
               v->counts[k * g->size + r], gathers ? r : v->c.root,
               gathers ? 0 : at, v->c.op);
  }
}

/* One value whose pieces are all alike, or two of ragged ones. */
static inline void case_rooted(const world *w, tfd__collective_kind kind,
                               int root, int dtype, int64_t n, bool even) {
  const tfd__group *g = w->group;
  bool gathers = kind == TFD_COLLECTIVE_GATHER;
  rooted v = {.w = w,
              .c = {.kind = kind,
                    .root = root,
                    .values = even ? 1 : 2,
                    .what = tfd__collective_name(kind),
                    .in = v.lists[gathers ? 0 : 1],
                    .out = v.lists[gathers ? 1 : 0],
                    .counts = even ? NULL : v.counts}};
  int k;
  int r;

  for (k = 0; k < v.c.values; k++) {
    for (r = 0; r < g->size; r++) {
      v.counts[k * g->size + r] =
          even ? n : ragged(g, n, k == 0 ? r : g->size - 1 - r);
    }
    make_rooted(&v, k, k == 0 ? dtype : TFD_INT16, root % 2 == 1);
  }
  fill_rooted(&v, !gathers);
  fill_rooted(&v, gathers);
  complete(w, &v.c);
  for (k = 0; k < v.c.values; k++) {
    expect_rooted(&v, k);
    drop_pieces(w, &v.parts[k]);
    drop_pieces(w, &v.whole[k]);
  }
}

/* Ragged ones to and from each root, of long ones the first and the last. */
static inline void case_pieces(const world *w, int dtype, int64_t n) {
  int size = w->group->size;
  int step = n > 1000 && size > 2 ? size - 1 : 1;
  int root;

  for (root = 0; root < size; root += step) {
    case_rooted(w, TFD_COLLECTIVE_GATHER, root, dtype, n, false);
    case_rooted(w, TFD_COLLECTIVE_SCATTER, root, dtype, n, false);
  }
  case_rooted(w, TFD_COLLECTIVE_GATHER, size / 2, dtype, n, true);
  case_rooted(w, TFD_COLLECTIVE_SCATTER, size / 2, dtype, n, true);
}

/* Three values of different dtypes and sizes at once. */
static inline void case_several(const world *w) {
  static const int dtypes[3] = {TFD_FLOAT32, TFD_INT8, TFD_BFLOAT16};
  static const int64_t sizes[3] = {9000, 5, 100};
  const tfd__group *g = w->group;
  tfd__piece in[3 * TFD_MAX_LOCAL_RANKS];
  tfd__piece out[3 * TFD_MAX_LOCAL_RANKS];
  pieces p[6];
  tfd__collective c = {.kind = TFD_COLLECTIVE_ALL_REDUCE,
                       .op = TFD_REDUCE_SUM,
                       .values = 3,
                       .what = "several",
                       .in = in,
                       .out = out};
  int k;
  int i;

  for (k = 0; k < 3; k++) {
    make_pieces(w, &p[k], dtypes[k], sizes[k]);
    make_pieces(w, &p[3 + k], dtypes[k], sizes[k]);
    fill_pieces(w, &p[k], c.op);
    memcpy(in + k * g->local, p[k].list, (size_t)g->local * sizeof *in);
    memcpy(out + k * g->local, p[3 + k].list, (size_t)g->local * sizeof *in);
  }
  complete(w, &c);
  for (k = 0; k < 3; k++) {
    for (i = 0; i < g->local; i++) {
      expect_run(w, &p[3 + k].list[i], 0, sizes[k], -1, 0, c.op);
    }
    drop_pieces(w, &p[k]);
    drop_pieces(w, &p[3 + k]);
  }
}

/* One collective of any kind, in which each rank gives or gets n elements of
** float32; its status. */
static inline int run_kind(const world *w, tfd__collective_kind kind, int root,
                           int64_t n, double seconds) {
  int64_t all = n * w->group->size;
  bool scatters =
      kind == TFD_COLLECTIVE_REDUCE_SCATTER || kind == TFD_COLLECTIVE_SCATTER;
  bool gathers =
      kind == TFD_COLLECTIVE_ALL_GATHER || kind == TFD_COLLECTIVE_GATHER;
  pieces in;
  pieces out;
  tfd__collective c = collective(kind, TFD_REDUCE_SUM, &in, &out);
  int rc;

  make_pieces(w, &in, TFD_FLOAT32, scatters ? all : n);
  make_pieces(w, &out, TFD_FLOAT32, gathers ? all : n);
  fill_pieces(w, &in, c.op);
  c.root = root;
  c.file = "train.lua";
  c.line = 7;
  if (kind == TFD_COLLECTIVE_BARRIER) c.values = 0;
  rc = tfd__group_run(w->group, &c, tfd__deadline_in(seconds));
  drop_pieces(w, &in);
  drop_pieces(w, &out);
  return rc;
}

/* Sums of two groups, two of each, which every process waits for in an order of
** its own. */
static inline void case_two_groups(const world w[2], bool backwards) {
  pieces p[4];
  tfd__ticket *t[4];
  int i;

  for (i = 0; i < 4; i++) {
    tfd__collective c =
        collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &p[i], &p[i]);

    make_pieces(&w[i % 2], &p[i], TFD_FLOAT32, 200000 + i);
    fill_pieces(&w[i % 2], &p[i], c.op);
    if (tfd__group_begin(w[i % 2].group, &c, &t[i]) != TFD_OK) {
      fail_msg("%s", tfd_error_message());
    }
  }
  for (i = 0; i < 4; i++) {
    int k = backwards ? 3 - i : i;

    if (tfd__ticket_wait(t[k], tfd__deadline_in(120)) != TFD_OK) {
      fail_msg("%s", tfd_error_message());
    }
    expect_run(&w[k % 2], &p[k].list[0], 0, 200000 + k, -1, 0, TFD_REDUCE_SUM);
    tfd__ticket_end(t[k]);
    drop_pieces(&w[k % 2], &p[k]);
  }
}

/* A sum of n elements in w that is begun, and its end. */
typedef struct begun {
  const world *w;
  int64_t n;
  pieces p;
  tfd__ticket *ticket;
} begun;

static inline void begin_sum(begun *b, const world *w, int64_t n) {
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &b->p, &b->p);

  b->w = w;
  b->n = n;
  make_pieces(w, &b->p, TFD_FLOAT32, n);
  fill_pieces(w, &b->p, c.op);
  if (tfd__group_begin(w->group, &c, &b->ticket) != TFD_OK) {
    fail_msg("%s", tfd_error_message());
  }
}

static inline void end_sum(begun *b) {
  if (tfd__ticket_wait(b->ticket, tfd__deadline_in(120)) != TFD_OK) {
    fail_msg("%s", tfd_error_message());
  }
  expect_run(b->w, &b->p.list[0], 0, b->n, -1, 0, TFD_REDUCE_SUM);
  tfd__ticket_end(b->ticket);
  drop_pieces(b->w, &b->p);
}

/* Two groups, where some processes wait in the first before they begin in the
** second, and the others wait in the second for these. */
static inline void case_other_order(const world w[2], bool at_once, int64_t n) {
  begun first;
  begun second;

  begin_sum(&first, &w[0], n);
  if (at_once) end_sum(&first);
  begin_sum(&second, &w[1], n + 1);
  end_sum(&second);
  if (!at_once) end_sum(&first);
}

/* --- all of them ---------------------------------------------------------- */

/* Who adds up halves in float32; NCCL does not, and what the processes of a host
** have together is rounded before it meets the other hosts'. */
static inline bool adds_wide(const char *provider) {
  static const char *const names[] = {"shm",     "tcp",      "ring",
                                      "halving", "doubling", "mpi"};
  size_t k;

  for (k = 0; k < sizeof names / sizeof *names; k++) {
    if (strcmp(names[k], provider) == 0) return true;
  }
  return false;
}

/* Halves: rank 0 has a number beside which 1, the other ranks', is lost unless
** it is added up in float32. What the ranks of a process have together is rounded
** before it meets the others', except by MPI. */
static inline void case_halves(const world *w, int dtype, double large) {
  enum { N = 67 };
  const tfd__group *g = w->group;
  const char *provider = g->provider->name;
  int together = strcmp(provider, "mpi") == 0 ? g->size : g->local;
  uint16_t values[N];
  uint16_t want;
  pieces in;
  tfd__collective c =
      collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &in, &in);
  int i;
  int j;

  if (!adds_wide(provider)) return;
  tfd__store(&want, dtype, large + together - 1);
  tfd__store(&want, dtype, tfd__load(&want, dtype) + g->size - together);
  make_pieces(w, &in, dtype, N);
  for (i = 0; i < g->local; i++) {
    for (j = 0; j < N; j++) {
      tfd__store(&values[j], dtype, g->base + i == 0 ? large : 1);
    }
    assert_int_equal(
        TFD_OK, tfd__host_write(in.list[i].buffer, 0, values, sizeof values));
  }
  complete(w, &c);
  for (i = 0; i < g->local; i++) {
    assert_int_equal(
        TFD_OK, tfd__host_read(in.list[i].buffer, 0, values, sizeof values));
    for (j = 0; j < N; j++) {
      if (values[j] == want) continue;
      fail_msg("%s of %d ranks: element %d is %g, not %g",
               tfd__dtype_name(dtype), g->size, j, tfd__load(&values[j], dtype),
               tfd__load(&want, dtype));
    }
  }
  drop_pieces(w, &in);
}

/* Values whose sum depends on the order. */
static inline void fill_unevenly(const world *w, pieces *p, int64_t n) {
  float *values = calloc((size_t)n, sizeof *values);
  int64_t j;
  int i;

  assert_non_null(values);
  for (i = 0; i < w->group->local; i++) {
    uint32_t x = 1 + (uint32_t)(w->group->base + i) * 7919;

    for (j = 0; j < n; j++) {
      x = x * 1664525 + 1013904223;
      values[j] = (float)((double)(int32_t)x / (double)(1 << x % 29));
    }
    assert_int_equal(TFD_OK, tfd__host_write(p->list[i].buffer, 0, values,
                                             (size_t)n * sizeof *values));
  }
  free(values);
}

/* All ranks have the same bits, and once more the same ones. */
static inline void case_same_bits(const world *w, int64_t n) {
  const tfd__group *g = w->group;
  size_t bytes = (size_t)n * sizeof(float);
  char *all = malloc((size_t)g->size * bytes);
  char *first = malloc(bytes);
  pieces in;
  pieces out;
  pieces whole;
  tfd__collective sum =
      collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &in, &out);
  tfd__collective gather =
      collective(TFD_COLLECTIVE_ALL_GATHER, TFD_REDUCE_SUM, &out, &whole);
  int turn;
  int r;

  assert_non_null(all);
  assert_non_null(first);
  make_pieces(w, &in, TFD_FLOAT32, n);
  make_pieces(w, &out, TFD_FLOAT32, n);
  make_pieces(w, &whole, TFD_FLOAT32, n * g->size);
  for (turn = 0; turn < 2; turn++) {
    fill_unevenly(w, &in, n);
    complete(w, &sum);
    complete(w, &gather);
    assert_int_equal(TFD_OK, tfd__host_read(whole.list[0].buffer, 0, all,
                                            (size_t)g->size * bytes));
    if (turn == 0) memcpy(first, all, bytes);
    for (r = 0; r < g->size; r++) {
      assert_memory_equal(first, all + (size_t)r * bytes, bytes);
    }
  }
  drop_pieces(w, &in);
  drop_pieces(w, &out);
  drop_pieces(w, &whole);
  free(first);
  free(all);
}

/* Runs that are shared among devices are tried for one dtype of each way. */
static inline bool is_tried(const world *w, int dtype, int64_t n) {
  bool leads = dtype == TFD_FLOAT32 || dtype == TFD_BFLOAT16 ||
               dtype == TFD_INT64 || dtype == TFD_INT8;

  return n < 8191 || (leads && !w->small) || dtype == TFD_FLOAT32;
}

static inline void check_reductions(const world *w, int dtype, int64_t n) {
  int op;

  for (op = TFD_REDUCE_SUM; op <= TFD_REDUCE_PROD; op++) {
    if (op == TFD_REDUCE_MEAN && !tfd__is_float(dtype)) continue;
    if (op > TFD_REDUCE_MEAN && n > 1000 && n != 8193) continue;
    case_reductions(w, dtype, n, (tfd_reduce_op)op);
  }
  case_scatter(w, dtype, n > 3000 ? 3001 : n, TFD_REDUCE_SUM);
}

static inline void check_size(const world *w, int dtype, int64_t n) {
  if (!is_tried(w, dtype, n)) return;
  case_broadcast(w, dtype, n);
  case_gather(w, dtype, n, true);
  case_gather(w, dtype, n, false);
  case_pieces(w, dtype, n);
  if (dtype != TFD_BOOL) check_reductions(w, dtype, n);
}

/* Nothing, one, fewer than there are ranks, and what ranks share unevenly. */
static inline void check_odd_sizes(const world *w, int dtype) {
  static const int64_t sizes[] = {0, 1, 7, 101};
  size_t s;

  for (s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    check_size(w, dtype, sizes[s]);
  }
}

static inline void check_world(const world *w) {
  tfd__collective barrier = {.kind = TFD_COLLECTIVE_BARRIER, .what = "barrier"};
  int dtype;
  int s;

  complete(w, &barrier);
  case_several(w);
  case_halves(w, TFD_FLOAT16, 2048);
  case_halves(w, TFD_BFLOAT16, 256);
  case_same_bits(w, w->small ? 1001 : 10007);
  for (dtype = 1; dtype < TFD_DTYPE_END; dtype++) {
    check_odd_sizes(w, dtype);
    if (w->small && dtype % 3 != 1) continue;
    for (s = 0; s < CASE_SIZES; s += w->small ? 3 : 1) {
      check_size(w, dtype, case_sizes[s]);
    }
  }
}

/* Values of several rounds or frames, the last one odd; with TFD_LONG 64 MB. */
static inline void check_long_values(const world *w) {
  int64_t numel =
      getenv("TFD_LONG") != NULL ? (16 << 20) + 3 : 700001 / SHORTER;

  case_reductions(w, TFD_FLOAT32, numel, TFD_REDUCE_MEAN);
  case_reductions(w, TFD_INT8, numel, TFD_REDUCE_MAX);
  case_reductions(w, TFD_BFLOAT16, numel, TFD_REDUCE_SUM);
  case_scatter(w, TFD_FLOAT64, numel / 3, TFD_REDUCE_SUM);
  case_broadcast(w, TFD_INT16, numel);
  case_gather(w, TFD_FLOAT32, numel / 3, false);
  case_pieces(w, TFD_FLOAT32, numel);
}

#endif
