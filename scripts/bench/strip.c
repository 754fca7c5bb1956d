/* Fused elementwise programs against hand-written C loops that do the same in
** one pass, on one core.
**
** usage: strip [BITS]    (of vectors; default: the most there are)
** prints a line for each chain and size:
**   NAME, SIZE  T ns  one loop  T ns  ratio R  goal GOAL
** Sizes are of one array. The two are timed by turns, in rounds of about 2 ms
** each; a time is the median of its rounds, the ratio that of the pairs. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/strip.h"

#if defined(__x86_64__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

enum { ARRAYS = 4, ROUNDS = 15, LONGEST = 4 << 20 };

static float *arrays[ARRAYS];

static double now(void) {
  struct timespec t;

  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void need(int ok) {
  if (ok) return;
  fprintf(stderr, "strip: %s\n", tfd_error_message());
  exit(1);
}

/* --- the loops ------------------------------------------------------------ */

CLONES __attribute__((optimize("O3"))) static void loop_a(int64_t n) {
  const float *restrict x = arrays[0];
  const float *restrict y = arrays[1];
  const float *restrict z = arrays[2];
  float *restrict out = arrays[3];

  for (int64_t i = 0; i < n; i++) {
    const float d = (x[i] + y[i]) * z[i] - x[i];

    out[i] = d < 0.0f ? 0.0f : d;
  }
}

CLONES __attribute__((optimize("O3"))) static void loop_b(int64_t n) {
  const float *restrict x = arrays[0];
  const float *restrict y = arrays[1];
  const float *restrict z = arrays[2];
  float *restrict out = arrays[3];

  for (int64_t i = 0; i < n; i++) {
    const float c = x[i] - y[i];
    const float s = c * c + z[i] * z[i];

    out[i] = (c / (sqrtf(s) + 0.5f) + x[i]) * y[i];
  }
}

/* --- the programs --------------------------------------------------------- */

#define IN(i) \
  { .from = TFD_STRIP_INPUT, .index = i }
#define GOT(i) \
  { .from = TFD_STRIP_RESULT, .index = i }
#define IS(x) \
  { .from = TFD_STRIP_LITERAL, .dtype = TFD_FLOAT32, .value = x }
#define ONE(kernel_, x)                                                \
  {                                                                    \
    .kernel = TFD_KERNEL_##kernel_, .dtype = TFD_FLOAT32, .args_n = 1, \
    .args = {                                                          \
      x                                                                \
    }                                                                  \
  }
#define TWO(kernel_, x, y)                                             \
  {                                                                    \
    .kernel = TFD_KERNEL_##kernel_, .dtype = TFD_FLOAT32, .args_n = 2, \
    .args = {                                                          \
      x,                                                               \
      y                                                                \
    }                                                                  \
  }

static const tfd__strip_op chain_a[] = {
    TWO(add, IN(0), IN(1)), TWO(multiply, GOT(0), IN(2)),
    TWO(subtract, GOT(1), IN(0)), ONE(relu, GOT(2))};
static const tfd__strip_op chain_b[] = {
    TWO(subtract, IN(0), IN(1)), ONE(square, GOT(0)),
    ONE(square, IN(2)),          TWO(add, GOT(1), GOT(2)),
    ONE(sqrt, GOT(3)),           TWO(add, GOT(4), IS(0.5)),
    TWO(divide, GOT(0), GOT(5)), TWO(add, GOT(6), IN(0)),
    TWO(multiply, GOT(7), IN(1))};

static tfd__strip *compiled(const tfd__strip_op *ops, int ops_n, int bits) {
  static const tfd__strip_input inputs[3] = {
      {.dtype = TFD_FLOAT32}, {.dtype = TFD_FLOAT32}, {.dtype = TFD_FLOAT32}};
  int16_t output = (int16_t)(ops_n - 1);
  tfd__strip_text text = {.inputs = inputs,
                          .ops = ops,
                          .outputs = &output,
                          .inputs_n = 3,
                          .ops_n = ops_n,
                          .outputs_n = 1,
                          .bits = bits};
  tfd__strip *p = NULL;
  int refused = 0;

  need(tfd__strip_compile(&text, &p, &refused) == TFD_OK);
  return p;
}

/* --- by turns ------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;

  return (x > y) - (x < y);
}

static double median(double *list) {
  qsort(list, ROUNDS, sizeof *list, by_size);
  return list[ROUNDS / 2];
}

static double time_loop(void (*loop)(int64_t), int64_t n, int calls) {
  double begin = now();

  for (int i = 0; i < calls; i++) loop(n);
  return (now() - begin) / calls;
}

static double time_program(const tfd__strip *p, int64_t n, int calls) {
  tfd__view views[ARRAYS];
  double begin = 0;

  for (int i = 0; i < ARRAYS; i++) {
    need(tfd__view_set(&views[i], TFD_FLOAT32, &n, 1) == TFD_OK);
    views[i].data = arrays[i];
  }
  begin = now();
  for (int i = 0; i < calls; i++)
    need(tfd__strip_run(p, views, 0, n) == TFD_OK);
  return (now() - begin) / calls;
}

static void compare(const char *name, const tfd__strip *p,
                    void (*loop)(int64_t), int64_t bytes) {
  int64_t n = bytes / (int64_t)sizeof(float);
  double ours[ROUNDS];
  double theirs[ROUNDS];
  double ratios[ROUNDS];
  int calls = (int)(2e-3 / time_loop(loop, n, 3)) + 1;

  for (int i = 0; i < ROUNDS; i++) {
    theirs[i] = time_loop(loop, n, calls);
    ours[i] = time_program(p, n, calls);
    ratios[i] = ours[i] / theirs[i];
  }
  printf("%s, %lld KiB  %.0f ns  one loop  %.0f ns  ratio %.2f  goal%s\n", name,
         (long long)bytes / 1024, 1e9 * median(ours), 1e9 * median(theirs),
         median(ratios), bytes >= 65536 ? " <= 1.3" : "");
  fflush(stdout);
}

static void chain(const char *name, const tfd__strip_op *ops, int ops_n,
                  void (*loop)(int64_t), int bits) {
  tfd__strip *p = compiled(ops, ops_n, bits);
  int64_t bytes;

  for (bytes = 4096; bytes <= LONGEST * (int64_t)sizeof(float); bytes *= 4)
    compare(name, p, loop, bytes);
  tfd__strip_free(p);
}

int main(int argc, char **argv) {
  int bits = argc > 1 ? atoi(argv[1]) : 0;

  tfd__threads_set(1);
  for (int i = 0; i < ARRAYS; i++) {
    void *p = NULL;

    need(posix_memalign(&p, (size_t)2 << 20, LONGEST * sizeof(float)) == 0);
    arrays[i] = p;
    for (int64_t k = 0; k < LONGEST; k++)
      arrays[i][k] = 0.01f * (float)(k % 13 + i) - 0.05f;
  }
  chain("chain A", chain_a, 4, loop_a, bits);
  chain("chain B", chain_b, 9, loop_b, bits);
  return 0;
}
