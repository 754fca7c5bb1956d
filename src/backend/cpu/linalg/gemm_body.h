/* Template of a packed matrix product. The includer defines GEMM_T (element
** type) and GEMM_ID(name) (its suffix), and includes gemm.h first. */

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

/* Tiles [begin, end) of 6 rows against all panels of the block: for vectors of
** each width that there is (gemm_tile.h). */
#if TFD_HAS_CLONES
#define GEMM_WAY(name) GEMM_ID(name##_512)
#define GEMM_ISA __attribute__((target("avx512f")))
#define GEMM_PARTS 1
#include "backend/cpu/linalg/gemm_tile.h"

#define GEMM_WAY(name) GEMM_ID(name##_256)
#define GEMM_ISA __attribute__((target("avx2,fma")))
#define GEMM_PARTS 2
#include "backend/cpu/linalg/gemm_tile.h"
#endif

#define GEMM_WAY(name) GEMM_ID(name##_128)
#define GEMM_ISA
#define GEMM_PARTS 4
#include "backend/cpu/linalg/gemm_tile.h"

static void (*GEMM_ID(rows)(void))(void *, int64_t, int64_t) {
#if TFD_HAS_CLONES
  if (tfd__vector_bits() == 512) return GEMM_ID(rows_512);
  if (tfd__vector_bits() == 256) return GEMM_ID(rows_256);
#endif
  return GEMM_ID(rows_128);
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

    if (!whole) memset(row, 0, 64);
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
        memcpy(to + p * GEMM_ID(width), from + p * g->b_row, 64);
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
  void (*loop)(void *, int64_t, int64_t) = GEMM_ID(rows)();
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
      tfd__parallel_for((g->m + 5) / 6, 1 + 8 * TFD_GRAIN / work, loop, &job);
    }
  }
  return TFD_OK;
}
