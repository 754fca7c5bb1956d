/* The words of ops.def for vectors of LANES floats on any processor. The
** includer defines LANES and STRIP_ISA, and may put a better word in the place
** of one of these. */
#include <math.h>
#include <string.h>

#define WORD STRIP_ISA static inline __attribute__((always_inline, unused))

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t mask __attribute__((vector_size(4 * LANES)));
typedef uint8_t bytes __attribute__((vector_size(LANES)));

WORD vec LOAD(const float *p) {
  vec v;

  memcpy(&v, p, sizeof v);
  return v;
}
WORD void STORE(float *p, vec v) {
  memcpy(p, &v, sizeof v);
}
WORD vec LOAD_K(const uint8_t *p) {
  bytes b;

  memcpy(&b, p, sizeof b);
  return (vec)(__builtin_convertvector(b, mask) != 0);
}
WORD void STORE_K(uint8_t *p, vec v) {
  bytes b = __builtin_convertvector((mask)v & 1, bytes);

  memcpy(p, &b, sizeof b);
}
WORD vec SPLAT(float x) {
  return x - (vec){0};
}
WORD vec SQRT(vec x) {
  for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
  return x;
}
WORD vec PICK(mask k, vec x, vec y) {
  return (vec)((k & (mask)x) | (~k & (mask)y));
}

#define LESS(x, y) ((x) < (y))
#define UP_TO(x, y) ((x) <= (y))
#define SAME(x, y) ((x) == (y))
#define DIFFER(x, y) ((x) != (y))
/* The second where they are equal or not ordered. */
#define MORE_OF(x, y) PICK(LESS(y, x), x, y)
#define LESS_OF(x, y) PICK(LESS(x, y), x, y)
#define KEEP(k) ((vec)(k))
#define MASK(x) ((mask)(x))
#define AND(x, y) ((vec)((mask)(x) & (mask)(y)))
#define OR(x, y) ((vec)((mask)(x) | (mask)(y)))
#define XOR(x, y) ((vec)((mask)(x) ^ (mask)(y)))
#define NOT(x) ((vec)(~(mask)(x)))
#define NEGATED(x) (-(x))
#define MAGNITUDE(x) ((vec)((mask)(x)&INT32_MAX))
#define LEAVE() ((void)0)
