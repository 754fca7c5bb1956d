/* Who gets how much of a batch: the cases of TensorFlow's tests, the rule
** against a model that deals element by element, and batches of a strategy. */
#include "distribute_support.h"

enum { MOST = 16 };

/* Sizes of the pieces of all replicas, which must follow each other. */
static void pieces(int64_t rows, int64_t batch, int n, int64_t *sizes) {
  int64_t at = 0;
  int i;

  for (i = 0; i < n; i++) {
    int64_t first = -1;

    assert_int_equal(TFD_OK,
                     tfd_input_piece(rows, batch, n, i, &first, &sizes[i]));
    assert_int_equal(at, first);
    at += sizes[i];
  }
  assert_int_equal(rows, at);
}

static void expect_pieces(int64_t rows, int64_t batch, int n, ...) {
  int64_t sizes[MOST];
  va_list wanted;
  int i;

  pieces(rows, batch, n, sizes);
  va_start(wanted, n);
  for (i = 0; i < n; i++) assert_int_equal(va_arg(wanted, int), sizes[i]);
  va_end(wanted);
}

static void expect_turns(int64_t batch, int workers, int local, int worker,
                         ...) {
  va_list wanted;
  int64_t size = -1;
  int64_t again = -1;
  int n = workers * local;
  int i;

  va_start(wanted, worker);
  for (i = 0; i < n; i++) {
    assert_int_equal(TFD_OK,
                     tfd_input_turn(batch, workers, local, worker, i, &size));
    assert_int_equal(TFD_OK, tfd_input_turn(batch, workers, local, worker,
                                            i + 3 * n, &again));
    assert_int_equal(va_arg(wanted, int), size);
    assert_int_equal(size, again);
  }
  va_end(wanted);
}

static void workers_cut_their_streams_in_turn(void **state) {
  (void)state;
  /* I01 */
  expect_turns(8, 2, 2, 0, 2, 2, 2, 2);
  expect_turns(8, 2, 2, 1, 2, 2, 2, 2);
  /* I02 */
  expect_turns(4, 3, 1, 0, 2, 1, 1);
  expect_turns(4, 3, 1, 1, 1, 1, 2);
  expect_turns(4, 3, 1, 2, 1, 2, 1);
  /* I16 */
  expect_turns(7, 2, 2, 0, 2, 2, 2, 1);
  expect_turns(7, 2, 2, 1, 2, 1, 2, 2);
  /* G = 4, n = 5 */
  expect_turns(4, 5, 1, 0, 1, 1, 1, 1, 0);
}

static void every_step_of_all_workers_is_a_global_batch(void **state) {
  int64_t batch;
  int64_t turn;
  int workers;
  int local;
  int w;
  int r;

  (void)state;
  for (batch = 0; batch <= 13; batch++) {
    for (workers = 1; workers <= 4; workers++) {
      for (local = 1; local <= 3; local++) {
        for (turn = 0; turn < workers; turn++) {
          int64_t sum = 0;

          for (w = 0; w < workers; w++) {
            for (r = 0; r < local; r++) {
              int64_t size = 0;

              assert_int_equal(TFD_OK, tfd_input_turn(batch, workers, local, w,
                                                      turn * local + r, &size));
              sum += size;
            }
          }
          assert_int_equal(batch, sum);
        }
      }
    }
  }
}

static void a_short_batch_fills_replicas_in_order(void **state) {
  (void)state;
  expect_pieces(6, 8, 2, 4, 2); /* decisions: 6 of 8 */
  expect_pieces(7, 7, 4, 2, 2, 2, 1);
  expect_pieces(5, 8, 4, 2, 2, 1, 0);
  expect_pieces(0, 8, 2, 0, 0);
  expect_pieces(6, 8, 2, 4, 2);       /* J28: step two of 14 by 8 */
  expect_pieces(1, 2, 4, 1, 0, 0, 0); /* J09: the last of 9 by 2 */
}

static void pieces_are_even_where_the_batch_is_not_known(void **state) {
  (void)state;
  expect_pieces(4, -1, 3, 2, 2, 0); /* I15 */
  expect_pieces(6, -1, 2, 3, 3);
  expect_pieces(5, -1, 4, 2, 2, 1, 0);
  expect_pieces(6, 5, 2, 3, 3); /* more than there should be */
}

/* The rule in words, one element at a time. */
static void deal(int64_t rows, int64_t batch, int n, int64_t *sizes) {
  int64_t row;
  int i = 0;

  memset(sizes, 0, (size_t)n * sizeof *sizes);
  for (row = 0; row < rows; row++) {
    while (sizes[i] == batch / n + (i < batch % n ? 1 : 0)) i++;
    sizes[i]++;
  }
}

