/* Template: define NORM_T and NORM_ID(name). Vectors for sums: the compiler may
** not reorder additions by itself. */

typedef NORM_T NORM_ID(vec) __attribute__((vector_size(64)));
typedef NORM_T NORM_ID(loose)
    __attribute__((vector_size(64), aligned(4), may_alias));

enum { NORM_ID(width) = 64 / (int)sizeof(NORM_T) };

static inline __attribute__((always_inline)) double
NORM_ID(total)(const NORM_ID(vec) * v) {
  double sum = 0;

  for (int i = 0; i < NORM_ID(width); i++) sum += (double)(*v)[i];
  return sum;
}
