/* Kernels the runtime itself needs: copy (any strides to dense) and fill.
**
** copy walks the merged axes of its input. Rows whose elements are neighbours
** are moved whole; a transposed plane (the last axis strided, another one not)
** goes in tiles that fit the first-level cache, since walking it row by row
** would fetch every cache line once for each element in it. */
#include <string.h>

#include "backend/cpu/cpu.h"

#define TILE 32

typedef struct copy_job {
  char *out;
  const char *in;
  size_t size; /* of an element */
  int rank;    /* axes before the innermost one or two */
  int64_t dims[TFD_MAX_RANK];
  int64_t strides[TFD_MAX_RANK]; /* of the input, in elements */
  int64_t row;        /* elements of the innermost axis */
  int64_t row_stride; /* its stride in the input */
  int64_t rows;       /* planes only: size of the axis of stride 1 */
} copy_job;

/* Offset in the input of the index that `number` counts to. */
static int64_t offset_of(const copy_job *j, int64_t number) {
  int64_t offset = 0;
  int axis;

  for (axis = j->rank - 1; axis >= 0; axis--) {
    offset += number % j->dims[axis] * j->strides[axis];
    number /= j->dims[axis];
  }
  return offset;
}

#define GATHER(bits)                                                           \
  TFD_CLONES static void gather##bits(void *out, const void *in, int64_t n,    \
                                      int64_t stride) {                        \
    uint##bits##_t *restrict to = out;                                         \
    const uint##bits##_t *restrict from = in;                                  \
    int64_t i;                                                                 \
                                                                               \
    for (i = 0; i < n; i++) to[i] = from[i * stride];                          \
  }                                                                            \
  TFD_CLONES static void repeat##bits(void *out, const void *in, int64_t n) {  \
    uint##bits##_t *restrict to = out;                                         \
    uint##bits##_t value = *(const uint##bits##_t *)in;                        \
    int64_t i;                                                                 \
                                                                               \
    for (i = 0; i < n; i++) to[i] = value;                                     \
  }                                                                            \
  /* out[r, c] = in[r + c * stride] for up to TILE rows of the output: tiles   \
  ** keep both sides' cache lines until all of them is used. */                \
  TFD_CLONES static void plane##bits(void *out, const void *in, int64_t rows,  \
                                     int64_t row, int64_t stride) {            \
    uint##bits##_t *restrict to = out;                                         \
    const uint##bits##_t *restrict from = in;                                  \
    int64_t c0;                                                                \
    int64_t r;                                                                 \
    int64_t c;                                                                 \
                                                                               \
    for (c0 = 0; c0 < row; c0 += TILE) {                                       \
      int64_t c1 = c0 + TILE < row ? c0 + TILE : row;                          \
                                                                               \
      for (r = 0; r < rows; r++) {                                             \
        for (c = c0; c < c1; c++) to[r * row + c] = from[c * stride + r];      \
      }                                                                        \
    }                                                                          \
  }

GATHER(8)
GATHER(16)
GATHER(32)
GATHER(64)

typedef void (*gather_fn)(void *out, const void *in, int64_t n,
                          int64_t stride);
typedef void (*repeat_fn)(void *out, const void *in, int64_t n);
typedef void (*plane_fn)(void *out, const void *in, int64_t rows, int64_t row,
                         int64_t stride);

/* By element size: 1, 2, 4, 8. */
static int width(size_t size) {
  return size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
}

static void gather(size_t size, void *out, const void *in, int64_t n,
                   int64_t stride) {
  static const gather_fn fns[] = {gather8, gather16, gather32, gather64};

  fns[width(size)](out, in, n, stride);
}

static void repeat(size_t size, void *out, const void *in, int64_t n) {
  static const repeat_fn fns[] = {repeat8, repeat16, repeat32, repeat64};

  fns[width(size)](out, in, n);
}

static void plane(const copy_job *j, int64_t rows, void *out,
                  const void *in) {
  static const plane_fn fns[] = {plane8, plane16, plane32, plane64};

  fns[width(j->size)](out, in, rows, j->row, j->row_stride);
}

static void copy_rows(void *arg, int64_t begin, int64_t end) {
  const copy_job *j = arg;
  int64_t bytes = j->row * (int64_t)j->size;
  int64_t i;

  for (i = begin; i < end; i++) {
    const char *in = j->in + offset_of(j, i) * (int64_t)j->size;
    char *out = j->out + i * bytes;

    if (j->row_stride == 1) {
      memcpy(out, in, (size_t)bytes);
    } else if (j->row_stride == 0) {
      repeat(j->size, out, in, j->row);
    } else {
      gather(j->size, out, in, j->row, j->row_stride);
    }
  }
}

