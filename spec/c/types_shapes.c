/* Dtypes, views, shape texts, axes, broadcasting, coalescing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "types/types.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

static tfd__view view_of(int dtype, const int64_t *dims, int rank) {
  tfd__view v = {.data = NULL};

  assert_int_equal(TFD_OK, tfd__view_set(&v, dtype, dims, rank));
  return v;
}

/* --- dtypes --------------------------------------------------------------- */

static void dtypes_have_name_size_and_class(void **state) {
  static const struct {
    int dtype;
    const char *name;
    int size;
    bool is_float;
    bool is_int;
    bool is_signed;
  } rows[] = {
      {TFD_FLOAT32, "float32", 4, true, false, true},
      {TFD_FLOAT64, "float64", 8, true, false, true},
      {TFD_FLOAT16, "float16", 2, true, false, true},
      {TFD_BFLOAT16, "bfloat16", 2, true, false, true},
      {TFD_INT8, "int8", 1, false, true, true},
      {TFD_INT16, "int16", 2, false, true, true},
      {TFD_INT32, "int32", 4, false, true, true},
      {TFD_INT64, "int64", 8, false, true, true},
      {TFD_UINT8, "uint8", 1, false, true, false},
      {TFD_BOOL, "bool", 1, false, false, false},
  };

  (void)state;
  assert_int_equal(TFD_DTYPE_END - 1, sizeof rows / sizeof rows[0]);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const tfd__dtype_info *info = tfd__dtype_info_of(rows[i].dtype);
    int found = 0;

    assert_string_equal(rows[i].name, info->name);
    assert_string_equal(rows[i].name, tfd__dtype_name(rows[i].dtype));
    assert_string_equal(rows[i].name, tfd_dtype_name(rows[i].dtype));
    assert_int_equal(rows[i].size, info->size);
    assert_int_equal(rows[i].size, tfd_dtype_size(rows[i].dtype));
    assert_int_equal(rows[i].is_float, tfd__is_float(rows[i].dtype));
    assert_int_equal(rows[i].is_int, tfd__is_int(rows[i].dtype));
    assert_int_equal(rows[i].is_signed, info->is_signed);
    assert_int_equal(TFD_OK, tfd_dtype_find(rows[i].name, &found));
    assert_int_equal(rows[i].dtype, found);
  }
}

static void other_numbers_are_no_dtypes(void **state) {
  static const int numbers[] = {-1, 0, TFD_DTYPE_END, 1000};

  (void)state;
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    assert_null(tfd__dtype_info_of(numbers[i]));
    assert_null(tfd_dtype_name(numbers[i]));
    assert_string_equal("?", tfd__dtype_name(numbers[i]));
    assert_int_equal(0, tfd_dtype_size(numbers[i]));
    assert_false(tfd__is_float(numbers[i]));
    assert_false(tfd__is_int(numbers[i]));
  }
}

static void unknown_dtype_name_lists_the_known(void **state) {
  int dtype = 77;

  (void)state;
  assert_int_equal(TFD_TYPE_ERROR, tfd_dtype_find("float", &dtype));
  assert_string_equal(
      "unknown dtype \"float\"; dtypes are float32, float64, float16, "
      "bfloat16, int8, int16, int32, int64, uint8, bool",
      tfd_error_message());
  assert_int_equal(77, dtype);
}

/* --- views ---------------------------------------------------------------- */

static void set_makes_row_major_strides(void **state) {
  int place = 0;
  tfd__view v = {.data = &place};

  (void)state;
  assert_int_equal(TFD_OK, tfd__view_set(&v, TFD_INT16, DIMS(2, 3, 4), 3));
  assert_int_equal(24, v.numel);
  assert_int_equal(48, tfd__view_bytes(&v));
  assert_true(v.dense);
  assert_int_equal(12, v.strides[0]);
  assert_int_equal(4, v.strides[1]);
  assert_int_equal(1, v.strides[2]);
  assert_ptr_equal(&place, v.data);
}

