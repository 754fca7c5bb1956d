#ifndef TFD_SPEC_PLANTED_H
#define TFD_SPEC_PLANTED_H
/* What the kernels with planted bugs take: with `right`, the bug is not there.
 */

enum { PLANTED_N = 512 };

typedef struct planted_args {
  const float *in; /* PLANTED_N */
  float *out;      /* PLANTED_N */
  int right;
} planted_args;

#endif
