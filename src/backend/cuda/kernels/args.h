#ifndef TFD_CUDA_ARGS_H
#define TFD_CUDA_ARGS_H
/* What kernels take, one structure by value each: plain C, the same for the
** host that packs it and the device that unpacks it. */

#include <stdint.h>

enum { TFD_CU_RANK = 8, TFD_CU_INS = 3, TFD_CU_THREADS = 256 };

/* The numbers of tfd_dtype. */
enum {
  TFD_CU_FLOAT32 = 1,
  TFD_CU_FLOAT64,
  TFD_CU_FLOAT16,
  TFD_CU_BFLOAT16,
  TFD_CU_INT8,
  TFD_CU_INT16,
  TFD_CU_INT32,
  TFD_CU_INT64,
  TFD_CU_UINT8,
  TFD_CU_BOOL
};

/* The ops' numbers, for host and device. */
enum {
#define FLOAT_UNARY(name, e) TFD_CU_U_##name,
#define INT_UNARY(name, e) TFD_CU_IU_##name,
#define FLOAT_BINARY(name, e) TFD_CU_B_##name,
#define INT_BINARY(name, e) TFD_CU_IB_##name,
#define TEST(name, e) TFD_CU_T_##name,
#define COMPARE(name, e) TFD_CU_C_##name,
#include "backend/cuda/kernels/ops.def"
};
enum {
  TFD_CU_sum,
  TFD_CU_mean,
  TFD_CU_prod,
  TFD_CU_max,
  TFD_CU_min,
  TFD_CU_any,
  TFD_CU_all,
  TFD_CU_NORM,
  TFD_CU_VARIANCE,
  TFD_CU_STD,
  TFD_CU_LOGSUMEXP,
  TFD_CU_COUNT
};
enum {
  TFD_CU_SOFTMAX,
  TFD_CU_LOG_SOFTMAX,
  TFD_CU_LOSS,
  TFD_CU_SPARSE_LOSS,
  TFD_CU_SPARSE_GRAD
};
/* X(op, inputs): special functions, a kernel each. */
#define TFD_CU_SPECIALS(X) \
  X(erfinv, 1)             \
  X(ndtri, 1)              \
  X(lgamma, 1)             \
  X(digamma, 1)            \
  X(nextafter, 2)          \
  X(zeta, 2)               \
  X(polygamma, 2)          \
  X(igamma, 2)             \
  X(igammac, 2)
enum {
#define TFD_CU_SPECIAL(op, inputs) TFD_CU_S_##op,
  TFD_CU_SPECIALS(TFD_CU_SPECIAL)
#undef TFD_CU_SPECIAL
};
/* X(rule, targets): the optimizers. */
#define TFD_CU_RULES(X)  \
  X(sgd, 1)              \
  X(momentum, 2)         \
  X(nesterov, 2)         \
  X(adam, 3)             \
  X(amsgrad, 4)          \
  X(adamax, 3)           \
  X(nadam, 3)            \
  X(rmsprop, 2)          \
  X(rmsprop_centered, 3) \
  X(rmsprop_momentum, 3) \
  X(rmsprop_both, 4)     \
  X(adagrad, 2)          \
  X(adadelta, 3)         \
  X(ftrl, 3)             \
  X(average, 1)
enum {
#define TFD_CU_RULE(rule, targets) TFD_CU_RULE_##rule,
  TFD_CU_RULES(TFD_CU_RULE)
#undef TFD_CU_RULE
};

/* `stop` below: NULL, or where a kernel that writes over what shows looks
** whether one before it has refused a value. */
#define TFD_CU_GO_ON (~(uint64_t)0) /* NVRTC has no UINT64_MAX */

