/* Copies between strided views, the one loop behind transposes, slices,
** concatenation, padding and tiling. */
#include "backend/cpu/array.h"
#include "backend/cpu/turn.h"

#include <string.h>

/* Elements that a piece of work should have at least. */
#define PIECE 8192

/* Outer axes around blocks of rows x cols; strides in elements. Columns are
** dst's innermost axis; rows are the axis along which src runs fastest, when
** that is another one (a transpose), else simply the next axis. */
typedef struct plan {
  char *dst;
  const char *src;
  size_t size;
  int rank;
  int64_t n[TFD_MAX_RANK];
  int64_t d[TFD_MAX_RANK];
  int64_t s[TFD_MAX_RANK];
  int64_t rows;
  int64_t cols;
  int64_t dr;
  int64_t sr;
  int64_t dc;
  int64_t sc;
  int64_t cut;  /* rows of one piece */
  int64_t cuts; /* pieces of one block */
} plan;

static int64_t magnitude(int64_t x) {
  return x < 0 ? -x : x;
}

/* --- the plan ------------------------------------------------------------- */

/* Axes longer than 1, dst's largest stride first. */
static void plan_axes(plan *p, const tfd__view *dst, const tfd__view *src) {
  int i;

  p->rank = 0;
  for (i = 0; i < dst->rank; i++) {
    int k = p->rank;

    if (dst->dims[i] == 1) continue;
    while (k > 0 && magnitude(p->d[k - 1]) < magnitude(dst->strides[i])) {
      p->n[k] = p->n[k - 1];
      p->d[k] = p->d[k - 1];
      p->s[k] = p->s[k - 1];
      k--;
    }
    p->n[k] = dst->dims[i];
    p->d[k] = dst->strides[i];
    p->s[k] = src->strides[i];
    p->rank++;
  }
}

/* Merge neighbours that continue each other on both sides. */
static void plan_merge(plan *p) {
  int i;
  int k = 0;

  for (i = 1; i < p->rank; i++) {
    if (p->d[k] == p->d[i] * p->n[i] && p->s[k] == p->s[i] * p->n[i]) {
      p->n[k] *= p->n[i];
    } else {
      k++;
      p->n[k] = p->n[i];
    }
    p->d[k] = p->d[i];
    p->s[k] = p->s[i];
  }
  if (p->rank > 0) p->rank = k + 1;
}

/* The axis where src runs fastest, if that beats the innermost one. */
static int transposed_axis(const plan *p) {
  int last = p->rank - 1;
  int best = -1;
  int64_t stride = magnitude(p->s[last]);
  int i;

  if (p->s[last] == 0 || stride == 1) return -1;
  for (i = 0; i < last; i++) {
    int64_t other = magnitude(p->s[i]);

    if (other != 0 && other < stride) {
      stride = other;
      best = i;
    }
  }
  return best;
}

static void plan_rows(plan *p) {
  int row = -1;
  int i;

  p->rows = p->cols = 1;
  p->dr = p->sr = p->dc = p->sc = 1;
  if (p->rank > 0) {
    int last = p->rank - 1;

    row = transposed_axis(p);
    if (row < 0) row = last - 1;
    p->cols = p->n[last];
    p->dc = p->d[last];
    p->sc = p->s[last];
    p->rank = last;
  }
  if (row >= 0) {
    p->rows = p->n[row];
    p->dr = p->d[row];
    p->sr = p->s[row];
    for (i = row; i + 1 < p->rank; i++) {
      p->n[i] = p->n[i + 1];
      p->d[i] = p->d[i + 1];
      p->s[i] = p->s[i + 1];
    }
    p->rank--;
  } else if (p->cols > 2 * PIECE) {
    /* One long run: whole pieces become rows; the caller copies the rest. */
    p->rows = p->cols / PIECE;
    p->cols = PIECE;
    p->dr = p->dc * PIECE;
    p->sr = p->sc * PIECE;
  }
  p->cut = (PIECE + p->cols - 1) / p->cols;
  p->cut = (p->cut + 63) / 64 * 64; /* whole tiles */
  if (p->cols >= PIECE) p->cut = 1 + PIECE / p->cols;
  p->cuts = (p->rows + p->cut - 1) / p->cut;
}

/* --- the loops ------------------------------------------------------------ */

