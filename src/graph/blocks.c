/* Calls that follow each other and do not mix rows become one, which does some
** rows at a time: what they pass on stays in the cache, and what nobody else
** takes is never written to memory.
**
** Rows are positions along the first axes of a call's result, taken as one. A
** call joins those before it if there is a number of rows that suits all of
** them and it meets what they write in the same rows only, and if it takes or
** gives something that they do. So the calls of a layer normalization that is
** written in ops are one, residual sums and products with numbers around it
** included; so are softmax and the scaling before it.
**
** Every kernel gives a row the bits that it gives it among all rows. Sums and
** means of all rows, those of the gradients of biases and scales say, are taken
** on the way, in the order in which their kernel adds up. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "backend/rows.h"
#include "graph/lower.h"

/* Bytes of the widest array that are done at a time, and of rows that are too
** long for that; what is smaller as a whole is in the cache anyway. */
#define BLOCK_BYTES ((int64_t)32 << 10)
#define ROW_BYTES ((int64_t)128 << 10)
#define WHOLE_BYTES ((int64_t)192 << 10)

/* Threads share out whole stretches of rows that are summed; with fewer rows
** the kernel, which shares out columns, has more to share. */
#define SUMMED_ROWS ((int64_t)16 * TFD_BLOCKS_SUM)
#define SUMMED_COLUMNS 4096

typedef enum member {
  NO_MEMBER,
  ELEMENTWISE,
  REDUCTION, /* over its last axes */
  LAST_AXIS, /* belongs together */
  SUM        /* or mean, of all rows */
} member;

/* One view of a member for a number of rows. */
typedef struct lie {
  tfd__view view;
  tfd__block_view lies;
} lie;

typedef struct chain {
  tfd__lowering *l;
  int first; /* call */
  int n;
  int first_view;
  int views_n;
  int ints; /* positions of the first call's */
  int reals;
  int64_t rows[TFD_MAX_RANK]; /* numbers of rows that suit all */
  int rows_n;
} chain;

/* --- one call ------------------------------------------------------------- */

/* Axes that a reduction is over. */
static unsigned reduced(const tfd__call *c) {
  const tfd__view *in = tfd__in(c, 0);
  unsigned axes = 0;
  int64_t i;

  if (c->ints[0] < 0) return (1u << in->rank) - 1;
  for (i = 0; i < c->ints[0]; i++) {
    int64_t axis = c->ints[1 + i];

    axes |= 1u << (axis < 0 ? axis + in->rank : axis);
  }
  return axes;
}

/* Is it over the first axes, so many rows, of floats that lie in order? */
static bool sums_rows(tfd__kernel_id kernel, const tfd__call *c,
                      int64_t *rows_p) {
  const tfd__view *in = tfd__in(c, 0);
  unsigned axes = 0;
  int64_t rows = 1;
  int64_t width = 1;
  int d;

  if ((kernel != TFD_KERNEL_reduce_sum && kernel != TFD_KERNEL_reduce_mean) ||
      in->dtype != TFD_FLOAT32 || !in->dense) {
    return false;
  }
  axes = reduced(c);
  for (d = 0; d < in->rank; d++) {
    bool over = (axes >> d & 1u) != 0;

    if (over && width > 1) return false;
    *(over ? &rows : &width) *= in->dims[d];
  }
  *rows_p = rows;
  /* Fewer columns are added up in another order. */
  return rows > 1 && width >= 8 && width <= SUMMED_COLUMNS;
}

static member kind_of(tfd__kernel_id kernel, const tfd__call *c) {
  const tfd__view *in = tfd__in(c, 0);
  uint8_t dtypes[TFD_STRIP_ARGS];
  int64_t rows = 0;
  int i;

  if (c->in_n < 1 || c->out_n < 1 || tfd__out(c, 0)->numel == 0) {
    return NO_MEMBER;
  }
  if (sums_rows(kernel, c, &rows)) return SUM;
  if (tfd__rows_of(kernel, c) != TFD_ROWS_EXACT) return NO_MEMBER;
  switch (kernel) {
  case TFD_KERNEL_strip:
    return ELEMENTWISE;
  case TFD_KERNEL_softmax:
  case TFD_KERNEL_log_softmax:
    return in->dtype == TFD_FLOAT32 && in->dense ? LAST_AXIS : NO_MEMBER;
  case TFD_KERNEL_reduce_sum:
  case TFD_KERNEL_reduce_mean:
  case TFD_KERNEL_reduce_prod:
  case TFD_KERNEL_reduce_max:
  case TFD_KERNEL_reduce_min:
    return in->dtype == TFD_FLOAT32 && in->dense ? REDUCTION : NO_MEMBER;
  default:
    break;
  }
  for (i = 0; i < c->in_n && i < TFD_STRIP_ARGS; i++) {
    dtypes[i] = tfd__in(c, i)->dtype;
  }
  return tfd__strip_takes(kernel, c->in_n, dtypes) ? ELEMENTWISE : NO_MEMBER;
}