static void scalars_have_one_element(void **state) {
  tfd__view v = view_of(TFD_FLOAT32, NULL, 0);

  (void)state;
  assert_int_equal(1, v.numel);
  assert_int_equal(0, v.rank);
  assert_true(v.dense);
}

static void an_empty_axis_empties_the_view(void **state) {
  tfd__view v = view_of(TFD_FLOAT32, DIMS(2, 0, 4), 3);

  (void)state;
  assert_int_equal(0, v.numel);
  assert_int_equal(0, tfd__view_bytes(&v));
  assert_int_equal(4, v.strides[0]);
}

static void bad_shapes_are_refused_untouched(void **state) {
  tfd__view v = view_of(TFD_INT8, DIMS(5), 1);
  tfd__view before = v;

  (void)state;
  assert_int_equal(TFD_INVALID_ARGUMENT,
                   tfd__view_set(&v, TFD_FLOAT32, DIMS(2, -3), 2));
  assert_string_equal(
      "shape {2, -3}: the size of axis 1 is -3; sizes are 0 or more",
      tfd_error_message());
  assert_int_equal(
      TFD_INVALID_ARGUMENT,
      tfd__view_set(&v, TFD_FLOAT32, DIMS(1, 1, 1, 1, 1, 1, 1, 1, 1), 9));
  assert_string_equal("shape {1, 1, 1, 1, 1, 1, 1, 1, ...} has rank 9; "
                      "tensors have at most 8 axes",
                      tfd_error_message());
  assert_int_equal(TFD_INVALID_ARGUMENT, tfd__view_set(&v, 0, NULL, 0));
  assert_int_equal(TFD_INVALID_ARGUMENT,
                   tfd__view_set(&v, TFD_INT8, DIMS(INT64_MAX, 2), 2));
  assert_int_equal(TFD_INVALID_ARGUMENT,
                   tfd__view_set(&v, TFD_INT16, DIMS(INT64_MAX / 2 + 1), 1));
  /* the other axes' product must fit even if there are no elements */
  assert_int_equal(TFD_INVALID_ARGUMENT,
                   tfd__view_set(&v, TFD_INT8, DIMS(0, INT64_MAX, 2), 3));
  assert_int_equal(TFD_OK, tfd__view_set(&v, TFD_INT8, DIMS(INT64_MAX), 1));
  v = before;
  tfd__view_set(&v, TFD_INT8, DIMS(INT64_MAX, 2), 2);
  assert_memory_equal(&before, &v, sizeof v);
}

static void refresh_finds_out_what_is_dense(void **state) {
  tfd__view v = view_of(TFD_FLOAT32, DIMS(2, 3), 2);

  (void)state;
  v.strides[0] = 1; /* transposed */
  v.strides[1] = 2;
  tfd__view_refresh(&v);
  assert_false(v.dense);
  assert_int_equal(6, v.numel);

  v = view_of(TFD_FLOAT32, DIMS(2, 1, 3), 3);
  v.strides[1] = 77; /* never stepped along */
  tfd__view_refresh(&v);
  assert_true(v.dense);
  assert_int_equal(3, v.strides[1]);

  v.dims[2] = 0;
  v.strides[0] = -5;
  tfd__view_refresh(&v);
  assert_true(v.dense);
  assert_int_equal(0, v.numel);
  assert_int_equal(1, v.strides[0]);

  v = view_of(TFD_FLOAT32, DIMS(4), 1);
  v.strides[0] = 0;
  tfd__view_refresh(&v);
  assert_false(v.dense);
}

static void same_shape_compares_ranks_and_sizes(void **state) {
  tfd__view a = view_of(TFD_FLOAT32, DIMS(2, 3), 2);
  tfd__view b = view_of(TFD_INT8, DIMS(2, 3), 2);
  tfd__view c = view_of(TFD_FLOAT32, DIMS(2, 3, 1), 3);
  tfd__view d = view_of(TFD_FLOAT32, DIMS(2, 4), 2);

  (void)state;
  assert_true(tfd__same_shape(&a, &b));
  assert_false(tfd__same_shape(&a, &c));
  assert_false(tfd__same_shape(&a, &d));
}

