/* Host side of draws of random numbers. */
#include "backend/cuda/cuda.h"
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
