#ifndef TFD_TYPES_TYPES_H
#define TFD_TYPES_TYPES_H
/* L1 types: dtypes, shapes and strided views: plain data, no ownership.
** May include base. Everything counts from 0. Strides are in elements and may
** be 0 (broadcast) or negative (reversed). Specs: spec/c/types. */

#include "base/status.h"

#define TFD_MAX_RANK 8

/* Where a tensor's elements lie. `data` points at element [0,...,0]. */
typedef struct tfd__view {
  void *data;
  int64_t numel; /* product of dims, cached; 1 for a scalar */
  uint8_t dtype; /* tfd_dtype */
  uint8_t rank;  /* 0..8 */
  bool dense;    /* strides are exactly row-major without gaps */
  int64_t dims[TFD_MAX_RANK];
  int64_t strides[TFD_MAX_RANK];
} tfd__view;

typedef struct tfd__dtype_info {
  const char *name; /* "float32" */
  uint8_t size;     /* bytes of one element */
  bool is_float;    /* float16, bfloat16, float32, float64 */
  bool is_int;      /* signed and unsigned integers, not bool */
  bool is_signed;
} tfd__dtype_info;

/* NULL for a number that is no dtype. */
const tfd__dtype_info *tfd__dtype_info_of(int dtype);
static inline bool tfd__dtype_ok(int dtype) {
  return dtype > 0 && dtype < TFD_DTYPE_END;
}
const char *tfd__dtype_name(int dtype); /* "?" when unknown */
size_t tfd__dtype_size(int dtype);
bool tfd__is_float(int dtype);
bool tfd__is_int(int dtype);

/* Set rank, dims, numel and row-major strides (dense = true); data is kept.
** Errors: InvalidArgument for rank > 8, a negative size, or a product or byte
** count over INT64_MAX. */
int tfd__view_set(tfd__view *v, int dtype, const int64_t *dims, int rank);
/* The same for shapes known in part: sizes may be -1, unknown, and numel is -1
** if one is. Strides mean nothing then. */
int tfd__view_set_partial(tfd__view *v, int dtype, const int64_t *dims,
                          int rank);
/* Recompute numel and dense from dims and strides. A view that is dense gets
** exact row-major strides, also along axes of size 1 or of no elements. */
void tfd__view_refresh(tfd__view *v);
size_t tfd__view_bytes(const tfd__view *v); /* numel * element size */
/* *to = *from; a view of few axes in half the instructions and cache lines. */
static inline void tfd__view_copy(tfd__view *to, const tfd__view *from) {
  enum { FEW = TFD_MAX_RANK / 2 };

  if (__builtin_expect(from->rank > FEW, 0)) {
    *to = *from;
    return;
  }
  __builtin_memcpy(to, from, offsetof(tfd__view, dims));
  __builtin_memcpy(to->dims, from->dims, FEW * sizeof to->dims[0]);
  __builtin_memcpy(to->strides, from->strides, FEW * sizeof to->strides[0]);
}
bool tfd__same_shape(const tfd__view *a, const tfd__view *b);

/* Sizes that may be unknown (-1): can they be equal, and what they are if they
** are. */
static inline bool tfd__sizes_agree(int64_t a, int64_t b) {
  return a == b || a < 0 || b < 0;
}
static inline int64_t tfd__size_merged(int64_t a, int64_t b) {
  return a < 0 ? b : a;
}
/* Of n sizes, and of whole shapes (ranks are always known). */
bool tfd__dims_agree(const int64_t *a, const int64_t *b, int n);
bool tfd__shapes_agree(const tfd__view *a, const tfd__view *b);

/* "{64, 784}" into buf; returns buf. */
#define TFD_SHAPE_TEXT 192
const char *tfd__shape_text(const tfd__view *v, char buf[TFD_SHAPE_TEXT]);
const char *tfd__dims_text(const int64_t *dims, int rank,
                           char buf[TFD_SHAPE_TEXT]);

