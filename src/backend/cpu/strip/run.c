/* Programs over arrays: which elements are taken at a time, and where operands
** that do not lie like the result are copied to. */
#include "backend/cpu/strip/program.h"

#include <string.h>

#include "backend/cpu/loops.h"
#include "backend/rows.h"

enum { VIEWS = TFD_STRIP_INPUTS + TFD_STRIP_OUTPUTS };

/* How an input lies. */
typedef enum lay {
  LIKE_OUTPUT,
  NUMBER,  /* one element, which no step reads as an array */
  SAME,    /* one element for all: a tile filled once */
  ALONG,   /* rows of at least a tile: taken one by one */
  PERIOD,  /* shorter rows that are all the same: a tile filled once */
  COLUMNS, /* shorter rows of one value each */
  SPREAD   /* shorter rows: each tile gathered */
} lay;

typedef struct source {
  const char *data;
  size_t size;
  lay lay;
  const int64_t *strides; /* where it does not lie like the output */
} source;

/* One run, seen by all threads. */
typedef struct job {
  const tfd__strip *p;
  const tfd__view *out; /* views */
  int64_t numel;
  int64_t piece; /* the most elements at a time */
  int rank;
  bool rows; /* pieces end where rows do */
  int64_t dims[TFD_MAX_RANK];
  int64_t strides[TFD_STRIP_INPUTS + 1][TFD_MAX_RANK];
  source in[TFD_STRIP_INPUTS];
  atomic_bool lacked_memory;
} job;

/* One thread's part of it. */
typedef struct work {
  const job *j;
  tfd__strip_frame *frame;
  char *tiles; /* of inputs */
  char *ends;  /* of outputs: a strip that sticks out */
  const char *filled[TFD_STRIP_INPUTS]; /* what a tile repeats, or NULL */
} work;

static char *tile_of(const work *w, int input) {
  return w->tiles + (size_t)input * w->j->p->block.tile;
}

static char *end_of(const work *w, int output) {
  return w->ends + (size_t)output * w->j->p->block.end;
}

/* --- parts ---------------------------------------------------------------- */

static void run_call(const tfd__strip_call *c, const tfd__strip_frame *f,
                     int64_t n) {
  tfd__view views[TFD_STRIP_ARGS + 1];
  tfd__call call = c->call;
  int i;

  for (i = 0; i <= call.in_n; i++) {
    bool scalar = i < call.in_n && c->scalar[i];

    views[i].data = f->at[c->at[i]];
    views[i].dtype = c->dtype[i];
    views[i].dense = true;
    views[i].rank = scalar ? 0 : 1;
    views[i].numel = scalar ? 1 : n;
    views[i].dims[0] = n;
    views[i].strides[0] = 1;
  }
  call.views = views;
  call.ints = c->ints;
  call.reals = c->reals;
  (void)call.kernel(&call); /* lowering has asked whether it can */
}

/* n elements, for the register machine rounded up to strips. */
static void run_parts(const work *w, int64_t n) {
  const tfd__strip *p = w->j->p;
  int64_t lanes = p->machine->lanes; /* a power of two */
  int64_t strips = (n + lanes - 1) & -lanes;
  int i;

  for (i = 0; i < p->parts_n; i++) {
    const tfd__strip_part *part = &p->parts[i];

    if (part->call >= 0) {
      run_call(&p->calls[part->call], w->frame, n);
    } else {
      p->machine->run(p->steps + part->first, strips, w->frame);
    }
  }
}

/* --- operands of a piece -------------------------------------------------- */

#define REPEAT(type)                                       \
  {                                                        \
    const type one = *(const type *)from;                  \
    for (int64_t i = 0; i < n; i++) ((type *)to)[i] = one; \
    return;                                                \
  }

/* One element n times. */
TFD_CLONES static void repeat(void *to, const void *from, int64_t n,
                              size_t size) {
  switch (size) {
  case 1:
    REPEAT(uint8_t)
  case 2:
    REPEAT(uint16_t)
  case 4:
    REPEAT(uint32_t)
  default:
    REPEAT(uint64_t)
  }
}

/* The first element of a row. */
static const char *row_of(const job *j, const source *s, int64_t row) {
  int64_t offset = 0;
  int d;

  for (d = j->rank - 2; d > 0; d--) {
    offset += row % j->dims[d] * s->strides[d];
    row /= j->dims[d];
  }
  if (d == 0) offset += row * s->strides[0];
  return s->data + offset * (int64_t)s->size;
}