/* The first of the axes that a reduction is over, which must be its last. */
static int reduced_from(const tfd__call *c) {
  unsigned axes = reduced(c);
  int from = tfd__in(c, 0)->rank;

  while (from > 0 && (axes >> (from - 1) & 1u) != 0) from--;
  return (axes & ((1u << from) - 1)) == 0 ? from : 0;
}

/* How many of the first axes have so many positions; 0 = none. */
static int axes_of(const tfd__view *v, int64_t rows) {
  int64_t n = 1;
  int k;

  for (k = 0; k < v->rank; k++) {
    n *= v->dims[k];
    if (n == rows) return k + 1;
  }
  return 0;
}

/* v, whose last axis meets the last of a result of these sizes, with those that
** meet the first k of them as one. false: they lie in no one step. */
static bool flatten(const tfd__view *v, const int64_t *dims, int rank, int k,
                    int64_t rows, lie *to) {
  int own = k - (rank - v->rank);
  int64_t step = 0;
  bool all = own == k;
  bool none = true;
  int d;

  to->view = *v;
  to->view.data = NULL;
  to->lies = (tfd__block_view){.inside = -1};
  for (d = 0; d < own; d++) {
    if (v->dims[d] != 1) none = false;
    if (v->dims[d] != dims[d]) all = false;
  }
  if (own > k || (!all && !none)) return false;
  if (none) { /* it belongs to all */
    own = own < 0 ? 0 : own;
    to->view.rank = (uint8_t)(v->rank - own);
    memmove(to->view.dims, v->dims + own, to->view.rank * sizeof *v->dims);
    memmove(to->view.strides, v->strides + own,
            to->view.rank * sizeof *v->strides);
    tfd__view_refresh(&to->view);
    return true;
  }
  for (d = k - 1; d >= 0; d--) {
    int next = d + 1;

    if (v->dims[d] == 1) continue;
    while (next < k && v->dims[next] == 1) next++;
    if (next == k) {
      step = v->strides[d];
    } else if (v->strides[d] != v->strides[next] * v->dims[next]) {
      return false;
    }
  }
  to->view.rank = (uint8_t)(v->rank - k + 1);
  to->view.dims[0] = rows;
  to->view.strides[0] = step;
  for (d = 1; d < to->view.rank; d++) {
    to->view.dims[d] = v->dims[d + k - 1];
    to->view.strides[d] = v->strides[d + k - 1];
  }
  tfd__view_refresh(&to->view);
  to->lies.has_rows = true;
  to->lies.pitch = step * (int64_t)tfd__dtype_size(v->dtype);
  return true;
}

/* What has all the rows of a call of that kind. */
static const tfd__view *whole_of(const tfd__call *c, member kind) {
  return kind == REDUCTION || kind == SUM ? tfd__in(c, 0) : tfd__out(c, 0);
}

static bool lay_out_sum(const tfd__call *c, int64_t rows, lie *lies) {
  const tfd__view *in = tfd__in(c, 0);
  int64_t own = 0;

  lies[1] = (lie){.view = *tfd__out(c, 0), .lies = {.inside = -1}};
  lies[1].view.data = NULL;
  return sums_rows(TFD_KERNEL_reduce_sum, c, &own) && own == rows &&
         flatten(in, in->dims, in->rank, axes_of(in, rows), rows, &lies[0]) &&
         lies[0].lies.has_rows;
}

