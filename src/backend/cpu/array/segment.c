/* Reductions over groups of rows that segment ids choose. */
#include "backend/cpu/array/combine.h"

#include <float.h>
#include <math.h>
#include <string.h>

static double largest(int dtype) {
  switch (dtype) {
  case TFD_FLOAT64:
    return DBL_MAX;
  case TFD_FLOAT16:
    return 65504.0;
  case TFD_BFLOAT16:
    return 0x1.fep127;
  default:
    return (double)FLT_MAX;
  }
}

enum { KIND_PROD, KIND_MIN, KIND_MAX };

/* Row number of each row of data, -1 for those to leave out, and how many
** rows each segment has (sorted or mean only). Sorted ids may not fall.
** Errors: InvalidArgument naming the position. */
static int segment_rows(const tfd__call *call, bool sorted, int64_t segments,
                        int64_t *rows, int64_t *counts) {
  const tfd__view *ids = tfd__in(call, 1);
  int64_t before = 0;
  int64_t j;

  memset(counts, 0, (size_t)segments * sizeof *counts);
  for (j = 0; j < ids->numel; j++) {
    int64_t id = tfd__index_at(ids, j);

    if (sorted && id >= segments) { /* segments: the last id + 1 */
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: segment_ids must not fall, but segment_ids[%lld] "
                       "= %lld is above the last, %lld",
                       call->name, (long long)j, (long long)id,
                       (long long)segments - 1);
    }
    if (id >= segments || (sorted && id < 0)) {
      return tfd__index_fail(call, "segment_ids", ids, j, segments);
    }
    if (sorted && id < before) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: segment_ids must not fall, but segment_ids[%lld] "
                       "= %lld comes after %lld",
                       call->name, (long long)j, (long long)id,
                       (long long)before);
    }
    before = id;
    rows[j] = id < 0 ? -1 : id;
    if (id >= 0) counts[id]++;
  }
  return TFD_OK;
}

/* The value that a reduction starts with; smallest and largest number of an
** integer dtype come from tfd__store, which saturates. */
static void start_rows(const tfd__view *out, int64_t kind, bool sorted,
                       const int64_t *counts) {
  bool is_float = tfd__is_float(out->dtype);
  double start = kind == KIND_PROD  ? 1
                 : kind == KIND_MIN ? INFINITY
                                    : -INFINITY;
  int64_t i;

  tfd__fill_view(out, start);
  if (kind == KIND_PROD) return;
  /* TensorFlow: an absent segment is 0 when ids are sorted, else the largest
  ** or smallest finite number. */
  for (i = 0; i < out->dims[0]; i++) {
    tfd__view row = tfd__part(out, 0, i, 1);

    if (counts[i] > 0) continue;
    if (sorted) {
      tfd__fill_view(&row, 0);
    } else if (is_float) {
      tfd__fill_view(&row, (kind == KIND_MIN ? 1 : -1) * largest(out->dtype));
    }
  }
}

static void divide_rows(const tfd__view *out, const int64_t *counts,
                        int64_t inner) {
  size_t size = tfd__dtype_size(out->dtype);
  int64_t i;

  for (i = 0; i < out->numel; i++) {
    char *element = (char *)out->data + (size_t)i * size;
    int64_t count = counts[i / inner];

    if (count < 2) continue;
    tfd__store(element, out->dtype,
               tfd__load(element, out->dtype) / (double)count);
  }
}

/* Scratch for segment_rows, then segment_rows. */
static int prepare(const tfd__call *call, bool sorted, int64_t **rows_p,
                   int64_t **counts_p) {
  int64_t n = tfd__in(call, 1)->numel;
  int64_t segments = call->ints[0];
  int64_t *rows = tfd__scratch((size_t)n * sizeof *rows + 1);
  int64_t *counts = tfd__scratch((size_t)segments * sizeof *counts + 1);

  if (rows == NULL || counts == NULL) {
    return tfd__no_memory((size_t)(n + segments) * 8, call->name);
  }
  *rows_p = rows;
  *counts_p = counts;
  return segment_rows(call, sorted, segments, rows, counts);
}

/* ints: num_segments, mean, sorted. */
int tfd__cpu_segment_sum(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  int64_t inner = tfd__span(out, 1, out->rank);
  int64_t *rows = NULL;
  int64_t *counts = NULL;

  TFD_TRY(prepare(call, call->ints[2] != 0, &rows, &counts));
  if (out->numel == 0) return TFD_OK;
  TFD_TRY(tfd__sum_rows(out, rows, tfd__in(call, 1)->numel,
                        tfd__in(call, 0)->data, inner));
  if (call->ints[1] != 0) divide_rows(out, counts, inner);
  return TFD_OK;
}

/* ints: num_segments, kind, sorted. */
int tfd__cpu_segment_select(const tfd__call *call) {
  static const tfd__combine_kind how[] = {
      [KIND_PROD] = TFD_COMBINE_MUL,
      [KIND_MIN] = TFD_COMBINE_MIN,
      [KIND_MAX] = TFD_COMBINE_MAX,
  };
  const tfd__view *out = tfd__out(call, 0);
  bool sorted = call->ints[2] != 0;
  int64_t kind = call->ints[1];
  int64_t *rows = NULL;
  int64_t *counts = NULL;

  TFD_TRY(prepare(call, sorted, &rows, &counts));
  if (out->numel == 0) return TFD_OK;
  start_rows(out, kind, sorted, counts);
  tfd__combine_rows(tfd__combine_of(how[kind], out->dtype), out->dtype,
                    out->data, out->dims[0], rows, tfd__in(call, 1)->numel,
                    tfd__in(call, 0)->data, tfd__span(out, 1, out->rank));
  return TFD_OK;
}