static void shapes_print_as_lua_lists(void **state) {
  char buf[TFD_SHAPE_TEXT];
  tfd__view v = view_of(TFD_FLOAT32, DIMS(64, 784), 2);
  int64_t long_ones[8];

  (void)state;
  assert_ptr_equal(buf, tfd__shape_text(&v, buf));
  assert_string_equal("{64, 784}", buf);
  assert_string_equal("{}", tfd__dims_text(NULL, 0, buf));
  assert_string_equal("{5}", tfd__dims_text(DIMS(5), 1, buf));
  for (int i = 0; i < 8; i++) long_ones[i] = INT64_MIN;
  tfd__dims_text(long_ones, 8, buf);
  assert_string_equal("-9223372036854775808}", strrchr(buf, ' ') + 1);
}

/* --- axes ----------------------------------------------------------------- */

static void axes_count_from_both_ends(void **state) {
  tfd__view v = view_of(TFD_FLOAT32, DIMS(64, 10), 2);
  int axis = -1;

  (void)state;
  for (int64_t i = -2; i < 2; i++) {
    assert_int_equal(TFD_OK, tfd__axis("x", &v, i, &axis));
    assert_int_equal((i + 2) % 2, axis);
  }
}

static void axis_outside_names_tensor_and_rule(void **state) {
  tfd__view v = view_of(TFD_FLOAT32, DIMS(64, 10), 2);
  tfd__view scalar = view_of(TFD_FLOAT32, NULL, 0);
  int axis = 5;

  (void)state;
  assert_int_equal(TFD_VALUE_ERROR, tfd__axis("reduce_sum", &v, 2, &axis));
  assert_string_equal("reduce_sum: axis 2 is outside a tensor of rank 2 "
                      "{64, 10}; axes count from 0, -1 is the last",
                      tfd_error_message());
  assert_int_equal(TFD_VALUE_ERROR, tfd__axis("x", &v, -3, &axis));
  assert_int_equal(TFD_VALUE_ERROR, tfd__axis("x", &v, INT64_MIN, &axis));
  assert_int_equal(TFD_VALUE_ERROR, tfd__axis("x", &scalar, 0, &axis));
  assert_int_equal(TFD_VALUE_ERROR, tfd__axis("x", &scalar, -1, &axis));
  assert_int_equal(5, axis);
}

/* --- broadcasting --------------------------------------------------------- */

typedef struct pair {
  int a_rank;
  int b_rank;
  int rank; /* -1 = error */
  int64_t a[4];
  int64_t b[4];
  int64_t dims[4];
} pair;

static const pair pairs[] = {
    {0, 0, 0, {0}, {0}, {0}},
    {0, 2, 2, {0}, {2, 3}, {2, 3}},
    {1, 2, 2, {3}, {2, 3}, {2, 3}},
    {2, 2, 2, {2, 1}, {1, 3}, {2, 3}},
    {3, 1, 3, {4, 2, 1}, {5}, {4, 2, 5}},
    {2, 2, 2, {2, 3}, {2, 3}, {2, 3}},
    {1, 1, 1, {1}, {0}, {0}},
    {2, 1, 2, {0, 3}, {1}, {0, 3}},
    {1, 1, -1, {3}, {4}, {0}},
    {1, 1, -1, {0}, {2}, {0}},
    {2, 2, -1, {2, 3}, {3, 3}, {0}},
};

static void shapes_broadcast_by_the_usual_rule(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    const pair *p = &pairs[i];
    tfd__view a = view_of(TFD_FLOAT32, p->a, p->a_rank);
    tfd__view b = view_of(TFD_FLOAT32, p->b, p->b_rank);

    for (int swap = 0; swap < 2; swap++) {
      int64_t dims[TFD_MAX_RANK] = {0};
      int rank = -1;
      int rc =
          tfd__broadcast("op", swap ? &b : &a, swap ? &a : &b, dims, &rank);

      assert_int_equal(p->rank < 0 ? TFD_INVALID_ARGUMENT : TFD_OK, rc);
      assert_int_equal(p->rank, rank);
      for (int k = 0; k < rank; k++) assert_int_equal(p->dims[k], dims[k]);
    }
  }
}

