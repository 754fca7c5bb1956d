/* What MPI is asked to do for each collective: requests, cut where counts would
** not fit an int. */
#include <math.h>
#include <string.h>

#include "comm/mpi/mpi.h"

int tfd__mpi_error(const char *call, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int n = 0;

  (void)MPI_Error_string(code, text, &n);
  return tfd__fail(TFD_UNAVAILABLE, "%s: %s", call, text);
}

void tfd__mpi_fail(tfd__mpi_group *g, bool tell) {
  tfd__error now = {0};
  bool first = false;

  tfd__error_save(&now);
  tfd__lock(&tfd__mpi.lock);
  first = g->error.code == TFD_OK;
  if (first) {
    g->error = now;
    g->tell = tell && !g->is_controlled;
    tfd__mpi_wake();
  }
  tfd__unlock(&tfd__mpi.lock);
  if (!first) tfd__error_free(&now);
}

void tfd__mpi_fail_call(tfd__mpi_group *g, const char *call, int code) {
  (void)tfd__mpi_error(call, code);
  tfd__mpi_fail(g, true);
}

/* --- reductions -------------------------------------------------------------
 */

/* Of equal values and of numbers that are none, MPI's own minimum takes the one
** that it happens to see first, which differs from process to process. */
#define EXTREMUM(name, type, bits, less, zero)                               \
  static type name(type a, type b) {                                         \
    bits x;                                                                  \
    bits y;                                                                  \
                                                                             \
    if (a != a || b != b) return (type)NAN;                                  \
    if (a != b) return (a less b) ? a : b;                                   \
    memcpy(&x, &a, sizeof x); /* zeros of both signs are equal, no others */ \
    memcpy(&y, &b, sizeof y);                                                \
    x = x zero y;                                                            \
    memcpy(&a, &x, sizeof x);                                                \
    return a;                                                                \
  }
EXTREMUM(least_float, float, uint32_t, <, |)
EXTREMUM(most_float, float, uint32_t, >, &)
EXTREMUM(least_double, double, uint64_t, <, |)
EXTREMUM(most_double, double, uint64_t, >, &)

#define FOLD(of, type)                              \
  do {                                              \
    const type *a = in;                             \
    type *b = inout;                                \
    int i;                                          \
                                                    \
    for (i = 0; i < *n; i++) b[i] = of(a[i], b[i]); \
  } while (0)

void tfd__mpi_least(void *in, void *inout, int *n, MPI_Datatype *type) {
  if (*type == MPI_FLOAT) {
    FOLD(least_float, float);
  } else {
    FOLD(least_double, double);
  }
}

void tfd__mpi_most(void *in, void *inout, int *n, MPI_Datatype *type) {
  if (*type == MPI_FLOAT) {
    FOLD(most_float, float);
  } else {
    FOLD(most_double, double);
  }
}

MPI_Datatype tfd__mpi_type(int dtype) {
  switch (dtype) {
  case TFD_FLOAT32:
    return MPI_FLOAT;
  case TFD_FLOAT64:
    return MPI_DOUBLE;
  case TFD_INT8:
    return MPI_INT8_T;
  case TFD_INT16:
    return MPI_INT16_T;
  case TFD_INT32:
    return MPI_INT32_T;
  case TFD_INT64:
    return MPI_INT64_T;
  default:
    return MPI_UINT8_T;
  }
}

MPI_Op tfd__mpi_op(tfd_reduce_op op, int dtype) {
  switch (op) {
  case TFD_REDUCE_MIN:
    return tfd__is_float(dtype) ? tfd__mpi.least : MPI_MIN;
  case TFD_REDUCE_MAX:
    return tfd__is_float(dtype) ? tfd__mpi.most : MPI_MAX;
  case TFD_REDUCE_PROD:
    return MPI_PROD;
  default:
    return MPI_SUM;
  }
}

/* --- requests ---------------------------------------------------------------
 */

