/* Half precision and single elements: exhaustive where 16 bits allow it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "types/types.h"

/* The definition of IEEE binary16, by arithmetic. */
static double half_value(unsigned h) {
  int exponent = h >> 10 & 31;
  double fraction = h & 1023;
  double size = 0;

  if (exponent == 31) {
    size = fraction > 0 ? NAN : INFINITY;
  } else if (exponent == 0) {
    size = ldexp(fraction, -24);
  } else {
    size = ldexp(1024 + fraction, exponent - 25);
  }
  return h & 0x8000 ? -size : size;
}

static bool same_bits(double a, double b) {
  return memcmp(&a, &b, sizeof a) == 0;
}

static void every_half_has_its_value(void **state) {
  (void)state;
  for (unsigned h = 0; h < 65536; h++) {
    double want = half_value(h);
    double got = tfd__half_to_float((uint16_t)h);

    if (isnan(want)) {
      assert_true(isnan(got));
    } else {
      assert_true(same_bits(want, got));
    }
  }
}

static void every_half_survives_the_round_trip(void **state) {
  (void)state;
  for (unsigned h = 0; h < 65536; h++) {
    uint16_t back = tfd__float_to_half(tfd__half_to_float((uint16_t)h));
    unsigned quiet = isnan(half_value(h)) ? h | 0x200 : h;

    assert_int_equal(quiet, back);
  }
}

static void every_bfloat_survives_the_round_trip(void **state) {
  (void)state;
  for (unsigned h = 0; h < 65536; h++) {
    uint16_t back = tfd__float_to_bf16(tfd__bf16_to_float((uint16_t)h));
    bool nan = (h & 0x7fff) > 0x7f80;

    assert_int_equal(nan ? h | 0x40 : h, back);
  }
}

/* Neighbours a < b in the 16-bit type: what lies below, at and above their
** middle goes down, to the even one, up. Positive and negative. */
static void check_rounding(uint16_t (*narrow)(float), float (*widen)(uint16_t),
                           unsigned end) {
  for (unsigned h = 0; h + 1 < end; h++) {
    double a = widen((uint16_t)h);
    double b = widen((uint16_t)(h + 1));
    float middle = (float)((a + b) / 2);
    unsigned even = h % 2 == 0 ? h : h + 1;

    assert_int_equal(h, narrow(nextafterf(middle, 0)));
    assert_int_equal(even, narrow(middle));
    assert_int_equal(h + 1, narrow(nextafterf(middle, INFINITY)));
    assert_int_equal(even | 0x8000, narrow(-middle));
  }
}

static uint16_t to_half(float f) {
  return tfd__float_to_half(f);
}
static float from_half(uint16_t h) {
  return tfd__half_to_float(h);
}
static uint16_t to_bf16(float f) {
  return tfd__float_to_bf16(f);
}
static float from_bf16(uint16_t h) {
  return tfd__bf16_to_float(h);
}

static void floats_round_to_the_nearest_even_half(void **state) {
  (void)state;
  check_rounding(to_half, from_half, 0x7c00);
  assert_int_equal(0x7bff, tfd__float_to_half(65519.996f));
  assert_int_equal(0x7c00, tfd__float_to_half(65520.0f)); /* past the largest */
  assert_int_equal(0xfc00, tfd__float_to_half(-INFINITY));
}

static void floats_round_to_the_nearest_even_bfloat(void **state) {
  (void)state;
  check_rounding(to_bf16, from_bf16, 0x7f80);
  assert_int_equal(0x7f80, tfd__float_to_bf16(3.4e38f));
  assert_int_equal(0xff80, tfd__float_to_bf16(-INFINITY));
}

/* --- load and store ------------------------------------------------------- */

static double through(int dtype, double value) {
  double place = 0;

  tfd__store(&place, dtype, value);
  return tfd__load(&place, dtype);
}

static void small_integers_pass_every_dtype(void **state) {
  (void)state;
  for (int dtype = 1; dtype < TFD_DTYPE_END; dtype++) {
    double most = dtype == TFD_BOOL ? 1 : 100;

    for (double x = 0; x <= most; x++) {
      assert_true(same_bits(x, through(dtype, x)));
      if (!tfd__dtype_info_of(dtype)->is_signed || x == 0) continue;
      assert_true(same_bits(-x, through(dtype, -x)));
    }
  }
}