/* Elementwise: out[i] = f(in...). The output is dense. */
typedef struct tfd_cu_elementwise {
  const uint64_t *stop;
  void *out;
  const void *in[TFD_CU_INS];
  double a; /* an attribute: alpha, a value */
  int64_t n;
  int32_t op;
  int32_t rank;   /* 0: every input is dense or one element */
  int32_t scalar; /* rank 0: bit k, input k is one element */
  int32_t vector; /* rank 0: all begin at 16 bytes, move several at once */
  int64_t dims[TFD_CU_RANK];
  int64_t strides[TFD_CU_INS][TFD_CU_RANK];
} tfd_cu_elementwise;

/* Several elementwise ops: as above, of more inputs and outputs. */
enum { TFD_CU_FUSED_INS = 16, TFD_CU_FUSED_OUTS = 8 };
typedef struct tfd_cu_fused {
  const uint64_t *stop;
  void *out[TFD_CU_FUSED_OUTS];
  const void *in[TFD_CU_FUSED_INS];
  int64_t n;
  int32_t rank;
  int32_t scalar;
  int32_t vector;
  int64_t dims[TFD_CU_RANK];
  int64_t strides[TFD_CU_FUSED_INS][TFD_CU_RANK];
} tfd_cu_fused;

/* Sum of dense inputs, in their order. */
enum { TFD_CU_SUMMANDS = 16 };
typedef struct tfd_cu_sum {
  void *out;
  const void *in[TFD_CU_SUMMANDS];
  int64_t n;
  int32_t ins;
} tfd_cu_sum;

/* out[0..n) from a strided input of any element size; both dtypes for cast. */
typedef struct tfd_cu_move {
  const uint64_t *stop; /* copies */
  void *out;
  const void *in;
  double value; /* fill */
  int64_t n;
  int32_t from; /* dtypes of cast and fill */
  int32_t to;
  int32_t rank; /* 0: dense */
  int64_t dims[TFD_CU_RANK];
  int64_t strides[TFD_CU_RANK];
} tfd_cu_move;

/* Elements of any size from one strided view to another. */
typedef struct tfd_cu_lay {
  void *out;
  const void *in;
  int64_t n;
  int32_t rank; /* 1 or more */
  int64_t dims[TFD_CU_RANK];
  int64_t out_strides[TFD_CU_RANK];
  int64_t in_strides[TFD_CU_RANK];
} tfd_cu_lay;

/* out[outer][depth][inner]: `on` where depth is the index, else `off`, both as
** the type stores them. */
typedef struct tfd_cu_one_hot {
  void *out;
  const void *index;
  int64_t n;
  int64_t depth;
  int64_t inner;
  uint64_t on;
  uint64_t off;
  int32_t wide; /* indices are int64, else int32 */
} tfd_cu_one_hot;

/* out[i] = start + i * delta. */
typedef struct tfd_cu_range {
  void *out;
  int64_t n;
  double start;
  double delta;
  int32_t dtype;
} tfd_cu_range;

/* Padding with one value: element o of out is element o - before of in. */
typedef struct tfd_cu_pad {
  void *out;
  const void *in;
  double value;
  int64_t n; /* elements of out */
  int32_t dtype;
  int32_t rank;
  int64_t out_dims[TFD_CU_RANK];
  int64_t in_dims[TFD_CU_RANK];
  int64_t in_strides[TFD_CU_RANK];
  int64_t before[TFD_CU_RANK];
} tfd_cu_pad;

/* A reduction: `kept` outputs of `reduced` elements each. Axes are coalesced
** into two lists. */
typedef struct tfd_cu_reduce {
  void *out;
  const void *in;
  void *partial; /* [parts][kept] in the type that is accumulated */
  int64_t kept;
  int64_t reduced;
  int64_t parts; /* pieces each output's elements are cut into */
  int64_t each;  /* elements of a piece */
  double divide; /* reduce_mean: by how many */
  int32_t op;
  int32_t kept_n;
  int32_t red_n;
  int32_t dtype; /* of the output, where the kernel does not know */
  int64_t kept_dims[TFD_CU_RANK];
  int64_t kept_strides[TFD_CU_RANK];
  int64_t red_dims[TFD_CU_RANK];
  int64_t red_strides[TFD_CU_RANK];
} tfd_cu_reduce;

