/* Host side of LSTM and GRU over all steps: products through cuBLASLt, the rest
** of a step by one kernel. The workspace is laid out as by the CPU's own loops.
*/
#include "backend/recurrent.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/recurrent_args.h"

#include <string.h>

/* Sizes of a call, and where operands lie; NULL = absent. */
typedef struct layer {
  const tfd__call *call;
  tfd__recurrent r;
  int dtype;
  size_t size;  /* bytes of an element */
  int64_t rows; /* elements of a state */
  const void *x;
  const void *w;
  const void *u;
  const void *bias;
  const void *h0;
  const void *c0;
  char *gates;
  char *cells;
} layer;

/* --- half types ----------------------------------------------------------- */

static bool half(const tfd__call *call) {
  int dtype = tfd__in(call, 0)->dtype;

  return dtype == TFD_FLOAT16 || dtype == TFD_BFLOAT16;
}

static int cast(const tfd__call *call, const tfd__view *from,
                const tfd__view *to) {
  tfd__view views[2] = {*from, *to};
  tfd__call sub = *call;

  sub.views = views;
  sub.in_n = 1;
  sub.out_n = 1;
  return tfd__cuda_cast(&sub);
}

/* The call in float32, as on the CPU: what is kept for the way back is float32
** in any case. */
static int via_float(const tfd__call *call, tfd__kernel kernel) {
  enum { MOST = 24 };
  int dtype = tfd__in(call, 0)->dtype;
  int n = call->in_n + call->out_n;
  tfd__call wide = *call;
  tfd__view views[MOST];
  size_t bytes = 0;
  void *data = NULL;
  int i;

  if (n > MOST) return tfd__fail(TFD_INTERNAL, "%s: %d views", call->name, n);
  memcpy(views, call->views, (size_t)n * sizeof *views);
  for (i = 0; i < n; i++) {
    if (views[i].dtype != dtype) continue;
    TFD_TRY(
        tfd__view_set(&views[i], TFD_FLOAT32, views[i].dims, views[i].rank));
    bytes += (tfd__view_bytes(&views[i]) + 255) / 256 * 256;
  }
  TFD_TRY(tfd__cuda_scratch(call, bytes, &data));
  for (i = 0; i < n; i++) {
    if (call->views[i].dtype != dtype) continue;
    views[i].data = data;
    data = (char *)data + (tfd__view_bytes(&views[i]) + 255) / 256 * 256;
    if (i < call->in_n) TFD_TRY(cast(call, &call->views[i], &views[i]));
  }
  wide.views = views;
  TFD_TRY(kernel(&wide));
  for (i = call->in_n; i < n; i++) {
    if (call->views[i].dtype != dtype) continue;
    TFD_TRY(cast(call, &views[i], &call->views[i]));
  }
  return TFD_OK;
}

/* --- other kernels on parts of this call ---------------------------------- */

static tfd__view matrix(const layer *l, const void *data, int64_t rows,
                        int64_t columns) {
  int64_t dims[2] = {rows, columns};
  tfd__view v;

  memset(&v, 0, sizeof v);
  (void)tfd__view_set(&v, l->dtype, dims, 2);
  v.data = (void *)(uintptr_t)data;
  return v;
}

/* c = a b, all dense; what is turned lies the other way round. */
static int product(const layer *l, int64_t m, int64_t n, int64_t k,
                   const void *a, bool turn_a, const void *b, bool turn_b,
                   void *c) {
  tfd__view views[3] = {turn_a ? matrix(l, a, k, m) : matrix(l, a, m, k),
                        turn_b ? matrix(l, b, n, k) : matrix(l, b, k, n),
                        matrix(l, c, m, n)};
  int64_t ints[4] = {turn_a, turn_b, 0, 0};
  tfd__call sub = *l->call;

  sub.views = views;
  sub.in_n = 2;
  sub.out_n = 1;
  sub.ints = ints;
  sub.ints_n = 4;
  return tfd__cuda_matmul(&sub);
}

