/* Kernels whose indices are coordinates (the _nd family), and updates of
** rows. Coordinates become row numbers first; then one loop serves all. */
#include "backend/cpu/array/combine.h"

#include <stdio.h>
#include <string.h>

/* --- coordinates to rows -------------------------------------------------- */

static int coordinate_fail(const tfd__call *call, const tfd__view *indices,
                           int64_t at, int depth, const int64_t *bounds) {
  char given[TFD_SHAPE_TEXT];
  char shape[TFD_SHAPE_TEXT];
  int64_t x[TFD_MAX_RANK];
  int i;

  for (i = 0; i < depth; i++) x[i] = tfd__index_at(indices, at * depth + i);
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: indices[%lld] = %s is outside shape %s", call->name,
                   (long long)at, tfd__dims_text(x, depth, given),
                   tfd__dims_text(bounds, depth, shape));
}

/* Row number in `target` for each coordinate of `indices`, whose last axis
** is a coordinate behind `batch` common axes. *rows_p is scratch.
** Errors: InvalidArgument for a coordinate outside the target. */
static int rows_of(const tfd__call *call, const tfd__view *indices,
                   const tfd__view *target, int batch, int64_t **rows_p,
                   int64_t *n_p) {
  int depth = (int)indices->dims[indices->rank - 1];
  int64_t n = tfd__span(indices, 0, indices->rank - 1);
  int64_t each = tfd__span(indices, batch, indices->rank - 1);
  const int64_t *bounds = target->dims + batch;
  int64_t *rows = tfd__scratch((size_t)n * sizeof *rows + 1);
  int64_t j;
  int i;

  if (rows == NULL) return tfd__no_memory((size_t)n * 8, call->name);
  for (j = 0; j < n; j++) {
    int64_t row = j / each; /* the batch it belongs to */

    for (i = 0; i < depth; i++) {
      int64_t x = tfd__index_at(indices, j * depth + i);

      if (x < 0 || x >= bounds[i]) {
        return coordinate_fail(call, indices, j, depth, bounds);
      }
      row = row * bounds[i] + x;
    }
    rows[j] = row;
  }
  *rows_p = rows;
  *n_p = n;
  return TFD_OK;
}

/* Elements of one row that a coordinate chooses. */
static int64_t row_length(const tfd__view *indices, const tfd__view *target,
                          int batch) {
  int depth = (int)indices->dims[indices->rank - 1];

  return tfd__span(target, batch + depth, target->rank);
}

/* --- gather_nd, scatter_nd ------------------------------------------------ */

typedef struct pick {
  const char *from;
  char *to;
  const int64_t *rows;
  int64_t bytes;
} pick;

static void pick_rows(void *arg, int64_t begin, int64_t end) {
  const pick *p = arg;
  int64_t j;

  for (j = begin; j < end; j++) {
    memcpy(p->to + j * p->bytes, p->from + p->rows[j] * p->bytes,
           (size_t)p->bytes);
  }
}

/* ints: batch_dims. */
int tfd__cpu_gather_nd(const tfd__call *call) {
  const tfd__view *params = tfd__in(call, 0);
  const tfd__view *indices = tfd__in(call, 1);
  int batch = (int)call->ints[0];
  int64_t inner = row_length(indices, params, batch);
  pick p = {params->data, tfd__out(call, 0)->data, NULL,
            inner * (int64_t)tfd__dtype_size(params->dtype)};
  int64_t *rows = NULL;
  int64_t n = 0;

  TFD_TRY(rows_of(call, indices, params, batch, &rows, &n));
  p.rows = rows;
  if (inner > 0) tfd__parallel_for(n, tfd__grain(inner), pick_rows, &p);
  return TFD_OK;
}

/* Updates added into zeros. ints: shape (list), batch_dims. */
int tfd__cpu_scatter_nd(const tfd__call *call) {
  const tfd__view *indices = tfd__in(call, 0);
  const tfd__view *updates = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  int batch = (int)call->ints[TFD_ARRAY_LISTS(1)];
  int64_t *rows = NULL;
  int64_t n = 0;

  TFD_TRY(rows_of(call, indices, out, batch, &rows, &n));
  return tfd__sum_rows(out, rows, n, updates->data,
                       row_length(indices, out, batch));
}

