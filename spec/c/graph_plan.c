/* The memory plan against a count of bytes that knows nothing of it, and whole
** programs against themselves with a buffer for each value. */
#include "tape.h"

#include "graph/graph.h"

#include <stdlib.h>

static uint64_t seed = 1;

static int pick(int n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((seed >> 33) % (uint64_t)n);
}

static void seed_from(unsigned start) {
  seed = start * 2654435761u + 1;
  print_message("seed %u\n", start);
}

/* Every step writes what begins and reads what lives: who owns each byte? */
static void no_byte_has_two_owners(const tfd__stretch *s, int n, size_t bytes) {
  int *owner = malloc((bytes + 1) * sizeof *owner);
  int step;
  int i;
  size_t k;

  for (step = 0; step < 40; step++) {
    for (k = 0; k < bytes; k++) owner[k] = -1;
    for (i = 0; i < n; i++) {
      if (step < s[i].first || step > s[i].last) continue;
      assert_true(s[i].offset + s[i].bytes <= bytes);
      assert_int_equal(0, s[i].offset % TFD_ARENA_ALIGN);
      for (k = 0; k < s[i].bytes; k++) {
        if (owner[s[i].offset + k] >= 0) {
          fail_msg("step %d: stretches %d and %d share byte %zu", step,
                   owner[s[i].offset + k], i, s[i].offset + k);
        }
        owner[s[i].offset + k] = i;
      }
    }
  }
  free(owner);
}

static void random_stretches(tfd__stretch *s, int n) {
  int i;

  for (i = 0; i < n; i++) {
    int first = pick(40);

    s[i] = (tfd__stretch){.bytes = (size_t)pick(500),
                          .first = first,
                          .last = first + pick(40 - first)};
  }
}

static void stretches_that_live_at_once_do_not_meet(void **state) {
  tfd__stretch s[60];
  unsigned start;

  (void)state;
  for (start = 1; start <= 40; start++) {
    int n = 1 + (int)start;
    size_t planned = 0;
    size_t apart = 0;

    seed_from(start);
    random_stretches(s, n);
    OK(tfd__plan(s, n, true, &apart));
    no_byte_has_two_owners(s, n, apart);
    OK(tfd__plan(s, n, false, &planned));
    no_byte_has_two_owners(s, n, planned);
    assert_true(planned <= apart);
  }
}

static void a_chain_needs_two_buffers(void **state) {
  tfd__stretch s[20];
  size_t bytes = 0;
  int i;

  (void)state;
  for (i = 0; i < 20; i++) {
    s[i] = (tfd__stretch){.bytes = 1024, .first = i, .last = i + 1};
  }
  OK(tfd__plan(s, 20, false, &bytes));
  assert_int_equal(2048, bytes);
  OK(tfd__plan(s, 20, true, &bytes));
  assert_int_equal(20480, bytes);
}

static void nothing_needs_nothing(void **state) {
  size_t bytes = 1;

  (void)state;
  OK(tfd__plan(NULL, 0, false, &bytes));
  assert_int_equal(0, bytes);
}

/* --- programs ------------------------------------------------------------- */

enum { POOL = 12, STEPS = 40, BYTES = 1 << 16 };

static tfd_tensor *one_op(tfd_tensor *const *pool, int n) {
  static const char *const pairs[] = {"add", "multiply", "subtract", "maximum",
                                      "matmul"};
  tfd_tensor *in[2] = {pool[pick(n)], pool[pick(n)]};
  int64_t ints[TFD_MAX_INTS] = {0};
  tfd_tensor *out[1] = {NULL};
  const char *name = pairs[pick(5)];
  int in_n = 2;
  int op = 0;
  int out_n = 0;

  if (pick(3) == 0) {
    name = pick(2) == 0 ? "transpose" : "tanh";
    in_n = 1;
    ints[0] = -1;
  }
  OK(tfd_op_find(name, &op));
  OK(tfd__run(op, in, in_n, ints, NULL, out, 1, &out_n));
  return out[0];
}

/* A random program over 4 x 4 tensors and one variable, seeded. */
static tfd_graph *random_graph(unsigned start, tfd_variable *v) {
  int64_t dims[2] = {4, 4};
  tfd_tensor *pool[POOL];
  tfd_graph *g = NULL;
  int n = 2;
  int i;

  seed_from(start);
  OK(tfd_graph_new("random", &g));
  OK(tfd_graph_input(g, TFD_FLOAT32, dims, 2, NULL, &pool[0]));
  OK(tfd_graph_begin(g));
  OK(tfd_variable_read(v, &pool[1]));
  for (i = 0; i < STEPS; i++) {
    tfd_tensor *t = one_op(pool, n);

    if (pick(8) == 0) OK(tfd_variable_assign(v, OBJECT(t)));
    if (n < POOL) {
      pool[n++] = t;
    } else {
      int at = pick(POOL);

      tfd__release(pool[at]);
      pool[at] = t;
    }
  }
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(
      g, LIST(OBJECT(pool[n - 1]), OBJECT(pool[0]), OBJECT(pool[2])), 3));
  while (n > 0) tfd__release(pool[--n]);
  return g;
}