/* Broadcast shape of a and b (NumPy's rule) into dims and rank. An unknown size
** beside one above 1 is that one or an error later; beside 1 or an unknown one
** it stays unknown.
** Errors: InvalidArgument "<op>: shapes {..} and {..} do not broadcast". */
int tfd__broadcast(const char *op, const tfd__view *a, const tfd__view *b,
                   int64_t dims[TFD_MAX_RANK], int *rank_p);
/* `v` seen with the (already checked) broadcast shape: stride 0 where a size
** of 1 is repeated. `dense` becomes false unless nothing changed. */
tfd__view tfd__broadcast_view(const tfd__view *v, const int64_t *dims,
                              int rank);

/* Normalise an axis that may be negative. Errors: ValueError "<op>: axis 2 is
** outside a tensor of rank 2 {64, 10}; axes count from 0, -1 is the last". */
int tfd__axis(const char *op, const tfd__view *v, int64_t axis, int *axis_p);

/* Drop size-1 axes and merge neighbours that are contiguous in all `n` views
** (same dims in all); returns the new rank, dims and per-view strides. The
** order of elements is kept. Kernels call it to get long inner loops. The new
** rank is at least 1: a scalar gives {1}, no elements give {0}. */
int tfd__coalesce(const tfd__view *const *views, int n,
                  int64_t dims[TFD_MAX_RANK], int64_t strides[][TFD_MAX_RANK]);
/* The same for n inputs that are broadcast to `out`, whose own strides come
** last: for what runs at each call, since it makes no views. */
int tfd__coalesce_over(const tfd__view *out, const tfd__view *const *in, int n,
                       int64_t dims[TFD_MAX_RANK],
                       int64_t strides[][TFD_MAX_RANK]);

/* IEEE half and bfloat16, round to nearest even, NaN and infinities kept
** (a NaN becomes quiet). Free of branches and inline, so that loops over
** them vectorise on any instruction set. */
static inline float tfd__bits_to_float(uint32_t u) {
  union {
    uint32_t u;
    float f;
  } x = {u};
  return x.f;
}
static inline uint32_t tfd__float_to_bits(float f) {
  union {
    float f;
    uint32_t u;
  } x = {f};
  return x.u;
}
static inline float tfd__half_to_float(uint16_t h) {
  uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
  uint32_t exponent = bits & 0x0f800000;
  uint32_t normal = bits + (112u << 23);
  /* A subnormal's bits are an integer multiple of 2^-24. */
  float small =
      tfd__bits_to_float(bits + (113u << 23)) - tfd__bits_to_float(113u << 23);
  uint32_t u = exponent == 0 ? tfd__float_to_bits(small) : normal;

  u = exponent == 0x0f800000 ? normal + (112u << 23) : u;
  return tfd__bits_to_float(u | (uint32_t)(h & 0x8000) << 16);
}
static inline uint16_t tfd__float_to_half(float f) {
  uint32_t u = tfd__float_to_bits(f);
  uint32_t sign = u & 0x80000000;
  uint32_t size = u ^ sign;
  /* Adding 0.5 leaves exactly a subnormal half's bits at the end of the
  ** mantissa, rounded by the addition. */
  uint32_t small =
      tfd__float_to_bits(tfd__bits_to_float(size) + 0.5f) - 0x3f000000;
  uint32_t normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
  uint32_t large = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x1ff) : 0x7c00;
  uint32_t h = size < (113u << 23) ? small : normal;

  h = size >= (143u << 23) ? large : h;
  return (uint16_t)(h | sign >> 16);
}
static inline float tfd__bf16_to_float(uint16_t h) {
  return tfd__bits_to_float((uint32_t)h << 16);
}
static inline uint16_t tfd__float_to_bf16(float f) {
  uint32_t u = tfd__float_to_bits(f);
  uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  bool is_nan = (u & 0x7fffffff) > 0x7f800000;

  return (uint16_t)(is_nan ? u >> 16 | 0x40 : rounded);
}

/* One element to and from double (bool as 0 or 1; integers truncate towards 0
** and saturate, NaN to an integer is 0; floats round to nearest even once).
** No checks: `data` must hold an element of `dtype`. */
double tfd__load(const void *data, int dtype);
void tfd__store(void *data, int dtype, double value);

#endif