/* --- updates -------------------------------------------------------------- */

/* Integer division: zeros must be found before the loops run. */
static int check_divisors(const tfd__call *call, const tfd__view *updates) {
  size_t size = tfd__dtype_size(updates->dtype);
  int64_t i;

  if (tfd__is_float(updates->dtype)) return TFD_OK;
  for (i = 0; i < updates->numel; i++) {
    if (tfd__load((const char *)updates->data + (size_t)i * size,
                  updates->dtype) == 0) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: updates contain 0 at position %lld; integers "
                       "cannot be divided by 0",
                       call->name, (long long)i);
    }
  }
  return TFD_OK;
}

/* Output 0 starts as input 0; it is that already when they share memory. */
static void start_as_ref(const tfd__call *call) {
  const tfd__view *ref = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);

  if (out->data != ref->data) tfd__copy_view(out, ref);
}

/* Combine the rows of input 2 into output 0. */
static int combine_into(const tfd__call *call, tfd__combine_kind kind,
                        const int64_t *rows, int64_t n, int64_t inner) {
  const tfd__view *updates = tfd__in(call, 2);
  const tfd__view *out = tfd__out(call, 0);
  tfd__combine combine = tfd__combine_of(kind, out->dtype);

  if (combine == NULL) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "%s: not defined for dtype %s",
                     call->name, tfd__dtype_name(out->dtype));
  }
  if (kind == TFD_COMBINE_DIV) TFD_TRY(check_divisors(call, updates));
  if (inner == 0) return TFD_OK;
  tfd__combine_rows(combine, out->dtype, out->data, out->numel / inner, rows, n,
                    updates->data, inner);
  return TFD_OK;
}

static int update_nd(const tfd__call *call, tfd__combine_kind kind) {
  const tfd__view *ref = tfd__in(call, 0);
  const tfd__view *indices = tfd__in(call, 1);
  int64_t *rows = NULL;
  int64_t n = 0;

  start_as_ref(call);
  TFD_TRY(rows_of(call, indices, ref, 0, &rows, &n));
  return combine_into(call, kind, rows, n, row_length(indices, ref, 0));
}

static int update_rows(const tfd__call *call, tfd__combine_kind kind) {
  const tfd__view *ref = tfd__in(call, 0);
  const tfd__view *indices = tfd__in(call, 1);
  int64_t n = indices->numel;
  int64_t *rows = tfd__scratch((size_t)n * sizeof *rows + 1);
  int64_t j;

  start_as_ref(call);
  if (rows == NULL) return tfd__no_memory((size_t)n * 8, call->name);
  TFD_TRY(tfd__check_indices(call, "indices", indices, ref->dims[0]));
  for (j = 0; j < n; j++) rows[j] = tfd__index_at(indices, j);
  return combine_into(call, kind, rows, n, tfd__span(ref, 1, ref->rank));
}

#define UPDATE(name, how, kind)                \
  int tfd__cpu_##name(const tfd__call *call) { \
    return how(call, TFD_COMBINE_##kind);      \
  }

UPDATE(tensor_scatter_nd_update, update_nd, UPDATE)
UPDATE(tensor_scatter_nd_add, update_nd, ADD)
UPDATE(tensor_scatter_nd_sub, update_nd, SUB)
UPDATE(tensor_scatter_nd_min, update_nd, MIN)
UPDATE(tensor_scatter_nd_max, update_nd, MAX)
UPDATE(scatter_update, update_rows, UPDATE)
UPDATE(scatter_add, update_rows, ADD)
UPDATE(scatter_sub, update_rows, SUB)
UPDATE(scatter_mul, update_rows, MUL)
UPDATE(scatter_div, update_rows, DIV)
UPDATE(scatter_min, update_rows, MIN)
UPDATE(scatter_max, update_rows, MAX)
