/* The slow back end (spec/support/slow) for C specs: loaded from the build
** folder, with its devices behind the processor's. */
#ifndef SPEC_SLOW_SUPPORT_H
#define SPEC_SLOW_SUPPORT_H

#include <dlfcn.h>
#include <limits.h>

#include "device_support.h"

static char slow_path[PATH_MAX + 32];

/* Before the first device is used. */
static inline void configure_slow(void) {
  char self[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  char *slash = NULL;

  assert_true(n > 0);
  self[n] = '\0';
  slash = strrchr(self, '/');
  *slash = '\0';
  snprintf(slow_path, sizeof slow_path, "%s/slow/tfdist_slow.so", self);
  setenv("TFDIST_PLUGINS", slow_path, 1);
}

static inline tfd_device *slow_device(int i) {
  tfd_device *d = NULL;

  assert_int_equal(TFD_OK, tfd_device_at("SLOW", i, &d));
  return d;
}

static inline void *slow_symbol(const char *name) {
  void *library = dlopen(slow_path, RTLD_NOW | RTLD_NOLOAD);
  void *symbol = NULL;

  assert_non_null(library);
  symbol = dlsym(library, name);
  assert_non_null(symbol);
  return symbol;
}

/* A kernel of the spec's own, run late by the device's thread. */
static inline int launch_late(const tfd__call *call, tfd__kernel kernel) {
  static int (*launch)(const tfd__call *call, tfd__kernel kernel);

  if (launch == NULL) *(void **)(void *)&launch = slow_symbol("slow_launch");
  return launch(call, kernel);
}

static inline void fail_late_at(int ordinal, int64_t n) {
  void (*fail_at)(int ordinal, int64_t n) = NULL;

  *(void **)(void *)&fail_at = slow_symbol("slow_fail_at");
  fail_at(ordinal, n);
}

#endif
