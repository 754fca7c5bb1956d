#ifndef TFD_SPEC_TAPE_H
#define TFD_SPEC_TAPE_H
/* What the specs of tapes share. Every test ends with the handles and bytes
** it began with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "autograd/autograd.h"

#define OBJECT(handle) ((tfd_object *)(handle))
#define LIST(...) ((tfd_object *[]){__VA_ARGS__})

/* Handles and bytes when a test begins; it must end with the same. */
static int64_t handles_before[TFD_HANDLE_KINDS];
static int64_t bytes_before;

TFD_UNUSED static int64_t handles(int kind) {
  return tfd_live_handles((tfd_handle_kind)kind);
}

TFD_UNUSED static int count_before(void **state) {
  int k;

  (void)state;
  for (k = 0; k < TFD_HANDLE_KINDS; k++) handles_before[k] = handles(k);
  bytes_before = tfd_live_bytes();
  return 0;
}

TFD_UNUSED static bool balanced(void) {
  int k;

  for (k = 0; k < TFD_HANDLE_KINDS; k++) {
    if (k == TFD_HANDLE_CONTEXT || k == TFD_HANDLE_DEVICE) continue;
    if (handles(k) != handles_before[k]) return false;
  }
  return tfd_live_bytes() == bytes_before && tfd_tape_active() == 0;
}

TFD_UNUSED static int count_after(void **state) {
  (void)state;
  return balanced() ? 0 : -1;
}

#define OK(call) assert_int_equal(TFD_OK, call)

TFD_UNUSED static tfd_tensor *vector(int n, double value) {
  int64_t dims[1] = {n};
  tfd_tensor *t = NULL;

  OK(tfd_tensor_from_values(&value, 1, TFD_FLOAT64, dims, 1, &t));
  return t;
}

TFD_UNUSED static tfd_tensor *scalar(double value) {
  tfd_tensor *t = NULL;

  OK(tfd_tensor_from_values(&value, 1, TFD_FLOAT64, NULL, 0, &t));
  return t;
}

TFD_UNUSED static int try_op(const char *name, tfd_object *a, tfd_object *b,
                             tfd_tensor **out_p) {
  tfd_object *in[2] = {a, b};
  int op = 0;
  int n = 0;

  TFD_TRY(tfd_op_find(name, &op));
  return tfd_op_run(op, in, b == NULL ? 1 : 2, NULL, 0, NULL, 0, out_p, 1, &n);
}

TFD_UNUSED static tfd_tensor *op2(const char *name, void *a, void *b) {
  tfd_tensor *t = NULL;

  OK(try_op(name, OBJECT(a), OBJECT(b), &t));
  return t;
}

TFD_UNUSED static tfd_tensor *multiply(void *a, void *b) {
  return op2("multiply", a, b);
}

TFD_UNUSED static tfd_tensor *add(void *a, void *b) {
  return op2("add", a, b);
}

TFD_UNUSED static double item(const void *t) {
  double value = 0.0;

  assert_non_null(t);
  OK(tfd_tensor_item((tfd_tensor *)(uintptr_t)t, 0, &value));
  return value;
}

TFD_UNUSED static tfd_tape *tape_new(bool persistent) {
  tfd_tape *tape = NULL;

  OK(tfd_tape_new(persistent, true, &tape));
  return tape;
}

TFD_UNUSED static tfd_walk *begin(tfd_tape *tape, void *target, void *source) {
  tfd_walk *w = NULL;

  OK(tfd_walk_begin(tape, LIST(target), 1, LIST(source), 1, NULL, 0, false,
                    &w));
  return w;
}

TFD_UNUSED static tfd_walk_event next(tfd_walk *w) {
  tfd_walk_event event = TFD_WALK_DONE;

  OK(tfd_walk_next(w, &event));
  return event;
}

TFD_UNUSED static tfd_object *result(tfd_walk *w, int i) {
  tfd_object *grad = NULL;

  OK(tfd_walk_gradient(w, i, &grad));
  return grad;
}

/* The gradient of one target for one source, or NULL. */
TFD_UNUSED static tfd_object *gradient(tfd_tape *tape, void *target,
                                       void *source) {
  tfd_walk *w = begin(tape, target, source);
  tfd_object *grad = NULL;

  assert_int_equal(TFD_WALK_DONE, next(w));
  grad = result(w, 0);
  tfd_release(OBJECT(w));
  return grad;
}

TFD_UNUSED static void release_all(void *const *handles_to_release, int n) {
  while (n > 0) tfd_release(OBJECT(handles_to_release[--n]));
}
#define RELEASE(...)                   \
  release_all((void *[]){__VA_ARGS__}, \
              (int)(sizeof((void *[]){__VA_ARGS__}) / sizeof(void *)))

/* y = x^2 computed out of sight, followed by a host step. */
TFD_UNUSED static tfd_tensor *host_square(int64_t number, tfd_tensor *x) {
  tfd_tensor *y = NULL;

  OK(tfd_tape_pause_all(true));
  y = multiply(x, x);
  OK(tfd_tape_pause_all(false));
  OK(tfd_tape_record_host(number, LIST(OBJECT(x)), 1, &y, 1));
  return y;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, count_before, count_after)

#endif
