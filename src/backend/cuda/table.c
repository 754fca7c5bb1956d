/* Which kernels there are, and for what: the rest runs on the CPU. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/lots_args.h"

/* Each lets go of its scratch memory: many may run in one position. */
#define HAS(name, dtypes)                        \
  static int run_##name(const tfd__call *call) { \
    int rc = tfd__cuda_##name(call);             \
                                                 \
    tfd__cuda_free_scratch(call->stream);        \
    return rc;                                   \
  }
#define IF(name, dtypes, condition) HAS(name, dtypes)
#include "backend/cuda/table.def"
#undef IF
#undef HAS

#define HAS(name, dtypes) [TFD_KERNEL_##name] = run_##name,
#define IF(name, dtypes, condition) HAS(name, dtypes)
const tfd__kernel tfd__cuda_kernels_table[TFD_KERNEL_N] = {
#include "backend/cuda/table.def"
};
#undef IF
#undef HAS

/* --- conditions ----------------------------------------------------------- */

/* More than a launch takes are summed up in several, which rounds between. */
static bool few_halves(const tfd__call *call) {
  int dtype = tfd__in(call, 0)->dtype;

  return call->in_n <= TFD_CU_SUMMANDS ||
         (dtype != TFD_FLOAT16 && dtype != TFD_BFLOAT16);
}

/* Positions fit 32 bits. */
static bool small(const tfd__call *call) {
  return tfd__in(call, 0)->numel <= INT32_MAX;
}

static bool small_out(const tfd__call *call) {
  return small(call) && tfd__out(call, 0)->numel <= INT32_MAX;
}

static bool small_second(const tfd__call *call) {
  return small(call) && tfd__in(call, 1)->numel <= INT32_MAX;
}

static bool float_second(const tfd__call *call) {
  return tfd__is_float(tfd__in(call, 1)->dtype);
}

/* A kernel reads both by one type. */
static bool small_alike_2_3(const tfd__call *call) {
  return small(call) && tfd__in(call, 2)->dtype == tfd__in(call, 3)->dtype;
}

static bool small_alike_3_4(const tfd__call *call) {
  return small(call) && tfd__in(call, 3)->dtype == tfd__in(call, 4)->dtype;
}

/* As many outputs as the rule has targets, so one copy. A stretch of a variable
** comes with two ints. */
static bool one_copy(const tfd__call *call) {
  int grads = call->in_n - call->out_n - 1;

  return call->out_n <= TFD_CU_TARGETS && grads >= 1 && grads <= TFD_CU_GRADS &&
         call->ints_n == 0 && (!tfd__has(call, call->in_n - 1) || small(call));
}

static bool has_product(const tfd__call *call) {
  return tfd__cuda_has_product(call);
}

static bool has_conv(const tfd__call *call) {
  return small_out(call) && small_second(call) && tfd__cuda_has_conv(call);
}

static bool has_conv_input(const tfd__call *call) {
  return small_out(call) && small_second(call) &&
         tfd__cuda_has_conv_input(call);
}

static bool has_conv_filter(const tfd__call *call) {
  return small_out(call) && small_second(call) &&
         tfd__cuda_has_conv_filter(call);
}

/* A block's memory holds the permutation. */
static bool few_rows(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);

  return x->rank == 0 || x->dims[0] <= TFD_CU_PERMUTED;
}

/* --- the question --------------------------------------------------------- */

enum {
  FLOATS = 1 << TFD_FLOAT32 | 1 << TFD_FLOAT64 | 1 << TFD_FLOAT16 |
           1 << TFD_BFLOAT16,
  INTS = 1 << TFD_INT8 | 1 << TFD_INT16 | 1 << TFD_INT32 | 1 << TFD_INT64 |
         1 << TFD_UINT8,
  NUMBERS = FLOATS | INTS,
  ANY = NUMBERS | 1 << TFD_BOOL
};

typedef struct condition {
  int dtypes;
  bool (*holds)(const tfd__call *call);
} condition;

#define HAS(name, dtypes) [TFD_KERNEL_##name] = {dtypes, NULL},
#define IF(name, dtypes, condition) [TFD_KERNEL_##name] = {dtypes, condition},
static const condition conditions[TFD_KERNEL_N] = {
#include "backend/cuda/table.def"
};

bool tfd__cuda_can_run(tfd__kernel_id id, const tfd__call *call) {
  const condition *c = &conditions[id];

  if ((c->dtypes >> call->views[0].dtype & 1) == 0) return false;
  return c->holds == NULL || c->holds(call);
}
