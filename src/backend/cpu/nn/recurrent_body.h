/* Template: define RNN_T, RNN_DTYPE, RNN_ID(name) and the functions RNN_EXP
** and RNN_TANH. LSTM and GRU over all steps, forward and backward.
**
** Workspace of the plain loops: LSTM [steps * batch][i f g o] activated, then
** the cell states [steps * batch][units]; GRU [steps * batch][z r n m], m the
** recurrent part of the candidate before the reset gate. */

static inline RNN_T RNN_ID(sigmoid)(RNN_T x) {
  return 1 / (1 + RNN_EXP(-x));
}

/* c (+)= a * b for dense row-major operands; the t flags transpose. */
static int RNN_ID(product)(int64_t m, int64_t n, int64_t k, const RNN_T *a,
                           bool ta, const RNN_T *b, bool tb, RNN_T *c,
                           bool add) {
  tfd__gemm_args g = {.dtype = RNN_DTYPE,
                      .m = m,
                      .n = n,
                      .k = k,
                      .a = a,
                      .a_row = ta ? 1 : k,
                      .a_col = ta ? m : 1,
                      .b = b,
                      .b_row = tb ? 1 : n,
                      .b_col = tb ? k : 1,
                      .c = c,
                      .c_row = n,
                      .add = add};

  return tfd__gemm(&g);
}

/* One step's elementwise part. */
typedef struct RNN_ID(cell) {
  int64_t units;
  RNN_T *gates;       /* in: products of this step; out: activated */
  const RNN_T *mixed; /* GRU: recurrent products [batch][3 * units] */
  const RNN_T *bias;
  const RNN_T *h_prev;
  const RNN_T *c_prev;
  RNN_T *h;
  RNN_T *c;
} RNN_ID(cell);

static void RNN_ID(lstm_cells)(void *arg, int64_t begin, int64_t end) {
  const RNN_ID(cell) *job = arg;
  int64_t n = job->units;

  for (int64_t row = begin; row < end; row++) {
    RNN_T *g = job->gates + row * 4 * n;
    const RNN_T *b = job->bias;

    for (int64_t j = 0; j < n; j++) {
      RNN_T i = RNN_ID(sigmoid)(g[j] + b[j]);
      RNN_T f = RNN_ID(sigmoid)(g[n + j] + b[n + j]);
      RNN_T u = RNN_TANH(g[2 * n + j] + b[2 * n + j]);
      RNN_T o = RNN_ID(sigmoid)(g[3 * n + j] + b[3 * n + j]);
      RNN_T c = f * job->c_prev[row * n + j] + i * u;

      g[j] = i;
      g[n + j] = f;
      g[2 * n + j] = u;
      g[3 * n + j] = o;
      job->c[row * n + j] = c;
      job->h[row * n + j] = o * RNN_TANH(c);
    }
  }
}

static void RNN_ID(gru_cells)(void *arg, int64_t begin, int64_t end) {
  const RNN_ID(cell) *job = arg;
  int64_t n = job->units;
  const RNN_T *b = job->bias;
  const RNN_T *rb = job->bias + 3 * n;

  for (int64_t row = begin; row < end; row++) {
    RNN_T *g = job->gates + row * 4 * n;
    const RNN_T *m = job->mixed + row * 3 * n;

    for (int64_t j = 0; j < n; j++) {
      RNN_T z = RNN_ID(sigmoid)(g[j] + b[j] + m[j] + rb[j]);
      RNN_T r = RNN_ID(sigmoid)(g[n + j] + b[n + j] + m[n + j] + rb[n + j]);
      RNN_T p = m[2 * n + j] + rb[2 * n + j];
      RNN_T u = RNN_TANH(g[2 * n + j] + b[2 * n + j] + r * p);

      g[j] = z;
      g[n + j] = r;
      g[2 * n + j] = u;
      g[3 * n + j] = p;
      job->h[row * n + j] = z * job->h_prev[row * n + j] + (1 - z) * u;
    }
  }
}

/* Input products of all steps, with rows of 4 * units in both cells. */
static int RNN_ID(input_products)(const tfd__rnn *rnn, RNN_T *gates) {
  const tfd__recurrent *r = &rnn->r;
  tfd__gemm_args g = {.dtype = RNN_DTYPE,
                      .m = r->steps * r->batch,
                      .n = r->gates * r->units,
                      .k = r->depth,
                      .a = rnn->at[RNN_X],
                      .a_row = r->depth,
                      .a_col = 1,
                      .b = rnn->at[RNN_W],
                      .b_row = r->gates * r->units,
                      .b_col = 1,
                      .c = gates,
                      .c_row = 4 * r->units};

  return tfd__gemm(&g);
}