static void pieces_are_what_dealing_gives(void **state) {
  int64_t got[MOST];
  int64_t wanted[MOST];
  int64_t batch;
  int64_t rows;
  int n;

  (void)state;
  for (n = 1; n <= MOST; n++) {
    for (batch = 0; batch <= 40; batch++) {
      for (rows = 0; rows <= batch; rows++) {
        pieces(rows, batch, n, got);
        deal(rows, batch, n, wanted);
        assert_memory_equal(wanted, got, (size_t)n * sizeof *got);
      }
    }
  }
}

static void large_numbers_do_not_overflow(void **state) {
  int64_t first = 0;
  int64_t count = 0;
  int64_t most = TFD_MAX_ROWS;

  (void)state;
  assert_int_equal(TFD_OK,
                   tfd_input_piece(most, most, TFD_MAX_IN_SYNC,
                                   TFD_MAX_IN_SYNC - 1, &first, &count));
  assert_int_equal(most, first + count);
  assert_int_equal(most / TFD_MAX_IN_SYNC, count);
  assert_int_equal(TFD_OK, tfd_input_piece(most, -1, 3, 2, &first, &count));
  assert_int_equal(most, first + count);
  assert_int_equal(TFD_OK, tfd_input_turn(most, 1, 2, 0, INT64_MAX, &count));
  assert_int_equal(most / 2, count);
}

static void numbers_out_of_range_are_refused(void **state) {
  int64_t first = 77;
  int64_t count = 78;

  (void)state;
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_input_piece(-1, 4, 2, 0, &first, &count));
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_input_piece(4, -2, 2, 0, &first, &count));
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_input_piece(INT64_MAX, -1, 2, 0, &first, &count));
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_input_piece(4, 4, 0, 0, &first, &count));
  assert_int_equal(TFD_INDEX_ERROR,
                   tfd_input_piece(4, 4, 2, 2, &first, &count));
  assert_string_equal("input_piece: no replica 2; there are 2",
                      tfd_error_message());
  assert_int_equal(TFD_INDEX_ERROR,
                   tfd_input_piece(4, 4, 2, -1, &first, &count));
  assert_int_equal(TFD_VALUE_ERROR, tfd_input_turn(4, 0, 1, 0, 0, &count));
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_input_turn(4, INT32_MAX, INT32_MAX, 0, 0, &count));
  assert_int_equal(TFD_VALUE_ERROR, tfd_input_turn(-2, 2, 1, 0, 0, &count));
  assert_int_equal(TFD_INDEX_ERROR, tfd_input_turn(4, 2, 1, 2, 0, &count));
  assert_int_equal(TFD_INDEX_ERROR, tfd_input_turn(4, 2, 1, 0, -1, &count));
  assert_int_not_equal(TFD_OK, tfd_input_piece(4, 4, 2, 0, NULL, &count));
  assert_int_not_equal(TFD_OK, tfd_input_piece(4, 4, 2, 0, &first, NULL));
  assert_int_not_equal(TFD_OK, tfd_input_turn(4, 2, 1, 0, 0, NULL));
  assert_int_equal(77, first);
  assert_int_equal(78, count);
}

/* --- batches of a strategy ------------------------------------------------ */

/* {rows, 2}: 0, 1, 2, ... */
static tfd_tensor *counted(int64_t rows) {
  double values[64];
  int64_t dims[2] = {rows, 2};
  tfd_tensor *t = NULL;
  int i;

  for (i = 0; i < rows * 2; i++) values[i] = i;
  assert_int_equal(TFD_OK, tfd_tensor_from_values(values, rows * 2, TFD_FLOAT32,
                                                  dims, 2, &t));
  return t;
}

static void check_share(tfd_value *shares, tfd_strategy *s, int i,
                        int64_t first, int64_t count) {
  tfd_object *part = NULL;
  tfd_tensor *t = NULL;
  tfd_device *place = NULL;
  tfd_device *wanted = NULL;
  double got[64];
  int64_t k;

  assert_int_equal(TFD_OK, tfd_value_component(shares, i, &part));
  assert_int_equal(TFD_OK, tfd_operand_tensor(part, &t));
  assert_int_equal(2, tfd_tensor_rank(t));
  assert_int_equal(count, tfd_tensor_dim(t, 0));
  assert_int_equal(2, tfd_tensor_dim(t, 1));
  assert_int_equal(TFD_OK, tfd_tensor_device(t, &place));
  assert_int_equal(TFD_OK, tfd_strategy_device(s, i, &wanted));
  assert_ptr_equal(wanted, place);
  assert_int_equal(TFD_OK, tfd_tensor_values(t, got, count * 2));
  for (k = 0; k < count * 2; k++) {
    assert_true(got[k] == (double)(first * 2 + k));
  }
  tfd_release((tfd_object *)t);
  tfd_release(part);
}