/* 16 x 16 elements of 4 bytes: whole lines in, 4 x 4 blocks turned in
** registers, whole lines out. */
static void full_tile_uint32_t(uint32_t *d, const uint32_t *s, const plan *p) {
  _Alignas(64) uint32_t tile[16][16];
  int64_t c;
  int64_t r;

  for (c = 0; c < 16; c += 4) {
    for (r = 0; r < 16; r += 4) {
      tfd__turn_4x4(&tile[r][c], 16, s + c * p->sc + r, p->sc);
    }
  }
  for (r = 0; r < 16; r++) memcpy(d + r * p->dr, tile[r], 64);
}

/* The other sizes: the compiler's choice of loads and stores. */
#define DEFINE_FULL_TILE(T)                                     \
  static void full_tile_##T(T *restrict d, const T *restrict s, \
                            const plan *p) {                    \
    enum { N = 64 / sizeof(T) };                                \
    T tile[N][N];                                               \
    int64_t r;                                                  \
    int64_t c;                                                  \
                                                                \
    for (c = 0; c < N; c++) memcpy(tile[c], s + c * p->sc, 64); \
    for (r = 0; r < N; r++) {                                   \
      for (c = 0; c < N; c++) d[r * p->dr + c] = tile[c][r];    \
    }                                                           \
  }

DEFINE_FULL_TILE(uint8_t)
DEFINE_FULL_TILE(uint16_t)
DEFINE_FULL_TILE(uint64_t)

/* rows x cols elements of type T through tiles of one cache line each way:
** every line of src and dst is touched once while it is cached. */
#define DEFINE_BLOCK(T)                                                      \
  static void tile_##T(T *d, const T *s, const plan *p, int64_t rows,        \
                       int64_t cols) {                                       \
    enum { N = 64 / sizeof(T) };                                             \
    T tile[N][N];                                                            \
    int64_t r;                                                               \
    int64_t c;                                                               \
                                                                             \
    for (c = 0; c < cols; c++) {                                             \
      for (r = 0; r < rows; r++) tile[c][r] = s[c * p->sc + r * p->sr];      \
    }                                                                        \
    for (r = 0; r < rows; r++) {                                             \
      for (c = 0; c < cols; c++) d[r * p->dr + c * p->dc] = tile[c][r];      \
    }                                                                        \
  }                                                                          \
  static void transpose_##T(T *d, const T *s, const plan *p, int64_t rows) { \
    const int64_t n = 64 / (int64_t)sizeof(T);                               \
    bool unit = p->sr == 1 && p->dc == 1;                                    \
    int64_t r;                                                               \
    int64_t c;                                                               \
                                                                             \
    for (r = 0; r < rows; r += n) {                                          \
      int64_t rn = rows - r < n ? rows - r : n;                              \
                                                                             \
      for (c = 0; c < p->cols; c += n) {                                     \
        int64_t cn = p->cols - c < n ? p->cols - c : n;                      \
        T *to = d + r * p->dr + c * p->dc;                                   \
        const T *from = s + r * p->sr + c * p->sc;                           \
        int64_t k;                                                           \
                                                                             \
        /* Lines a page apart: no hardware prefetcher foresees them. */      \
        for (k = 0; k < n; k++) __builtin_prefetch(from + (n + k) * p->sc);  \
        if (unit && rn == n && cn == n) {                                    \
          full_tile_##T(to, from, p);                                        \
        } else {                                                             \
          tile_##T(to, from, p, rn, cn);                                     \
        }                                                                    \
      }                                                                      \
    }                                                                        \
  }                                                                          \
  static void block_##T(T *d, const T *s, const plan *p, int64_t rows) {     \
    int64_t r;                                                               \
    int64_t c;                                                               \
                                                                             \
    if (p->sc != 0 && magnitude(p->sr) < magnitude(p->sc) && p->sr != 0 &&   \
        p->cols > 1) {                                                       \
      transpose_##T(d, s, p, rows);                                          \
      return;                                                                \
    }                                                                        \
    for (r = 0; r < rows; r++, d += p->dr, s += p->sr) {                     \
      if (p->dc == 1 && p->sc == 0) {                                        \
        const T x = *s;                                                      \
        for (c = 0; c < p->cols; c++) d[c] = x;                              \
      } else if (p->dc == 1 && p->sc == -1) {                                \
        for (c = 0; c < p->cols; c++) d[c] = s[-c];                          \
      } else {                                                               \
        for (c = 0; c < p->cols; c++) d[c * p->dc] = s[c * p->sc];           \
      }                                                                      \
    }                                                                        \
  }

DEFINE_BLOCK(uint8_t)
DEFINE_BLOCK(uint16_t)
DEFINE_BLOCK(uint32_t)
DEFINE_BLOCK(uint64_t)