/* The views of a call of that kind for so many rows; false = it has not so
** many. */
static bool lay_out(const tfd__call *c, member kind, int64_t rows, lie *lies) {
  const tfd__view *out = tfd__out(c, 0);
  const tfd__view *of = whole_of(c, kind);
  int k = axes_of(of, rows);
  int i;

  if (kind == SUM) return lay_out_sum(c, rows, lies);
  if (k == 0 || (kind == LAST_AXIS && k == of->rank) ||
      (kind == REDUCTION && (k > reduced_from(c) || k > out->rank))) {
    return false;
  }
  for (i = 0; i < c->in_n + c->out_n; i++) {
    const tfd__view *v = &c->views[i];

    /* A sum without its last axes still begins with the first ones. */
    if (!flatten(v, of->dims, kind == REDUCTION ? v->rank : of->rank, k, rows,
                 &lies[i]) ||
        (i >= c->in_n && !lies[i].lies.has_rows) ||
        lies[i].lies.pitch > ROW_BYTES || lies[i].lies.pitch < 0) {
      return false;
    }
  }
  return true;
}

/* --- calls together ------------------------------------------------------- */

/* A call of the program that is not finished: its pointers are positions. */
static tfd__call call_at(const chain *s, int i, int view, int ints) {
  const tfd__program *p = s->l->p;
  tfd__call c = p->calls[i];

  c.views = p->views + view;
  c.ints = p->ints + ints;
  return c;
}

static bool is_absent(const tfd__place *p) {
  return p->kind == TFD_PLACE_CONSTANT && p->of < 0;
}

/* Does a row end before the next one begins? Repeated elements may lie in it.
 */
static bool has_apart(const lie *x) {
  int64_t end = 1;
  int d;

  for (d = 1; d < x->view.rank; d++) {
    if (x->view.strides[d] < 0) return false;
    end += (x->view.dims[d] - 1) * x->view.strides[d];
  }
  return x->lies.has_rows &&
         end * (int64_t)tfd__dtype_size(x->view.dtype) <= x->lies.pitch;
}

/* May both be met by calls of one chain? Only equal rows of what is written. */
static bool go_together(const tfd__place *a, const lie *x, bool x_writes,
                        const tfd__place *b, const lie *y, bool y_writes) {
  if (!(x_writes || y_writes) || !tfd__same_place(a, b)) return true;
  return has_apart(x) && has_apart(y) && x->lies.pitch == y->lies.pitch &&
         tfd__place_offset(a) == tfd__place_offset(b);
}

/* Does call c, whose views lie so for that number of rows, go with the chain's?
 */
static bool suits(const chain *s, const tfd__call *c, const lie *lies,
                  int64_t rows) {
  const tfd__lowering *l = s->l;
  int view = s->first_view;
  int ints = s->ints;
  int end = s->first_view + s->views_n;
  int k;

  for (k = 0; k < c->in_n * c->out_n; k++) { /* in place */
    int i = k % c->in_n;
    int j = c->in_n + k / c->in_n;

    if (!go_together(&l->seen[end + i], &lies[i], false, &l->seen[end + j],
                     &lies[j], true)) {
      return false;
    }
  }
  for (k = 0; k < s->n; k++) {
    tfd__call other = call_at(s, s->first + k, view, ints);
    lie of[TFD_BLOCKS_VIEWS];
    int i;
    int j;

    if (!lay_out(&other,
                 kind_of((tfd__kernel_id)l->kernels[s->first + k], &other),
                 rows, of)) {
      return false;
    }
    for (i = 0; i < other.in_n + other.out_n; i++) {
      for (j = 0; j < c->in_n + c->out_n; j++) {
        if (!go_together(&l->seen[view + i], &of[i], i >= other.in_n,
                         &l->seen[end + j], &lies[j], j >= c->in_n)) {
          return false;
        }
      }
    }
    view += other.in_n + other.out_n;
    ints += other.ints_n;
  }
  return true;
}

/* Does it take or give something that one of the chain's does? */
static bool touches(const chain *s, const tfd__call *c) {
  const tfd__lowering *l = s->l;
  int end = s->first_view + s->views_n;
  int i;
  int j;

  for (i = s->first_view; i < end; i++) {
    for (j = 0; j < c->in_n + c->out_n; j++) {
      if (!is_absent(&l->seen[i]) && l->p->views[i].numel > 1 &&
          tfd__same_place(&l->seen[i], &l->seen[end + j])) {
        return true;
      }
    }
  }
  return false;
}