/* Rows of `width` neighbours: softmax and its losses. */
typedef struct tfd_cu_rows {
  void *out;
  void *out2;
  const void *in;
  const void *labels; /* dense labels or classes */
  const void *grad;
  int64_t rows;
  int64_t width;
  int32_t wide_labels; /* classes are int64, else int32 */
  int32_t op;
  uint64_t *error;
} tfd_cu_rows;

/* Running sums, products and log-sums along the middle of [outer][length]
** [inner]; line i is (i / inner, i % inner). */
enum { TFD_CU_SCAN_SUM, TFD_CU_SCAN_PRODUCT, TFD_CU_SCAN_LOG };
typedef struct tfd_cu_scan {
  void *out;
  const void *in;
  int64_t lines;
  int64_t length;
  int64_t inner;
  int32_t op;
  int32_t exclusive;
  int32_t reverse;
} tfd_cu_scan;

/* --- order: positions fit 32 bits --- */

/* Rows of `width` elements to keys that sort as they do: uint32 for types of up
** to four bytes, else uint64. */
typedef struct tfd_cu_keys {
  void *keys;
  uint32_t *order;
  const void *in;
  int64_t n;
  int64_t width;
  int32_t dtype;
  int32_t descending;
} tfd_cu_keys;

/* A stable pass over four bits of the keys of all rows. */
enum { TFD_CU_DIGITS = 16, TFD_CU_EACH = 8, TFD_CU_TILE = 2048 };
typedef struct tfd_cu_radix {
  const void *keys;
  const uint32_t *order;
  void *keys_out;
  uint32_t *order_out;
  uint32_t *counts; /* [rows][digits][tiles] */
  int64_t rows;
  int64_t width;
  int64_t tiles; /* of a row */
  int32_t shift;
} tfd_cu_radix;

typedef struct tfd_cu_take {
  void *out;
  int32_t *positions;
  const void *in;
  const uint32_t *order;
  int64_t rows;
  int64_t width;
  int64_t kept;
} tfd_cu_take;

/* Values [rows][each] looked for in sequences [rows][width]. */
typedef struct tfd_cu_search {
  void *out;
  const void *sequence;
  const void *values;
  int64_t n;
  int64_t each;
  int64_t width;
  int32_t dtype;
  int32_t out_dtype;
  int32_t right;
} tfd_cu_search;

typedef struct tfd_cu_top {
  void *out;
  const void *in;
  const void *targets;
  int64_t rows;
  int64_t classes;
  int64_t k;
  int32_t dtype;
  int32_t wide; /* targets are int64, else int32 */
} tfd_cu_top;

/* --- normalisation: positions fit 32 bits --- */

/* Sums for each channel of [outer][channels][inner]. */
enum {
  TFD_CU_NORM_SUM,     /* x */
  TFD_CU_NORM_SQUARES, /* (x - mean)^2 */
  TFD_CU_NORM_GRAD,    /* dy; dy * (x - mean) */
  TFD_CU_NORM_ROWS     /* dy; dy * (x - mean) * inv of the element's row */
};
typedef struct tfd_cu_norm_sums {
  const void *x;
  const void *dy;
  const void *mean; /* of channels or rows */
  const void *inv;
  double *partial; /* [parts][channels][2] */
  int64_t outer;
  int64_t channels;
  int64_t inner;
  int64_t parts; /* pieces each channel's elements are cut into */
  int64_t each;  /* elements of a piece */
  int64_t space; /* rows: outer positions of a sample */
  int64_t groups;
  int64_t width; /* channels of a group */
  int32_t lanes; /* neighbouring channels that a block sums, a power of 2 */
  int32_t small; /* dtype of mean and inv */
  int32_t op;
} tfd_cu_norm_sums;

