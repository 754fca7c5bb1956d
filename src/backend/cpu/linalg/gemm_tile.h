/* Template of register tiles, for one width of vectors. The includer is
** gemm_body.h and defines GEMM_WAY(name) (its suffix), GEMM_ISA (target
** attribute) and GEMM_PARTS: the vectors of a panel's row. Compilers break
** vectors that are wider than the processor's into loads and stores of their
** words, so there is a tile for each width. Bits do not depend on it, but on
** whether the processor fuses products and sums. */

typedef GEMM_T GEMM_WAY(vec) __attribute__((vector_size(64 / GEMM_PARTS)));
typedef GEMM_T GEMM_WAY(loose)
    __attribute__((vector_size(64 / GEMM_PARTS), aligned(4), may_alias));

/* A row of a panel. */
typedef struct GEMM_WAY(line) {
  GEMM_WAY(vec) part[GEMM_PARTS];
} GEMM_WAY(line);

#define GEMM_LANES (GEMM_ID(width) / GEMM_PARTS)

GEMM_ISA static inline __attribute__((always_inline)) void
GEMM_WAY(add_to)(GEMM_WAY(line) * s, GEMM_T a, const GEMM_WAY(line) * x) {
  _Pragma("GCC unroll 4") for (int i = 0; i < GEMM_PARTS; i++) s->part[i] +=
      a * x->part[i];
}

/* Write a whole line, or its first `n` elements. */
GEMM_ISA static inline __attribute__((always_inline)) void
GEMM_WAY(store)(GEMM_T *c, GEMM_WAY(line) value, int64_t n, bool add) {
  GEMM_T rest[GEMM_ID(width)];

  if (n == GEMM_ID(width)) {
    _Pragma("GCC unroll 4") for (int i = 0; i < GEMM_PARTS; i++) {
      GEMM_WAY(loose) *out = (GEMM_WAY(loose) *)(c + i * GEMM_LANES);

      if (add)
        *out += value.part[i];
      else
        *out = value.part[i];
    }
    return;
  }
  memcpy(rest, &value, sizeof rest);
  for (int64_t j = 0; j < n; j++)
    c[j] = add ? (GEMM_T)(c[j] + rest[j]) : rest[j];
}

/* One tile: `rows` rows of `a`, at most `most` of 2, 4 or 6, times one panel,
** whose rows lie b_step apart. Rows past `rows` repeat row 0 and are not
** stored. */
GEMM_ISA static inline __attribute__((always_inline)) void
GEMM_WAY(tile)(const GEMM_ID(job) * job, int64_t row, int64_t rows, int most,
               const GEMM_T *b, int64_t b_step, GEMM_T *c, int64_t cols) {
  const tfd__gemm_args *g = job->g;
  const GEMM_T *a = (const GEMM_T *)g->a + row * g->a_row + job->k0 * g->a_col;
  int64_t step = g->a_col;
  const GEMM_T *r1 = a + (rows > 1 ? g->a_row : 0);
  const GEMM_T *r2 = a + (rows > 2 ? 2 * g->a_row : 0);
  const GEMM_T *r3 = a + (rows > 3 ? 3 * g->a_row : 0);
  const GEMM_T *r4 = a + (rows > 4 ? 4 * g->a_row : 0);
  const GEMM_T *r5 = a + (rows > 5 ? 5 * g->a_row : 0);
  GEMM_WAY(line) s0 = {0};
  GEMM_WAY(line) s1 = {0};
  GEMM_WAY(line) s2 = {0};
  GEMM_WAY(line) s3 = {0};
  GEMM_WAY(line) s4 = {0};
  GEMM_WAY(line) s5 = {0};
  bool add = g->add || job->k0 > 0;

  for (int64_t p = 0; p < job->k_n; p++) {
    GEMM_WAY(line) x;

    _Pragma("GCC unroll 4") for (int i = 0; i < GEMM_PARTS; i++) x.part[i] =
        *(const GEMM_WAY(loose) *)(b + p * b_step + i * GEMM_LANES);
    GEMM_WAY(add_to)(&s0, a[p * step], &x);
    GEMM_WAY(add_to)(&s1, r1[p * step], &x);
    if (most > 2) {
      GEMM_WAY(add_to)(&s2, r2[p * step], &x);
      GEMM_WAY(add_to)(&s3, r3[p * step], &x);
    }
    if (most > 4) {
      GEMM_WAY(add_to)(&s4, r4[p * step], &x);
      GEMM_WAY(add_to)(&s5, r5[p * step], &x);
    }
  }
  GEMM_WAY(store)(c, s0, cols, add);
  if (rows > 1) GEMM_WAY(store)(c + g->c_row, s1, cols, add);
  if (rows > 2) GEMM_WAY(store)(c + 2 * g->c_row, s2, cols, add);
  if (rows > 3) GEMM_WAY(store)(c + 3 * g->c_row, s3, cols, add);
  if (rows > 4) GEMM_WAY(store)(c + 4 * g->c_row, s4, cols, add);
  if (rows > 5) GEMM_WAY(store)(c + 5 * g->c_row, s5, cols, add);
}

GEMM_ISA static void GEMM_WAY(rows)(void *arg, int64_t begin, int64_t end) {
  const GEMM_ID(job) *job = arg;
  const tfd__gemm_args *g = job->g;

  for (int64_t t = begin; t < end; t++) {
    int64_t row = t * 6;
    int64_t rows = g->m - row < 6 ? g->m - row : 6;
    GEMM_T *c = (GEMM_T *)g->c + row * g->c_row + job->n0;

    for (int64_t j = 0; j < job->n_n; j += GEMM_ID(width)) {
      int64_t rest = job->n_n - j;
      int64_t cols = rest < GEMM_ID(width) ? rest : GEMM_ID(width);
      const GEMM_T *b =
          job->packed != NULL
              ? job->packed + j * job->k_n
              : (const GEMM_T *)g->b + job->k0 * g->b_row + job->n0 + j;
      int64_t step = job->packed != NULL ? GEMM_ID(width) : g->b_row;

      if (rows > 4)
        GEMM_WAY(tile)(job, row, rows, 6, b, step, c + j, cols);
      else if (rows > 2)
        GEMM_WAY(tile)(job, row, rows, 4, b, step, c + j, cols);
      else
        GEMM_WAY(tile)(job, row, rows, 2, b, step, c + j, cols);
    }
  }
}

#undef GEMM_LANES
#undef GEMM_WAY
#undef GEMM_ISA
#undef GEMM_PARTS