/* The chain with the call behind it, or false. */
static bool add(chain *s) {
  tfd__lowering *l = s->l;
  int at = s->first + s->n;
  int ints = s->ints;
  int64_t rows[TFD_MAX_RANK];
  int rows_n = 0;
  member kind;
  tfd__call c;
  lie lies[TFD_BLOCKS_VIEWS];
  int i;

  for (i = s->first; i < at; i++) ints += l->p->calls[i].ints_n;
  c = call_at(s, at, s->first_view + s->views_n, ints);
  if (s->n == TFD_BLOCKS_CALLS ||
      s->views_n + c.in_n + c.out_n > TFD_BLOCKS_VIEWS) {
    return false;
  }
  kind = kind_of((tfd__kernel_id)l->kernels[at], &c);
  if (kind == NO_MEMBER || (s->n > 0 && !touches(s, &c))) return false;
  if (s->n == 0) { /* all that it has */
    const tfd__view *of = whole_of(&c, kind);
    int64_t n = 1;

    s->rows_n = 0;
    for (i = 0; i < of->rank; i++) {
      n *= of->dims[i];
      if (of->dims[i] > 1) s->rows[s->rows_n++] = n;
    }
  }
  for (i = 0; i < s->rows_n; i++) {
    if (kind == SUM && s->rows[i] < SUMMED_ROWS && !l->small) continue;
    if (lay_out(&c, kind, s->rows[i], lies) && suits(s, &c, lies, s->rows[i])) {
      rows[rows_n++] = s->rows[i];
    }
  }
  if (rows_n == 0) return false;
  memcpy(s->rows, rows, sizeof rows);
  s->rows_n = rows_n;
  s->views_n += c.in_n + c.out_n;
  s->n++;
  return true;
}

/* --- the plan ------------------------------------------------------------- */

static tfd__blocks *new_plan(const chain *s) {
  const tfd__program *p = s->l->p;
  size_t views = (size_t)s->views_n;
  size_t calls = (size_t)s->n;
  size_t ints = 0;
  size_t reals = 0;
  tfd__blocks *b = NULL;
  size_t bytes;
  int i;

  for (i = 0; i < s->n; i++) {
    ints += (size_t)p->calls[s->first + i].ints_n;
    reals += (size_t)p->calls[s->first + i].reals_n;
  }
  bytes = sizeof *b + calls * sizeof *b->calls + views * sizeof *b->views +
          views * sizeof *b->lies + calls * sizeof *b->sums +
          (ints + reals) * sizeof(int64_t);
  b = tfd__calloc(1, bytes);
  if (b == NULL) {
    (void)tfd__no_memory(bytes, "graph");
    return NULL;
  }
  b->calls_n = s->n;
  b->views_n = s->views_n;
  b->calls = (tfd__call *)(void *)(b + 1);
  b->views = (tfd__view *)(void *)(b->calls + calls);
  b->lies = (tfd__block_view *)(void *)(b->views + views);
  b->sums = (tfd__block_sum *)(void *)(b->lies + views);
  return b;
}

/* Axes counted in the views of the plan. */
static void shift_axes(int64_t *ints, int rank, int k) {
  int64_t i;

  for (i = 1; i <= ints[0]; i++) {
    ints[i] += (ints[i] < 0 ? rank : 0) - (k - 1);
  }
}

/* About so many rows, such that stretches of sums are made of whole pieces. */
static int64_t rows_for_sums(int64_t rows) {
  int64_t n = 4;

  if (rows >= TFD_BLOCKS_SUM) return rows / TFD_BLOCKS_SUM * TFD_BLOCKS_SUM;
  while (2 * n <= rows) n *= 2;
  return n;
}

static void fill_in(const chain *s, tfd__blocks *b) {
  const tfd__program *p = s->l->p;
  int64_t *ints = (int64_t *)(void *)(b->sums + b->calls_n);
  int view = 0;
  int from = s->ints;
  int reals = s->reals;
  int64_t widest = 1;
  int k;
  int i;

  b->rows = s->rows[s->rows_n - 1];
  for (k = 0; k < s->n; k++) {
    tfd__call c = call_at(s, s->first + k, s->first_view + view, from);
    tfd__call *to = &b->calls[k];
    member kind = kind_of((tfd__kernel_id)s->l->kernels[s->first + k], &c);
    lie lies[TFD_BLOCKS_VIEWS];

    *to = c;
    to->views = b->views + view;
    to->ints = ints;
    to->reals = (double *)(void *)(ints + c.ints_n);
    if (c.ints_n > 0) memcpy(ints, c.ints, (size_t)c.ints_n * sizeof *ints);
    if (c.reals_n > 0) {
      memcpy(ints + c.ints_n, p->reals + reals,
             (size_t)c.reals_n * sizeof *p->reals);
    }
    if (kind == REDUCTION) {
      shift_axes(ints, tfd__in(&c, 0)->rank, axes_of(tfd__in(&c, 0), b->rows));
    }
    (void)lay_out(&c, kind, b->rows, lies);
    if (kind == SUM) {
      b->sums[k] = (tfd__block_sum){.width = tfd__out(&c, 0)->numel,
                                    .at = b->sums_n,
                                    .mean = s->l->kernels[s->first + k] ==
                                            TFD_KERNEL_reduce_mean};
      b->sums_n += b->sums[k].width;
    }
    for (i = 0; i < c.in_n + c.out_n; i++) {
      b->views[view + i] = lies[i].view;
      b->lies[view + i] = lies[i].lies;
      if (lies[i].lies.pitch > widest) widest = lies[i].lies.pitch;
    }
    view += c.in_n + c.out_n;
    ints += c.ints_n + c.reals_n;
    from += c.ints_n;
    reals += c.reals_n;
  }
  b->rows_each = s->l->small            ? 2
                 : widest < BLOCK_BYTES ? BLOCK_BYTES / widest
                                        : 1;
  if (b->sums_n > 0) b->rows_each = rows_for_sums(b->rows_each);
}

