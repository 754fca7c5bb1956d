/* Copies between the host and a GPU: what is given is the caller's again, what
** is asked for is there when its position has passed, whatever the sizes; on
** stand-ins that read and write late, and refuse memory that is not pinned. */
#include "backend_cuda.h"

enum { PIECE = 512 << 10, MOST = 5 * 1024 * 1024 + 12345 };

static char *given;
static char *got;
static void *there;

static char byte_at(size_t i, int turn) {
  return (char)((i * 31 + (i >> 9) + (size_t)turn * 7) & 0xff);
}

static void give(size_t from, size_t n, int turn) {
  size_t i;

  for (i = 0; i < n; i++) given[i] = byte_at(from + i, turn);
  copy_host(true, (char *)there + from, given, n);
  memset(given, 0x55, n); /* the copy has its own by now */
}

static void expect(size_t from, size_t n, int turn) {
  size_t i;

  memset(got, 0x66, n);
  copy_host(false, (char *)there + from, got, n);
  barrier_work();
  for (i = 0; i < n; i++) {
    if (got[i] == byte_at(from + i, turn)) continue;
    fail_msg("byte %zu of %zu from %zu on", i, n, from);
  }
}

static void test_sizes(void **state) {
  static const size_t sizes[] = {
      1,         255,       256,           257,       PIECE - 1, PIECE,
      PIECE + 1, 4 * PIECE, 4 * PIECE + 1, 8 * PIECE, MOST};
  int turn;

  (void)state;
  for (turn = 0; turn < COUNT(sizes); turn++) {
    give(0, sizes[turn], turn);
    expect(0, sizes[turn], turn);
  }
}

/* More of them than there is room for, nobody waits in between. */
static void test_many_small(void **state) {
  size_t n = 1000;
  size_t i;

  (void)state;
  for (i = 0; i < 4 * (MOST / n); i++) {
    give(i % (MOST / n) * n, n, (int)(i / (MOST / n)));
  }
  expect(0, MOST / n * n, 3);
}

/* Several answers are outstanding at once: more than there are pieces. */
static void test_many_answers(void **state) {
  enum { N = 11, BYTES = 3000 };
  size_t i;
  int k;

  (void)state;
  give(0, (size_t)N * BYTES, 9);
  memset(got, 0x66, (size_t)N * BYTES);
  for (k = 0; k < N; k++) {
    copy_host(false, (char *)there + k * BYTES, got + k * BYTES, BYTES);
  }
  barrier_work();
  for (i = 0; i < (size_t)N * BYTES; i++) {
    if (got[i] != byte_at(i, 9)) fail_msg("byte %zu", i);
  }
}

static int set_up(void **state) {
  int rc = find_gpu(state);

  if (rc != 0 || gpu == NULL) return rc;
  given = malloc(MOST);
  got = malloc(MOST);
  return gpu->alloc(0, MOST, &there) == TFD_OK ? 0 : -1;
}

static int end(void **state) {
  if (gpu != NULL) gpu->free(0, there, 0);
  free(given);
  free(got);
  return count_examples(state);
}

ON_GPU(test_sizes)
ON_GPU(test_many_small)
ON_GPU(test_many_answers)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sizes_gpu),
      cmocka_unit_test(test_many_small_gpu),
      cmocka_unit_test(test_many_answers_gpu),
  };

  setenv("TFD_STANDIN_SEED", "3", 0);
  return cmocka_run_group_tests(tests, set_up, end);
}
