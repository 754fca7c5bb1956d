/* Host side of normalisation. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/lay.h"

enum {
  WIDE = 2048,  /* a warp takes longer for such a row than a block */
  PIECE = 2048, /* elements that are worth a piece of a sum */
  BLOCKS = 2048 /* that keep a large GPU busy */
};

static int finish(const tfd__call *call, int dtype, int op,
                  const tfd_cu_norm_finish *a) {
  static tfd__cuda_kernel single[] = {{"norm", "norm_mean_f32", {0}},
                                      {"norm", "norm_forward_f32", {0}},
                                      {"norm", "norm_backward_f32", {0}},
                                      {"norm", "norm_weights_f32", {0}}};
  static tfd__cuda_kernel twice[] = {{"norm", "norm_mean_f64", {0}},
                                     {"norm", "norm_forward_f64", {0}},
                                     {"norm", "norm_backward_f64", {0}},
                                     {"norm", "norm_weights_f64", {0}}};

  return tfd__cuda_launch(call, &(dtype == TFD_FLOAT64 ? twice : single)[op],
                          tfd__cuda_blocks(call, a->channels), a, sizeof *a);
}

/* Pieces for the sums of the channels, and room for their results; *rest_p is
** `rest` bytes behind it. */
static int cut(const tfd__call *call, const tfd__channels *d, size_t rest,
               tfd_cu_norm_sums *a, void **rest_p) {
  int64_t all = d->outer * d->inner;
  int64_t tiles = 0;
  void *data = NULL;

  a->outer = d->outer;
  a->channels = d->channels;
  a->inner = d->inner;
  a->lanes = d->inner == 1 && d->channels > 1 ? 32 : 1;
  a->space = 1;
  a->groups = 1;
  a->width = d->channels;
  tiles = (d->channels + a->lanes - 1) / a->lanes;
  a->parts = BLOCKS / tiles;
  if (a->parts > all / (PIECE / a->lanes)) {
    a->parts = all / (PIECE / a->lanes);
  }
  if (a->parts < 1) a->parts = 1;
  a->each = (all + a->parts - 1) / a->parts;
  TFD_TRY(tfd__cuda_scratch(call, (size_t)(a->parts * d->channels) * 16 + rest,
                            &data));
  a->partial = data;
  *rest_p = a->partial + a->parts * d->channels * 2;
  return TFD_OK;
}

static int sums(const tfd__call *call, int dtype, const tfd_cu_norm_sums *a) {
  static tfd__cuda_kernels kernels[2] = {
      {TFD_CUDA_FLOATS("norm", "norm_sums")},
      {TFD_CUDA_FLOATS("norm", "norm_row_sums")}};
  int64_t blocks = (a->channels + a->lanes - 1) / a->lanes * a->parts;

  return tfd__cuda_launch(call, &kernels[a->op == TFD_CU_NORM_ROWS][dtype],
                          blocks < 1 << 16 ? blocks : 1 << 16, a, sizeof *a);
}

static int apply(const tfd__call *call, const tfd__channels *d, const void *dy,
                 const tfd__view *x, const void *work) {
  static tfd__cuda_kernels kernels = {TFD_CUDA_FLOATS("norm", "norm_apply")};
  tfd_cu_norm_apply a = {.out = tfd__out(call, 0)->data,
                         .x = x->data,
                         .dy = dy,
                         .work = work,
                         .n = x->numel,
                         .channels = d->channels,
                         .inner = d->inner};

  return tfd__cuda_launch(call, &kernels[x->dtype], tfd__cuda_blocks(call, a.n),
                          &a, sizeof a);
}

static int wide_of(int dtype) {
  return dtype == TFD_FLOAT64 ? TFD_FLOAT64 : TFD_FLOAT32;
}