static int column_sums(const layer *l, const void *x, int64_t rows, int64_t n,
                       void *sums) {
  tfd__view views[2] = {matrix(l, x, rows, n), matrix(l, sums, 1, n)};
  int64_t ints[2 + TFD_MAX_RANK] = {1, 0};
  tfd__call sub = *l->call;

  sub.views = views;
  sub.in_n = 1;
  sub.out_n = 1;
  sub.ints = ints;
  sub.ints_n = 2 + TFD_MAX_RANK;
  return tfd__cuda_reduce_sum(&sub);
}

/* to[rows] = x + y */
static int add(const layer *l, const void *x, const void *y, void *to) {
  tfd__view views[3] = {matrix(l, x, 1, l->rows), matrix(l, y, 1, l->rows),
                        matrix(l, to, 1, l->rows)};
  tfd__call sub = *l->call;

  sub.views = views;
  sub.in_n = 2;
  sub.out_n = 1;
  return tfd__cuda_add(&sub);
}

/* n elements; zeros where there is nothing. */
static int copy(const layer *l, const void *from, void *to, int64_t n) {
  tfd__view v = matrix(l, from == NULL ? to : from, 1, n);

  if (from == NULL) return tfd__cuda_fill_with(l->call, &v, 0);
  return tfd__cuda_move(l->call, &v, to);
}

static int scratch(const layer *l, int64_t n, char **data_p) {
  void *data = NULL;

  TFD_TRY(tfd__cuda_scratch(l->call, (size_t)n * l->size, &data));
  *data_p = data;
  return TFD_OK;
}

static char *at(const layer *l, const void *data, int64_t i) {
  return data == NULL ? NULL : (char *)(uintptr_t)data + i * (int64_t)l->size;
}

/* --- forward -------------------------------------------------------------- */

static void begin(const tfd__call *call, int64_t gates, layer *l) {
  const tfd__view *x = tfd__in(call, 0);

  l->call = call;
  l->dtype = x->dtype;
  l->size = tfd__dtype_size(x->dtype);
  l->r = (tfd__recurrent){x->dims[0], x->dims[1], x->dims[2],
                          tfd__in(call, 2)->dims[0], gates};
  l->rows = l->r.batch * l->r.units;
  l->x = x->data;
  l->w = tfd__in(call, 1)->data;
  l->u = tfd__in(call, 2)->data;
  l->bias = tfd__in(call, 3)->data;
  l->h0 = tfd__in(call, 4)->data;
}

static void find_workspace(layer *l, const tfd__view *workspace) {
  l->gates = (char *)workspace->data + TFD_WORKSPACE_HEADER;
  l->cells = at(l, l->gates, 4 * l->r.steps * l->rows);
}

/* So that the CPU's backward pass can read it. */
static int write_header(const layer *l, const tfd__view *workspace) {
  int64_t dims[1] = {TFD_WORKSPACE_HEADER / (int64_t)sizeof(int64_t)};
  tfd__view v;

  memset(&v, 0, sizeof v);
  (void)tfd__view_set(&v, TFD_INT64, dims, 1);
  v.data = workspace->data;
  return tfd__cuda_fill_with(l->call, &v, TFD_WORKSPACE_PLAIN);
}

static tfd__cuda_kernel *cell_of(const layer *l) {
  static tfd__cuda_kernel lstm[2] = {{"recurrent", "lstm_cell_f32", {0}},
                                     {"recurrent", "lstm_cell_f64", {0}}};
  static tfd__cuda_kernel gru[2] = {{"recurrent", "gru_cell_f32", {0}},
                                    {"recurrent", "gru_cell_f64", {0}}};

  return &(l->r.gates == 4 ? lstm : gru)[l->dtype == TFD_FLOAT64];
}

