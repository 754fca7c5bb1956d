/* Host side of reductions: axes split into kept and reduced ones, and how many
** pieces an output's elements are cut into, by the shape alone. */
#include <math.h>
#include <string.h>

#include "backend/cuda/cuda.h"

enum {
  BLOCK_LEAST = 64,   /* elements below which one thread does an output */
  PIECE_LEAST = 1024, /* elements that are worth a piece */
  TASKS = 1 << 15     /* threads or blocks that keep a large GPU busy */
};

static void add_axis(int64_t *dims, int64_t *strides, int32_t *n_p,
                     int64_t size, int64_t stride) {
  int n = *n_p;

  if (size == 1) return;
  if (n > 0 && strides[n - 1] == stride * size) {
    dims[n - 1] *= size;
    strides[n - 1] = stride;
    return;
  }
  dims[n] = size;
  strides[n] = stride;
  *n_p = n + 1;
}

static void split(tfd_cu_reduce *a, const tfd__view *in, unsigned axes) {
  int d;

  memset(a, 0, sizeof *a);
  a->in = in->data;
  a->kept = 1;
  a->reduced = 1;
  for (d = 0; d < in->rank; d++) {
    if ((axes >> d & 1u) != 0) {
      a->reduced *= in->dims[d];
      add_axis(a->red_dims, a->red_strides, &a->red_n, in->dims[d],
               in->strides[d]);
    } else {
      a->kept *= in->dims[d];
      add_axis(a->kept_dims, a->kept_strides, &a->kept_n, in->dims[d],
               in->strides[d]);
    }
  }
}

static unsigned axes_of(const tfd__view *in, const int64_t *list) {
  unsigned axes = 0;
  int64_t i;

  if (list[0] < 0) return (1u << in->rank) - 1;
  for (i = 0; i < list[0]; i++) {
    int64_t axis = list[1 + i];

    axes |= 1u << (axis < 0 ? axis + in->rank : axis);
  }
  return axes;
}

/* Threads read neighbours together when outputs are neighbours in memory. */
static bool suits_blocks(const tfd_cu_reduce *a) {
  if (a->reduced < BLOCK_LEAST) return false;
  return a->kept_n == 0 || a->red_n == 0 || a->kept_strides[a->kept_n - 1] != 1;
}

static void cut(tfd_cu_reduce *a, bool blocks) {
  int64_t least = blocks ? PIECE_LEAST * 4 : BLOCK_LEAST;
  int64_t tasks = blocks ? TASKS / 16 : TASKS * 4;

  a->parts = a->kept > 0 ? tasks / a->kept : 1;
  if (a->parts > a->reduced / least) a->parts = a->reduced / least;
  if (a->parts < 1) a->parts = 1;
  a->each = (a->reduced + a->parts - 1) / a->parts;
  if (a->each < 1) a->each = 1;
  a->parts = (a->reduced + a->each - 1) / a->each;
  if (a->parts < 1) a->parts = 1;
}

/* Extremes are the ends of the type, a mean is 0; `*done_p` says whether the
** kernel has nothing to do. */
static int of_no_integers(const tfd__call *call, int op, bool *done_p) {
  double value = 0;

  *done_p = op == TFD_CU_max || op == TFD_CU_min || op == TFD_CU_mean;
  if (!*done_p) return TFD_OK;
  if (op != TFD_CU_mean)
    value = (double)(op == TFD_CU_max ? -INFINITY : INFINITY);
  return tfd__cuda_fill_with(call, tfd__out(call, 0), value);
}

/* The call's elements, cut into pieces; true where blocks suit them. */
static bool prepare(const tfd__call *call, int op, tfd_cu_reduce *a) {
  const tfd__view *in = tfd__in(call, 0);
  bool blocks = false;

  split(a, in, axes_of(in, call->ints));
  blocks = suits_blocks(a);
  cut(a, blocks);
  a->op = op;
  a->dtype = tfd__out(call, 0)->dtype;
  a->out = tfd__out(call, 0)->data;
  a->divide = (double)a->reduced;
  return blocks;
}

/* A thread or a block for each piece, of which `bytes` are kept, then the
** pieces of each output together. */
static int run(const tfd__call *call, tfd_cu_reduce *a,
               tfd__cuda_kernel *threads, tfd__cuda_kernel *blocks,
               tfd__cuda_kernel *last, size_t bytes) {
  int64_t tasks = a->kept * a->parts;

  if (a->kept == 0) return TFD_OK;
  if (a->parts > 1) {
    TFD_TRY(tfd__cuda_scratch(call, (size_t)tasks * bytes, &a->partial));
  }
  if (blocks != NULL) {
    TFD_TRY(tfd__cuda_launch(call, blocks, tasks < TASKS ? tasks : TASKS, a,
                             sizeof *a));
  } else {
    TFD_TRY(tfd__cuda_launch(call, threads, tfd__cuda_blocks(call, tasks), a,
                             sizeof *a));
  }
  if (a->parts == 1) return TFD_OK;
  return tfd__cuda_launch(call, last, tfd__cuda_blocks(call, a->kept), a,
                          sizeof *a);
}

