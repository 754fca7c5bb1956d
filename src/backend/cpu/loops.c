#include "backend/cpu/loops.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define TFD_F16C
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#endif

/* Inner runs shorter than this are gathered into chunks first: a call for
** each run would cost more than the copy. */
#define SHORT_RUN 32

typedef struct loop {
  tfd__row row;
  void *ctx;
  int in_n;
  bool expand;
  int rank;
  int64_t dims[TFD_MAX_RANK];
  int64_t strides[TFD_ROW_INS + 1][TFD_MAX_RANK];
  const char *in[TFD_ROW_INS];
  char *out;
  size_t size[TFD_ROW_INS + 1];
  uint8_t dtype[TFD_ROW_INS + 1];
} loop;

/* One thread's workspace for a chunk. */
typedef struct chunk {
  _Alignas(64) float floats[TFD_ROW_INS + 1][TFD_CHUNK];
  _Alignas(64) char raw[TFD_ROW_INS][TFD_CHUNK * 8];
} chunk;

/* --- half types ----------------------------------------------------------- */

typedef union bits32 {
  uint32_t u;
  float f;
} bits32;

/* Branch-free so that loops vectorise; exact. */
static inline float half_to_float(uint16_t h) {
  const bits32 magic = {113u << 23};
  uint32_t u = (uint32_t)(h & 0x7fff) << 13;
  uint32_t exponent = u & (0x7c00u << 13);
  uint32_t normal = u + (112u << 23);
  bits32 x = {exponent == (0x7c00u << 13) ? normal + (112u << 23) : normal};
  bits32 small = {normal + (1u << 23)};

  small.f -= magic.f;
  if (exponent == 0) x.u = small.u;
  if (x.u > 0x7f800000u) x.u |= 0x400000u;
  x.u |= (uint32_t)(h & 0x8000) << 16;
  return x.f;
}

/* Round to nearest even; overflow gives infinity, NaN a quiet NaN. */
static inline uint16_t float_to_half(float f) {
  const bits32 magic = {126u << 23};
  bits32 x = {.f = f};
  uint32_t sign = x.u & 0x80000000u;
  uint32_t a = x.u ^ sign;
  bits32 small = {a};
  uint32_t nan = 0x7e00u | ((a >> 13) & 0x3ffu);
  uint32_t big = a > 0x7f800000u ? nan : 0x7c00u;
  uint32_t normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
  uint32_t r = normal;

  small.f += magic.f;
  if (a < (113u << 23)) r = small.u - magic.u;
  if (a >= (143u << 23)) r = big;
  return (uint16_t)(r | (sign >> 16));
}

static inline uint16_t float_to_bf16(float f) {
  bits32 x = {.f = f};
  uint32_t rounded = (x.u + 0x7fffu + ((x.u >> 16) & 1u)) >> 16;

  return (uint16_t)((x.u & 0x7fffffffu) > 0x7f800000u ? (x.u >> 16) | 0x40u
                                                      : rounded);
}

TFD_CLONES static void f16_to_f32(float *to, const uint16_t *from, int64_t n) {
  TFD_IVDEP
  for (int64_t i = 0; i < n; i++) to[i] = half_to_float(from[i]);
}

TFD_CLONES static void bf16_to_f32(float *to, const uint16_t *from, int64_t n) {
  TFD_IVDEP
  for (int64_t i = 0; i < n; i++) {
    bits32 x = {(uint32_t)from[i] << 16};
    to[i] = x.f;
  }
}

TFD_CLONES static void f32_to_f16(uint16_t *to, const float *from, int64_t n) {
  TFD_IVDEP
  for (int64_t i = 0; i < n; i++) to[i] = float_to_half(from[i]);
}

TFD_CLONES static void f32_to_bf16(uint16_t *to, const float *from, int64_t n) {
  TFD_IVDEP
  for (int64_t i = 0; i < n; i++) to[i] = float_to_bf16(from[i]);
}