/* Which call wrote the first byte of what each view reads; -1 = none, for what
** lies outside the arena. */
static int trace_reads(const tfd__program *p, int *reads) {
  static int writer[BYTES];
  const char *base = p->arena->data;
  int n = 0;
  int k;
  int i;

  assert_true(p->arena->bytes <= BYTES);
  for (i = 0; i < BYTES; i++) writer[i] = -1;
  for (k = 0; k < p->calls_n; k++) {
    const tfd__call *c = &p->calls[k];

    for (i = 0; i < c->in_n + c->out_n; i++) {
      const tfd__view *v = &c->views[i];
      ptrdiff_t at = (const char *)v->data - base;
      ptrdiff_t b;

      if (at < 0 || at >= (ptrdiff_t)p->arena->bytes) {
        reads[n++] = -2;
        continue;
      }
      reads[n++] = i < c->in_n ? writer[at] : k;
      for (b = 0; b < (ptrdiff_t)tfd__view_bytes(v); b++) {
        if (i >= c->in_n) {
          writer[at + b] = k;
        } else {
          assert_int_equal(writer[at], writer[at + b]);
        }
      }
    }
  }
  return n;
}

static void same_bits(tfd_tensor *a, tfd_tensor *b) {
  float x[16];
  float y[16];

  OK(tfd_tensor_read(a, x, sizeof x));
  OK(tfd_tensor_read(b, y, sizeof y));
  assert_memory_equal(x, y, sizeof x);
}

static void call_graph(tfd_graph *g, tfd_tensor *x, tfd_tensor **results) {
  tfd_graph_event event = TFD_GRAPH_HOST;
  int i;

  OK(tfd_graph_start(g, &x, 1, NULL, 0, NULL, 0));
  OK(tfd_graph_next(g, &event));
  assert_int_equal(TFD_GRAPH_DONE, event);
  for (i = 0; i < 3; i++) OK(tfd_graph_result(g, i, &results[i]));
  OK(tfd_graph_stop(g));
}

static tfd_tensor *square(double first) {
  int64_t dims[2] = {4, 4};
  double values[16];
  tfd_tensor *t = NULL;
  int i;

  for (i = 0; i < 16; i++) values[i] = first + 0.1 * (i * 7 % 5) - 0.2;
  OK(tfd_tensor_from_values(values, 16, TFD_FLOAT32, dims, 2, &t));
  return t;
}

static void planned_programs_read_what_was_written_for_them(void **state) {
  unsigned start;

  (void)state;
  for (start = 1; start <= 25; start++) {
    static int reads[2][STEPS * 8];
    tfd_tensor *results[2][3];
    tfd_tensor *x = square(0.3);
    size_t bytes[2];
    int n[2];
    int on;
    int i;

    for (on = 0; on < 2; on++) {
      tfd_tensor *first = square(0.1);
      tfd_variable *v = NULL;
      tfd_graph *g = NULL;

      OK(tfd_variable_new(OBJECT(first), "v", true, NULL, &v));
      g = random_graph(start, v);
      setenv("TFDIST_PLAN", on ? "1" : "0", 1);
      call_graph(g, x, results[on]);
      assert_non_null(g->programs[0]);
      n[on] = trace_reads(g->programs[0], reads[on]);
      bytes[on] = g->programs[0]->arena->bytes;
      RELEASE(g, v, first);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(reads[0], reads[1], (size_t)n[0] * sizeof(int));
    assert_true(bytes[1] <= bytes[0]);
    for (i = 0; i < 3; i++) {
      same_bits(results[0][i], results[1][i]);
      RELEASE(results[0][i], results[1][i]);
    }
    RELEASE(x);
  }
}

/* Not even NaN: every float of 0xff bytes is one. */
static void what_the_arena_held_before_is_never_read(void **state) {
  unsigned start;

  (void)state;
  for (start = 1; start <= 25; start++) {
    tfd_tensor *results[2][3];
    tfd_tensor *x = square(0.3);
    tfd_tensor *first = square(0.1);
    tfd_variable *v[2] = {NULL, NULL};
    tfd_graph *g[2] = {NULL, NULL};
    int call;
    int k;
    int i;

    for (k = 0; k < 2; k++) {
      OK(tfd_variable_new(OBJECT(first), "v", true, NULL, &v[k]));
      g[k] = random_graph(start, v[k]);
    }
    for (call = 0; call < 3; call++) {
      for (k = 0; k < 2; k++) call_graph(g[k], x, results[k]);
      for (i = 0; i < 3; i++) {
        same_bits(results[0][i], results[1][i]); /* it waits for both */
        RELEASE(results[0][i], results[1][i]);
      }
      same_bits(v[0]->value, v[1]->value);
      memset(g[1]->programs[0]->arena->data, 0xff,
             g[1]->programs[0]->arena->bytes);
    }
    RELEASE(g[0], g[1], v[0], v[1], first, x);
  }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, count_before, count_after)
  const struct CMUnitTest tests[] = {
      TEST(stretches_that_live_at_once_do_not_meet),
      TEST(a_chain_needs_two_buffers),
      TEST(nothing_needs_nothing),
      TEST(planned_programs_read_what_was_written_for_them),
      TEST(what_the_arena_held_before_is_never_read),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