static int next_request(tfd__mpi_work *w, MPI_Request **r_p) {
  if (w->requests_n == w->requests_room) {
    int room = w->requests_room * 2 + 8;
    MPI_Request *more = tfd__alloc((size_t)room * sizeof *more);

    if (more == NULL) {
      return tfd__no_memory((size_t)room * sizeof *more, w->c.what);
    }
    if (w->requests_n > 0) {
      memcpy(more, w->requests, (size_t)w->requests_n * sizeof *more);
    }
    tfd__free(w->requests);
    w->requests = more;
    w->requests_room = room;
  }
  *r_p = &w->requests[w->requests_n];
  **r_p = MPI_REQUEST_NULL;
  return TFD_OK;
}

static int posted(tfd__mpi_work *w, const char *call, int code) {
  if (code != MPI_SUCCESS) return tfd__mpi_error(call, code);
  w->requests_n++;
  return TFD_OK;
}

static inline char *at(void *data, int64_t element, size_t size) {
  return (char *)data + (size_t)element * size;
}

static inline int cut(int64_t left) {
  return left > TFD_MPI_MOST ? TFD_MPI_MOST : (int)left;
}

/* To every process, or, with a root, to that one: n elements from `give` on. */
static int post_reduction(const tfd__mpi_group *g, tfd__mpi_work *w, int dtype,
                          void *give, void *take, int64_t n, int root) {
  size_t size = tfd__dtype_size(dtype);
  MPI_Datatype type = tfd__mpi_type(dtype);
  MPI_Op op = tfd__mpi_op(w->c.op, dtype);
  bool gets = root < 0 || root == g->process;
  int64_t i;
  int m;

  for (i = 0; i < n; i += m) {
    void *from = at(give, i, size);
    void *to = gets ? at(take, i, size) : NULL;
    MPI_Request *r = NULL;

    m = cut(n - i);
    if (from == to) from = MPI_IN_PLACE;
    TFD_TRY(next_request(w, &r));
    if (root < 0) {
      TFD_TRY(posted(w, "MPI_Iallreduce",
                     MPI_Iallreduce(from, to, m, type, op, g->data, r)));
    } else {
      TFD_TRY(posted(w, "MPI_Ireduce",
                     MPI_Ireduce(from, to, m, type, op, root, g->data, r)));
    }
  }
  return TFD_OK;
}

static int post_scatter(const tfd__mpi_group *g, tfd__mpi_work *w,
                        const tfd__mpi_part *p) {
  int64_t each = p->take.view.numel;
  int dtype = p->give.view.dtype;
  MPI_Request *r = NULL;
  int q;

  if (each * g->processes <= TFD_MPI_MOST) {
    TFD_TRY(next_request(w, &r));
    return posted(
        w, "MPI_Ireduce_scatter_block",
        MPI_Ireduce_scatter_block(p->give.view.data, p->take.view.data,
                                  (int)each, tfd__mpi_type(dtype),
                                  tfd__mpi_op(w->c.op, dtype), g->data, r));
  }
  for (q = 0; q < g->processes; q++) {
    void *give = at(p->give.view.data, q * each, tfd__dtype_size(dtype));

    TFD_TRY(post_reduction(g, w, dtype, give, p->take.view.data, each, q));
  }
  return TFD_OK;
}

static int post_bytes(const tfd__mpi_group *g, tfd__mpi_work *w, void *data,
                      int64_t bytes, int root) {
  int64_t i;
  int m;

  for (i = 0; i < bytes; i += m) {
    MPI_Request *r = NULL;

    m = cut(bytes - i);
    TFD_TRY(next_request(w, &r));
    TFD_TRY(posted(w, "MPI_Ibcast",
                   MPI_Ibcast(at(data, i, 1), m, MPI_BYTE, root, g->data, r)));
  }
  return TFD_OK;
}