#if defined(TFD_F16C)
/* The processor's own conversions, 8 at a time: the same results. */
__attribute__((target("avx,f16c"))) static int64_t
f16c_to_f32(float *to, const uint16_t *from, int64_t n) {
  int64_t i = 0;

  for (; i + 8 <= n; i += 8) {
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(from + i));

    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(h));
  }
  return i;
}

__attribute__((target("avx,f16c"))) static int64_t
f32_to_f16c(uint16_t *to, const float *from, int64_t n) {
  int64_t i = 0;

  for (; i + 8 <= n; i += 8) {
    __m256 f = _mm256_loadu_ps(from + i);

    _mm_storeu_si128((__m128i *)(void *)(to + i), _mm256_cvtps_ph(f, 0));
  }
  return i;
}

/* Not every compiler's __builtin_cpu_supports knows "f16c". The instruction
** that tells is slow, in a virtual machine most of all: it is asked once. */
static bool has_f16c(void) {
  static atomic_int known = 0; /* 1 = no, 2 = yes */
  int answer = atomic_load_explicit(&known, memory_order_relaxed);
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;

  if (TFD_LIKELY(answer != 0)) return answer == 2;
  answer = __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) &&
                   (c & bit_F16C) != 0
               ? 2
               : 1;
  atomic_store_explicit(&known, answer, memory_order_relaxed);
  return answer == 2;
}
#else
static bool has_f16c(void) {
  return false;
}
static int64_t f16c_to_f32(float *to, const uint16_t *from, int64_t n) {
  (void)to;
  (void)from;
  (void)n;
  return 0;
}
static int64_t f32_to_f16c(uint16_t *to, const float *from, int64_t n) {
  (void)to;
  (void)from;
  (void)n;
  return 0;
}
#endif

void tfd__halves_to_floats(int dtype, float *to, const uint16_t *from,
                           int64_t n) {
  int64_t done = 0;

  if (dtype == TFD_FLOAT16) {
    if (has_f16c()) done = f16c_to_f32(to, from, n);
    f16_to_f32(to + done, from + done, n - done);
  } else {
    bf16_to_f32(to, from, n);
  }
}

void tfd__floats_to_halves(int dtype, uint16_t *to, const float *from,
                           int64_t n) {
  int64_t done = 0;

  if (dtype == TFD_FLOAT16) {
    if (has_f16c()) done = f32_to_f16c(to, from, n);
    f32_to_f16(to + done, from + done, n - done);
  } else {
    f32_to_bf16(to, from, n);
  }
}

/* --- gathering ------------------------------------------------------------ */

#define GATHER(type)                                      \
  {                                                       \
    type *t = to;                                         \
    const type *f = from;                                 \
    for (int64_t i = 0; i < n; i++) t[i] = f[i * stride]; \
    return;                                               \
  }

void tfd__gather_row(void *to, const void *from, int64_t stride, int64_t n,
                     size_t size) {
  if (stride == 1) {
    memcpy(to, from, (size_t)n * size);
    return;
  }
  switch (size) {
  case 1:
    GATHER(uint8_t)
  case 2:
    GATHER(uint16_t)
  case 4:
    GATHER(uint32_t)
  default:
    GATHER(uint64_t)
  }
}

/* Where a walk over a strided array stands: index and offset, in elements. */
typedef struct walk {
  int64_t at[TFD_MAX_RANK];
  int64_t offset;
} walk;

/* Go on by `run` elements, which reach at most the end of the last axis. */
static inline void walk_on(walk *w, int64_t run, int rank, const int64_t *dims,
                           const int64_t *strides) {
  int d = rank - 1;

  w->at[d] += run;
  w->offset += run * strides[d];
  while (w->at[d] == dims[d] && d > 0) {
    w->offset += strides[d - 1] - dims[d] * strides[d];
    w->at[d] = 0;
    w->at[--d]++;
  }
}

#define SPAN(type)                                            \
  {                                                           \
    type *t = to;                                             \
    while (n > 0) {                                           \
      int64_t left = dims[last] - w.at[last];                 \
      int64_t run = left < n ? left : n;                      \
      const type *f = (const type *)from + w.offset;          \
      for (int64_t i = 0; i < run; i++) t[i] = f[i * stride]; \
      t += run;                                               \
      n -= run;                                               \
      walk_on(&w, run, rank, dims, strides);                  \
    }                                                         \
    return;                                                   \
  }