/* Outputs: sequence, h, [c,] workspace. */
static int forward(layer *l) {
  const tfd__call *call = l->call;
  const tfd__view *workspace = tfd__out(call, call->out_n - 1);
  const tfd__recurrent *r = &l->r;
  bool training = workspace->numel > 0;
  bool lstm = r->gates == 4;
  int64_t n = r->gates * r->units;
  tfd_cu_cell a = {.bias = l->bias,
                   .h_prev = l->h0,
                   .c_prev = l->c0,
                   .n = l->rows,
                   .units = r->units};
  char *in = NULL;
  char *mixed = NULL;
  char *h = NULL;
  int64_t t;

  if (training) {
    find_workspace(l, workspace);
    TFD_TRY(write_header(l, workspace));
  } else if (lstm) {
    TFD_TRY(scratch(l, l->rows, &l->cells));
  }
  TFD_TRY(scratch(l, r->steps * r->batch * n, &in));
  TFD_TRY(scratch(l, l->rows * r->gates, &mixed));
  TFD_TRY(scratch(l, l->rows, &h));
  if (l->h0 == NULL) {
    TFD_TRY(copy(l, NULL, h, l->rows));
    a.h_prev = h;
  }
  TFD_TRY(product(l, r->steps * r->batch, n, r->depth, l->x, false, l->w, false,
                  in));
  a.mixed = mixed;
  for (t = 0; t < r->steps; t++) {
    TFD_TRY(
        product(l, r->batch, n, r->units, a.h_prev, false, l->u, false, mixed));
    a.in = at(l, in, t * r->batch * n);
    a.h = at(l, tfd__out(call, 0)->data, t * l->rows);
    a.c = at(l, l->cells, training ? t * l->rows : 0);
    a.gates = training ? at(l, l->gates, 4 * t * l->rows) : NULL;
    TFD_TRY(tfd__cuda_launch(call, cell_of(l), tfd__cuda_blocks(call, a.n), &a,
                             sizeof a));
    a.h_prev = a.h;
    a.c_prev = a.c;
  }
  TFD_TRY(copy(l, a.h_prev, tfd__out(call, 1)->data, l->rows));
  if (!lstm) return TFD_OK;
  return copy(l, a.c_prev, tfd__out(call, 2)->data, l->rows);
}

int tfd__cuda_lstm(const tfd__call *call) {
  layer l = {0};

  if (half(call)) return via_float(call, tfd__cuda_lstm);
  begin(call, 4, &l);
  l.c0 = tfd__in(call, 5)->data;
  return forward(&l);
}

int tfd__cuda_gru(const tfd__call *call) {
  layer l = {0};

  if (half(call)) return via_float(call, tfd__cuda_gru);
  begin(call, 3, &l);
  return forward(&l);
}

/* --- backward ------------------------------------------------------------- */

/* What the backward pass is given and makes. */
typedef struct way_back {
  const void *sequence;
  const void *dsequence;
  const void *dh;
  const void *dc;
  char *dgates; /* [steps * batch][gates * units] */
  char *dmixed;
} way_back;

/* Gradients of weights and inputs from those of the products. */
static int weights_back(const layer *l, const way_back *b) {
  const tfd__call *call = l->call;
  const tfd__recurrent *r = &l->r;
  int64_t n = r->gates * r->units;
  int64_t rows = r->steps * r->batch;
  char *before = NULL; /* the states that the steps began with */
  void *dbias = tfd__out(call, 3)->data;

  TFD_TRY(scratch(l, rows * r->units, &before));
  if (r->steps > 0) TFD_TRY(copy(l, l->h0, before, l->rows));
  if (r->steps > 1) {
    TFD_TRY(
        copy(l, b->sequence, at(l, before, l->rows), (r->steps - 1) * l->rows));
  }
  TFD_TRY(product(l, rows, r->depth, n, b->dgates, false, l->w, true,
                  tfd__out(call, 0)->data));
  TFD_TRY(product(l, r->depth, n, rows, l->x, true, b->dgates, false,
                  tfd__out(call, 1)->data));
  TFD_TRY(product(l, r->units, n, rows, before, true, b->dmixed, false,
                  tfd__out(call, 2)->data));
  TFD_TRY(column_sums(l, b->dgates, rows, n, dbias));
  if (r->gates == 4) return TFD_OK;
  return column_sums(l, b->dmixed, rows, n, at(l, dbias, n));
}