/* Each channel's sums to what is asked for. `work` is mean, a, b, c, each of
** `channels` numbers of the type that is computed in. */
enum {
  TFD_CU_NORM_MEAN,
  TFD_CU_NORM_FORWARD,
  TFD_CU_NORM_BACKWARD,
  TFD_CU_NORM_WEIGHTS
};
typedef struct tfd_cu_norm_finish {
  const double *partial;
  void *work;
  const void *scale;
  const void *offset;
  const void *saved_in; /* backward: mean, then inv */
  const void *old_mean;
  const void *old_variance;
  void *mean;
  void *variance;
  void *saved;
  void *dscale;
  void *doffset;
  double count; /* elements of a channel */
  double epsilon;
  double factor;
  int64_t channels;
  int64_t parts;
  int32_t weights; /* dtype of scale and offset */
  int32_t running; /* of old_mean and old_variance */
  int32_t small;   /* of saved */
  int32_t training;
  int32_t unbiased;
} tfd_cu_norm_finish;

/* out = (x - mean) * b + c, and dy * a for gradients. */
typedef struct tfd_cu_norm_apply {
  void *out;
  const void *x;
  const void *dy;
  const void *work;
  int64_t n;
  int64_t channels;
  int64_t inner;
} tfd_cu_norm_apply;

/* Rows that have their own mean and deviation: tfd__norm_rows. */
typedef struct tfd_cu_norm_rows {
  void *out;
  const void *x;
  const void *dy; /* NULL: forward */
  const void *scale;
  const void *offset;
  void *mean; /* gradients read them */
  void *inv;
  int64_t rows;
  int64_t groups;
  int64_t count; /* elements of a row */
  int64_t length;
  int64_t sample;
  int64_t group_step;
  int64_t segment_step;
  int64_t width;
  double epsilon;
  double share; /* 1 / count */
  int32_t per_segment;
  int32_t weights; /* dtype of scale and offset */
  int32_t small;   /* dtype of mean and inv */
} tfd_cu_norm_rows;

/* value + bias, by channel; channel = (i / inner) % channels. */
typedef struct tfd_cu_bias {
  void *out;
  const void *in;
  const void *bias;
  int64_t n;
  int64_t channels;
  int64_t inner;
  int32_t relu;
} tfd_cu_bias;

/* An optimizer's step over n elements, targets in place or to `out`. */
enum { TFD_CU_TARGETS = 4, TFD_CU_GRADS = 8, TFD_CU_REALS = 8 };
typedef struct tfd_cu_update {
  const uint64_t *stop;
  void *out[TFD_CU_TARGETS];
  const void *in[TFD_CU_TARGETS];
  const void *grad[TFD_CU_GRADS];
  double reals[TFD_CU_REALS];
  int64_t n;
  int32_t targets;
  int32_t grads;
  int32_t rule;
} tfd_cu_update;

/* Dropout: element i is dropped where word i of the stream is below limit. */
typedef struct tfd_cu_dropout {
  void *out;
  const void *in;
  int64_t n;
  double scale;
  uint32_t limit;
  uint32_t key[2];
  uint32_t stream[2];
} tfd_cu_dropout;

/* Random numbers: block b of the stream makes elements 4 b .. 4 b + 3, of
** 8-byte elements and whole numbers 2 b and 2 b + 1. */
enum { TFD_CU_UNIFORM, TFD_CU_NORMAL, TFD_CU_TRUNCATED };
typedef struct tfd_cu_draw {
  void *out;
  int64_t n;
  double a; /* lower end, mean */
  double b; /* upper end, deviation */
  double top;
  uint64_t low;   /* whole numbers: lowest */
  uint64_t range; /* how many; 0 = 2^64 */
  uint32_t key[2];
  uint32_t stream[2];
  int32_t what;
  int32_t bits; /* of a uniform draw */
} tfd_cu_draw;

#endif
