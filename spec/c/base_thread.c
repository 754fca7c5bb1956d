/* Deadlines, conditions, parallel loops, core counts, the interrupt flag. */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/thread.h"

/* --- time and waiting ----------------------------------------------------- */

static void deadlines_lie_ahead(void **state) {
  int64_t now = tfd__now_ns();
  tfd__deadline d = tfd__deadline_in(1.5);

  (void)state;
  assert_true(d >= now + INT64_C(1500000000));
  assert_true(d < now + INT64_C(60000000000));
  assert_true(tfd__deadline_in(0) == TFD_FOREVER);
  assert_true(tfd__deadline_in(-1) == TFD_FOREVER);
  assert_true(tfd__deadline_in(INFINITY) == TFD_FOREVER);
  assert_true(tfd__deadline_in(NAN) == TFD_FOREVER);
  assert_true(tfd__deadline_in(1e300) == TFD_FOREVER);
}

static void wait_ends_at_its_deadline(void **state) {
  tfd__mutex m;
  tfd__cond c;
  tfd__deadline until = 0;

  (void)state;
  assert_int_equal(TFD_OK, tfd__mutex_init(&m, 0));
  assert_int_equal(TFD_OK, tfd__cond_init(&c));
  tfd__lock(&m);
  assert_false(tfd__cond_wait(&c, &m, -5)); /* long past */
  until = tfd__deadline_in(0.02);
  while (tfd__cond_wait(&c, &m, until)) continue;
  assert_true(tfd__now_ns() >= until);
  tfd__unlock(&m);
  tfd__cond_destroy(&c);
  tfd__mutex_destroy(&m);
}

typedef struct baton {
  tfd__mutex m;
  tfd__cond c;
  int turn;
} baton;

/* Turn 1 makes turn 2. */
static void answer(void *arg) {
  baton *b = arg;

  tfd__lock(&b->m);
  while (b->turn != 1) tfd__cond_wait(&b->c, &b->m, TFD_FOREVER);
  b->turn = 2;
  tfd__cond_broadcast(&b->c);
  tfd__unlock(&b->m);
}

static void signal_wakes_the_waiter(void **state) {
  baton b = {.turn = 0};
  tfd__thread t;
  tfd__deadline until = tfd__deadline_in(600);
  bool in_time = true;

  (void)state;
  tfd__mutex_init(&b.m, 0);
  tfd__cond_init(&b.c);
  assert_int_equal(
      TFD_OK, tfd__thread_start(&t, "a name longer than fifteen", answer, &b));
  tfd__lock(&b.m);
  b.turn = 1;
  tfd__cond_signal(&b.c);
  while (b.turn != 2 && in_time) in_time = tfd__cond_wait(&b.c, &b.m, until);
  tfd__unlock(&b.m);
  tfd__thread_join(t);
  assert_int_equal(2, b.turn);
  tfd__cond_destroy(&b.c);
  tfd__mutex_destroy(&b.m);
}

static void thread_start_reports_missing_memory(void **state) {
  baton b = {.turn = 0};
  tfd__thread t;

  (void)state;
  tfd__alloc_fail_at(1);
  assert_int_equal(TFD_RESOURCE_EXHAUSTED,
                   tfd__thread_start(&t, "spec", answer, &b));
}

/* --- parallel loops ------------------------------------------------------- */

typedef struct loop {
  unsigned char *seen;
  atomic_int pieces;
  atomic_llong shortest;
  atomic_llong last_begin; /* the piece that ends the range may be shorter */
  int64_t n;
} loop;

static void visit(void *arg, int64_t begin, int64_t end) {
  loop *l = arg;
  long long shortest = atomic_load(&l->shortest);

  atomic_fetch_add(&l->pieces, 1);
  while (end != l->n && end - begin < shortest &&
         !atomic_compare_exchange_weak(&l->shortest, &shortest, end - begin)) {
    continue;
  }
  for (int64_t i = begin; i < end; i++) l->seen[i]++;
}

static void check_loop(int64_t n, int64_t grain, int threads) {
  loop l = {.seen = calloc((size_t)n + 1, 1), .n = n};

  atomic_init(&l.shortest, INT64_MAX);
  tfd__threads_set(threads);
  tfd__parallel_for(n, grain, visit, &l);
  for (int64_t i = 0; i < n; i++) assert_int_equal(1, l.seen[i]);
  assert_int_equal(0, l.seen[n]);
  assert_true(l.pieces <= threads);
  assert_true(l.shortest >= grain);
  if (n > 0 && (n <= grain || threads == 1)) assert_int_equal(1, l.pieces);
  if (n == 0) assert_int_equal(0, l.pieces);
  free(l.seen);
}

static void loop_covers_every_index_once(void **state) {
  static const int64_t sizes[] = {0,  1,   2,    3,    63,   64,   65,
                                  99, 100, 1000, 1023, 4096, 4097, 100003};
  static const int64_t grains[] = {0, 1, 7, 64, 100, 5000, INT64_MAX};
  int before = tfd__threads_get();

  (void)state;
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    for (size_t g = 0; g < sizeof grains / sizeof grains[0]; g++) {
      for (int threads = 1; threads <= 5; threads++) {
        check_loop(sizes[s], grains[g], threads);
      }
    }
  }
  tfd__threads_set(before);
}

static void loop_uses_the_threads_it_may(void **state) {
  loop l = {.seen = calloc(1000, 1), .n = 1000};
  int before = tfd__threads_get();

  (void)state;
  tfd__threads_set(4);
  tfd__parallel_for(1000, 10, visit, &l);
  assert_int_equal(4, l.pieces);
  tfd__threads_set(before);
  free(l.seen);
}

