/* softmax, log_softmax and the cross-entropies over the last axis.
**
** Every kernel works on rows in float32 or float64; half inputs are widened
** once for the whole tensor. A row is read while it is still in cache, so the
** cost is one pass of memory traffic and one exp for each element. */
#include "backend/cpu/loops.h"
#include "backend/cpu/elementwise/vmath.h"

#include <math.h>
#include <stdio.h>

/* Rows worth one thread: enough elements to outweigh a fork. */
static int64_t row_grain(int64_t columns) {
  return columns >= TFD_GRAIN ? 1 : TFD_GRAIN / (columns < 1 ? 1 : columns);
}

typedef struct rows {
  const void *logits;
  const void *labels;
  const void *dy;
  void *out;
  int64_t columns;
  int64_t label_stride; /* 0: one row of labels for all */
  int dtype;            /* TFD_FLOAT32 or TFD_FLOAT64 */
  bool wide_labels;     /* sparse labels are int64 */
  _Atomic int64_t bad;  /* first row with a label out of range, or -1 */
} rows;

/* --- row arithmetic ----------------------------------------------------------
 */

/* Lane by lane, since a compiler may not turn the loop around; NaN is passed
** over. */
TFD_CLONES static float max_f32(const float *x, int64_t n) {
  enum { LANES_OF_MAX = 32 };
  float lanes[LANES_OF_MAX];
  float m = -INFINITY;
  int64_t i = 0;

  if (n >= LANES_OF_MAX) {
    for (int k = 0; k < LANES_OF_MAX; k++) lanes[k] = -INFINITY;
    for (; i + LANES_OF_MAX <= n; i += LANES_OF_MAX) {
      for (int k = 0; k < LANES_OF_MAX; k++) {
        lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
      }
    }
    for (int k = 0; k < LANES_OF_MAX; k++) m = lanes[k] > m ? lanes[k] : m;
  }
  for (; i < n; i++) m = x[i] > m ? x[i] : m;
  return m;
}

/* A row of all -inf has no finite maximum to subtract. One with inf is NaN as a
** whole: inf - inf is, and with it the sum. */
static float shift_of_f32(float m) {
  return m == -INFINITY ? 0.0f : m;
}
static double shift_of_f64(double m) {
  return m == -INFINITY ? 0.0 : m;
}

TFD_CLONES static void shift_f32(float *out, const float *x, float shift,
                                 int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = x[i] - shift;
}

/* 32 partial sums: the same result whatever the vector width. */
TFD_CLONES static float sum_f32(const float *x, int64_t n) {
  enum { LANES_OF_SUM = 32 };
  float lanes[LANES_OF_SUM] = {0};
  int64_t i = 0;

  for (; i + LANES_OF_SUM <= n; i += LANES_OF_SUM) {
    for (int k = 0; k < LANES_OF_SUM; k++) lanes[k] += x[i + k];
  }
  for (int k = 0; i < n; i++, k++) lanes[k] += x[i];
  for (int half = LANES_OF_SUM / 2; half > 0; half /= 2) {
    for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
  }
  return lanes[0];
}

static float exp_sum_f32(const float *x, float shift, float *e, int64_t n) {
  shift_f32(e, x, shift, n);
  tfd__exp_row(e, e, n);
  return sum_f32(e, n);
}

TFD_CLONES static void scale_f32(float *x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] *= factor;
}