/* Every process's part goes to all, as bytes; parts follow each other and may
** have any sizes. */
static int post_gather(const tfd__mpi_group *g, tfd__mpi_work *w, int k) {
  const tfd__run_of *take = &w->parts[k].take;
  int64_t size = (int64_t)tfd__dtype_size(take->view.dtype);
  int64_t begin = 0;
  int rank = 0;
  int q;

  for (q = 0; q < g->processes; q++) {
    int64_t n = 0;
    int i;

    for (i = 0; i < g->local; i++) {
      n += w->c.counts[(ptrdiff_t)k * g->size + rank++];
    }
    TFD_TRY(post_bytes(g, w, at(take->view.data, begin, (size_t)size), n * size,
                       q));
    begin += n;
  }
  return TFD_OK;
}

static int post_message(const tfd__mpi_group *g, tfd__mpi_work *w, void *data,
                        int64_t bytes, int peer, bool sends) {
  int tag = tfd__mpi_tag(w);
  int64_t i;
  int m;

  for (i = 0; i < bytes; i += m) {
    void *part = at(data, i, 1);
    MPI_Request *r = NULL;

    m = cut(bytes - i);
    TFD_TRY(next_request(w, &r));
    if (sends) {
      TFD_TRY(posted(w, "MPI_Isend",
                     MPI_Isend(part, m, MPI_BYTE, peer, tag, g->data, r)));
    } else {
      TFD_TRY(posted(w, "MPI_Irecv",
                     MPI_Irecv(part, m, MPI_BYTE, peer, tag, g->data, r)));
    }
  }
  return TFD_OK;
}

/* The pieces of all ranks whose process is not the root's, between the two.
** MPI's own gather has ints for where they lie. */
static int post_pieces(const tfd__mpi_group *g, tfd__mpi_work *w, int k) {
  bool at_root = w->c.root / g->local == g->process;
  bool gives = at_root == (w->c.kind == TFD_COLLECTIVE_SCATTER);
  const tfd__piece *own = (gives ? w->in : w->out) + (ptrdiff_t)k * g->local;
  const tfd__view *all = at_root ? own[w->c.root % g->local].view : NULL;
  int64_t begin = 0;
  int r;

  for (r = 0; r < g->size; r++) {
    int64_t n = w->c.counts[(ptrdiff_t)k * g->size + r];
    int process = r / g->local;
    const tfd__view *v = at_root ? all : own[r % g->local].view;
    size_t size = 0;

    begin += n;
    if (process == w->c.root / g->local) continue;
    if (!at_root && process != g->process) continue;
    size = tfd__dtype_size(v->dtype);
    TFD_TRY(post_message(g, w, at(v->data, at_root ? begin - n : 0, size),
                         n * (int64_t)size,
                         at_root ? process : w->c.root / g->local, gives));
  }
  return TFD_OK;
}

int tfd__mpi_post(const tfd__mpi_group *g, tfd__mpi_work *w) {
  int k;

  for (k = 0; k < w->c.values; k++) {
    tfd__mpi_part *p = &w->parts[k];
    int64_t n = p->give.view.numel;
    int root = w->c.root / g->local;

    switch (w->c.kind) {
    case TFD_COLLECTIVE_ALL_REDUCE:
      if (tfd__mpi_is_long(g, w, k)) break;
      TFD_TRY(post_reduction(g, w, p->give.view.dtype, p->give.view.data,
                             p->take.view.data, n, -1));
      break;
    case TFD_COLLECTIVE_REDUCE:
      TFD_TRY(post_reduction(g, w, p->give.view.dtype, p->give.view.data,
                             p->take.view.data, n, root));
      break;
    case TFD_COLLECTIVE_REDUCE_SCATTER:
      if (n > 0) TFD_TRY(post_scatter(g, w, p));
      break;
    case TFD_COLLECTIVE_BROADCAST:
      TFD_TRY(post_bytes(g, w, p->take.view.data,
                         (int64_t)tfd__view_bytes(&p->take.view), root));
      break;
    case TFD_COLLECTIVE_ALL_GATHER:
      TFD_TRY(post_gather(g, w, k));
      break;
    case TFD_COLLECTIVE_GATHER:
    case TFD_COLLECTIVE_SCATTER:
      TFD_TRY(post_pieces(g, w, k));
      break;
    default:
      break;
    }
  }
  return TFD_OK;
}