static void nested(void *arg, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    loop inner = {.seen = calloc(100, 1), .n = 100};

    tfd__parallel_for(100, 1, visit, &inner);
    if (inner.pieces == 1) atomic_fetch_add((atomic_int *)arg, 1);
    free(inner.seen);
  }
}

static void loop_inside_a_loop_is_serial(void **state) {
  atomic_int serial = 0;
  int before = tfd__threads_get();

  (void)state;
  tfd__threads_set(2);
  tfd__parallel_for(8, 1, nested, &serial);
  assert_int_equal(8, serial);
  tfd__threads_set(before);
}

static void read_threads(void *arg) {
  tfd__threads_set(3);
  *(int *)arg = tfd__threads_get();
}

static void thread_count_is_per_thread(void **state) {
  int before = tfd__threads_get();
  int theirs = 0;
  tfd__thread t;

  (void)state;
  tfd__threads_set(2);
  tfd__thread_start(&t, "spec", read_threads, &theirs);
  tfd__thread_join(t);
  assert_int_equal(3, theirs);
  assert_int_equal(2, tfd__threads_get());
  tfd__threads_set(0);
  assert_int_equal(1, tfd__threads_get());
  tfd__threads_set(before);
}

/* --- cores ---------------------------------------------------------------- */

static char tree[] = "/tmp/tfdist-spec-XXXXXX";

static int make_tree(void **state) {
  (void)state;
  return mkdtemp(tree) != NULL ? 0 : -1;
}

static int remove_tree(void **state) {
  char command[128];

  (void)state;
  (void)snprintf(command, sizeof command, "rm -rf %s", tree);
  return system(command);
}

static const char *in_tree(const char *name, char path[256]) {
  (void)snprintf(path, 256, "%s/%s", tree, name);
  return path;
}

static void make_dir(const char *name) {
  char path[256];

  mkdir(in_tree(name, path), 0700);
}

static void write_file(const char *name, const char *text) {
  char path[256];
  FILE *file = fopen(in_tree(name, path), "w");

  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

static double quota(const char *membership) {
  char path[256];

  write_file("membership", membership);
  return tfd__cgroup_cores(in_tree("membership", path), tree);
}

static bool same(double a, double b) {
  return fabs(a - b) < 1e-9;
}

static void unified_quota_is_the_least_of_the_ancestors(void **state) {
  (void)state;
  make_dir("a");
  make_dir("a/b");
  write_file("a/cpu.max", "150000 100000\n");
  write_file("a/b/cpu.max", "max 100000\n");
  assert_true(same(1.5, quota("0::/a/b\n")));
  assert_true(same(1.5, quota("0::/a\n")));
  assert_true(same(0, quota("0::/\n")));
  write_file("a/b/cpu.max", "50000 100000\n");
  assert_true(same(0.5, quota("0::/a/b\n")));
  write_file("cpu.max", "20000 100000\n"); /* a container sees its own root */
  assert_true(same(0.2, quota("0::/not/there\n")));
}

static void first_generation_quota_is_read_too(void **state) {
  (void)state;
  make_dir("cpu");
  make_dir("cpu/job");
  write_file("cpu/cpu.cfs_quota_us", "-1\n");
  write_file("cpu/cpu.cfs_period_us", "100000\n");
  assert_true(same(0, quota("3:cpu,cpuacct:/job\n")));
  write_file("cpu/job/cpu.cfs_quota_us", "250000\n");
  write_file("cpu/job/cpu.cfs_period_us", "100000\n");
  assert_true(same(2.5, quota("9:cpuset:/job\n3:cpuacct,cpu:/job\n")));
  assert_true(same(0, quota("9:cpuset:/job\n")));
}

static void odd_membership_files_mean_no_limit(void **state) {
  (void)state;
  assert_true(same(0, quota("")));
  assert_true(same(0, quota("nonsense\n:\n1:cpu\n")));
  assert_true(same(0, tfd__cgroup_cores("/nonexistent", tree)));
}

static void cores_obey_the_affinity_mask(void **state) {
  cpu_set_t before;
  cpu_set_t one;
  size_t first = 0;

  (void)state;
  assert_int_equal(0, sched_getaffinity(0, sizeof before, &before));
  assert_in_range(tfd__cores(), 1, CPU_COUNT(&before));
  while (!CPU_ISSET(first, &before)) first++;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  assert_int_equal(0, sched_setaffinity(0, sizeof one, &one));
  assert_int_equal(1, tfd__cores());
  assert_int_equal(0, sched_setaffinity(0, sizeof before, &before));
}

static void interrupt_flag_is_set_and_cleared(void **state) {
  (void)state;
  assert_false(tfd_is_interrupted());
  tfd_interrupt(true);
  assert_true(tfd__interrupt_get());
  tfd__interrupt_set(false);
  assert_false(tfd_is_interrupted());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(deadlines_lie_ahead),
      cmocka_unit_test(wait_ends_at_its_deadline),
      cmocka_unit_test(signal_wakes_the_waiter),
      cmocka_unit_test(thread_start_reports_missing_memory),
      cmocka_unit_test(loop_covers_every_index_once),
      cmocka_unit_test(loop_uses_the_threads_it_may),
      cmocka_unit_test(loop_inside_a_loop_is_serial),
      cmocka_unit_test(thread_count_is_per_thread),
      cmocka_unit_test(unified_quota_is_the_least_of_the_ancestors),
      cmocka_unit_test(first_generation_quota_is_read_too),
      cmocka_unit_test(odd_membership_files_mean_no_limit),
      cmocka_unit_test(cores_obey_the_affinity_mask),
      cmocka_unit_test(interrupt_flag_is_set_and_cleared),
  };

  return cmocka_run_group_tests_name("base/thread", tests, make_tree,
                                     remove_tree);
}