static tfd__cuda_kernel *back_of(const layer *l) {
  static tfd__cuda_kernel lstm[2] = {{"recurrent", "lstm_back_f32", {0}},
                                     {"recurrent", "lstm_back_f64", {0}}};
  static tfd__cuda_kernel gru[2] = {{"recurrent", "gru_back_f32", {0}},
                                    {"recurrent", "gru_back_f64", {0}}};

  return &(l->r.gates == 4 ? lstm : gru)[l->dtype == TFD_FLOAT64];
}

/* Outputs: dx, dkernel, drecurrent, dbias, dh0, [dc0]. */
static int backward(layer *l, const tfd__view *workspace, way_back *b) {
  const tfd__call *call = l->call;
  const tfd__recurrent *r = &l->r;
  bool lstm = r->gates == 4;
  int64_t n = r->gates * r->units;
  tfd_cu_cell_back a = {.header = workspace->data,
                        .dh = tfd__out(call, 4)->data,
                        .n = l->rows,
                        .units = r->units};
  char *more = NULL;
  int64_t t;

  find_workspace(l, workspace);
  TFD_TRY(tfd__cuda_error_word(call, "workspace", workspace,
                               TFD_WORKSPACE_PLAIN + 1, &a.error));
  TFD_TRY(scratch(l, r->steps * r->batch * n, &b->dgates));
  b->dmixed = b->dgates;
  TFD_TRY(copy(l, b->dh, a.dh, l->rows));
  if (lstm) {
    a.dc = tfd__out(call, 5)->data;
    TFD_TRY(copy(l, b->dc, a.dc, l->rows));
  } else {
    TFD_TRY(scratch(l, r->steps * r->batch * n, &b->dmixed));
    TFD_TRY(scratch(l, l->rows, &more));
  }
  for (t = r->steps - 1; t >= 0; t--) {
    a.gates = at(l, l->gates, 4 * t * l->rows);
    a.dgates = at(l, b->dgates, t * r->batch * n);
    a.dmixed = at(l, b->dmixed, t * r->batch * n);
    a.h_prev = t > 0 ? at(l, b->sequence, (t - 1) * l->rows) : l->h0;
    a.c_prev = t > 0 ? at(l, l->cells, (t - 1) * l->rows) : l->c0;
    a.c = at(l, l->cells, t * l->rows);
    a.dsequence = at(l, b->dsequence, t * l->rows);
    TFD_TRY(tfd__cuda_launch(call, back_of(l), tfd__cuda_blocks(call, a.n), &a,
                             sizeof a));
    TFD_TRY(product(l, r->batch, r->units, n, a.dmixed, false, l->u, true,
                    lstm ? a.dh : more));
    a.later = more;
  }
  if (!lstm && r->steps > 0) TFD_TRY(add(l, a.dh, more, a.dh));
  return weights_back(l, b);
}

/* Inputs: x, kernel, recurrent, bias, h0, c0, sequence, h, c, workspace,
** dsequence, dh, dc. */
int tfd__cuda_lstm_grad(const tfd__call *call) {
  way_back b = {.sequence = tfd__in(call, 6)->data,
                .dsequence = tfd__in(call, 10)->data,
                .dh = tfd__in(call, 11)->data,
                .dc = tfd__in(call, 12)->data};
  layer l = {0};

  if (half(call)) return via_float(call, tfd__cuda_lstm_grad);
  begin(call, 4, &l);
  l.c0 = tfd__in(call, 5)->data;
  return backward(&l, tfd__in(call, 9), &b);
}

/* Inputs: x, kernel, recurrent, bias, h0, sequence, h, workspace, dsequence,
** dh. */
int tfd__cuda_gru_grad(const tfd__call *call) {
  way_back b = {.sequence = tfd__in(call, 5)->data,
                .dsequence = tfd__in(call, 8)->data,
                .dh = tfd__in(call, 9)->data};
  layer l = {0};

  if (half(call)) return via_float(call, tfd__cuda_gru_grad);
  begin(call, 3, &l);
  return backward(&l, tfd__in(call, 7), &b);
}
