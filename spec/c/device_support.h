/* Shared by the device specs: start-up settings, kernels with gates, and a
** deadline for the whole program. Each spec is a program of its own because
** the registry is made once in a process. */
#ifndef SPEC_DEVICE_SUPPORT_H
#define SPEC_DEVICE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"

static inline void configure(const char *devices, const char *queue) {
  setenv("TFDIST_CPU_DEVICES", devices, 1);
  setenv("TFDIST_QUEUE", queue, 1);
  setenv("TFDIST_THREADS", "1", 1);
  unsetenv("TFDIST_MEMORY_LIMIT");
  alarm(900); /* a hang ends the program */
}

static inline tfd_device *device(int i) {
  tfd_device *d = NULL;

  assert_int_equal(TFD_OK, tfd_device_at("CPU", i, &d));
  return d;
}

static inline tfd__buffer *buffer(tfd_device *d, size_t bytes) {
  tfd__buffer *b = NULL;

  assert_int_equal(TFD_OK, tfd__buffer_new(d, bytes, &b));
  return b;
}

static inline tfd__view view_of(tfd__buffer *b) {
  int64_t n = (int64_t)(b->bytes / sizeof(int64_t));
  tfd__view v;

  assert_int_equal(TFD_OK, tfd__view_set(&v, TFD_INT64, &n, 1));
  v.data = b->data;
  return v;
}

/* Submit fn(ints) without views. */
static inline int submit_ints(tfd_device *d, int (*fn)(const tfd__call *),
                              const int64_t *ints, int n) {
  tfd__call call = {.name = "probe",
                    .kernel = fn,
                    .ints = ints,
                    .ints_n = (int16_t)n,
                    .replica = -1};

  return tfd__stream_submit(d, &call);
}

/* A call that runs until the gate opens. */
typedef struct gate {
  atomic_bool entered;
  atomic_bool open;
} gate;

static inline int pass_gate(const tfd__call *call) {
  gate *g = (gate *)(uintptr_t)call->ints[0];

  atomic_store(&g->entered, true);
  while (!atomic_load(&g->open)) usleep(50);
  return TFD_OK;
}

static inline void submit_gate(tfd_device *d, gate *g) {
  int64_t address = (int64_t)(uintptr_t)g;

  assert_int_equal(TFD_OK, submit_ints(d, pass_gate, &address, 1));
}

static inline void await(const atomic_bool *flag) {
  while (!atomic_load(flag)) usleep(50); /* the alarm is the deadline */
}

static inline uint64_t next_random(uint64_t *state) {
  uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

#endif