/* ints: data_format, training, unbiased. reals: epsilon, factor. */
int tfd__cuda_fused_batch_norm(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);
  tfd__channels d = tfd__channels_of(x, (call->ints[0] & 1) != 0);
  bool training = call->ints[1] != 0;
  size_t work = (size_t)d.channels * 4 * tfd__dtype_size(wide_of(x->dtype));
  tfd_cu_norm_sums s = {.x = x->data, .small = wide_of(x->dtype)};
  tfd_cu_norm_finish f = {.scale = tfd__in(call, 1)->data,
                          .offset = tfd__in(call, 2)->data,
                          .old_mean = tfd__in(call, 3)->data,
                          .old_variance = tfd__in(call, 4)->data,
                          .mean = tfd__out(call, 1)->data,
                          .variance = tfd__out(call, 2)->data,
                          .saved = tfd__out(call, 3)->data,
                          .count = (double)(d.outer * d.inner),
                          .epsilon = call->reals[0],
                          .factor = call->reals[1],
                          .channels = d.channels,
                          .weights = tfd__in(call, 1)->dtype,
                          .running = tfd__in(call, 3)->dtype,
                          .small = tfd__out(call, 3)->dtype,
                          .training = training,
                          .unbiased = call->ints[2] != 0};

  if (d.channels == 0) return TFD_OK;
  TFD_TRY(cut(call, &d, work, &s, &f.work));
  f.partial = s.partial;
  f.parts = s.parts;
  if (training && x->numel > 0) {
    TFD_TRY(sums(call, x->dtype, &s));
    TFD_TRY(finish(call, x->dtype, TFD_CU_NORM_MEAN, &f));
    s.op = TFD_CU_NORM_SQUARES;
    s.mean = f.work;
    TFD_TRY(sums(call, x->dtype, &s));
  } else {
    f.parts = 0;
  }
  TFD_TRY(finish(call, x->dtype, TFD_CU_NORM_FORWARD, &f));
  if (x->numel == 0) return TFD_OK;
  return apply(call, &d, NULL, x, f.work);
}

static int no_elements(const tfd__call *call) {
  TFD_TRY(tfd__cuda_fill_with(call, tfd__out(call, 1), 0));
  return tfd__cuda_fill_with(call, tfd__out(call, 2), 0);
}

int tfd__cuda_fused_batch_norm_grad(const tfd__call *call) {
  const tfd__view *dy = tfd__in(call, 0);
  const tfd__view *x = tfd__in(call, 1);
  const tfd__view *saved = tfd__in(call, 3);
  tfd__channels d = tfd__channels_of(x, (call->ints[0] & 1) != 0);
  size_t work = (size_t)d.channels * 4 * tfd__dtype_size(wide_of(x->dtype));
  tfd_cu_norm_sums s = {.x = x->data,
                        .dy = dy->data,
                        .mean = saved->data,
                        .small = saved->dtype,
                        .op = TFD_CU_NORM_GRAD};
  tfd_cu_norm_finish f = {.scale = tfd__in(call, 2)->data,
                          .saved_in = saved->data,
                          .dscale = tfd__out(call, 1)->data,
                          .doffset = tfd__out(call, 2)->data,
                          .count = (double)(d.outer * d.inner),
                          .channels = d.channels,
                          .weights = tfd__in(call, 2)->dtype,
                          .small = saved->dtype,
                          .training = call->ints[1] != 0};

  if (x->numel == 0) return no_elements(call);
  TFD_TRY(cut(call, &d, work, &s, &f.work));
  f.partial = s.partial;
  f.parts = s.parts;
  TFD_TRY(sums(call, x->dtype, &s));
  TFD_TRY(finish(call, x->dtype, TFD_CU_NORM_BACKWARD, &f));
  return apply(call, &d, dy->data, x, f.work);
}

/* --- rows ----------------------------------------------------------------- */

static tfd_cu_norm_rows rows_of(const tfd__norm_rows *d) {
  tfd_cu_norm_rows a = {.rows = d->samples * d->groups,
                        .groups = d->groups,
                        .count = d->segments * d->length,
                        .share = 1.0 / (double)(d->segments * d->length),
                        .length = d->length,
                        .sample = d->sample,
                        .group_step = d->group_step,
                        .segment_step = d->segment_step,
                        .width = d->width,
                        .per_segment = d->per_segment};

  return a;
}

static int rows(const tfd__call *call, int dtype, const tfd_cu_norm_rows *a) {
  static tfd__cuda_kernels kernels[2][2] = {
      {{TFD_CUDA_FLOATS("norm", "norm_rows")},
       {TFD_CUDA_FLOATS("norm", "norm_wide_rows")}},
      {{TFD_CUDA_FLOATS("norm", "norm_rows_grad")},
       {TFD_CUDA_FLOATS("norm", "norm_wide_rows_grad")}}};
  bool wide = a->count > WIDE;
  int64_t blocks = wide ? a->rows : (a->rows + 7) / 8;

  return tfd__cuda_launch(call, &kernels[a->dy != NULL][wide][dtype],
                          blocks < 1 << 16 ? blocks : 1 << 16, a, sizeof *a);
}

