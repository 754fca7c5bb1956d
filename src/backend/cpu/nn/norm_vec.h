/* Template: define NORM_T and NORM_ID(name). Vectors for sums: the compiler may
** not reorder additions by itself. A line has as many lanes whatever vectors it
** is made of, so that sums have the same bits everywhere. */

enum {
  NORM_ID(width) = 64 / (int)sizeof(NORM_T),
  NORM_ID(lanes) = TFD_VECTOR_BYTES / (int)sizeof(NORM_T),
  NORM_ID(parts) = 64 / TFD_VECTOR_BYTES
};

typedef NORM_T NORM_ID(vec) __attribute__((vector_size(TFD_VECTOR_BYTES)));
typedef NORM_T NORM_ID(loose)
    __attribute__((vector_size(TFD_VECTOR_BYTES), aligned(4), may_alias));

typedef struct NORM_ID(line) {
  NORM_ID(vec) part[NORM_ID(parts)];
} NORM_ID(line);

/* Part `i` of the line at x. */
#define NORM_PART(x, i) \
  (*(const NORM_ID(loose) *)((x) + (i) * (int64_t)NORM_ID(lanes)))

static inline __attribute__((always_inline)) double
NORM_ID(total)(const NORM_ID(line) * v) {
  double sum = 0;

  _Pragma("GCC unroll 4") for (int p = 0; p < NORM_ID(parts); p++) {
    for (int i = 0; i < NORM_ID(lanes); i++) sum += (double)v->part[p][i];
  }
  return sum;
}