/* n elements of a row from `column` on. */
static char *along(work *w, int k, int64_t at, int64_t n) {
  const job *j = w->j;
  const source *s = &j->in[k];
  int64_t stride = s->strides[j->rank - 1];
  int64_t length = j->dims[j->rank - 1];
  const char *from = row_of(j, s, at / length);
  char *tile = tile_of(w, k);

  from += at % length * stride * (int64_t)s->size;
  if (stride == 1) return (char *)(uintptr_t)from;
  if (stride != 0) {
    tfd__gather_row(tile, from, stride, n, s->size);
  } else if (w->filled[k] != from) {
    repeat(tile, from, TFD_STRIP_TILE, s->size);
    w->filled[k] = from;
  }
  return tile;
}

/* n elements of rows that are shorter than a tile, each of one value. */
static void columns(const work *w, int k, int64_t at, int64_t n) {
  const job *j = w->j;
  const source *s = &j->in[k];
  int64_t length = j->dims[j->rank - 1];
  int64_t row = at / length;
  int64_t left = length - at % length;
  char *to = tile_of(w, k);

  for (; n > 0; row++, left = length) {
    int64_t m = n < left ? n : left;

    repeat(to, row_of(j, s, row), m, s->size);
    to += m * (int64_t)s->size;
    n -= m;
  }
}

/* n elements from `at` on of rows that are all the same. */
static void period(const work *w, int k, int64_t at, int64_t n) {
  const job *j = w->j;
  const source *s = &j->in[k];
  int64_t length = j->dims[j->rank - 1];
  int64_t stride = s->strides[j->rank - 1];
  int64_t column = at % length;
  int64_t done = length - column < n ? length - column : n;
  int64_t more = column < n - done ? column : n - done;
  char *to = tile_of(w, k);

  tfd__gather_row(to, s->data + column * stride * (int64_t)s->size, stride,
                  done, s->size);
  tfd__gather_row(to + done * (int64_t)s->size, s->data, stride, more, s->size);
  for (done += more; done < n; done += more) { /* it repeats itself */
    more = done < n - done ? done : n - done;
    memcpy(to + done * (int64_t)s->size, to, (size_t)more * s->size);
  }
}

static char *operand(work *w, int k, int64_t at, int64_t n) {
  const job *j = w->j;
  const source *s = &j->in[k];
  char *tile = tile_of(w, k);

  switch (s->lay) {
  case LIKE_OUTPUT:
    return (char *)(uintptr_t)s->data + at * (int64_t)s->size;
  case NUMBER:
    return (char *)(uintptr_t)s->data;
  case SAME:
    if (w->filled[k] == NULL) repeat(tile, s->data, TFD_STRIP_TILE, s->size);
    w->filled[k] = s->data;
    return tile;
  case ALONG:
    return along(w, k, at, n);
  case COLUMNS:
    columns(w, k, at, n);
    return tile;
  case PERIOD:
    if (w->filled[k] == NULL) period(w, k, at, n);
    w->filled[k] = s->data;
    return tile;
  case SPREAD:
    break;
  }
  tfd__gather_span(tile, s->data, s->size, j->rank, j->dims, s->strides, at, n);
  return tile;
}

static bool is_tile(const work *w, int k) {
  const char *tile = tile_of(w, k);

  return w->frame->at[TFD_AT_INPUT + k] >= tile &&
         w->frame->at[TFD_AT_INPUT + k] < tile + w->j->p->block.tile;
}

/* The operands behind the first `done` elements of a piece; steps read whole
** strips, so that what lies in arrays is copied. */
static void begin_end(work *w, int64_t done, int64_t rest) {
  const job *j = w->j;
  char **at = w->frame->at;
  int k;

  for (k = 0; k < j->p->inputs_n; k++) {
    const source *s = &j->in[k];
    size_t bytes = (size_t)rest * s->size;

    if (s->lay == NUMBER) continue;
    at[TFD_AT_INPUT + k] += done * (int64_t)s->size;
    if (is_tile(w, k)) continue;
    memcpy(tile_of(w, k), at[TFD_AT_INPUT + k], bytes);
    memset(tile_of(w, k) + bytes, 0,
           (size_t)(j->p->machine->lanes - rest) * s->size);
    at[TFD_AT_INPUT + k] = tile_of(w, k);
  }
  for (k = 0; k < j->p->outputs_n; k++) at[TFD_AT_OUTPUT + k] = end_of(w, k);
}

