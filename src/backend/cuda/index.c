/* Host side of rows that indices choose: gathered, scattered, summed by
** segments. Rows are chosen, sorted by where they go, and joined there. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/index_args.h"
#include "backend/cuda/kernels/places_args.h"
#include "backend/cuda/kernels/update_args.h"
#include "backend/lay.h"
#include "backend/update_list.h"

/* Rows that were chosen, and those they go to. */
typedef struct chosen {
  tfd__cuda_sorting order;
  tfd_cu_choose a;
} chosen;

/* --- reading -------------------------------------------------------------- */

static int read_rows(const tfd__call *call, const tfd__view *params,
                     tfd_cu_gather *a) {
  static tfd__cuda_kernel by_size[9] = {[1] = {"index", "gather_1", {0}},
                                        [2] = {"index", "gather_2", {0}},
                                        [4] = {"index", "gather_4", {0}},
                                        [8] = {"index", "gather_8", {0}}};

  a->in = params->data;
  a->out = tfd__out(call, 0)->data;
  return tfd__cuda_launch(call, &by_size[tfd__dtype_size(params->dtype)],
                          tfd__cuda_blocks(call, tfd__out(call, 0)->numel), a,
                          sizeof *a);
}

/* Keys of the n rows that indices name, in the order they are named; to be
** sorted or only read. Given in c->a: each, outer, rows, bounds, depth,
** negative. */
static int choose(const tfd__call *call, const tfd__cuda_refusal *what,
                  int64_t n, bool sorted, chosen *c) {
  static tfd__cuda_kernel kernel = {"index", "choose", {0}};
  static tfd__cuda_kernel refuse = {"index", "refuse", {0}};
  void *data = NULL;

  TFD_TRY(tfd__cuda_stop(call, &c->a.stop));
  TFD_TRY(tfd__cuda_error_words(call, what, &c->a.error, &c->a.refused));
  TFD_TRY(tfd__cuda_scratch(call, sizeof(uint32_t), &data));
  c->a.nothing = data;
  if (sorted) {
    TFD_TRY(tfd__cuda_sorting_new(call, 1, n, sizeof(uint32_t), &c->order));
  } else {
    TFD_TRY(tfd__cuda_scratch(call, (size_t)n * sizeof(uint32_t), &data));
    c->order.keys = data;
  }
  c->a.keys = c->order.keys;
  c->a.order = c->order.order;
  c->a.index = what->values->data;
  c->a.wide = what->values->dtype == TFD_INT64;
  c->a.n = n;
  TFD_TRY(tfd__cuda_launch(call, &kernel, tfd__cuda_blocks(call, n), &c->a,
                           sizeof c->a));
  return tfd__cuda_launch(call, &refuse, 1, &c->a, sizeof c->a);
}

/* Rows that coordinates behind `batch` common axes name. */
static int choose_nd(const tfd__call *call, const tfd__view *indices,
                     const tfd__view *target, int batch, bool sorted,
                     chosen *c) {
  int depth = (int)indices->dims[indices->rank - 1];
  tfd__cuda_refusal what = {
      .argument = "indices", .values = indices, .depth = depth};

  memcpy(what.bounds, target->dims + batch,
         (size_t)depth * sizeof *what.bounds);
  memcpy(c->a.bounds, what.bounds, sizeof c->a.bounds);
  c->a.depth = depth;
  c->a.each = tfd__span(indices, batch, indices->rank - 1);
  c->a.outer = 1;
  c->a.rows = tfd__span(target, 0, batch + depth);
  return choose(call, &what, tfd__span(indices, 0, indices->rank - 1), sorted,
                c);
}

/* Of `rows` rows in blocks of `bound`, those that n numbers name; the caller
** has set each and outer. */
static int choose_rows(const tfd__call *call, tfd__cuda_refusal *what,
                       int64_t bound, int64_t rows, int64_t n, chosen *c) {
  what->bounds[0] = bound;
  c->a.bounds[0] = bound;
  c->a.depth = 1;
  c->a.rows = rows;
  return choose(call, what, n, true, c);
}

/* --- gather --------------------------------------------------------------- */

