/* Template of a packed matrix product. The includer defines GEMM_T (element
** type) and GEMM_ID(name) (its suffix), and includes gemm.h first. */

typedef GEMM_T GEMM_ID(vec) __attribute__((vector_size(64)));
typedef GEMM_T GEMM_ID(loose)
    __attribute__((vector_size(64), aligned(4), may_alias));

enum { GEMM_ID(width) = 64 / (int)sizeof(GEMM_T) };

typedef struct GEMM_ID(job) {
  const tfd__gemm_args *g;
  /* Panels of `width` columns, k_n rows each; NULL = b as it lies is used. */
  const GEMM_T *packed;
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

/* One tile: `rows` rows of `a`, at most `most` of 2, 4 or 6, times one panel,
** whose rows lie b_step apart. Rows past `rows` repeat row 0 and are not
** stored. */
static inline __attribute__((always_inline)) void
GEMM_ID(tile)(const GEMM_ID(job) * job, int64_t row, int64_t rows, int most,
              const GEMM_T *b, int64_t b_step, GEMM_T *c, int64_t cols) {
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
    GEMM_ID(vec) x = *(const GEMM_ID(loose) *)(b + p * b_step);

    s0 += a[p * step] * x;
    s1 += r1[p * step] * x;
    if (most > 2) {
      s2 += r2[p * step] * x;
      s3 += r3[p * step] * x;
    }
    if (most > 4) {
      s4 += r4[p * step] * x;
      s5 += r5[p * step] * x;
    }
  }
  GEMM_ID(store)(c, &s0, cols, add);
  if (rows > 1) GEMM_ID(store)(c + g->c_row, &s1, cols, add);
  if (rows > 2) GEMM_ID(store)(c + 2 * g->c_row, &s2, cols, add);
  if (rows > 3) GEMM_ID(store)(c + 3 * g->c_row, &s3, cols, add);
  if (rows > 4) GEMM_ID(store)(c + 4 * g->c_row, &s4, cols, add);
  if (rows > 5) GEMM_ID(store)(c + 5 * g->c_row, &s5, cols, add);
}

static inline const GEMM_T *GEMM_ID(panel)(const GEMM_ID(job) * job,
                                           int64_t j) {
  const tfd__gemm_args *g = job->g;

  if (job->packed != NULL) return job->packed + j * job->k_n;
  return (const GEMM_T *)g->b + job->k0 * g->b_row + job->n0 + j;
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
      int64_t rest = job->n_n - j;
      int64_t cols = rest < GEMM_ID(width) ? rest : GEMM_ID(width);
      const GEMM_T *b = GEMM_ID(panel)(job, j);
      int64_t step = job->packed != NULL ? GEMM_ID(width) : g->b_row;

      if (rows > 4)
        GEMM_ID(tile)(job, row, rows, 6, b, step, c + j, cols);
      else if (rows > 2)
        GEMM_ID(tile)(job, row, rows, 4, b, step, c + j, cols);
      else
        GEMM_ID(tile)(job, row, rows, 2, b, step, c + j, cols);
    }
  }
}

/* One panel of columns of b that lie `b_col` apart, as those of a transposed
** matrix do. */
static void GEMM_ID(pack_across)(const tfd__gemm_args *g, int64_t k_n,
                                 const GEMM_T *from, int64_t cols, GEMM_T *to) {
  bool whole = cols == GEMM_ID(width);
  int64_t p = 0;

  if (whole && sizeof(GEMM_T) == 4 && g->b_row == 1) {
    for (; p + 4 <= k_n; p += 4) {
      for (int64_t q = 0; q < GEMM_ID(width); q += 4)
        tfd__turn_4x4((uint32_t *)(void *)(to + p * GEMM_ID(width) + q),
                      GEMM_ID(width),
                      (const uint32_t *)(const void *)(from + q * g->b_col + p),
                      g->b_col);
    }
  }
  for (; p < k_n; p++) {
    GEMM_T *row = to + p * GEMM_ID(width);

    if (!whole) memset(row, 0, sizeof(GEMM_ID(vec)));
    for (int64_t q = 0; q < cols; q++)
      row[q] = from[p * g->b_row + q * g->b_col];
  }
}

static void GEMM_ID(pack)(const GEMM_ID(job) * job, GEMM_T *to) {
  const tfd__gemm_args *g = job->g;
  const GEMM_T *b =
      (const GEMM_T *)g->b + job->k0 * g->b_row + job->n0 * g->b_col;

  for (int64_t j = 0; j < job->n_n; j += GEMM_ID(width)) {
    int64_t cols = job->n_n - j;
    const GEMM_T *from = b + j * g->b_col;

    if (cols > GEMM_ID(width)) cols = GEMM_ID(width);
    if (g->b_col == 1 && cols == GEMM_ID(width)) {
      for (int64_t p = 0; p < job->k_n; p++)
        memcpy(to + p * GEMM_ID(width), from + p * g->b_row,
               sizeof(GEMM_ID(vec)));
    } else {
      GEMM_ID(pack_across)(g, job->k_n, from, cols, to);
    }
    to += job->k_n * GEMM_ID(width);
  }
}

static int GEMM_ID(run)(const tfd__gemm_args *g) {
  const int64_t k_max = 256;
  const int64_t n_max = 32 * GEMM_ID(width);
  int64_t k_n = g->k < k_max ? g->k : k_max;
  int64_t n_n = g->n < n_max ? g->n : n_max;
  int64_t panels = (n_n + GEMM_ID(width) - 1) / GEMM_ID(width);
  /* One row of tiles uses what would be packed once. */
  bool packs = g->m > 6 || g->b_col != 1 || g->n % GEMM_ID(width) != 0;
  GEMM_T *packed = NULL;

  if (packs) {
    packed = tfd__work_block((size_t)(panels * GEMM_ID(width) * k_n) *
                             sizeof *packed);
    if (packed == NULL) return TFD_RESOURCE_EXHAUSTED;
  }
  for (int64_t k0 = 0; k0 < g->k; k0 += k_max) {
    for (int64_t n0 = 0; n0 < g->n; n0 += n_max) {
      GEMM_ID(job) job = {g, packed, k0, 0, n0, 0};
      int64_t work = 0;

      job.k_n = g->k - k0 < k_max ? g->k - k0 : k_max;
      job.n_n = g->n - n0 < n_max ? g->n - n0 : n_max;
      work = 6 * job.k_n * job.n_n;
      if (packs) GEMM_ID(pack)(&job, packed);
      tfd__parallel_for((g->m + 5) / 6, 1 + 8 * TFD_GRAIN / work, GEMM_ID(rows),
                        &job);
    }
  }
  return TFD_OK;
}
