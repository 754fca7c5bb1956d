/* The ways of an all_reduce as arithmetic: played among 1 to 17 processes in
** one memory, and what they cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "comm/ways.h"

enum { MOST = 17, ELEMENTS = 1300 };

static const tfd__way stepped[] = {TFD_WAY_DOUBLING, TFD_WAY_RING,
                                   TFD_WAY_HALVING};

/* What everybody has; whose inputs an element is the sum of, as bits; and in
** which order, as a number that the order alone gives. */
static uint32_t whose[MOST][ELEMENTS];
static double order[MOST][ELEMENTS];
static uint32_t sent_whose[MOST][ELEMENTS];
static double sent_order[MOST][ELEMENTS];

/* No sum of another order of these is the same double. */
static double input(int process, int64_t i) {
  return 1.0 / (3.0 + process * process * 7 + (double)i);
}

static void begin(int processes, int64_t numel) {
  int p;
  int64_t i;

  for (p = 0; p < processes; p++) {
    for (i = 0; i < numel; i++) {
      whose[p][i] = UINT32_C(1) << p;
      order[p][i] = input(p, i);
    }
  }
}

static void get(const tfd__step *s, int p) {
  int64_t i;

  for (i = s->in.begin; i < s->in.end; i++) {
    double theirs = sent_order[s->from][i];

    if (s->adds) {
      /* Nothing is added twice. */
      assert_int_equal(0, whose[p][i] & sent_whose[s->from][i]);
      whose[p][i] |= sent_whose[s->from][i];
      order[p][i] = s->first ? theirs + order[p][i] : order[p][i] + theirs;
    } else {
      whose[p][i] = sent_whose[s->from][i];
      order[p][i] = theirs;
    }
  }
}

/* Bytes that the busiest process sends. */
static int64_t play(tfd__way way, int processes, int64_t numel) {
  int64_t sent[MOST] = {0};
  int64_t most = 0;
  int k;
  int p;

  for (k = 0; k < tfd__way_steps(way, processes); k++) {
    memcpy(sent_whose, whose, sizeof whose);
    memcpy(sent_order, order, sizeof order);
    for (p = 0; p < processes; p++) {
      tfd__step s = tfd__way_step(way, processes, p, k, numel);

      assert_true(s.to < processes && s.to != p);
      if (s.to >= 0) {
        tfd__step theirs = tfd__way_step(way, processes, s.to, k, numel);

        assert_int_equal(p, theirs.from);
        assert_int_equal(s.out.begin, theirs.in.begin);
        assert_int_equal(s.out.end, theirs.in.end);
        sent[p] += s.out.end - s.out.begin;
      }
      if (s.from < 0) continue;
      assert_int_equal(p, tfd__way_step(way, processes, s.from, k, numel).to);
      get(&s, p);
    }
  }
  for (p = 0; p < processes; p++) most = sent[p] > most ? sent[p] : most;
  return most;
}

static void everybody_gets_every_input_once_in_one_order(void **state) {
  static const int64_t sizes[] = {0, 1, 63, 64, 65, 127, 500, 1024, 1299};
  size_t w;
  size_t n;
  int processes;
  int p;
  int64_t i;

  (void)state;
  for (w = 0; w < 3; w++) {
    for (processes = 1; processes <= MOST; processes++) {
      for (n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
        begin(processes, sizes[n]);
        (void)play(stepped[w], processes, sizes[n]);
        for (p = 0; p < processes; p++) {
          for (i = 0; i < sizes[n]; i++) {
            assert_int_equal((UINT32_C(1) << processes) - 1, whose[p][i]);
            assert_true(order[p][i] == order[0][i]);
          }
        }
      }
    }
  }
}

static void steps_are_so_many(void **state) {
  (void)state;
  assert_int_equal(0, tfd__way_steps(TFD_WAY_DOUBLING, 1));
  assert_int_equal(3, tfd__way_steps(TFD_WAY_DOUBLING, 8));
  assert_int_equal(5, tfd__way_steps(TFD_WAY_DOUBLING, 9));
  assert_int_equal(6, tfd__way_steps(TFD_WAY_HALVING, 8));
  assert_int_equal(6, tfd__way_steps(TFD_WAY_HALVING, 5));
  assert_int_equal(8, tfd__way_steps(TFD_WAY_RING, 5));
  assert_int_equal(20, tfd__way_steps(TFD_WAY_HALVING, 1024));
}