/* ints: validate_indices, axis (list), batch_dims. */
int tfd__cuda_gather(const tfd__call *call) {
  const tfd__view *params = tfd__in(call, 0);
  const tfd__view *indices = tfd__in(call, 1);
  int batch = (int)call->ints[2 + TFD_MAX_RANK];
  int axis = 0;
  tfd_cu_gather a = {.index = indices->data,
                     .wide = indices->dtype == TFD_INT64};

  if (batch < 0) batch += indices->rank;
  axis = call->ints[1] < 1 ? batch : (int)call->ints[2];
  if (axis < 0) axis += params->rank;
  a.bound = params->dims[axis];
  a.inner = tfd__span(params, axis + 1, params->rank);
  a.count = tfd__span(indices, batch, indices->rank);
  a.outer = tfd__span(params, 0, axis);
  a.shared = tfd__span(params, batch, axis);
  TFD_TRY(tfd__cuda_error_word(call, "indices", indices, a.bound, &a.error));
  return read_rows(call, params, &a);
}

/* ints: batch_dims. */
int tfd__cuda_gather_nd(const tfd__call *call) {
  const tfd__view *params = tfd__in(call, 0);
  const tfd__view *indices = tfd__in(call, 1);
  int batch = (int)call->ints[0];
  chosen c = {0};
  tfd_cu_gather a = {.outer = 1, .shared = 1};

  TFD_TRY(choose_nd(call, indices, params, batch, false, &c));
  a.index = c.a.keys;
  a.count = c.a.n;
  a.bound = c.a.rows;
  a.inner = tfd__span(params, batch + c.a.depth, params->rank);
  a.error = c.a.error;
  return read_rows(call, params, &a);
}

/* Rows where ids >= 0, zeros elsewhere: what segment sums give back. */
int tfd__cuda_segment_gather(const tfd__call *call) {
  const tfd__view *params = tfd__in(call, 0);
  const tfd__view *ids = tfd__in(call, 1);
  tfd_cu_gather a = {.index = ids->data,
                     .wide = ids->dtype == TFD_INT64,
                     .bound = params->dims[0],
                     .count = ids->numel,
                     .outer = 1,
                     .shared = 1,
                     .zeros = 1};

  if (ids->numel == 0) return TFD_OK;
  a.inner = tfd__out(call, 0)->numel / ids->numel;
  TFD_TRY(tfd__cuda_error_word(call, "segment_ids", ids, a.bound, &a.error));
  return read_rows(call, params, &a);
}

int tfd__cuda_take_rows(const tfd__call *call, const tfd__view *params,
                        const int32_t *numbers, int64_t n) {
  tfd_cu_gather a = {.index = numbers,
                     .bound = n,
                     .count = n,
                     .outer = 1,
                     .shared = 1,
                     .inner = params->numel / n};

  return read_rows(call, params, &a);
}

/* --- joining -------------------------------------------------------------- */

/* Chosen rows by their numbers, those of one number as they were named. */
static int sort(const tfd__call *call, chosen *c) {
  if (c->a.negative == TFD_CU_RISING) return TFD_OK;
  return tfd__cuda_sort(call, &c->order, 0, tfd__cuda_bits(c->a.rows));
}

/* The chosen rows of `from` into output 0. */
static int join(const tfd__call *call, chosen *c, const tfd__view *from,
                tfd_cu_join *a) {
  static tfd__cuda_kernels kernels = {
      TFD_CUDA_FLOATS("index", "join"),
      TFD_CUDA_INTS("index", "join"), [TFD_BOOL] = {"index", "join_u8", {0}}};
  const tfd__view *out = tfd__out(call, 0);

  TFD_TRY(sort(call, c));
  a->out = out->data;
  a->in = from->data;
  a->keys = c->order.keys;
  a->order = c->order.order;
  a->nothing = c->a.nothing;
  a->n = c->a.n;
  a->inner = c->a.rows > 0 ? out->numel / c->a.rows : 0;
  a->rows = c->a.rows;
  a->dtype = out->dtype;
  return tfd__cuda_launch(call, &kernels[out->dtype],
                          tfd__cuda_blocks(call, a->n * a->inner), a,
                          sizeof *a);
}

static int sum(const tfd__call *call, chosen *c, const tfd__view *from,
               bool mean) {
  tfd_cu_join a = {.op = TFD_CU_JOIN_SUM, .mean = mean};

  TFD_TRY(tfd__cuda_fill_with(call, tfd__out(call, 0), 0));
  return join(call, c, from, &a);
}