/* One unit is TILE rows of one plane. */
static void copy_planes(void *arg, int64_t begin, int64_t end) {
  const copy_job *j = arg;
  int64_t tiles = (j->rows + TILE - 1) / TILE;
  int64_t i;

  for (i = begin; i < end; i++) {
    int64_t first = i % tiles * TILE;
    int64_t rows = first + TILE < j->rows ? TILE : j->rows - first;
    int64_t to = (i / tiles * j->rows + first) * j->row;
    int64_t from = offset_of(j, i / tiles) + first;

    plane(j, rows, j->out + to * (int64_t)j->size,
          j->in + from * (int64_t)j->size);
  }
}

/* One long row: cut it. */
static void copy_piece(void *arg, int64_t begin, int64_t end) {
  copy_job j = *(const copy_job *)arg;

  j.out += begin * (int64_t)j.size;
  j.in += begin * j.row_stride * (int64_t)j.size;
  j.row = end - begin;
  copy_rows(&j, 0, 1);
}

static int64_t product(const int64_t *dims, int n) {
  int64_t p = 1;
  int i;

  for (i = 0; i < n; i++) p *= dims[i];
  return p;
}

/* Pieces of at least TFD_GRAIN elements. */
static int64_t grain_for(int64_t elements) {
  int64_t grain = TFD_GRAIN / (elements > 0 ? elements : 1);

  return grain > 0 ? grain : 1;
}

/* Dividing for each short row costs more than copying it: walk the rows of
** one outer index with additions instead. */
static void copy_short_rows(void *arg, int64_t begin, int64_t end) {
  const copy_job *j = arg;
  int last = j->rank - 1;
  copy_job one = *j;
  int64_t i = begin;

  one.rank = 0;
  while (i < end) {
    int64_t first = i % j->dims[last];
    int64_t n = j->dims[last] - first;
    int64_t k;

    if (n > end - i) n = end - i;
    one.in = j->in + offset_of(j, i) * (int64_t)j->size;
    for (k = 0; k < n; k++) {
      one.out = j->out + (i + k) * j->row * (int64_t)j->size;
      copy_rows(&one, 0, 1);
      one.in += j->strides[last] * (int64_t)j->size;
    }
    i += n;
  }
}

static void copy_strided(copy_job *j) {
  int last = j->rank - 1;

  j->row = j->dims[last];
  j->row_stride = j->strides[last];
  if (last == 0) {
    tfd__parallel_for(j->row, TFD_GRAIN, copy_piece, j);
    return;
  }
  if (j->row_stride != 1 && j->row_stride != 0 && j->strides[last - 1] == 1) {
    j->rows = j->dims[last - 1];
    j->rank = last - 1;
    tfd__parallel_for(product(j->dims, j->rank) * ((j->rows + TILE - 1) / TILE),
                      grain_for(TILE * j->row), copy_planes, j);
    return;
  }
  j->rank = last;
  tfd__parallel_for(product(j->dims, j->rank), grain_for(j->row),
                    copy_short_rows, j);
}

int tfd__cpu_copy(const tfd__call *call) {
  const tfd__view *in = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  const tfd__view *views[2] = {out, in};
  int64_t strides[2][TFD_MAX_RANK];
  copy_job j = {.out = out->data, .in = in->data};

  if (out->numel == 0) return TFD_OK;
  j.size = tfd__dtype_size(out->dtype);
  j.rank = tfd__coalesce(views, 2, j.dims, strides);
  if (j.rank == 0) {
    memcpy(j.out, j.in, j.size);
    return TFD_OK;
  }
  memcpy(j.strides, strides[1], sizeof j.strides);
  copy_strided(&j);
  return TFD_OK;
}

/* --- fill ----------------------------------------------------------------- */

typedef struct fill_job {
  char *out;
  size_t size;
  uint64_t value; /* the element's bytes come first */
} fill_job;

static void fill_part(void *arg, int64_t begin, int64_t end) {
  const fill_job *j = arg;

  repeat(j->size, j->out + begin * (int64_t)j->size, &j->value, end - begin);
}

int tfd__cpu_fill(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  fill_job j = {.out = out->data, .size = tfd__dtype_size(out->dtype)};

  tfd__store(&j.value, out->dtype, call->reals[0]);
  tfd__parallel_for(out->numel, TFD_GRAIN, fill_part, &j);
  return TFD_OK;
}