static void integers_saturate_and_truncate(void **state) {
  static const struct {
    int dtype;
    double low;
    double high;
  } rows[] = {
      {TFD_INT8, -128, 127},
      {TFD_INT16, -32768, 32767},
      {TFD_INT32, -2147483648.0, 2147483647.0},
      {TFD_INT64, -9223372036854775808.0, 9223372036854775808.0},
      {TFD_UINT8, 0, 255},
  };

  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    int d = rows[i].dtype;

    assert_true(same_bits(rows[i].low, through(d, rows[i].low)));
    assert_true(same_bits(rows[i].high, through(d, rows[i].high)));
    assert_true(same_bits(rows[i].low, through(d, -1e300)));
    assert_true(same_bits(rows[i].high, through(d, 1e300)));
    assert_true(same_bits(rows[i].low, through(d, -INFINITY)));
    assert_true(same_bits(rows[i].high, through(d, INFINITY)));
    assert_true(same_bits(0, through(d, NAN)));
    assert_true(same_bits(2, through(d, 2.9)));
    if (rows[i].low < 0) assert_true(same_bits(-2, through(d, -2.9)));
  }
}

static void int64_keeps_what_a_double_holds(void **state) {
  int64_t place = 0;

  (void)state;
  tfd__store(&place, TFD_INT64, 1e300);
  assert_true(place == INT64_MAX);
  tfd__store(&place, TFD_INT64, 9007199254740993.0);
  assert_true(place == INT64_C(9007199254740992));
}

static void bools_are_zero_or_one(void **state) {
  uint8_t raw = 77;

  (void)state;
  assert_true(same_bits(1, tfd__load(&raw, TFD_BOOL)));
  assert_true(same_bits(1, through(TFD_BOOL, -0.5)));
  assert_true(same_bits(1, through(TFD_BOOL, NAN)));
  assert_true(same_bits(0, through(TFD_BOOL, -0.0)));
}

static void special_floats_pass(void **state) {
  (void)state;
  for (int dtype = TFD_FLOAT32; dtype <= TFD_BFLOAT16; dtype++) {
    assert_true(same_bits(INFINITY, through(dtype, INFINITY)));
    assert_true(same_bits(-INFINITY, through(dtype, -1e300)) ||
                dtype == TFD_FLOAT64);
    assert_true(same_bits(-0.0, through(dtype, -0.0)));
    assert_true(isnan(through(dtype, NAN)));
  }
}

/* Just above the middle of two halves, closer than a float can tell: rounding
** to float first would land on the middle and go to the even neighbour. */
static void doubles_are_rounded_once(void **state) {
  double above = 1 + ldexp(1, -11) + ldexp(1, -40);
  double below = 1 + 3 * ldexp(1, -11) - ldexp(1, -40);

  (void)state;
  assert_true(same_bits(1 + ldexp(1, -10), through(TFD_FLOAT16, above)));
  assert_true(same_bits(-1 - ldexp(1, -10), through(TFD_FLOAT16, -above)));
  assert_true(same_bits(1 + ldexp(1, -10), through(TFD_FLOAT16, below)));
  above = 1 + ldexp(1, -8) + ldexp(1, -40);
  assert_true(same_bits(1 + ldexp(1, -7), through(TFD_BFLOAT16, above)));
  assert_true(same_bits(0, through(TFD_FLOAT16, 1e-300)));
  assert_true(same_bits(-0.0, through(TFD_FLOAT16, -1e-300)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_half_has_its_value),
      cmocka_unit_test(every_half_survives_the_round_trip),
      cmocka_unit_test(every_bfloat_survives_the_round_trip),
      cmocka_unit_test(floats_round_to_the_nearest_even_half),
      cmocka_unit_test(floats_round_to_the_nearest_even_bfloat),
      cmocka_unit_test(small_integers_pass_every_dtype),
      cmocka_unit_test(integers_saturate_and_truncate),
      cmocka_unit_test(int64_keeps_what_a_double_holds),
      cmocka_unit_test(bools_are_zero_or_one),
      cmocka_unit_test(special_floats_pass),
      cmocka_unit_test(doubles_are_rounded_once),
  };

  return cmocka_run_group_tests_name("types/values", tests, NULL, NULL);
}