void tfd__gather_span(void *to, const void *from, size_t size, int rank,
                      const int64_t *dims, const int64_t *strides,
                      int64_t first, int64_t n) {
  int last = rank - 1;
  int64_t stride = strides[last];
  walk w = {.offset = 0};

  for (int d = last; d >= 0; d--) {
    w.at[d] = first % dims[d];
    first /= dims[d];
    w.offset += w.at[d] * strides[d];
  }
  switch (size) {
  case 1:
    SPAN(uint8_t)
  case 2:
    SPAN(uint16_t)
  case 4:
    SPAN(uint32_t)
  default:
    SPAN(uint64_t)
  }
}

void tfd__run_blocks(void (*blocks)(float *, const float *, int64_t),
                     float *out, const float *a, bool scalar, int64_t n) {
  int64_t whole = scalar ? 0 : n / TFD_BLOCK * TFD_BLOCK;
  size_t rest = scalar ? 1 : (size_t)(n - whole);
  float x[TFD_BLOCK] = {0};
  float y[TFD_BLOCK];

  if (whole > 0) blocks(out, a, whole);
  if (rest == 0) return;
  memcpy(x, a + whole, rest * sizeof *x);
  blocks(y, x, TFD_BLOCK);
  if (scalar) {
    for (int64_t i = 0; i < n; i++) out[i] = y[0];
  } else {
    memcpy(out + whole, y, rest * sizeof *y);
  }
}

/* --- the engine ----------------------------------------------------------- */

/* Make `p` (raw elements of input k, `count` of them) ready for the row. */
static const void *as_compute(const loop *l, int k, const void *p,
                              int64_t count, chunk *c) {
  if (!tfd__is_half(l->dtype[k])) return p;
  tfd__halves_to_floats(l->dtype[k], c->floats[k], p, count);
  return c->floats[k];
}

static const void *expanded(const loop *l, int k, const void *p, int64_t n,
                            chunk *c) {
  size_t size = tfd__is_half(l->dtype[k]) ? sizeof(float) : l->size[k];
  uint64_t one[1] = {0};

  memcpy(one, p, size);
  tfd__gather_row(c->raw[k], one, 0, n, size);
  return c->raw[k];
}

/* Call the row for n elements that end at output element `at`. */
static void run_row(const loop *l, const void *const *in, int scalar,
                    int64_t at, int64_t n, chunk *c) {
  int o = l->in_n;
  char *out = l->out + at * (int64_t)l->size[o];

  if (!tfd__is_half(l->dtype[o])) {
    l->row(out, in, scalar, n, l->ctx);
    return;
  }
  l->row(c->floats[TFD_ROW_INS], in, scalar, n, l->ctx);
  tfd__floats_to_halves(l->dtype[o], (uint16_t *)(void *)out,
                        c->floats[TFD_ROW_INS], n);
}

/* n elements of one run: input k starts at `from[k]` with inner stride s. */
static void run_piece(const loop *l, const char *const *from,
                      const int64_t *inner, int64_t at, int64_t n, chunk *c) {
  bool buffered = tfd__is_half(l->dtype[l->in_n]);
  const void *in[TFD_ROW_INS];
  int scalar = 0;

  for (int k = 0; k < l->in_n; k++) {
    if (inner[k] == 0) {
      scalar |= 1 << k;
      in[k] = as_compute(l, k, from[k], 1, c);
      if (!l->expand) continue;
      in[k] = expanded(l, k, in[k], n < TFD_CHUNK ? n : TFD_CHUNK, c);
      buffered = true;
    } else if (inner[k] != 1 || tfd__is_half(l->dtype[k])) {
      buffered = true;
    }
  }
  for (int64_t i = 0; i < n;) {
    int64_t m = buffered && n - i > TFD_CHUNK ? TFD_CHUNK : n - i;

    for (int k = 0; k < l->in_n; k++) {
      const char *p = from[k] + i * inner[k] * (int64_t)l->size[k];

      if (inner[k] == 0) continue;
      if (inner[k] != 1) {
        tfd__gather_row(c->raw[k], p, inner[k], m, l->size[k]);
        p = c->raw[k];
      }
      in[k] = as_compute(l, k, p, m, c);
    }
    run_row(l, in, l->expand ? 0 : scalar, at + i, m, c);
    i += m;
  }
}

