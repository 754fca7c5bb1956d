/* What tests of strategies share: strategies over CPU devices, small tensors,
** copies of variables. */
#ifndef SPEC_C_DISTRIBUTE_SUPPORT_H
#define SPEC_C_DISTRIBUTE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "distribute/distribute.h"

#define OK(call) assert_int_equal(TFD_OK, call)

static inline tfd_strategy *strategy_of(const char *kind, int n) {
  tfd_device *devices[4];
  tfd_strategy *s = NULL;
  int i;

  for (i = 0; i < n; i++) OK(tfd_device_at("CPU", i, &devices[i]));
  OK(tfd_strategy_new(kind, devices, n, NULL, &s));
  return s;
}

static inline tfd_tensor *scalar(double x) {
  tfd_tensor *t = NULL;

  OK(tfd_tensor_from_values(&x, 1, TFD_FLOAT32, NULL, 0, &t));
  return t;
}

static inline double item_of(tfd_object *x) {
  tfd_tensor *t = NULL;
  double value = 0;

  OK(tfd_operand_tensor(x, &t));
  OK(tfd_tensor_item(t, 0, &value));
  tfd_release((tfd_object *)t);
  return value;
}

/* The copies of a distributed variable, or the variable itself. */
static inline int copies_of(tfd_object *variable, double *values) {
  tfd_mirrored *m = (tfd_mirrored *)variable;
  int i;

  if (!tfd__is_open(variable, TFD_HANDLE_MIRRORED)) {
    values[0] = item_of(variable);
    return 1;
  }
  for (i = 0; i < m->n; i++) values[i] = item_of(&m->components[i]->object);
  return m->n;
}

#define EXPECT_COPIES(variable, ...)                                  \
  do {                                                                \
    const double wanted_[] = {__VA_ARGS__};                           \
    double got_[TFD_MAX_REPLICAS];                                    \
    int n_ = copies_of((tfd_object *)(variable), got_);               \
    int i_;                                                           \
                                                                      \
    assert_int_equal(sizeof wanted_ / sizeof wanted_[0], n_);         \
    for (i_ = 0; i_ < n_; i_++) assert_true(wanted_[i_] == got_[i_]); \
  } while (0)

static inline void expect_failure(int kind, int rc, const char *text) {
  assert_int_equal(kind, rc);
  if (strstr(tfd_error_message(), text) == NULL) {
    print_error("\"%s\" is not in \"%s\"\n", text, tfd_error_message());
    fail();
  }
}

static inline int nothing_left(void **state) {
  (void)state;
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_STRATEGY));
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_VALUE));
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_MIRRORED));
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_VARIABLE));
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_TENSOR));
  return 0;
}

#endif