/* reals: epsilon. */
static int forward(const tfd__call *call, const tfd__norm_rows *d) {
  const tfd__view *x = tfd__in(call, 0);
  tfd_cu_norm_rows a = rows_of(d);

  if (x->numel == 0) return TFD_OK;
  a.out = tfd__out(call, 0)->data;
  a.x = x->data;
  if (tfd__has(call, 1)) a.scale = tfd__in(call, 1)->data;
  if (tfd__has(call, 2)) a.offset = tfd__in(call, 2)->data;
  a.weights = tfd__has(call, 1) ? tfd__in(call, 1)->dtype
                                : (int)tfd__in(call, 2)->dtype;
  a.mean = tfd__out(call, 1)->data;
  a.inv = tfd__out(call, 2)->data;
  a.small = tfd__out(call, 1)->dtype;
  a.epsilon = call->reals[0];
  return rows(call, x->dtype, &a);
}

/* Those of scale and offset: sums over everything but channels. */
static int weights(const tfd__call *call, const tfd__norm_rows *d) {
  const tfd__view *x = tfd__in(call, 1);
  const tfd__view *mean = tfd__in(call, 2);
  tfd__channels seen = {.channels = d->groups * d->width,
                        .inner = d->per_segment ? d->length : 1};
  tfd_cu_norm_sums s = {.x = x->data,
                        .dy = tfd__in(call, 0)->data,
                        .mean = mean->data,
                        .inv = tfd__in(call, 3)->data,
                        .small = mean->dtype,
                        .op = TFD_CU_NORM_ROWS};
  tfd_cu_norm_finish f = {.dscale = tfd__out(call, 1)->data,
                          .doffset = tfd__out(call, 2)->data,
                          .channels = seen.channels,
                          .weights = tfd__out(call, 1)->dtype};

  seen.outer = x->numel / (seen.channels * seen.inner);
  TFD_TRY(cut(call, &seen, 0, &s, &f.work));
  s.space = seen.outer / d->samples;
  s.groups = d->groups;
  s.width = d->width;
  f.partial = s.partial;
  f.parts = s.parts;
  TFD_TRY(sums(call, x->dtype, &s));
  return finish(call, x->dtype, TFD_CU_NORM_WEIGHTS, &f);
}

static int backward(const tfd__call *call, const tfd__norm_rows *d) {
  const tfd__view *x = tfd__in(call, 1);
  tfd_cu_norm_rows a = rows_of(d);

  if (x->numel == 0) return no_elements(call);
  a.out = tfd__out(call, 0)->data;
  a.x = x->data;
  a.dy = tfd__in(call, 0)->data;
  a.mean = tfd__in(call, 2)->data;
  a.inv = tfd__in(call, 3)->data;
  a.small = tfd__in(call, 2)->dtype;
  if (tfd__has(call, 4)) a.scale = tfd__in(call, 4)->data;
  a.weights = tfd__has(call, 4) ? (int)tfd__in(call, 4)->dtype : 0;
  TFD_TRY(rows(call, x->dtype, &a));
  return weights(call, d);
}

int tfd__cuda_layer_normalization(const tfd__call *call) {
  tfd__norm_rows d = tfd__layer_rows(tfd__in(call, 0), call->ints[0]);

  return forward(call, &d);
}

int tfd__cuda_layer_normalization_grad(const tfd__call *call) {
  tfd__norm_rows d = tfd__layer_rows(tfd__in(call, 0), call->ints[0]);

  return backward(call, &d);
}

int tfd__cuda_group_normalization(const tfd__call *call) {
  tfd__norm_rows d =
      tfd__group_rows(tfd__in(call, 0), call->ints[0], call->ints[1]);

  return forward(call, &d);
}

int tfd__cuda_group_normalization_grad(const tfd__call *call) {
  tfd__norm_rows d =
      tfd__group_rows(tfd__in(call, 0), call->ints[0], call->ints[1]);

  return backward(call, &d);
}