/* The commonest case: every input is one run or one element and no element
** needs converting, so the row takes it all at once. */
static void range_plain(void *arg, int64_t begin, int64_t end) {
  const loop *l = arg;
  const void *in[TFD_ROW_INS];
  int scalar = 0;

  for (int k = 0; k < l->in_n; k++) {
    int64_t inner = l->strides[k][0];

    if (inner == 0) scalar |= 1 << k;
    in[k] = l->in[k] + begin * inner * (int64_t)l->size[k];
  }
  l->row(l->out + begin * (int64_t)l->size[l->in_n], in, scalar, end - begin,
         l->ctx);
}

static void range_linear(void *arg, int64_t begin, int64_t end) {
  const loop *l = arg;
  const char *from[TFD_ROW_INS] = {NULL};
  int64_t inner[TFD_ROW_INS] = {0};
  chunk c;

  for (int k = 0; k < l->in_n; k++) {
    inner[k] = l->strides[k][0];
    from[k] = l->in[k] + begin * inner[k] * (int64_t)l->size[k];
  }
  run_piece(l, from, inner, begin, end - begin, &c);
}

/* Long inner runs, taken one after the other. */
static void range_runs(void *arg, int64_t begin, int64_t end) {
  const loop *l = arg;
  int last = l->rank - 1;
  int64_t inner[TFD_ROW_INS] = {0};
  chunk c;

  for (int k = 0; k < l->in_n; k++) inner[k] = l->strides[k][last];
  for (int64_t i = begin; i < end;) {
    const char *from[TFD_ROW_INS] = {NULL};
    int64_t column = i % l->dims[last];
    int64_t left = l->dims[last] - column;
    int64_t n = left < end - i ? left : end - i;

    for (int k = 0; k < l->in_n; k++) {
      int64_t offset = column * inner[k];
      int64_t row = i / l->dims[last];

      for (int d = last - 1; d >= 0 && row > 0; d--) {
        offset += row % l->dims[d] * l->strides[k][d];
        row /= l->dims[d];
      }
      from[k] = l->in[k] + offset * (int64_t)l->size[k];
    }
    run_piece(l, from, inner, i, n, &c);
    i += n;
  }
}

/* How input k lies in memory. */
enum { ONE, LIKE_OUTPUT, PERIODIC, ANY };
static int layout_of(const loop *l, int k) {
  bool same = true;
  bool outer_zero = true;

  for (int d = 0; d < l->rank; d++) {
    if (l->strides[k][d] != l->strides[l->in_n][d]) same = false;
    if (d < l->rank - 1 && l->strides[k][d] != 0) outer_zero = false;
  }
  if (same) return LIKE_OUTPUT;
  if (!outer_zero) return ANY;
  return l->strides[k][l->rank - 1] == 0 ? ONE : PERIODIC;
}

/* Input k's elements for outputs i .. i+n-1, in the compute type. */
static const void *fetch(const loop *l, int k, int layout, int64_t i, int64_t n,
                         chunk *c) {
  const char *p = l->in[k];

  if (layout == ONE) {
    const void *one = as_compute(l, k, p, 1, c);

    return l->expand ? expanded(l, k, one, n, c) : one;
  }
  if (layout == LIKE_OUTPUT) {
    return as_compute(l, k, p + i * (int64_t)l->size[k], n, c);
  }
  tfd__gather_span(c->raw[k], p, l->size[k], l->rank, l->dims, l->strides[k], i,
                   n);
  return as_compute(l, k, c->raw[k], n, c);
}