/* Rows of dy where gather read them. ints: shape (list), axis, batch_dims. */
int tfd__cuda_gather_grad(const tfd__call *call) {
  const tfd__view *dy = tfd__in(call, 0);
  const tfd__view *indices = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  int axis = (int)call->ints[TFD_ARRAY_LISTS(1)];
  int batch = (int)call->ints[TFD_ARRAY_LISTS(1) + 1];
  int64_t inner = tfd__span(out, axis + 1, out->rank);
  tfd__cuda_refusal what = {.argument = "indices", .values = indices};
  chosen c = {.a = {.each = tfd__span(indices, batch, indices->rank),
                    .outer = tfd__span(out, batch, axis)}};

  if (out->numel == 0) return TFD_OK;
  TFD_TRY(choose_rows(call, &what, out->dims[axis], out->numel / inner,
                      dy->numel / inner, &c));
  return sum(call, &c, dy, false);
}

/* Updates added into zeros. ints: shape (list), batch_dims. */
int tfd__cuda_scatter_nd(const tfd__call *call) {
  chosen c = {0};

  TFD_TRY(choose_nd(call, tfd__in(call, 0), tfd__out(call, 0),
                    (int)call->ints[TFD_ARRAY_LISTS(1)], true, &c));
  return sum(call, &c, tfd__in(call, 1), false);
}

/* Output 0 starts as input 0; it is that already when they share memory. */
static int start_as_ref(const tfd__call *call) {
  const tfd__view *ref = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);

  return out->data == ref->data ? TFD_OK : tfd__cuda_move(call, ref, out->data);
}

static int update_nd(const tfd__call *call, int op) {
  tfd_cu_join a = {.op = op};
  chosen c = {0};

  TFD_TRY(start_as_ref(call));
  TFD_TRY(choose_nd(call, tfd__in(call, 1), tfd__in(call, 0), 0, true, &c));
  return join(call, &c, tfd__in(call, 2), &a);
}

static int update_rows(const tfd__call *call, int op) {
  const tfd__view *ref = tfd__in(call, 0);
  const tfd__view *indices = tfd__in(call, 1);
  tfd__cuda_refusal what = {.argument = "indices", .values = indices};
  tfd_cu_join a = {.op = op};
  chosen c = {.a = {.each = indices->numel, .outer = 1}};

  TFD_TRY(start_as_ref(call));
  TFD_TRY(
      choose_rows(call, &what, ref->dims[0], ref->dims[0], indices->numel, &c));
  return join(call, &c, tfd__in(call, 2), &a);
}

#define UPDATE(name, how, op)                   \
  int tfd__cuda_##name(const tfd__call *call) { \
    return how(call, TFD_CU_JOIN_##op);         \
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

/* --- optimizers ----------------------------------------------------------- */

/* Those of rules that leave rows alone which have no gradient: in place, unless
** weight decay takes from all. */
int tfd__cuda_update_rows(const tfd__call *call, int rule, int targets,
                          int rest) {
  static tfd__cuda_kernels sums = {TFD_CUDA_FLOATS("update", "sum_rows")};
  static tfd__cuda_kernels kernels = {TFD_CUDA_FLOATS("update", "update_rows")};
  const tfd__view *x = tfd__in(call, 0);
  const tfd__view *indices = tfd__in(call, call->in_n - 1);
  tfd__cuda_refusal what = {.argument = "indices", .values = indices};
  chosen c = {.a = {.each = indices->numel, .outer = 1}};
  tfd_cu_update_rows a = {.values = tfd__in(call, targets)->data,
                          .decay = call->reals[0],
                          .n = x->numel,
                          .count = indices->numel,
                          .targets = targets,
                          .rule = rule,
                          .fade = rest != TFD_REST_STAYS,
                          .stay = rest == TFD_REST_SLOTS};
  int i;

  if (x->numel == 0) return TFD_OK;
  a.inner = x->numel / x->dims[0];
  a.all = a.fade || a.decay != 0;
  TFD_TRY(choose_rows(call, &what, x->dims[0], x->dims[0], indices->numel, &c));
  TFD_TRY(sort(call, &c));
  a.keys = c.order.keys;
  a.order = c.order.order;
  a.nothing = c.a.nothing;
  TFD_TRY(tfd__cuda_scratch(
      call, (size_t)(a.count * a.inner) * (x->dtype == TFD_FLOAT64 ? 8 : 4),
      &a.sums));
  TFD_TRY(tfd__cuda_launch(call, &sums[x->dtype],
                           tfd__cuda_blocks(call, a.count * a.inner), &a,
                           sizeof a));
  for (i = 1; i < call->reals_n && i < TFD_CU_REALS; i++) {
    a.reals[i] = call->reals[i];
  }
  for (i = 0; i < targets; i++) {
    const tfd__view *from = tfd__in(call, i);

    a.out[i] = tfd__out(call, i)->data;
    a.in[i] = a.all ? from->data : a.out[i];
    if (!a.all && from->data != a.out[i]) {
      TFD_TRY(tfd__cuda_move(call, from, a.out[i]));
    }
  }
  return tfd__cuda_launch(
      call, &kernels[x->dtype],
      tfd__cuda_blocks(call, a.all ? a.n : a.count * a.inner), &a, sizeof a);
}

/* --- permutations --------------------------------------------------------- */

static int twice(const char *name, int64_t at, int64_t value) {
  (void)at;
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: %lld occurs twice in x", name,
                   (long long)value);
}

