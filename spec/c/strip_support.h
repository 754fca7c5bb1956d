/* Shared by the specs of fused programs: arrays, a program with the same ops
** one by one beside it, and the comparison of both. */
#ifndef SPEC_STRIP_SUPPORT_H
#define SPEC_STRIP_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/rows.h"
#include "backend/strip.h"
#include "base/memory.h"

/* --- random --------------------------------------------------------------- */

static uint64_t state;

static inline int64_t draw(int64_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (int64_t)(state >> 20) % n;
}

static const float special[] = {
    0.0f,     -0.0f,     1.0f,     -1.0f,   0.5f,         -2.5f,
    6.0f,     7.0f,      88.8f,    -104.0f, 1e-40f,       -1e-42f,
    3.4e38f,  -3.4e38f,  1.2e-38f, 3e8f,    2147483648.f, -1e-7f,
    INFINITY, -INFINITY, NAN,      3.0f,    1e-5f,        16777217.0f};
enum { SPECIAL = sizeof special / sizeof special[0] };

static inline double number(void) {
  if (draw(40) == 0) return (double)special[draw(SPECIAL)];
  return (double)draw(20001) / 2500.0 - 4.0;
}

/* --- arrays --------------------------------------------------------------- */

typedef struct array {
  tfd__view view;
  char *memory;
  size_t bytes;
} array;

/* Exactly as large as it must be, so that AddressSanitizer sees the rest. */
static inline void allot(array *a, int dtype, const int64_t *dims, int rank) {
  memset(a, 0, sizeof *a);
  assert_int_equal(TFD_OK, tfd__view_set(&a->view, dtype, dims, rank));
  a->bytes = tfd__view_bytes(&a->view);
  a->memory = malloc(a->bytes > 0 ? a->bytes : 1);
  assert_non_null(a->memory);
  a->view.data = a->memory;
}

static inline void fill(array *a) {
  size_t size = tfd__dtype_size(a->view.dtype);
  size_t i;

  for (i = 0; i < a->bytes / size; i++) {
    double x = a->view.dtype == TFD_BOOL ? (double)draw(2) : number();

    if (a->view.dtype == TFD_INT32) x = (double)draw(9) - 4.0;
    tfd__store(a->memory + i * size, a->view.dtype, x);
  }
}

/* The same shape, lying the other way round: last axis first. */
static inline void transpose(array *a) {
  tfd__view *v = &a->view;
  int64_t step = 1;
  int d;

  for (d = 0; d < v->rank; d++) {
    v->strides[d] = step;
    step *= v->dims[d];
  }
  tfd__view_refresh(v);
}

static inline void reverse(array *a) {
  tfd__view *v = &a->view;
  int last = v->rank - 1;

  if (v->rank == 0 || v->dims[last] < 2) return;
  v->data = a->memory + (v->dims[last] - 1) * v->strides[last] *
                            (int64_t)tfd__dtype_size(v->dtype);
  v->strides[last] = -v->strides[last];
  tfd__view_refresh(v);
}

/* --- cases ---------------------------------------------------------------- */

typedef struct trial {
  int rank;
  int64_t dims[TFD_MAX_RANK];
  int ops_n;
  int inputs_n;
  int outputs_n;
  tfd__strip_op ops[TFD_STRIP_OPS];
  tfd__strip_input inputs[TFD_STRIP_INPUTS];
  int16_t outputs[TFD_STRIP_OUTPUTS];
  array in[TFD_STRIP_INPUTS];
  array want[TFD_STRIP_OPS];
  uint64_t seed;
} trial;

static inline tfd__strip_text text_of(const trial *t, int bits) {
  tfd__strip_text text = {.inputs = t->inputs,
                          .ops = t->ops,
                          .outputs = t->outputs,
                          .inputs_n = t->inputs_n,
                          .ops_n = t->ops_n,
                          .outputs_n = t->outputs_n,
                          .bits = bits};
  return text;
}

/* Every op by its own kernel, at the shape of the outputs. */
static inline void run_eager(trial *t) {
  double literals[TFD_STRIP_ARGS];
  int i;
  int k;

  for (i = 0; i < t->ops_n; i++) {
    const tfd__strip_op *o = &t->ops[i];
    tfd__view views[TFD_STRIP_ARGS + 1];
    tfd__call call = {.name = "eager",
                      .views = views,
                      .in_n = o->args_n,
                      .out_n = 1,
                      .ints = o->ints,
                      .reals = o->reals,
                      .ints_n = o->ints_n,
                      .reals_n = o->reals_n};

    for (k = 0; k < o->args_n; k++) {
      const tfd__strip_arg *a = &o->args[k];

      if (a->from == TFD_STRIP_INPUT) views[k] = t->in[a->index].view;
      if (a->from == TFD_STRIP_RESULT) views[k] = t->want[a->index].view;
      if (a->from != TFD_STRIP_LITERAL) continue;
      assert_int_equal(TFD_OK, tfd__view_set(&views[k], a->dtype, NULL, 0));
      tfd__store(&literals[k], a->dtype, a->value);
      views[k].data = &literals[k];
    }
    allot(&t->want[i], o->dtype, t->dims, t->rank);
    views[k] = t->want[i].view;
    /* copy gets its shape from the layer above */
    if (o->kernel == TFD_KERNEL_copy)
      views[0] = tfd__broadcast_view(&views[0], t->dims, t->rank);
    assert_int_equal(TFD_OK, tfd__cpu_backend.kernels[o->kernel](&call));
  }
}