/* Where a place becomes a thread's own: the first view that writes it whole, if
** only the chain's calls use what is there from then on. INT_MAX = nowhere. */
static int own_from(const chain *s, const tfd__blocks *b,
                    const tfd__place *place) {
  const tfd__lowering *l = s->l;
  const tfd__stretch *whole = NULL;
  int view = 0;
  int k;
  int i;

  if (place->kind != TFD_PLACE_ARENA || l->fresh[place->of] >= 0 ||
      tfd__place_offset(place) != 0) {
    return INT_MAX;
  }
  whole = &l->p->stretches[place->of];
  if (whole->last >= s->first + s->n) return INT_MAX;
  for (k = 0; k < b->calls_n; k++) {
    for (i = 0; i < b->calls[k].in_n + b->calls[k].out_n; i++, view++) {
      const tfd__view *v = &l->p->views[s->first_view + view];

      if (i < b->calls[k].in_n || !b->lies[view].has_rows ||
          !tfd__same_place(&l->seen[s->first_view + view], place)) {
        continue;
      }
      return v->dense && tfd__view_bytes(v) == whole->bytes ? view : INT_MAX;
    }
  }
  return INT_MAX;
}

/* Values that only the chain's calls use lie in a thread's own memory, also
** those that would take the places of others. */
static int place_inside(const chain *s, tfd__blocks *b) {
  tfd__lowering *l = s->l;
  tfd__stretch own[TFD_BLOCKS_VIEWS];
  int of[TFD_BLOCKS_VIEWS];
  int n = 0;
  int view = 0;
  int k;
  int i;
  int j;

  for (k = 0; k < b->calls_n; k++) {
    for (i = 0; i < b->calls[k].in_n + b->calls[k].out_n; i++, view++) {
      const tfd__place *place = &l->seen[s->first_view + view];

      if (!b->lies[view].has_rows || view < own_from(s, b, place)) continue;
      for (j = 0; j < n && of[j] != place->of; j++) continue;
      if (j == n) {
        of[n] = place->of;
        own[n++] = (tfd__stretch){
            .bytes = (size_t)(b->lies[view].pitch * b->rows_each), .first = k};
      }
      own[j].last = k;
      b->lies[view].inside = j;
    }
  }
  TFD_TRY(tfd__plan(own, n, false, &b->bytes));
  for (i = 0; i < b->views_n; i++) {
    if (b->lies[i].inside >= 0) {
      b->lies[i].inside = (int64_t)own[b->lies[i].inside].offset;
    }
  }
  for (j = 0; j < n; j++) {
    tfd__stretch *whole = &l->p->stretches[of[j]];

    if (whole->first >= s->first) whole->bytes = 0;
  }
  return TFD_OK;
}

/* "rows(reduce_mean, fused(subtract, square), ...)" */
static char *name_of(const tfd__blocks *b) {
  char text[512] = "rows(";
  size_t n = strlen(text);
  int i;

  for (i = 0; i < b->calls_n && n < sizeof text - 160; i++) {
    n += (size_t)snprintf(text + n, 150, "%s%.140s", i > 0 ? ", " : "",
                          b->calls[i].name);
  }
  (void)snprintf(text + n, sizeof text - n, "%s)",
                 i < b->calls_n ? ", ..." : "");
  return tfd__strdup(text);
}

/* --- in the program ------------------------------------------------------- */

