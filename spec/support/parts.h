#ifndef TFD_SPEC_PARTS_H
#define TFD_SPEC_PARTS_H
/* An op whole and in parts of rows (backend/rows.h) gives the same. */
#include "backend/rows.h"
#include "ops/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS_INPUTS = 16, PARTS_OUTPUTS = 8 };

/* The largest of n finite floats. */
static double parts_largest(const char *x, int64_t n, size_t size, int dtype) {
  double largest = 0;
  int64_t i;

  for (i = 0; i < n; i++) {
    double u = fabs(tfd__load(x + (size_t)i * size, dtype));

    if (u > largest && u < INFINITY) largest = u;
  }
  return largest;
}

/* What differs between two tensors of one shape; NULL = nothing that matters.
** Not exact: the last bits do not, which are those of the terms: they may cancel
** in one element, and are as large as elsewhere there. */
static const char *parts_differ(tfd_tensor *a, tfd_tensor *b, bool exact) {
  size_t bytes = tfd__view_bytes(&a->view);
  size_t size = tfd__dtype_size(a->view.dtype);
  double near = size == 8 ? 1e-12 : size == 4 ? 1e-5 : 3e-2;
  char *x = malloc(bytes + 1);
  char *y = malloc(bytes + 1);
  const char *what = NULL;
  int64_t i;

  if (tfd_tensor_read(a, x, bytes) != TFD_OK ||
      tfd_tensor_read(b, y, bytes) != TFD_OK) {
    what = "cannot be read";
  } else if (exact || !tfd__is_float(a->view.dtype)) {
    if (memcmp(x, y, bytes) != 0) what = "other bits";
  } else {
    double largest = parts_largest(x, a->view.numel, size, a->view.dtype);

    for (i = 0; i < a->view.numel && what == NULL; i++) {
      double u = tfd__load(x + (size_t)i * size, a->view.dtype);
      double v = tfd__load(y + (size_t)i * size, a->view.dtype);

      if (u == v || (u != u && v != v)) continue;
      if (!(fabs(u - v) <= near * (1 + largest))) what = "other values";
    }
  }
  free(x);
  free(y);
  return what;
}

/* Rows [0, n) in parts as long as `draw` says. */
static int parts_run(tfd_device *device, tfd__kernel_id kernel,
                     const tfd__call *call, uint64_t (*draw)(void)) {
  int64_t rows = tfd__out(call, 0)->dims[0];
  int64_t begin = 0;

  while (begin < rows) {
    int64_t end = begin + 1 + (int64_t)(draw() % (uint64_t)(rows - begin));
    tfd__view views[PARTS_INPUTS + PARTS_OUTPUTS];
    tfd__call part = *call;

    tfd__rows_cut(kernel, call, begin, end, views);
    part.views = views;
    TFD_TRY(tfd__stream_submit(device, &part));
    begin = end;
  }
  return TFD_OK;
}

/* `whole` are the op's results for the inputs `in`, which are as its kernel
** takes them. kind_p: how the call has parts. NULL = the parts agree. */
static const char *parts_check(const tfd__op *op, tfd_device *device,
                               tfd_tensor *const *in, int in_n,
                               tfd_tensor *const *whole, int out_n,
                               const int64_t *ints, const double *reals,
                               uint64_t (*draw)(void), tfd__rows_kind *kind_p) {
  tfd__view views[PARTS_INPUTS + PARTS_OUTPUTS];
  tfd_tensor *made[PARTS_OUTPUTS] = {NULL};
  tfd__call call = {.name = op->name,
                    .kernel = device->backend->kernels[op->kernel],
                    .views = views,
                    .ints = ints,
                    .reals = reals,
                    .in_n = (int16_t)in_n,
                    .out_n = (int16_t)out_n,
                    .ints_n = (int16_t)op->ints_n,
                    .reals_n = (int16_t)op->reals_n,
                    .replica = -1};
  const char *what = NULL;
  int i;

  memset(views, 0, sizeof views);
  for (i = 0; i < in_n; i++) {
    if (in[i] != NULL) views[i] = in[i]->view;
  }
  for (i = 0; i < out_n; i++) views[in_n + i] = whole[i]->view;
  *kind_p = tfd__rows_of(op->kernel, &call);
  if (*kind_p == TFD_ROWS_NONE) return NULL;
  for (i = 0; i < out_n && what == NULL; i++) {
    const tfd__view *v = &whole[i]->view;

    if (tfd__tensor_new(device, v->dtype, v->dims, v->rank, &made[i]) !=
        TFD_OK) {
      what = tfd_error_message();
    } else {
      views[in_n + i] = made[i]->view;
    }
  }
  if (what == NULL && parts_run(device, op->kernel, &call, draw) != TFD_OK) {
    what = tfd_error_message();
  }
  for (i = 0; i < out_n; i++) {
    if (what == NULL) {
      what = parts_differ(whole[i], made[i], *kind_p == TFD_ROWS_EXACT);
    }
    tfd__release(made[i]);
  }
  return what;
}

#endif
