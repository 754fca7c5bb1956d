/* Kernels that lay views next to each other: see backend/lay.h. */
#include "backend/cpu/array.h"

#include <string.h>

/* --- joining -------------------------------------------------------------- */

/* A view as rows of `run` adjacent elements, `stride` apart. */
typedef struct runs {
  const char *data;
  int64_t run;    /* bytes */
  int64_t stride; /* bytes */
} runs;

/* False when v's axes from `axis` on are not adjacent, or those before it do
** not lie evenly. */
static bool as_runs(const tfd__view *v, int axis, runs *r) {
  int64_t size = (int64_t)tfd__dtype_size(v->dtype);
  int64_t expect = 1;
  int i;

  for (i = v->rank - 1; i >= axis; i--) {
    if (v->dims[i] != 1 && v->strides[i] != expect) return false;
    expect *= v->dims[i];
  }
  r->data = v->data;
  r->run = expect * size;
  r->stride = 0;
  for (i = axis - 1; i >= 0; i--) {
    if (v->dims[i] == 1) continue;
    if (v->strides[i] == 0) return false;
    if (r->stride == 0) {
      r->stride = v->strides[i] * size;
      expect = v->strides[i] * v->dims[i];
    } else if (v->strides[i] != expect) {
      return false;
    } else {
      expect *= v->dims[i];
    }
  }
  return true;
}

typedef struct rows {
  const runs *parts;
  char *out;
  int64_t bytes; /* of one row of the output */
  int parts_n;
} rows;

static void join_rows(void *arg, int64_t begin, int64_t end) {
  const rows *w = arg;
  char *to = w->out + begin * w->bytes;
  int64_t i;
  int k;

  for (i = begin; i < end; i++) {
    for (k = 0; k < w->parts_n; k++) {
      const runs *r = &w->parts[k];

      memcpy(to, r->data + i * r->stride, (size_t)r->run);
      to += r->run;
    }
  }
}

/* Row by row, so that the output is written from front to back: an input at
** a time would walk through memory once for each. False when an input does
** not consist of runs, or when there is one row or runs are too short for
** memcpy. */
static bool join_by_rows(const tfd__call *call, int axis) {
  const tfd__view *out = tfd__out(call, 0);
  int64_t n = tfd__span(out, 0, axis);
  rows w = {NULL, out->data, 0, call->in_n};
  runs *parts = NULL;
  int i;

  w.bytes = (int64_t)tfd__view_bytes(out) / n;
  if (n < 2 || w.bytes < 32 * call->in_n) return false;
  parts = tfd__scratch((size_t)call->in_n * sizeof *parts);
  if (parts == NULL) return false;
  for (i = 0; i < call->in_n; i++) {
    if (!as_runs(tfd__in(call, i), axis, &parts[i])) return false;
  }
  w.parts = parts;
  tfd__parallel_for(n, tfd__grain(w.bytes / 4), join_rows, &w);
  return true;
}

static int copy(const tfd__call *call, const tfd__view *to,
                const tfd__view *from) {
  (void)call;
  tfd__copy_view(to, from);
  return TFD_OK;
}

static int join(const tfd__call *call, bool stacked) {
  const tfd__view *out = tfd__out(call, 0);
  int axis = (int)call->ints[0];

  if (axis < 0) axis += out->rank;
  if (out->numel == 0 || join_by_rows(call, axis)) return TFD_OK;
  return tfd__lay_join(call, axis, stacked, copy);
}

int tfd__cpu_concat(const tfd__call *call) {
  return join(call, false);
}

int tfd__cpu_stack(const tfd__call *call) {
  return join(call, true);
}

/* --- what is copies ------------------------------------------------------- */

int tfd__cpu_tile(const tfd__call *call) {
  return tfd__lay_tile(call, copy);
}

int tfd__cpu_repeat(const tfd__call *call) {
  return tfd__lay_repeat(call, copy);
}

int tfd__cpu_pad(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  int64_t mode = call->ints[TFD_ARRAY_LISTS(2)];

  if (mode == 0 && out->numel != tfd__in(call, 0)->numel) {
    tfd__fill_view(out, call->reals[0]);
  }
  return tfd__lay_pad(call, copy);
}

int tfd__cpu_strided_slice_grad(const tfd__call *call) {
  tfd__zero(tfd__out(call, 0));
  return tfd__lay_strided_slice_grad(call, copy);
}

int tfd__cpu_roll(const tfd__call *call) {
  return tfd__lay_roll(call, copy);
}