static double max_f64(const double *x, int64_t n) {
  double m = -INFINITY;

  for (int64_t i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
  return m;
}

static double exp_sum_f64(const double *x, double shift, double *e, int64_t n) {
  double sum = 0.0;

  for (int64_t i = 0; i < n; i++) {
    e[i] = exp(x[i] - shift);
    sum += e[i];
  }
  return sum;
}

static double log_sum_f32(const float *x, int64_t n, float *scratch) {
  float shift = shift_of_f32(max_f32(x, n));

  return (double)shift + log((double)exp_sum_f32(x, shift, scratch, n));
}

static double log_sum_f64(const double *x, int64_t n, double *scratch) {
  double shift = shift_of_f64(max_f64(x, n));

  return shift + log(exp_sum_f64(x, shift, scratch, n));
}

static void softmax_row(const rows *r, int64_t row, void *out) {
  int64_t n = r->columns;

  if (r->dtype == TFD_FLOAT32) {
    const float *x = (const float *)r->logits + row * n;
    float sum = exp_sum_f32(x, shift_of_f32(max_f32(x, n)), out, n);

    scale_f32(out, 1.0f / sum, n);
  } else {
    const double *x = (const double *)r->logits + row * n;
    double *y = out;
    double sum = exp_sum_f64(x, shift_of_f64(max_f64(x, n)), y, n);

    for (int64_t i = 0; i < n; i++) y[i] /= sum;
  }
}

static void *row_at(const rows *r, const void *base, int64_t row) {
  size_t size = r->dtype == TFD_FLOAT32 ? sizeof(float) : sizeof(double);

  return (char *)(uintptr_t)base + (size_t)(row * r->columns) * size;
}

/* --- half types
 * --------------------------------------------------------------- */

/* `v` as float32 or float64 data: itself, or widened into scratch. */
static int widen(const tfd__view *v, const void **data_p) {
  float *wide;

  *data_p = v->data;
  if (!tfd__is_half(v->dtype)) return TFD_OK;
  wide = tfd__scratch((size_t)v->numel * sizeof *wide);
  if (wide == NULL) return TFD_RESOURCE_EXHAUSTED;
  tfd__halves_to_floats(v->dtype, wide, v->data, v->numel);
  *data_p = wide;
  return TFD_OK;
}

/* Where to compute `v`: its own memory, or scratch that narrow() rounds. */
static int wide_output(const tfd__view *v, void **data_p) {
  *data_p = v->data;
  if (!tfd__is_half(v->dtype)) return TFD_OK;
  *data_p = tfd__scratch((size_t)v->numel * sizeof(float));
  return *data_p == NULL ? TFD_RESOURCE_EXHAUSTED : TFD_OK;
}

static void narrow(const tfd__view *v, const void *data) {
  if (!tfd__is_half(v->dtype)) return;
  tfd__floats_to_halves(v->dtype, v->data, data, v->numel);
}

static int rows_of(const tfd__view *logits, rows *r, int64_t *rows_p) {
  r->columns = logits->rank == 0 ? 1 : logits->dims[logits->rank - 1];
  r->dtype = logits->dtype == TFD_FLOAT64 ? TFD_FLOAT64 : TFD_FLOAT32;
  r->bad = -1;
  *rows_p = r->columns == 0 ? 0 : logits->numel / r->columns;
  return widen(logits, &r->logits);
}

/* --- softmax, log_softmax
 * ------------------------------------------------------ */

static void softmax_rows(void *arg, int64_t begin, int64_t end) {
  rows *r = arg;

  for (int64_t i = begin; i < end; i++) {
    softmax_row(r, i, row_at(r, r->out, i));
  }
}

static void log_softmax_rows(void *arg, int64_t begin, int64_t end) {
  rows *r = arg;
  int64_t n = r->columns;

  for (int64_t i = begin; i < end; i++) {
    void *out = row_at(r, r->out, i);

    if (r->dtype == TFD_FLOAT32) {
      const float *x = row_at(r, r->logits, i);
      float *y = out;
      float total = (float)log_sum_f32(x, n, y);

      for (int64_t k = 0; k < n; k++) y[k] = x[k] - total;
    } else {
      const double *x = row_at(r, r->logits, i);
      double *y = out;
      double total = log_sum_f64(x, n, y);

      for (int64_t k = 0; k < n; k++) y[k] = x[k] - total;
    }
  }
}

static int over_rows(const tfd__call *call,
                     void (*fn)(void *arg, int64_t begin, int64_t end)) {
  rows r = {0};
  int64_t n = 0;

  TFD_TRY(rows_of(tfd__in(call, 0), &r, &n));
  TFD_TRY(wide_output(tfd__out(call, 0), &r.out));
  tfd__parallel_for(n, row_grain(r.columns), fn, &r);
  narrow(tfd__out(call, 0), r.out);
  return TFD_OK;
}

int tfd__cpu_softmax(const tfd__call *call) {
  return over_rows(call, softmax_rows);
}

int tfd__cpu_log_softmax(const tfd__call *call) {
  return over_rows(call, log_softmax_rows);
}

/* --- sparse cross-entropy
 * -------------------------------------------------------- */

static int64_t label_at(const rows *r, int64_t i) {
  return r->wide_labels ? ((const int64_t *)r->labels)[i]
                        : ((const int32_t *)r->labels)[i];
}

/* True when row i's label names a column; else the lowest such row is kept. */
static bool label_ok(rows *r, int64_t i) {
  int64_t label = label_at(r, i);
  int64_t seen = atomic_load(&r->bad);

  if (label >= 0 && label < r->columns) return true;
  while ((seen < 0 || i < seen) &&
         !atomic_compare_exchange_weak(&r->bad, &seen, i)) {
  }
  return false;
}

static int check_labels(const tfd__call *call, const rows *r) {
  int64_t bad = atomic_load(&r->bad);
  char replica[32] = "";

  if (bad < 0) return TFD_OK;
  if (call->replica >= 0) {
    snprintf(replica, sizeof replica, " of replica %d", call->replica);
  }
  (void)tfd__fail(TFD_INVALID_ARGUMENT,
                  "%s: label %lld at position %lld%s is outside 0..%lld "
                  "(logits have %lld classes; labels count from 0)",
                  call->name, (long long)label_at(r, bad), (long long)bad,
                  replica, (long long)r->columns - 1, (long long)r->columns);
  return tfd__blame(call->name, "labels", r->columns);
}

/* dy * (softmax - one_hot): what both cross-entropies' gradients share. */
static void sparse_grad_rows(void *arg, int64_t begin, int64_t end) {
  rows *r = arg;

  for (int64_t i = begin; i < end; i++) {
    void *out = row_at(r, r->out, i);
    int64_t label = label_at(r, i);

    if (!label_ok(r, i)) continue;
    softmax_row(r, i, out);
    if (r->dtype == TFD_FLOAT32) {
      ((float *)out)[label] -= 1.0f;
      scale_f32(out, ((const float *)r->dy)[i], r->columns);
    } else {
      double dy = ((const double *)r->dy)[i];

      ((double *)out)[label] -= 1.0;
      for (int64_t k = 0; k < r->columns; k++) ((double *)out)[k] *= dy;
    }
  }
}

typedef struct losses {
  rows r;
  void *scratch; /* as large as the logits */
  void *loss;
} losses;

static void sparse_loss_rows(void *arg, int64_t begin, int64_t end) {
  losses *s = arg;
  rows *r = &s->r;

  for (int64_t i = begin; i < end; i++) {
    void *scratch = row_at(r, s->scratch, i);
    const void *x = row_at(r, r->logits, i);

    if (!label_ok(r, i)) continue;
    if (r->dtype == TFD_FLOAT32) {
      double total = log_sum_f32(x, r->columns, scratch);

      ((float *)s->loss)[i] =
          (float)(total - (double)((const float *)x)[label_at(r, i)]);
    } else {
      ((double *)s->loss)[i] = log_sum_f64(x, r->columns, scratch) -
                               ((const double *)x)[label_at(r, i)];
    }
  }
}

/* Scratch for the exponentials of all rows, so that threads never meet. */
static int loss_scratch(losses *s, int64_t numel) {
  size_t size = s->r.dtype == TFD_FLOAT32 ? sizeof(float) : sizeof(double);

  s->scratch = tfd__scratch((size_t)numel * size);
  return s->scratch == NULL ? TFD_RESOURCE_EXHAUSTED : TFD_OK;
}

int tfd__cpu_sparse_softmax_cross_entropy(const tfd__call *call) {
  const tfd__view *labels = tfd__in(call, 0);
  const tfd__view *logits = tfd__in(call, 1);
  losses s = {0};
  int64_t n = 0;

  TFD_TRY(rows_of(logits, &s.r, &n));
  s.r.labels = labels->data;
  s.r.wide_labels = labels->dtype == TFD_INT64;
  TFD_TRY(wide_output(tfd__out(call, 0), &s.loss));
  TFD_TRY(loss_scratch(&s, logits->numel));
  tfd__parallel_for(n, row_grain(s.r.columns), sparse_loss_rows, &s);
  narrow(tfd__out(call, 0), s.loss);
  return check_labels(call, &s.r);
}

int tfd__cpu_sparse_softmax_cross_entropy_grad(const tfd__call *call) {
  const tfd__view *labels = tfd__in(call, 0);
  rows r = {0};
  int64_t n = 0;

  TFD_TRY(rows_of(tfd__in(call, 1), &r, &n));
  r.labels = labels->data;
  r.wide_labels = labels->dtype == TFD_INT64;
  TFD_TRY(widen(tfd__in(call, 2), &r.dy));
  TFD_TRY(wide_output(tfd__out(call, 0), &r.out));
  tfd__parallel_for(n, row_grain(r.columns), sparse_grad_rows, &r);
  narrow(tfd__out(call, 0), r.out);
  return check_labels(call, &r);
}

/* --- dense cross-entropy
 * ---------------------------------------------------------- */

/* sum(labels) * logsumexp(x) - sum(labels * x); a label of 0 on a logit of
** -inf counts nothing. */
static void dense_loss_rows(void *arg, int64_t begin, int64_t end) {
  losses *s = arg;
  rows *r = &s->r;

  for (int64_t i = begin; i < end; i++) {
    void *scratch = row_at(r, s->scratch, i);
    const void *x = row_at(r, r->logits, i);
    const void *y = row_at(r, r->labels, i);
    double loss = 0.0;

    if (r->dtype == TFD_FLOAT32) {
      double total = log_sum_f32(x, r->columns, scratch);

      for (int64_t k = 0; k < r->columns; k++) {
        double label = (double)((const float *)y)[k];

        if (label != 0.0) {
          loss += label * (total - (double)((const float *)x)[k]);
        }
      }
      ((float *)s->loss)[i] = (float)loss;
    } else {
      double total = log_sum_f64(x, r->columns, scratch);

      for (int64_t k = 0; k < r->columns; k++) {
        double label = ((const double *)y)[k];

        if (label != 0.0) loss += label * (total - ((const double *)x)[k]);
      }
      ((double *)s->loss)[i] = loss;
    }
  }
}

int tfd__cpu_softmax_cross_entropy(const tfd__call *call) {
  const tfd__view *logits = tfd__in(call, 1);
  losses s = {0};
  int64_t n = 0;

  TFD_TRY(rows_of(logits, &s.r, &n));
  TFD_TRY(widen(tfd__in(call, 0), &s.r.labels));
  TFD_TRY(wide_output(tfd__out(call, 0), &s.loss));
  TFD_TRY(loss_scratch(&s, logits->numel));
  tfd__parallel_for(n, row_grain(s.r.columns), dense_loss_rows, &s);
  narrow(tfd__out(call, 0), s.loss);
  return TFD_OK;
}