/* One more attribute at the front of a call's. */
static int insert_address(tfd__program *p, int at, const void *address) {
  int i;

  TFD_TRY(TFD_GROW(p->ints, 1));
  memmove(p->ints + at + 1, p->ints + at,
          (size_t)(p->ints_n - at) * sizeof *p->ints);
  p->ints[at] = (int64_t)(uintptr_t)address;
  p->ints_n++;
  for (i = 0; i < p->redraws_n; i++) {
    if (p->redraws[i].to >= at) p->redraws[i].to++;
  }
  return TFD_OK;
}

/* Its calls become the first of them. */
static int merge(const chain *s) {
  tfd__program *p = s->l->p;
  tfd__call *call = &p->calls[s->first];
  tfd__blocks *b = new_plan(s);
  int i;

  if (b == NULL) return TFD_RESOURCE_EXHAUSTED;
  fill_in(s, b);
  TFD_TRY(tfd__emit_own(s->l, (tfd__fused){.blocks = b, .name = name_of(b)}));
  TFD_TRY(place_inside(s, b));
  TFD_TRY(insert_address(p, s->ints, b));
  call->name = p->fused[p->fused_n - 1].name;
  call->kernel = p->device->backend->kernels[TFD_KERNEL_row_blocks];
  call->in_n = s->views_n;
  call->out_n = 0;
  call->ints_n++;
  for (i = 1; i < s->n; i++) {
    call->ints_n += call[i].ints_n;
    call->reals_n += call[i].reals_n;
    p->flops[s->first] += p->flops[s->first + i];
  }
  s->l->kernels[s->first] = TFD_KERNEL_row_blocks;
  return TFD_OK;
}

/* Drop the n - 1 calls behind `first`; the stretches live on in it. */
static void close_up(tfd__lowering *l, int first, int n) {
  tfd__program *p = l->p;
  size_t rest = (size_t)(p->calls_n - first - n);
  int i;

  memmove(p->calls + first + 1, p->calls + first + n, rest * sizeof *p->calls);
  memmove(p->flops + first + 1, p->flops + first + n, rest * sizeof *p->flops);
  memmove(l->kernels + first + 1, l->kernels + first + n,
          rest * sizeof *l->kernels);
  p->calls_n -= n - 1;
  p->flops_n -= n - 1;
  l->kernels_n -= n - 1;
  for (i = 0; i < p->stretches_n; i++) {
    int *ends[] = {&p->stretches[i].first, &p->stretches[i].last};
    int k;

    for (k = 0; k < 2; k++) {
      if (*ends[k] > first) {
        *ends[k] = *ends[k] < first + n ? first : *ends[k] - (n - 1);
      }
    }
  }
}

/* Numbers that each call of the program brings are not the plan's. */
static bool has_numbers(const tfd__program *p, int reals, int n) {
  int i;

  for (i = 0; i < p->renumbers_n && n > 0; i++) {
    if (p->renumbers[i].to < reals + n &&
        p->renumbers[i].to + p->renumbers[i].n > reals) {
      return true;
    }
  }
  return false;
}

static bool is_worth_it(const chain *s) {
  const tfd__program *p = s->l->p;
  int i;

  if (s->n > 1 && s->l->small) return true;
  for (i = s->first_view; s->n > 1 && i < s->first_view + s->views_n; i++) {
    if ((int64_t)tfd__view_bytes(&p->views[i]) >= WHOLE_BYTES) return true;
  }
  return false;
}

int tfd__lower_blocks(tfd__lowering *l) {
  tfd__program *p = l->p;
  chain s = {.l = l};

  if (!l->fuses || p->device->backend->kernels[TFD_KERNEL_row_blocks] == NULL) {
    return TFD_OK;
  }
  while (s.first < p->calls_n) {
    int reals = s.reals;
    bool added = true;

    s.n = s.views_n = 0;
    while (added && s.first + s.n < p->calls_n) {
      int n = p->calls[s.first + s.n].reals_n;

      added = !has_numbers(p, reals, n) && add(&s);
      reals += n;
    }
    if (is_worth_it(&s)) {
      int n = s.n;

      TFD_TRY(merge(&s));
      close_up(l, s.first, n);
    }
    s.views_n = p->calls[s.first].in_n + p->calls[s.first].out_n;
    s.first_view += s.views_n;
    s.ints += p->calls[s.first].ints_n;
    s.reals += p->calls[s.first].reals_n;
    s.first++;
  }
  return TFD_OK;
}