static int RNN_ID(forward)(const tfd__rnn *rnn) {
  const tfd__recurrent *r = &rnn->r;
  int64_t rows = r->batch * r->units;
  bool lstm = r->gates == 4;
  RNN_T *gates = rnn->at[RNN_WORKSPACE];
  RNN_T *cells = gates + 4 * r->steps * rows;
  RNN_T *mixed = tfd__scratch((size_t)(3 * rows) * sizeof *mixed + 1);
  RNN_ID(cell)
  job = {.units = r->units,
         .mixed = mixed,
         .bias = rnn->at[RNN_BIAS],
         .h_prev = rnn->at[RNN_H0],
         .c_prev = rnn->at[RNN_C0]};

  if (mixed == NULL) return TFD_RESOURCE_EXHAUSTED;
  TFD_TRY(RNN_ID(input_products)(rnn, gates));
  for (int64_t t = 0; t < r->steps; t++) {
    job.gates = gates + 4 * t * rows;
    job.h = (RNN_T *)rnn->at[RNN_SEQUENCE] + t * rows;
    job.c = cells + t * rows;
    TFD_TRY(RNN_ID(product)(r->batch, r->gates * r->units, r->units, job.h_prev,
                            false, rnn->at[RNN_U], false,
                            lstm ? job.gates : mixed, lstm));
    tfd__parallel_for(r->batch, 1 + TFD_GRAIN / (32 * r->units),
                      lstm ? RNN_ID(lstm_cells) : RNN_ID(gru_cells), &job);
    job.h_prev = job.h;
    job.c_prev = job.c;
  }
  memcpy(rnn->at[RNN_H], job.h_prev, (size_t)rows * sizeof(RNN_T));
  if (lstm) memcpy(rnn->at[RNN_C], job.c_prev, (size_t)rows * sizeof(RNN_T));
  return TFD_OK;
}

/* --- backward ------------------------------------------------------------- */

typedef struct RNN_ID(back) {
  int64_t units;
  const RNN_T *gates; /* activated */
  const RNN_T *h_prev;
  const RNN_T *c_prev;
  const RNN_T *c;
  const RNN_T *dsequence;
  RNN_T *dh;     /* in: from later steps; GRU out: the direct part */
  RNN_T *dc;     /* in and out */
  RNN_T *dgates; /* of the input products */
  RNN_T *dmixed; /* GRU: of the recurrent products */
} RNN_ID(back);

static void RNN_ID(lstm_back)(void *arg, int64_t begin, int64_t end) {
  const RNN_ID(back) *job = arg;
  int64_t n = job->units;

  for (int64_t row = begin; row < end; row++) {
    const RNN_T *g = job->gates + row * 4 * n;
    RNN_T *d = job->dgates + row * 4 * n;

    for (int64_t j = 0; j < n; j++) {
      int64_t at = row * n + j;
      RNN_T i = g[j];
      RNN_T f = g[n + j];
      RNN_T u = g[2 * n + j];
      RNN_T o = g[3 * n + j];
      RNN_T y = RNN_TANH(job->c[at]);
      RNN_T dh = job->dh[at] + job->dsequence[at];
      RNN_T dc = job->dc[at] + dh * o * (1 - y * y);

      d[j] = dc * u * i * (1 - i);
      d[n + j] = dc * job->c_prev[at] * f * (1 - f);
      d[2 * n + j] = dc * i * (1 - u * u);
      d[3 * n + j] = dh * y * o * (1 - o);
      job->dc[at] = dc * f;
    }
  }
}

static void RNN_ID(gru_back)(void *arg, int64_t begin, int64_t end) {
  const RNN_ID(back) *job = arg;
  int64_t n = job->units;

  for (int64_t row = begin; row < end; row++) {
    const RNN_T *g = job->gates + row * 4 * n;
    RNN_T *d = job->dgates + row * 3 * n;
    RNN_T *m = job->dmixed + row * 3 * n;

    for (int64_t j = 0; j < n; j++) {
      int64_t at = row * n + j;
      RNN_T z = g[j];
      RNN_T r = g[n + j];
      RNN_T u = g[2 * n + j];
      RNN_T dh = job->dh[at] + job->dsequence[at];
      RNN_T du = dh * (1 - z) * (1 - u * u);

      d[j] = m[j] = dh * (job->h_prev[at] - u) * z * (1 - z);
      d[n + j] = m[n + j] = du * g[3 * n + j] * r * (1 - r);
      d[2 * n + j] = du;
      m[2 * n + j] = du * r;
      job->dh[at] = dh * z;
    }
  }
}