/* 2 (P - 1) / P of them is the least there is. */
static void bytes_are_the_least_there_are(void **state) {
  int64_t n = 16 * TFD_STRETCH;

  (void)state;
  begin(8, n);
  assert_int_equal(2 * 7 * n / 8, play(TFD_WAY_RING, 8, n));
  begin(8, n);
  assert_int_equal(2 * 7 * n / 8, play(TFD_WAY_HALVING, 8, n));
  begin(8, n);
  assert_int_equal(3 * n, play(TFD_WAY_DOUBLING, 8, n));
}

/* The formulas of Thakur, Rabenseifner and Gropp with a message's own cost. */
static void costs_are_these(void **state) {
  const tfd__costs c = {1, 0.5, 0.25, 0.125};
  double n = 64;

  (void)state;
#define COST(expected, way, p) \
  assert_float_equal(expected, tfd__way_cost(way, &c, p, n), 1e-9)
  COST(0, TFD_WAY_RING, 1);
  COST(1 + 3 * 0.5 + 3 * 16 + 3 * 8, TFD_WAY_WHOLE, 4);
  COST(2 * (1 + 3 * 0.5) + 1.5 * 16 + 0.75 * 8, TFD_WAY_DIRECT, 4);
  COST(2 * 1.5 + 2 * 16 + 2 * 8, TFD_WAY_DOUBLING, 4);
  COST(6 * 1.5 + 1.5 * 16 + 0.75 * 8, TFD_WAY_RING, 4);
  COST(4 * 1.5 + 1.5 * 16 + 0.75 * 8, TFD_WAY_HALVING, 4);
  COST(2 * 1.5 + 2 * 16 + 8 + 4 * 1.5 + 1.5 * 16 + 0.75 * 8, TFD_WAY_HALVING,
       5);
#undef COST
}

static void the_best_costs_least(void **state) {
  const char *transports[] = {"shm", "tcp"};
  double bytes;
  int t;
  int p;
  int way;

  (void)state;
  for (t = 0; t < 2; t++) {
    const tfd__costs *c = tfd__costs_of(transports[t]);

    for (p = 2; p <= 1024; p = p * 3 / 2 + 1) {
      for (bytes = 4; bytes < 1e9; bytes *= 5) {
        tfd__way best = tfd__way_best(c, p, bytes, true);
        tfd__way in_order = tfd__way_best(c, p, bytes, false);

        assert_true(in_order == TFD_WAY_WHOLE || in_order == TFD_WAY_DIRECT);
        for (way = TFD_WAY_WHOLE; way < TFD_WAYS; way++) {
          assert_true(tfd__way_cost(best, c, p, bytes) <=
                      tfd__way_cost((tfd__way)way, c, p, bytes));
        }
      }
    }
  }
  assert_null(tfd__costs_of("pigeons"));
}

/* Six processes on two hosts: three inside, two between; sums go directly. */
static void costs_by_hosts_are_these(void **state) {
  const tfd__costs in = {1, 0.5, 0.25, 0.125};
  const tfd__costs out = {10, 5, 2.5, 1.25};
  double n = 48;
  double inside = 2 * (1 + 2 * 0.5) + 64 * 0.25 + 32 * 0.125;
  double between = 2 * (10 + 5) + 48 * 2.5 + 24 * 1.25;
  double back = 1 + 2 * 0.5 + 48 * 0.25;
  double shared = 2 * (10 + 5 * 5) + 80 * 3 * 2.5 + 40 * 1.25;

  (void)state;
#define COST(expected, got) \
  assert_float_equal((float)(expected), (float)(got), 1e-3f)
  COST(inside + between + back, tfd__hosts_cost(&in, &out, 6, 2, n));
  COST(inside + between + back, tfd__hosts_cost(&in, &out, 5, 2, n));
  COST(shared, tfd__flat_cost(&out, 6, 2, n));
  COST(between, tfd__hosts_cost(&in, &out, 2, 2, n));
  COST(between, tfd__flat_cost(&out, 2, 2, n));
#undef COST
}

static void names_come_back(void **state) {
  int way;

  (void)state;
  for (way = 0; way < TFD_WAYS; way++) {
    assert_int_equal(way, tfd__way_named(tfd__way_name((tfd__way)way)));
  }
  assert_int_equal(TFD_WAYS, tfd__way_named("zigzag"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(everybody_gets_every_input_once_in_one_order),
      cmocka_unit_test(steps_are_so_many),
      cmocka_unit_test(bytes_are_the_least_there_are),
      cmocka_unit_test(costs_are_these),
      cmocka_unit_test(the_best_costs_least),
      cmocka_unit_test(costs_by_hosts_are_these),
      cmocka_unit_test(names_come_back),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