static void failed_broadcast_names_both_shapes(void **state) {
  tfd__view a = view_of(TFD_FLOAT32, DIMS(2, 3), 2);
  tfd__view b = view_of(TFD_FLOAT32, DIMS(4), 1);
  int64_t dims[TFD_MAX_RANK];
  int rank = 0;

  (void)state;
  tfd__broadcast("add", &a, &b, dims, &rank);
  assert_string_equal("add: shapes {2, 3} and {4} do not broadcast",
                      tfd_error_message());
}

static void broadcast_views_repeat_with_stride_zero(void **state) {
  tfd__view v = view_of(TFD_FLOAT32, DIMS(3, 1), 2);
  tfd__view wide = tfd__broadcast_view(&v, DIMS(2, 3, 4), 3);
  tfd__view equal = tfd__broadcast_view(&v, DIMS(3, 1), 2);
  tfd__view none = tfd__broadcast_view(&v, DIMS(3, 0), 2);

  (void)state;
  assert_int_equal(24, wide.numel);
  assert_int_equal(3, wide.rank);
  assert_int_equal(0, wide.strides[0]);
  assert_int_equal(1, wide.strides[1]);
  assert_int_equal(0, wide.strides[2]);
  assert_false(wide.dense);
  assert_true(equal.dense);
  assert_int_equal(0, none.numel);
}

/* --- coalescing ----------------------------------------------------------- */

static int coalesce1(const tfd__view *v, int64_t *dims,
                     int64_t strides[1][TFD_MAX_RANK]) {
  return tfd__coalesce((const tfd__view *[]){v}, 1, dims, strides);
}

static void dense_views_become_one_loop(void **state) {
  tfd__view v = view_of(TFD_FLOAT32, DIMS(2, 1, 3, 4), 4);
  tfd__view scalar = view_of(TFD_FLOAT32, NULL, 0);
  tfd__view empty = view_of(TFD_FLOAT32, DIMS(3, 0), 2);
  int64_t dims[TFD_MAX_RANK];
  int64_t strides[1][TFD_MAX_RANK];

  (void)state;
  assert_int_equal(1, coalesce1(&v, dims, strides));
  assert_int_equal(24, dims[0]);
  assert_int_equal(1, strides[0][0]);
  assert_int_equal(1, coalesce1(&scalar, dims, strides));
  assert_int_equal(1, dims[0]);
  assert_int_equal(1, coalesce1(&empty, dims, strides));
  assert_int_equal(0, dims[0]);
}

static void axes_merge_only_where_all_views_allow(void **state) {
  tfd__view a = view_of(TFD_FLOAT32, DIMS(2, 3, 4), 3);
  tfd__view row = view_of(TFD_FLOAT32, DIMS(4), 1);
  tfd__view b = tfd__broadcast_view(&row, DIMS(2, 3, 4), 3);
  int64_t dims[TFD_MAX_RANK];
  int64_t strides[2][TFD_MAX_RANK];

  (void)state;
  assert_int_equal(
      2, tfd__coalesce((const tfd__view *[]){&a, &b}, 2, dims, strides));
  assert_int_equal(6, dims[0]);
  assert_int_equal(4, dims[1]);
  assert_int_equal(4, strides[0][0]);
  assert_int_equal(1, strides[0][1]);
  assert_int_equal(0, strides[1][0]);
  assert_int_equal(1, strides[1][1]);
}

/* Sizes, each left out, repeated or whole. */
static tfd__view draw_input(const tfd__view *out) {
  int first = rand() % (out->rank + 1);
  tfd__view v;
  int64_t dims[TFD_MAX_RANK];

  for (int i = first; i < out->rank; i++) {
    dims[i - first] = rand() % 3 == 0 ? 1 : out->dims[i];
  }
  v = view_of(TFD_FLOAT32, dims, out->rank - first);
  if (v.rank > 0 && rand() % 3 == 0) v.strides[v.rank - 1] = 2;
  tfd__view_refresh(&v);
  return v;
}