/* Column sums of a [rows][n] matrix. */
static void RNN_ID(column_sums)(const RNN_T *x, int64_t rows, int64_t n,
                                RNN_T *sums) {
  memset(sums, 0, (size_t)n * sizeof *sums);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < n; j++) sums[j] += x[i * n + j];
}

/* Gradients of weights and inputs from those of the products: dgates of the
** input products, dmixed of the recurrent ones (equal for LSTM). */
static int RNN_ID(weights_back)(const tfd__rnn *rnn, const RNN_T *dgates,
                                const RNN_T *dmixed) {
  const tfd__recurrent *r = &rnn->r;
  int64_t n = r->gates * r->units;
  int64_t rows = r->steps * r->batch;
  int64_t later = (r->steps - 1) * r->batch;
  RNN_T *dbias = rnn->at[RNN_DBIAS];

  TFD_TRY(RNN_ID(product)(rows, r->depth, n, dgates, false, rnn->at[RNN_W],
                          true, rnn->at[RNN_DX], false));
  TFD_TRY(RNN_ID(product)(r->depth, n, rows, rnn->at[RNN_X], true, dgates,
                          false, rnn->at[RNN_DW], false));
  TFD_TRY(RNN_ID(product)(r->units, n, r->batch, rnn->at[RNN_H0], true, dmixed,
                          false, rnn->at[RNN_DU], false));
  if (later > 0)
    TFD_TRY(RNN_ID(product)(r->units, n, later, rnn->at[RNN_SEQUENCE], true,
                            dmixed + r->batch * n, false, rnn->at[RNN_DU],
                            true));
  RNN_ID(column_sums)(dgates, rows, n, dbias);
  if (r->gates == 3) RNN_ID(column_sums)(dmixed, rows, n, dbias + n);
  return TFD_OK;
}

static int RNN_ID(backward)(const tfd__rnn *rnn) {
  const tfd__recurrent *r = &rnn->r;
  int64_t rows = r->batch * r->units;
  bool lstm = r->gates == 4;
  int64_t all = r->gates * r->steps * rows;
  const RNN_T *gates = rnn->at[RNN_WORKSPACE];
  const RNN_T *cells = gates + 4 * r->steps * rows;
  const RNN_T *sequence = rnn->at[RNN_SEQUENCE];
  RNN_T *dgates = tfd__scratch((size_t)all * sizeof *dgates + 1);
  RNN_T *dmixed =
      lstm ? dgates : tfd__scratch((size_t)all * sizeof *dgates + 1);
  RNN_ID(back)
  job = {.units = r->units, .dh = rnn->at[RNN_DH0], .dc = rnn->at[RNN_DC0]};

  if (dgates == NULL || dmixed == NULL) return TFD_RESOURCE_EXHAUSTED;
  memcpy(job.dh, rnn->at[RNN_DH], (size_t)rows * sizeof *job.dh);
  if (lstm) memcpy(job.dc, rnn->at[RNN_DC], (size_t)rows * sizeof *job.dc);
  for (int64_t t = r->steps - 1; t >= 0; t--) {
    job.gates = gates + 4 * t * rows;
    job.dgates = dgates + r->gates * t * rows;
    job.dmixed = dmixed + r->gates * t * rows;
    job.h_prev = t > 0 ? sequence + (t - 1) * rows : rnn->at[RNN_H0];
    job.c_prev = t > 0 ? cells + (t - 1) * rows : rnn->at[RNN_C0];
    job.c = cells + t * rows;
    job.dsequence = (const RNN_T *)rnn->at[RNN_DSEQUENCE] + t * rows;
    tfd__parallel_for(r->batch, 1 + TFD_GRAIN / (32 * r->units),
                      lstm ? RNN_ID(lstm_back) : RNN_ID(gru_back), &job);
    TFD_TRY(RNN_ID(product)(r->batch, r->units, r->gates * r->units, job.dmixed,
                            false, rnn->at[RNN_U], true, job.dh, !lstm));
  }
  return RNN_ID(weights_back)(rnn, dgates, dmixed);
}