static void run_piece(work *w, int64_t at, int64_t n) {
  const job *j = w->j;
  const tfd__strip *p = j->p;
  int64_t rest = n & (p->machine->lanes - 1);
  int64_t done = n - rest;
  int k;

  for (k = 0; k < p->inputs_n; k++)
    w->frame->at[TFD_AT_INPUT + k] = operand(w, k, at, n);
  for (k = 0; k < p->outputs_n; k++) {
    size_t size = p->output_sizes[k];

    w->frame->at[TFD_AT_OUTPUT + k] =
        (char *)j->out[k].data + at * (int64_t)size;
  }
  if (done > 0) run_parts(w, done);
  if (rest == 0) return;
  begin_end(w, done, rest);
  run_parts(w, rest);
  for (k = 0; k < p->outputs_n; k++) {
    size_t size = p->output_sizes[k];

    memcpy((char *)j->out[k].data + (at + done) * (int64_t)size, end_of(w, k),
           (size_t)rest * size);
  }
}

/* --- a thread's range ----------------------------------------------------- */

static bool begin_work(work *w, const job *j) {
  const tfd__strip *p = j->p;
  const tfd__strip_block *b = &p->block;
  char *block = tfd__work_block(b->all);
  char *splat = NULL;
  int i;

  if (block == NULL) return false;
  w->j = j;
  w->frame = (tfd__strip_frame *)(void *)block;
  w->tiles = block + b->tiles_at;
  w->ends = block + b->ends_at;
  for (i = 0; i < p->inputs_n; i++) w->filled[i] = NULL;
  for (i = 0; i < p->literals_n; i++) {
    w->frame->at[TFD_AT_LITERAL + i] = (char *)(uintptr_t)&p->literals[i];
  }
  for (i = 0; i < p->slots_n; i++) {
    w->frame->at[TFD_AT_SLOT + i] = block + b->slots_at + (size_t)i * b->tile;
  }
  splat = block + b->splats_at;
  for (i = 0; i < p->splats_n; i++, splat += b->splat) {
    int of = p->splats[i];
    const void *from =
        of < TFD_AT_OUTPUT ? j->in[of - TFD_AT_INPUT].data : w->frame->at[of];

    w->frame->at[TFD_AT_SPLAT + i] = splat;
    repeat(splat, from, TFD_STRIP_MOST, sizeof(float));
  }
  return true;
}

static void run_range(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  int64_t row = j->dims[j->rank - 1];
  work w;
  int64_t at = begin;

  if (!begin_work(&w, j)) {
    atomic_store(&j->lacked_memory, true);
    return;
  }
  while (at < end) {
    int64_t left = j->rows ? row - at % row : end - at;
    int64_t n = end - at < j->piece ? end - at : j->piece;

    if (left < n) n = left;
    run_piece(&w, at, n);
    at += n;
  }
}

/* --- shapes --------------------------------------------------------------- */

static int check_views(const tfd__strip *p, const tfd__view *views) {
  const tfd__view *out = views + p->inputs_n;
  int i;

  for (i = 0; i < p->inputs_n; i++) {
    if (views[i].dtype != p->inputs[i].dtype ||
        (p->inputs[i].scalar && views[i].numel != 1)) {
      return tfd__fail(TFD_INTERNAL,
                       "strip: input %d is %s with %lld elements, compiled for "
                       "%s%s",
                       i, tfd__dtype_name(views[i].dtype),
                       (long long)views[i].numel,
                       tfd__dtype_name(p->inputs[i].dtype),
                       p->inputs[i].scalar ? ", one element" : "");
    }
  }
  for (i = 0; i < p->outputs_n; i++) {
    if (out[i].dtype == p->output_dtypes[i] && out[i].dense &&
        (i == 0 || tfd__same_shape(&out[i], out)))
      continue;
    return tfd__fail(TFD_INTERNAL,
                     "strip: output %d must be dense, of the first one's shape "
                     "and %s",
                     i, tfd__dtype_name(p->output_dtypes[i]));
  }
  return TFD_OK;
}

/* Every array lies like the outputs: the commonest case, and the cheapest. */
static bool all_alike(job *j, const tfd__view *views) {
  int i;

  for (i = 0; i < j->p->inputs_n; i++) {
    bool number = j->p->inputs[i].scalar;

    j->in[i].lay = number ? NUMBER : LIKE_OUTPUT;
    /* Broadcasting cannot keep the number of elements and move them. */
    if (!number && (!views[i].dense || views[i].numel != j->numel))
      return false;
  }
  j->rank = 1;
  j->dims[0] = j->numel;
  return true;
}

