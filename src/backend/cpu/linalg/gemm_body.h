/* Template of a packed matrix product. The includer defines GEMM_T (element
** type) and GEMM_ID(name) (its suffix), and includes gemm.h first. */

typedef GEMM_T GEMM_ID(vec) __attribute__((vector_size(64)));
typedef GEMM_T GEMM_ID(loose)
    __attribute__((vector_size(64), aligned(4), may_alias));

enum { GEMM_ID(width) = 64 / (int)sizeof(GEMM_T) };

typedef struct GEMM_ID(job) {
  const tfd__gemm_args *g;
  const GEMM_T *packed; /* panels of `width` columns, k_n rows each */
  int64_t k0;
  int64_t k_n;
  int64_t n0;
  int64_t n_n;
} GEMM_ID(job);

/* Write one register row: a whole vector, or the first `n` elements. */
static inline __attribute__((always_inline)) void
GEMM_ID(store)(GEMM_T *c, const GEMM_ID(vec) * value, int64_t n, bool add) {
  if (n == GEMM_ID(width)) {
    GEMM_ID(loose) *out = (GEMM_ID(loose) *)c;

    if (add)
      *out += *value;
    else
      *out = *value;
    return;
  }
  for (int64_t j = 0; j < n; j++)
    c[j] = add ? (GEMM_T)(c[j] + (*value)[j]) : (*value)[j];
}

/* One tile: up to 6 rows of `a` times one panel. Rows past `rows` repeat row
** 0 and are not stored. */
static inline __attribute__((always_inline)) void
GEMM_ID(tile)(const GEMM_ID(job) * job, int64_t row, int64_t rows,
              const GEMM_T *b, GEMM_T *c, int64_t cols) {
  const tfd__gemm_args *g = job->g;
  const GEMM_T *a = (const GEMM_T *)g->a + row * g->a_row + job->k0 * g->a_col;
  int64_t step = g->a_col;
  const GEMM_T *r1 = a + (rows > 1 ? g->a_row : 0);
  const GEMM_T *r2 = a + (rows > 2 ? 2 * g->a_row : 0);
  const GEMM_T *r3 = a + (rows > 3 ? 3 * g->a_row : 0);
  const GEMM_T *r4 = a + (rows > 4 ? 4 * g->a_row : 0);
  const GEMM_T *r5 = a + (rows > 5 ? 5 * g->a_row : 0);
  GEMM_ID(vec) s0 = {0};
  GEMM_ID(vec) s1 = {0};
  GEMM_ID(vec) s2 = {0};
  GEMM_ID(vec) s3 = {0};
  GEMM_ID(vec) s4 = {0};
  GEMM_ID(vec) s5 = {0};
  bool add = g->add || job->k0 > 0;

  for (int64_t p = 0; p < job->k_n; p++) {
    GEMM_ID(vec) x = *(const GEMM_ID(vec) *)(b + p * GEMM_ID(width));

    s0 += a[p * step] * x;
    s1 += r1[p * step] * x;
    s2 += r2[p * step] * x;
    s3 += r3[p * step] * x;
    s4 += r4[p * step] * x;
    s5 += r5[p * step] * x;
  }
  GEMM_ID(store)(c, &s0, cols, add);
  if (rows > 1) GEMM_ID(store)(c + g->c_row, &s1, cols, add);
  if (rows > 2) GEMM_ID(store)(c + 2 * g->c_row, &s2, cols, add);
  if (rows > 3) GEMM_ID(store)(c + 3 * g->c_row, &s3, cols, add);
  if (rows > 4) GEMM_ID(store)(c + 4 * g->c_row, &s4, cols, add);
  if (rows > 5) GEMM_ID(store)(c + 5 * g->c_row, &s5, cols, add);
}

/* Tiles [begin, end) of 6 rows against all panels of the block. */
TFD_CLONES static void GEMM_ID(rows)(void *arg, int64_t begin, int64_t end) {
  const GEMM_ID(job) *job = arg;
  const tfd__gemm_args *g = job->g;

  for (int64_t t = begin; t < end; t++) {
    int64_t row = t * 6;
    int64_t rows = g->m - row < 6 ? g->m - row : 6;
    GEMM_T *c = (GEMM_T *)g->c + row * g->c_row + job->n0;

    for (int64_t j = 0; j < job->n_n; j += GEMM_ID(width)) {
      int64_t cols = job->n_n - j;

      GEMM_ID(tile)
      (job, row, rows, job->packed + j * job->k_n, c + j,
       cols < GEMM_ID(width) ? cols : GEMM_ID(width));
    }
  }
}

static void GEMM_ID(pack)(const GEMM_ID(job) * job, GEMM_T *to) {
  const tfd__gemm_args *g = job->g;
  const GEMM_T *b =
      (const GEMM_T *)g->b + job->k0 * g->b_row + job->n0 * g->b_col;

  for (int64_t j = 0; j < job->n_n; j += GEMM_ID(width)) {
    int64_t cols = job->n_n - j;

    for (int64_t p = 0; p < job->k_n; p++) {
      const GEMM_T *from = b + p * g->b_row + j * g->b_col;

      if (g->b_col == 1 && cols >= GEMM_ID(width)) {
        memcpy(to, from, sizeof(GEMM_ID(vec)));
        to += GEMM_ID(width);
        continue;
      }
      for (int64_t q = 0; q < GEMM_ID(width); q++)
        to[q] = q < cols ? from[q * g->b_col] : 0;
      to += GEMM_ID(width);
    }
  }
}

static int GEMM_ID(run)(const tfd__gemm_args *g) {
  const int64_t k_max = 256;
  const int64_t n_max = 32 * GEMM_ID(width);
  int64_t k_n = g->k < k_max ? g->k : k_max;
  int64_t n_n = g->n < n_max ? g->n : n_max;
  int64_t panels = (n_n + GEMM_ID(width) - 1) / GEMM_ID(width);
  GEMM_T *packed =
      tfd__work_block((size_t)(panels * GEMM_ID(width) * k_n) * sizeof *packed);

  if (packed == NULL) return TFD_RESOURCE_EXHAUSTED;
  for (int64_t k0 = 0; k0 < g->k; k0 += k_max) {
    for (int64_t n0 = 0; n0 < g->n; n0 += n_max) {
      GEMM_ID(job) job = {g, packed, k0, 0, n0, 0};
      int64_t work = 0;

      job.k_n = g->k - k0 < k_max ? g->k - k0 : k_max;
      job.n_n = g->n - n0 < n_max ? g->n - n0 : n_max;
      work = 6 * job.k_n * job.n_n;
      GEMM_ID(pack)(&job, packed);
      tfd__parallel_for((g->m + 5) / 6, 1 + 8 * TFD_GRAIN / work, GEMM_ID(rows),
                        &job);
    }
  }
  return TFD_OK;
}
