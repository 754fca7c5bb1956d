#ifndef SPEC_FUZZ_INPUT_H
#define SPEC_FUZZ_INPUT_H
/* Numbers out of a fuzzer's bytes. Past the end everything is 0. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

/* An invariant of the library, checked in every build. */
#define MUST(condition)                                                       \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

typedef struct input {
  const uint8_t *p;
  size_t left;
} input;

static inline uint8_t input_byte(input *in) {
  if (in->left == 0) return 0;
  in->left--;
  return *in->p++;
}

/* 0 .. n-1 */
static inline int input_below(input *in, int n) {
  return n > 0 ? input_byte(in) % n : 0;
}

/* Mostly small, now and then any 64 bits. */
static inline int64_t input_integer(input *in) {
  int8_t small = (int8_t)input_byte(in);
  uint64_t bits = 0;
  int i;

  if (small != 127) return small;
  for (i = 0; i < 8; i++) bits = bits << 8 | input_byte(in);
  return (int64_t)bits;
}

static inline double input_real(input *in) {
  static const double strange[] = {0, -0.0, 0.5, 1e-300, 1e300, -1e30};
  int64_t n = input_integer(in);
  double x = (double)n / 8;

  if (n >= 100 && n < 106) return strange[n - 100];
  if (n < -126) memcpy(&x, &n, sizeof x);
  return x;
}

/* How many choices an "e(a|b|c)" has. */
static inline int choices_of(const char *kind) {
  int n = 1;

  for (; *kind != ')' && *kind != '\0'; kind++) n += *kind == '|';
  return n;
}

static inline void input_list(input *in, bool optional, int64_t *slots) {
  int n = input_below(in, optional ? TFD_MAX_RANK + 2 : TFD_MAX_RANK + 1);
  int i;

  if (optional) n--;
  slots[0] = n;
  for (i = 0; i < n; i++) slots[1 + i] = input_integer(in);
}

/* Attribute slots as the bindings give them for this schema. */
static inline void input_slots(input *in, const char *schema, int64_t *ints,
                               double *reals) {
  const char *p = schema;

  while ((p = strchr(p, ':')) != NULL) {
    const char *kind = ++p;
    const char *end = strchr(kind, ' ');
    const char *nil = strstr(kind, "=nil");

    switch (kind[0]) {
    case 't':
    case 'n':
      break;
    case 'b':
      *ints++ = input_below(in, 2);
      break;
    case 'd':
      *ints++ = input_below(in, TFD_DTYPE_END);
      break;
    case 'e':
      *ints++ = input_below(in, choices_of(kind));
      break;
    case 'f':
      *reals++ = input_real(in);
      break;
    case 'l':
      input_list(in, nil != NULL && (end == NULL || nil < end), ints);
      ints += TFD_LIST_SLOTS;
      break;
    default:
      *ints++ = input_integer(in);
      break;
    }
  }
}

#endif