/* The same bits; which NaN is not said. */
static inline void compare(const trial *t, const array *got, int output,
                           const char *what) {
  const array *want = &t->want[t->outputs[output]];
  size_t size = tfd__dtype_size(want->view.dtype);
  size_t i;

  if (memcmp(want->memory, got->memory, want->bytes) == 0) return;
  for (i = 0; i < want->bytes / size; i++) {
    double x = tfd__load(want->memory + i * size, want->view.dtype);
    double y = tfd__load(got->memory + i * size, want->view.dtype);

    if (memcmp(want->memory + i * size, got->memory + i * size, size) == 0 ||
        (x != x && y != y))
      continue;
    fail_msg("%s: seed %llu, %d ops, output %d (op %d, kernel %d), element %zu "
             "is %.17g, alone %.17g",
             what, (unsigned long long)t->seed, t->ops_n, output,
             t->outputs[output], t->ops[t->outputs[output]].kernel, i, y, x);
  }
}

static inline void free_trial(trial *t) {
  int i;

  for (i = 0; i < t->inputs_n; i++) free(t->in[i].memory);
  for (i = 0; i < t->ops_n; i++) free(t->want[i].memory);
}

typedef struct attempt {
  array out[TFD_STRIP_OUTPUTS];
  tfd__view views[TFD_STRIP_INPUTS + TFD_STRIP_OUTPUTS];
} attempt;

static inline void begin(const trial *t, attempt *a) {
  int i;

  for (i = 0; i < t->inputs_n; i++) a->views[i] = t->in[i].view;
  for (i = 0; i < t->outputs_n; i++) {
    allot(&a->out[i], t->ops[t->outputs[i]].dtype, t->dims, t->rank);
    memset(a->out[i].memory, 0xa5, a->out[i].bytes);
    a->views[t->inputs_n + i] = a->out[i].view;
  }
}

static inline void finish(const trial *t, attempt *a, const char *what) {
  int i;

  for (i = 0; i < t->outputs_n; i++) {
    compare(t, &a->out[i], i, what);
    free(a->out[i].memory);
  }
}

static inline void check_whole(const trial *t, const tfd__strip *p) {
  int64_t address = (int64_t)(intptr_t)p;
  attempt a;
  tfd__call call = {.name = "strip",
                    .views = a.views,
                    .ints = &address,
                    .ints_n = 1,
                    .in_n = (int16_t)t->inputs_n,
                    .out_n = (int16_t)t->outputs_n};

  begin(t, &a);
  assert_int_equal(TFD_OK, tfd__cpu_backend.kernels[TFD_KERNEL_strip](&call));
  finish(t, &a, "whole");
}

static inline void check_ranges(const trial *t, const tfd__strip *p) {
  int64_t rows = t->rank == 0 ? 1 : t->dims[0];
  int64_t at = 0;
  attempt a;

  begin(t, &a);
  while (at < rows) {
    int64_t end = at + 1 + draw(rows - at);

    assert_int_equal(TFD_OK, tfd__strip_run(p, a.views, at, end));
    at = end;
  }
  finish(t, &a, "ranges");
}

/* Output o where input i lies, whenever that is allowed. */
static inline void check_in_place(const trial *t, const tfd__strip *p) {
  attempt a;
  int i;
  int o;

  for (o = 0; o < t->outputs_n; o++) {
    for (i = 0; i < t->inputs_n; i++) {
      const tfd__view *v = &t->in[i].view;

      begin(t, &a);
      if (tfd__strip_in_place(p, o, i) && v->dense &&
          tfd__same_shape(v, &a.out[o].view)) {
        memcpy(a.out[o].memory, t->in[i].memory, a.out[o].bytes);
        a.views[i].data = a.out[o].memory;
      }
      assert_int_equal(
          TFD_OK, tfd__strip_run(p, a.views, 0, t->rank == 0 ? 1 : t->dims[0]));
      finish(t, &a, "in place");
    }
  }
}

static inline void check(trial *t) {
  int bits;

  run_eager(t);
  for (bits = 128; bits <= 512; bits *= 2) {
    tfd__strip_text text = text_of(t, bits);
    tfd__strip *p = NULL;
    int refused = 0;

    if (bits > 128 && bits > tfd__vector_bits()) continue;
    if (tfd__strip_compile(&text, &p, &refused) != TFD_OK)
      fail_msg("seed %llu: %s", (unsigned long long)t->seed,
               tfd_error_message());
    assert_int_equal(-1, refused);
    check_whole(t, p);
    check_ranges(t, p);
    check_in_place(t, p);
    tfd__strip_free(p);
  }
  free_trial(t);
}

/* All pairs of special values. */
static inline void specials(trial *t, int k) {
  int64_t i;
  array *a = &t->in[k];
  size_t size = tfd__dtype_size(a->view.dtype);

  for (i = 0; i < t->dims[0]; i++) {
    int64_t which = k == 0 ? i % SPECIAL : i / SPECIAL % SPECIAL;
    double x = (double)special[(which + (k == 2 ? i : 0)) % SPECIAL];

    if (a->view.dtype == TFD_BOOL) x = (double)(which % 2);
    tfd__store(a->memory + (size_t)i * size, a->view.dtype, x);
  }
}

/* All pairs of special values; each operand in turn a literal. */
#endif
