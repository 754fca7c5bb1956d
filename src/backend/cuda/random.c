/* Host side of draws of random numbers. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/lots_args.h"
#include "backend/draw.h"

static tfd_cu_draw draw_of(const tfd__call *call, int what) {
  const int64_t *stream = call->ints + TFD_LIST_AFTER;
  tfd_cu_draw a = {.out = tfd__out(call, 0)->data,
                   .n = tfd__out(call, 0)->numel,
                   .a = call->reals_n > 0 ? call->reals[0] : 0,
                   .b = call->reals_n > 1 ? call->reals[1] : 0,
                   .key = {(uint32_t)stream[0], (uint32_t)stream[1]},
                   .stream = {(uint32_t)stream[2], (uint32_t)stream[3]},
                   .what = what};

  return a;
}

static int draw(const tfd__call *call, const tfd_cu_draw *a) {
  static tfd__cuda_kernels kernels = {TFD_CUDA_FLOATS("random", "draw")};
  int dtype = tfd__out(call, 0)->dtype;
  int each = dtype == TFD_FLOAT64 ? 2 : 4;

  return tfd__cuda_launch(call, &kernels[dtype],
                          tfd__cuda_blocks(call, (a->n + each - 1) / each), a,
                          sizeof *a);
}

int tfd__cuda_stateless_uniform(const tfd__call *call) {
  int dtype = tfd__out(call, 0)->dtype;
  tfd__uniform r = tfd__uniform_of(dtype, call->reals[0], call->reals[1]);
  tfd_cu_draw a = draw_of(call, TFD_CU_UNIFORM);

  a.a = r.low;
  a.b = r.high;
  a.top = r.top;
  a.bits = tfd__uniform_bits(dtype);
  return draw(call, &a);
}

int tfd__cuda_stateless_normal(const tfd__call *call) {
  tfd_cu_draw a = draw_of(call, TFD_CU_NORMAL);

  return draw(call, &a);
}

int tfd__cuda_stateless_truncated_normal(const tfd__call *call) {
  tfd_cu_draw a = draw_of(call, TFD_CU_TRUNCATED);

  return draw(call, &a);
}

int tfd__cuda_stateless_uniform_int(const tfd__call *call) {
  static tfd__cuda_kernel by_size[9] = {[1] = {"random", "draw_whole_1", {0}},
                                        [2] = {"random", "draw_whole_2", {0}},
                                        [4] = {"random", "draw_whole_4", {0}},
                                        [8] = {"random", "draw_whole_8", {0}}};
  const int64_t *ints = call->ints + TFD_LIST_AFTER + TFD_STREAM_SLOTS;
  tfd_cu_draw a = draw_of(call, TFD_CU_UNIFORM);

  a.low = (uint64_t)ints[0];
  a.range = ints[2] != 0 ? 0 : (uint64_t)ints[1] - (uint64_t)ints[0];
  return tfd__cuda_launch(call,
                          &by_size[tfd__dtype_size(tfd__out(call, 0)->dtype)],
                          tfd__cuda_blocks(call, (a.n + 1) / 2), &a, sizeof a);
}

/* --- by lot --------------------------------------------------------------- */

static void set_stream(const int64_t *ints, uint32_t key[2],
                       uint32_t stream[2]) {
  key[0] = (uint32_t)ints[0];
  key[1] = (uint32_t)ints[1];
  stream[0] = (uint32_t)ints[2];
  stream[1] = (uint32_t)ints[3];
}

static int no_class(const char *name, int64_t at, int64_t value) {
  (void)value;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: row %lld of logits has no finite value; every row "
                   "needs a class that can be drawn",
                   name, (long long)at);
}

/* ints: num_samples, the stream. */
int tfd__cuda_stateless_categorical(const tfd__call *call) {
  static tfd__cuda_kernel sums = {"lots", "class_sums", {0}};
  static tfd__cuda_kernel classes = {"lots", "classes", {0}};
  enum { MOST_BLOCKS = 1 << 16 };
  const tfd__view *logits = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  tfd__cuda_refusal what = {
      .argument = "logits", .values = logits, .say = no_class};
  tfd_cu_classes a = {.out = out->data,
                      .logits = logits->data,
                      .rows = logits->dims[0],
                      .classes = logits->dims[1],
                      .samples = call->ints[0],
                      .from = logits->dtype,
                      .dtype = out->dtype};
  int64_t *refused = NULL;
  void *data = NULL;

  if (out->numel == 0) return TFD_OK;
  set_stream(call->ints + 1, a.key, a.stream);
  TFD_TRY(tfd__cuda_error_words(call, &what, &a.error, &refused));
  TFD_TRY(
      tfd__cuda_scratch(call, (size_t)logits->numel * sizeof *a.sums, &data));
  a.sums = data;
  TFD_TRY(tfd__cuda_launch(
      call, &sums, a.rows < MOST_BLOCKS ? a.rows : MOST_BLOCKS, &a, sizeof a));
  return tfd__cuda_launch(call, &classes, tfd__cuda_blocks(call, out->numel),
                          &a, sizeof a);
}

int tfd__cuda_stateless_shuffle(const tfd__call *call) {
  static tfd__cuda_kernel kernel = {"lots", "permute", {0}};
  const tfd__view *x = tfd__in(call, 0);
  tfd_cu_permute a = {.n = x->rank > 0 ? x->dims[0] : 1};
  void *data = NULL;

  if (x->numel == 0) return TFD_OK;
  set_stream(call->ints, a.key, a.stream);
  TFD_TRY(tfd__cuda_scratch(call, (size_t)a.n * sizeof *a.out, &data));
  a.out = data;
  TFD_TRY(tfd__cuda_launch(call, &kernel, 1, &a, sizeof a));
  return tfd__cuda_take_rows(call, x, a.out, a.n);
}

static int draw_by_tries(const tfd__call *call, int what, double least) {
  static tfd__cuda_kernel kernel = {"lots", "draw_by_tries", {0}};
  const tfd__view *out = tfd__out(call, 0);
  tfd__view in = tfd__broadcast_view(tfd__in(call, 0), out->dims, out->rank);
  tfd_cu_tries a = {.out = out->data,
                    .in = in.data,
                    .least = least,
                    .n = out->numel,
                    .rank = out->rank,
                    .from = in.dtype,
                    .dtype = out->dtype,
                    .what = what};

  memcpy(a.dims, in.dims, sizeof a.dims);
  memcpy(a.strides, in.strides, sizeof a.strides);
  set_stream(call->ints + TFD_LIST_AFTER, a.key, a.stream);
  return tfd__cuda_launch(call, &kernel, tfd__cuda_blocks(call, a.n), &a,
                          sizeof a);
}

/* Never 0, so that logarithms stay finite: the smallest normal number. */
int tfd__cuda_stateless_gamma(const tfd__call *call) {
  switch (tfd__out(call, 0)->dtype) {
  case TFD_FLOAT64:
    return draw_by_tries(call, TFD_CU_GAMMA, 0x1p-1022);
  case TFD_FLOAT16:
    return draw_by_tries(call, TFD_CU_GAMMA, 0x1p-14);
  default:
    return draw_by_tries(call, TFD_CU_GAMMA, 0x1p-126);
  }
}

int tfd__cuda_stateless_poisson(const tfd__call *call) {
  return draw_by_tries(call, TFD_CU_POISSON, 0);
}