/* Rows of bytes; a fixed size lets the compiler inline short ones. */
static void copy_rows(char *d, const char *s, const plan *p, int64_t rows) {
  size_t bytes = (size_t)p->cols * p->size;
  int64_t dr = p->dr * (int64_t)p->size;
  int64_t sr = p->sr * (int64_t)p->size;
  int64_t r;

  if (bytes == 8) {
    for (r = 0; r < rows; r++) memcpy(d + r * dr, s + r * sr, 8);
  } else if (bytes == 16) {
    for (r = 0; r < rows; r++) memcpy(d + r * dr, s + r * sr, 16);
  } else {
    for (r = 0; r < rows; r++) memcpy(d + r * dr, s + r * sr, bytes);
  }
}

static void copy_block(char *d, const char *s, const plan *p, int64_t rows) {
  if (p->dc == 1 && p->sc == 1) {
    copy_rows(d, s, p, rows);
    return;
  }
  switch (p->size) {
  case 1:
    block_uint8_t((uint8_t *)d, (const uint8_t *)s, p, rows);
    break;
  case 2:
    block_uint16_t((uint16_t *)(void *)d, (const uint16_t *)(const void *)s, p,
                   rows);
    break;
  case 4:
    block_uint32_t((uint32_t *)(void *)d, (const uint32_t *)(const void *)s, p,
                   rows);
    break;
  default:
    block_uint64_t((uint64_t *)(void *)d, (const uint64_t *)(const void *)s, p,
                   rows);
    break;
  }
}

/* Piece u is rows (u % cuts) * cut ... of block u / cuts. */
static void copy_pieces(void *arg, int64_t begin, int64_t end) {
  const plan *p = arg;
  int64_t u;
  int i;

  for (u = begin; u < end; u++) {
    int64_t first = u % p->cuts * p->cut;
    int64_t rest = u / p->cuts;
    int64_t rows = p->rows - first < p->cut ? p->rows - first : p->cut;
    int64_t d = first * p->dr;
    int64_t s = first * p->sr;

    for (i = p->rank - 1; i >= 0; i--) {
      d += rest % p->n[i] * p->d[i];
      s += rest % p->n[i] * p->s[i];
      rest /= p->n[i];
    }
    copy_block(p->dst + d * (int64_t)p->size, p->src + s * (int64_t)p->size, p,
               rows);
  }
}

void tfd__copy_view(const tfd__view *dst, const tfd__view *src) {
  plan p;
  int64_t pieces = 0;
  int64_t elements = 0;
  int64_t done = 0;
  int i;

  if (dst->numel == 0) return;
  p.dst = dst->data;
  p.src = src->data;
  p.size = tfd__dtype_size(dst->dtype);
  plan_axes(&p, dst, src);
  plan_merge(&p);
  plan_rows(&p);
  pieces = p.cuts;
  done = p.rows * p.cols;
  for (i = 0; i < p.rank; i++) {
    pieces *= p.n[i];
    done *= p.n[i];
  }
  elements = p.cols * (p.cut < p.rows ? p.cut : p.rows);
  tfd__parallel_for(pieces, tfd__grain(elements), copy_pieces, &p);
  if (done == dst->numel) return;
  /* What a long run has left after its last whole piece. */
  p.dst += p.rows * p.dr * (int64_t)p.size;
  p.src += p.rows * p.sr * (int64_t)p.size;
  p.cols = dst->numel - done;
  copy_block(p.dst, p.src, &p, 1);
}

typedef struct bytes {
  char *data;
  int64_t n;
} bytes;

#define ZERO_PIECE 65536

static void zero_pieces(void *arg, int64_t begin, int64_t end) {
  const bytes *b = arg;
  int64_t from = begin * ZERO_PIECE;
  int64_t to = end * ZERO_PIECE < b->n ? end * ZERO_PIECE : b->n;

  memset(b->data + from, 0, (size_t)(to - from));
}

void tfd__zero(const tfd__view *v) {
  bytes b = {v->data, (int64_t)tfd__view_bytes(v)};

  if (b.n == 0) return;
  tfd__parallel_for((b.n + ZERO_PIECE - 1) / ZERO_PIECE, 4, zero_pieces, &b);
}

void tfd__fill_view(const tfd__view *v, double value) {
  uint64_t element = 0;
  tfd__view from = *v;
  int i;

  if (v->numel == 0) return;
  tfd__store(&element, v->dtype, value);
  if (element == 0 && v->dense) {
    tfd__zero(v);
    return;
  }
  from.data = &element;
  for (i = 0; i < v->rank; i++) from.strides[i] = 0;
  tfd__copy_view(v, &from);
}