static void inputs_merge_as_their_broadcast_views_do(void **state) {
  (void)state;
  srand(11);
  for (int round = 0; round < 500; round++) {
    int64_t sizes[4] = {rand() % 4, 1 + rand() % 2, 1 + rand() % 3, 3};
    tfd__view out = view_of(TFD_FLOAT32, sizes, rand() % 5);
    tfd__view in[2] = {draw_input(&out), draw_input(&out)};
    tfd__view wide[2];
    int64_t dims[TFD_MAX_RANK];
    int64_t strides[3][TFD_MAX_RANK];
    int64_t want_dims[TFD_MAX_RANK];
    int64_t want[3][TFD_MAX_RANK];
    int rank = 0;

    for (int k = 0; k < 2; k++) {
      wide[k] = tfd__broadcast_view(&in[k], out.dims, out.rank);
    }
    rank = tfd__coalesce((const tfd__view *[]){&wide[0], &wide[1], &out}, 3,
                         want_dims, want);
    assert_int_equal(
        rank, tfd__coalesce_over(&out, (const tfd__view *[]){&in[0], &in[1]}, 2,
                                 dims, strides));
    for (int i = 0; i < rank; i++) {
      assert_int_equal(want_dims[i], dims[i]);
      for (int k = 0; k < 3; k++) assert_int_equal(want[k][i], strides[k][i]);
    }
  }
}

/* Every element is visited at the same place, in the same order. */
static void coalesced_walk_visits_the_same_elements(void **state) {
  (void)state;
  srand(7);
  for (int round = 0; round < 500; round++) {
    tfd__view v = {.dtype = TFD_FLOAT32, .rank = (uint8_t)(rand() % 5)};
    int64_t dims[TFD_MAX_RANK];
    int64_t strides[1][TFD_MAX_RANK];
    int rank = 0;

    for (int i = 0; i < v.rank; i++) v.dims[i] = 1 + rand() % 3;
    for (int i = v.rank - 1, s = 1; i >= 0; i--) {
      v.strides[i] = rand() % 4 == 0 ? rand() % 7 - 3 : s;
      s *= (int)v.dims[i];
    }
    tfd__view_refresh(&v);
    rank = coalesce1(&v, dims, strides);
    for (int64_t e = 0; e < v.numel; e++) {
      int64_t at = 0;
      int64_t merged_at = 0;
      int64_t rest = e;

      for (int i = v.rank - 1; i >= 0; rest /= v.dims[i--]) {
        at += rest % v.dims[i] * v.strides[i];
      }
      rest = e;
      for (int i = rank - 1; i >= 0; rest /= dims[i--]) {
        merged_at += rest % dims[i] * strides[0][i];
      }
      assert_int_equal(at, merged_at);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dtypes_have_name_size_and_class),
      cmocka_unit_test(other_numbers_are_no_dtypes),
      cmocka_unit_test(unknown_dtype_name_lists_the_known),
      cmocka_unit_test(set_makes_row_major_strides),
      cmocka_unit_test(scalars_have_one_element),
      cmocka_unit_test(an_empty_axis_empties_the_view),
      cmocka_unit_test(bad_shapes_are_refused_untouched),
      cmocka_unit_test(refresh_finds_out_what_is_dense),
      cmocka_unit_test(same_shape_compares_ranks_and_sizes),
      cmocka_unit_test(shapes_print_as_lua_lists),
      cmocka_unit_test(axes_count_from_both_ends),
      cmocka_unit_test(axis_outside_names_tensor_and_rule),
      cmocka_unit_test(shapes_broadcast_by_the_usual_rule),
      cmocka_unit_test(failed_broadcast_names_both_shapes),
      cmocka_unit_test(broadcast_views_repeat_with_stride_zero),
      cmocka_unit_test(dense_views_become_one_loop),
      cmocka_unit_test(axes_merge_only_where_all_views_allow),
      cmocka_unit_test(inputs_merge_as_their_broadcast_views_do),
      cmocka_unit_test(coalesced_walk_visits_the_same_elements),
  };

  return cmocka_run_group_tests_name("types/shapes", tests, NULL, NULL);
}