/* Short inner runs: gather whole chunks, then compute. Chunks hold whole runs,
** so inputs that repeat with each run or never change are fetched once. */
static void range_short(void *arg, int64_t begin, int64_t end) {
  const loop *l = arg;
  int64_t run = l->dims[l->rank - 1];
  int64_t step = TFD_CHUNK / run * run;
  const void *in[TFD_ROW_INS] = {NULL};
  int layout[TFD_ROW_INS] = {0};
  int scalar = 0;
  chunk c;

  for (int k = 0; k < l->in_n; k++) {
    layout[k] = layout_of(l, k);
    if (layout[k] == ONE && !l->expand) scalar |= 1 << k;
  }
  for (int64_t i = begin; i < end; i += step) {
    int64_t n = end - i < step ? end - i : step;

    for (int k = 0; k < l->in_n; k++) {
      bool kept = layout[k] == ONE || layout[k] == PERIODIC;

      if (i == begin || !kept) in[k] = fetch(l, k, layout[k], i, n, &c);
    }
    run_row(l, in, scalar, i, n, &c);
  }
}

/* True, with inner strides set, when each input is dense in the output's
** shape or a single element: the common case needs no coalescing. */
static bool simple_layout(loop *l, const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);

  for (int k = 0; k < l->in_n; k++) {
    const tfd__view *v = tfd__in(call, k);

    if (v->numel == 1) {
      l->strides[k][0] = 0;
    } else if (v->dense && v->numel == out->numel) {
      l->strides[k][0] = 1; /* broadcasting cannot keep numel and reorder */
    } else {
      return false;
    }
  }
  return true;
}

static void general_layout(loop *l, const tfd__call *call) {
  const tfd__view *list[TFD_ROW_INS];

  for (int k = 0; k < l->in_n; k++) list[k] = tfd__in(call, k);
  l->rank =
      tfd__coalesce_over(tfd__out(call, 0), list, l->in_n, l->dims, l->strides);
}

static void set_operand(loop *l, int k, const tfd__view *v, bool raw) {
  bool opaque = raw && tfd__is_half(v->dtype);

  l->dtype[k] = opaque ? (uint8_t)TFD_INT16 : v->dtype;
  l->size[k] = tfd__dtype_size(v->dtype);
}

static int run_loop(const tfd__call *call, loop *l, bool raw) {
  const tfd__view *out = tfd__out(call, 0);
  void (*range)(void *, int64_t, int64_t) = range_linear;
  bool halves = false;

  if (l->row == NULL) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "%s: no kernel for dtype %s",
                     call->name, tfd__dtype_name(tfd__in(call, 0)->dtype));
  }
  if (out->numel == 0) return TFD_OK;
  for (int k = 0; k < l->in_n; k++) {
    l->in[k] = tfd__in(call, k)->data;
    set_operand(l, k, tfd__in(call, k), raw);
    halves |= tfd__is_half(l->dtype[k]);
  }
  l->out = out->data;
  set_operand(l, l->in_n, out, raw);
  halves |= tfd__is_half(l->dtype[l->in_n]);
  if (simple_layout(l, call)) {
    if (!halves && !l->expand) range = range_plain;
  } else {
    general_layout(l, call);
    if (l->rank > 1) {
      range = l->dims[l->rank - 1] < SHORT_RUN ? range_short : range_runs;
    }
  }
  tfd__parallel_for(out->numel, TFD_GRAIN, range, l);
  return TFD_OK;
}

int tfd__elementwise(const tfd__call *call, tfd__row row, bool expand,
                     void *ctx) {
  loop l; /* filled as needed: clearing it all would cost more than it does */

  l.row = row;
  l.ctx = ctx;
  l.in_n = call->in_n;
  l.expand = expand;
  return run_loop(call, &l, false);
}

int tfd__elementwise_raw(const tfd__call *call, tfd__row row) {
  loop l;

  l.row = row;
  l.ctx = NULL;
  l.in_n = call->in_n;
  l.expand = false;
  return run_loop(call, &l, true);
}