static lay lay_of(const job *j, const source *s, const int64_t *out) {
  bool same = true;
  bool repeats = true;
  int d;

  for (d = 0; d < j->rank; d++) {
    if (s->strides[d] != out[d]) same = false;
    if (d < j->rank - 1 && s->strides[d] != 0) repeats = false;
  }
  if (same) return LIKE_OUTPUT;
  if (repeats && s->strides[j->rank - 1] == 0) return SAME;
  if (j->rows) return ALONG;
  if (repeats) return PERIOD;
  return s->strides[j->rank - 1] == 0 ? COLUMNS : SPREAD;
}

static void lay_out(job *j, const tfd__view *views) {
  const tfd__view *list[TFD_STRIP_INPUTS];
  const int64_t *like = NULL; /* the output's strides */
  int n = 0;
  int i;

  for (i = 0; i < j->p->inputs_n; i++) {
    if (!j->p->inputs[i].scalar) list[n++] = &views[i];
  }
  j->rank = tfd__coalesce_over(j->out, list, n, j->dims, j->strides);
  like = j->strides[n];
  j->rows = j->dims[j->rank - 1] >= TFD_STRIP_TILE;
  while (--i >= 0) {
    source *s = &j->in[i];

    s->lay = NUMBER;
    if (j->p->inputs[i].scalar) continue;
    s->strides = j->strides[--n];
    s->lay = lay_of(j, s, like);
  }
}

/* The least of rows and of strips, which are a power of two. */
static int64_t common_multiple(int64_t row, int64_t lanes) {
  int64_t power = row & -row; /* the largest that divides it */

  return power < lanes ? row / power * lanes : row;
}

/* Whole rows if they are short, whole strips if that goes too. */
static int64_t piece_of(const job *j) {
  const tfd__strip *p = j->p;
  int64_t row = j->dims[j->rank - 1];
  int64_t both;
  bool tiles = p->slots_n > 0 || p->calls_n > 0;
  bool whole = false;
  int i;

  for (i = 0; i < p->inputs_n; i++) {
    const source *s = &j->in[i];

    if (s->lay == LIKE_OUTPUT || s->lay == NUMBER) continue;
    if (s->lay != ALONG || s->strides[j->rank - 1] != 1) tiles = true;
    if (s->lay >= PERIOD) whole = true;
  }
  if (!tiles) return INT64_MAX;
  if (!whole) return TFD_STRIP_TILE;
  both = common_multiple(row, p->machine->lanes);
  if (both > TFD_STRIP_TILE) both = row;
  return TFD_STRIP_TILE / both * both;
}

static int run_views(const tfd__strip *p, const tfd__view *views) {
  job j; /* filled as needed: clearing it all would cost more than small runs */
  int i;

  TFD_TRY(check_views(p, views));
  j.p = p;
  j.out = views + p->inputs_n;
  j.rows = false;
  atomic_init(&j.lacked_memory, false);
  j.numel = j.out->numel;
  if (j.numel == 0) return TFD_OK;
  for (i = 0; i < p->inputs_n; i++) {
    j.in[i].data = views[i].data;
    j.in[i].size = p->input_sizes[i];
  }
  if (!all_alike(&j, views)) lay_out(&j, views);
  j.piece = piece_of(&j);
  tfd__parallel_for(j.numel, TFD_GRAIN, run_range, &j);
  if (atomic_load(&j.lacked_memory))
    return tfd__no_memory(p->block.all, "fused ops");
  return TFD_OK;
}

int tfd__strip_run(const tfd__strip *p, const tfd__view *views, int64_t begin,
                   int64_t end) {
  tfd__call whole = {.views = views,
                     .in_n = (int16_t)p->inputs_n,
                     .out_n = (int16_t)p->outputs_n};
  tfd__view part[VIEWS];
  const tfd__view *out = tfd__out(&whole, 0);

  if (out->rank == 0) return begin < end ? run_views(p, views) : TFD_OK;
  if (begin == 0 && end == out->dims[0]) return run_views(p, views);
  tfd__rows_cut(TFD_KERNEL_strip, &whole, begin, end, part);
  return run_views(p, part);
}

int tfd__cpu_strip(const tfd__call *call) {
  return run_views((const tfd__strip *)(intptr_t)call->ints[0], call->views);
}