static void a_batch_is_split_on_the_replicas_devices(void **state) {
  static const int64_t sizes[2][3] = {{3, 3, 2}, {3, 2, 0}};
  tfd_strategy *s = strategy_of("mirrored", 3);
  int k;
  int i;

  (void)state;
  for (k = 0; k < 2; k++) {
    tfd_tensor *t = counted(k == 0 ? 8 : 5);
    tfd_value *shares = NULL;
    int64_t at = 0;

    assert_int_equal(TFD_OK, tfd_strategy_split(s, t, 8, &shares));
    assert_int_equal(TFD_VALUE_PER_REPLICA, tfd_value_kind_of(shares));
    assert_int_equal(3, tfd_value_count(shares));
    for (i = 0; i < 3; i++) {
      check_share(shares, s, i, at, sizes[k][i]);
      at += sizes[k][i];
    }
    tfd_release((tfd_object *)shares);
    tfd_release((tfd_object *)t);
  }
  tfd_release((tfd_object *)s);
}

/* As a strategy of two workers would say it: replicas 2 and 3 of 4 are here. */
static void a_worker_takes_its_part_of_the_global_batch(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  tfd_tensor *t = counted(7);
  tfd_value *shares = NULL;
  int64_t first = 0;
  int64_t count = 0;

  (void)state;
  s->group->size = 4;
  s->group->base = 2;
  assert_int_equal(4, tfd_strategy_replica_count(s));
  assert_int_equal(2, tfd_strategy_local_count(s));
  assert_int_equal(2, tfd_strategy_first_replica(s));
  assert_int_equal(TFD_OK,
                   tfd_strategy_input_share(s, 7, 7, 1, &first, &count));
  assert_int_equal(2, first);
  assert_int_equal(2, count);
  assert_int_equal(TFD_OK, tfd_strategy_split(s, t, 7, &shares));
  assert_int_equal(2, tfd_value_count(shares));
  check_share(shares, s, 0, 4, 2);
  check_share(shares, s, 1, 6, 1);
  tfd_release((tfd_object *)shares);
  tfd_release((tfd_object *)t);
  tfd_release((tfd_object *)s);
}

static void one_replica_takes_everything(void **state) {
  tfd_strategy *s = strategy_of("one_device", 1);
  tfd_tensor *t = counted(5);
  tfd_value *shares = NULL;

  (void)state;
  assert_int_equal(TFD_OK, tfd_strategy_split(s, t, -1, &shares));
  assert_int_equal(1, tfd_value_count(shares));
  check_share(shares, s, 0, 0, 5);
  tfd_release((tfd_object *)shares);
  tfd_release((tfd_object *)t);
  tfd_release((tfd_object *)s);
}

static void what_cannot_be_split_is_refused(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  tfd_tensor *one = scalar(1);
  tfd_tensor *t = counted(2);
  tfd_value *shares = NULL;

  (void)state;
  assert_int_equal(TFD_VALUE_ERROR, tfd_strategy_split(s, one, 2, &shares));
  assert_string_equal("strategy_split: a scalar has no rows to share among 2 "
                      "replicas",
                      tfd_error_message());
  assert_int_equal(TFD_VALUE_ERROR, tfd_strategy_split(s, t, -5, &shares));
  assert_int_not_equal(TFD_OK, tfd_strategy_split(NULL, t, 2, &shares));
  assert_int_not_equal(TFD_OK, tfd_strategy_split(s, NULL, 2, &shares));
  assert_int_not_equal(TFD_OK, tfd_strategy_split(s, t, 2, NULL));
  assert_null(shares);
  tfd_release((tfd_object *)one);
  tfd_release((tfd_object *)t);
  tfd_release((tfd_object *)s);
}

static void a_kind_that_is_not_there_is_named(void **state) {
  tfd_strategy *s = NULL;

  (void)state;
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_strategy_new("mirror", NULL, 0, NULL, &s));
  assert_string_equal("strategy: there is no kind \"mirror\"; there are "
                      "default, one_device, mirrored, central_storage, "
                      "multi_worker",
                      tfd_error_message());
  assert_null(s);
}

static int set_up(void **state) {
  (void)state;
  return tfd_config_set_cpu_devices(3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(workers_cut_their_streams_in_turn),
      cmocka_unit_test(every_step_of_all_workers_is_a_global_batch),
      cmocka_unit_test(a_short_batch_fills_replicas_in_order),
      cmocka_unit_test(pieces_are_even_where_the_batch_is_not_known),
      cmocka_unit_test(pieces_are_what_dealing_gives),
      cmocka_unit_test(large_numbers_do_not_overflow),
      cmocka_unit_test(numbers_out_of_range_are_refused),
      cmocka_unit_test(a_batch_is_split_on_the_replicas_devices),
      cmocka_unit_test(a_worker_takes_its_part_of_the_global_batch),
      cmocka_unit_test(one_replica_takes_everything),
      cmocka_unit_test(what_cannot_be_split_is_refused),
      cmocka_unit_test(a_kind_that_is_not_there_is_named),
  };

  alarm(300); /* a hang ends the program */
  return cmocka_run_group_tests(tests, set_up, nothing_left);
}