int tfd__cuda_invert_permutation(const tfd__call *call) {
  static tfd__cuda_kernel kernel = {"places", "inverse", {0}};
  const tfd__view *x = tfd__in(call, 0);
  tfd__cuda_refusal what = {.argument = "x", .values = x};
  tfd__cuda_refusal again = {.argument = "x", .values = x, .say = twice};
  tfd_cu_inverse a = {.out = tfd__out(call, 0)->data,
                      .n = x->numel,
                      .dtype = tfd__out(call, 0)->dtype};
  chosen c = {.a = {.each = x->numel, .outer = 1}};
  int64_t *refused = NULL;

  if (x->numel == 0) return TFD_OK;
  TFD_TRY(choose_rows(call, &what, x->numel, x->numel, x->numel, &c));
  TFD_TRY(sort(call, &c));
  TFD_TRY(tfd__cuda_error_words(call, &again, &a.error, &refused));
  a.keys = c.order.keys;
  a.order = c.order.order;
  a.nothing = c.a.nothing;
  return tfd__cuda_launch(call, &kernel, tfd__cuda_blocks(call, a.n), &a,
                          sizeof a);
}

/* --- segments ------------------------------------------------------------- */

/* ints: num_segments, kind, sorted. */
static int choose_segments(const tfd__call *call, chosen *c) {
  const tfd__view *ids = tfd__in(call, 1);
  int64_t segments = call->ints[0];
  bool sorted = call->ints[2] != 0;
  tfd__cuda_refusal what = {
      .argument = "segment_ids", .values = ids, .rising = sorted};

  c->a.each = ids->numel;
  c->a.outer = 1;
  c->a.negative = sorted ? TFD_CU_RISING : TFD_CU_LEAVE_OUT;
  return choose_rows(call, &what, segments, segments, ids->numel, c);
}

/* ints: num_segments, mean, sorted. */
int tfd__cuda_segment_sum(const tfd__call *call) {
  chosen c = {0};

  TFD_TRY(choose_segments(call, &c));
  return sum(call, &c, tfd__in(call, 0), call->ints[1] != 0);
}

/* What a segment without rows holds. kind: 0 product, 1 minimum, 2 maximum.
** TensorFlow: 0 when ids are sorted, else the largest or smallest finite
** number; integers saturate. */
static double absent(int dtype, int64_t kind, bool sorted) {
  static const double largest[TFD_DTYPE_END] = {[TFD_FLOAT32] = FLT_MAX,
                                                [TFD_FLOAT64] = DBL_MAX,
                                                [TFD_FLOAT16] = 65504.0,
                                                [TFD_BFLOAT16] = 0x1.fep127};
  double most = tfd__is_float(dtype) ? largest[dtype] : (double)INFINITY;

  if (kind == 0) return 1;
  if (sorted) return 0;
  return kind == 1 ? most : -most;
}

/* ints: num_segments, kind, sorted. */
int tfd__cuda_segment_select(const tfd__call *call) {
  static const int ops[] = {TFD_CU_JOIN_MUL, TFD_CU_JOIN_MIN, TFD_CU_JOIN_MAX};
  const tfd__view *out = tfd__out(call, 0);
  int64_t kind = call->ints[1];
  tfd_cu_join a = {.op = ops[kind], .fresh = 1};
  chosen c = {0};

  TFD_TRY(choose_segments(call, &c));
  TFD_TRY(tfd__cuda_fill_with(call, out,
                              absent(out->dtype, kind, call->ints[2] != 0)));
  return join(call, &c, tfd__in(call, 0), &a);
}