enum { WIDE_BYTES = 8, PIECE_BYTES = 24 };

static int reduce(const tfd__call *call, int op) {
  static tfd__cuda_kernels threads = {
      TFD_CUDA_FLOATS("reduce", "reduce_threads"),
      TFD_CUDA_INTS("reduce", "reduce_threads"),
      [TFD_BOOL] = {"reduce", "reduce_threads_u8", {0}}};
  static tfd__cuda_kernels in_blocks = {
      TFD_CUDA_FLOATS("reduce", "reduce_blocks"),
      TFD_CUDA_INTS("reduce", "reduce_blocks"),
      [TFD_BOOL] = {"reduce", "reduce_blocks_u8", {0}}};
  static tfd__cuda_kernels last = {
      TFD_CUDA_FLOATS("reduce", "reduce_last"),
      TFD_CUDA_INTS("reduce", "reduce_last"),
      [TFD_BOOL] = {"reduce", "reduce_last_u8", {0}}};
  int dtype = tfd__in(call, 0)->dtype;
  tfd_cu_reduce a;
  bool blocks = prepare(call, op, &a);

  if (a.kept > 0 && a.reduced == 0 && !tfd__is_float(dtype)) {
    bool done = false;

    TFD_TRY(of_no_integers(call, op, &done));
    if (done) return TFD_OK;
  }
  return run(call, &a, &threads[dtype], blocks ? &in_blocks[dtype] : NULL,
             &last[dtype], WIDE_BYTES);
}

#define REDUCE(name)                                   \
  int tfd__cuda_reduce_##name(const tfd__call *call) { \
    return reduce(call, TFD_CU_##name);                \
  }
REDUCE(sum)
REDUCE(mean)
REDUCE(prod)
REDUCE(max)
REDUCE(min)
REDUCE(any)
REDUCE(all)

/* --- norms, moments, log-sums, counts ------------------------------------- */

static int stats(const tfd__call *call, int op) {
  static tfd__cuda_kernels threads = {
      TFD_CUDA_FLOATS("stats", "stats_threads"),
      TFD_CUDA_INTS("stats", "stats_threads"),
      [TFD_BOOL] = {"stats", "stats_threads_u8", {0}}};
  static tfd__cuda_kernels in_blocks = {
      TFD_CUDA_FLOATS("stats", "stats_blocks"),
      TFD_CUDA_INTS("stats", "stats_blocks"),
      [TFD_BOOL] = {"stats", "stats_blocks_u8", {0}}};
  static tfd__cuda_kernel last = {"stats", "stats_last", {0}};
  int dtype = tfd__in(call, 0)->dtype;
  tfd_cu_reduce a;
  bool blocks = prepare(call, op, &a);

  return run(call, &a, &threads[dtype], blocks ? &in_blocks[dtype] : NULL,
             &last, PIECE_BYTES);
}

int tfd__cuda_euclidean_norm(const tfd__call *call) {
  return stats(call, TFD_CU_NORM);
}

int tfd__cuda_reduce_variance(const tfd__call *call) {
  return stats(call, TFD_CU_VARIANCE);
}

int tfd__cuda_reduce_std(const tfd__call *call) {
  return stats(call, TFD_CU_STD);
}

int tfd__cuda_reduce_logsumexp(const tfd__call *call) {
  return stats(call, TFD_CU_LOGSUMEXP);
}

int tfd__cuda_count_nonzero(const tfd__call *call) {
  return stats(call, TFD_CU_COUNT);
}

/* --- positions ------------------------------------------------------------ */

static int extreme(const tfd__call *call, int op) {
  static tfd__cuda_kernels kernels = {TFD_CUDA_FLOATS("reduce", "extreme"),
                                      TFD_CUDA_INTS("reduce", "extreme")};
  const tfd__view *in = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  int64_t axis = call->ints[0];
  tfd_cu_reduce a;

  split(&a, in, 1u << (axis < 0 ? axis + in->rank : axis));
  a.op = op;
  a.out = out->data;
  a.divide = (double)tfd__dtype_size(out->dtype);
  return tfd__cuda_launch(call, &kernels[in->dtype],
                          tfd__cuda_blocks(call, a.kept), &a, sizeof a);
}

int tfd__cuda_argmax(const tfd__call *call) {
  return extreme(call, TFD_CU_max);
}

int tfd__cuda_argmin(const tfd__call *call) {
  return extreme(call, TFD_CU_min);
}
