/* The kernels copy and fill, scratch memory, and shared copy loops. */
#include <pthread.h>

#include "backend/cpu/cpu.h"
#include "device_support.h"

#define LIMIT 200000 /* elements of the memory behind a view */

static uint64_t seed;

static int64_t pick(int64_t n) {
  return (int64_t)(next_random(&seed) % (uint64_t)n);
}

/* A view with random axes, strides (negative, zero, gaps) and order whose
** elements all lie in `memory`. */
static tfd__view random_view(unsigned char *memory, int dtype) {
  tfd__view v = {.dtype = (uint8_t)dtype, .rank = (uint8_t)pick(6)};
  int order[TFD_MAX_RANK];
  int64_t low = 0;
  int64_t step = 1 + (pick(4) == 0 ? pick(3) : 0);
  int i;

  for (i = 0; i < v.rank; i++) order[i] = i;
  for (i = v.rank - 1; i > 0; i--) {
    int k = (int)pick(i + 1);
    int t = order[i];

    order[i] = order[k];
    order[k] = t;
  }
  for (i = 0; i < v.rank; i++) {
    int axis = order[i];

    v.dims[axis] = pick(12) == 0 ? 1 : 1 + pick(pick(3) == 0 ? 70 : 5);
    if (step * v.dims[axis] > LIMIT / 2) v.dims[axis] = 1;
    v.strides[axis] = step;
    step *= v.dims[axis];
    if (pick(6) == 0) step += pick(3);
    if (pick(8) == 0) v.strides[axis] = 0;
    if (pick(8) == 0) v.strides[axis] = -v.strides[axis];
    if (v.strides[axis] < 0) low += (v.dims[axis] - 1) * v.strides[axis];
  }
  v.data = memory - low * (int64_t)tfd__dtype_size(dtype);
  tfd__view_refresh(&v);
  return v;
}

static const unsigned char *element(const tfd__view *v, int64_t number) {
  int64_t offset = 0;
  int axis;

  for (axis = v->rank - 1; axis >= 0; axis--) {
    offset += number % v->dims[axis] * v->strides[axis];
    number /= v->dims[axis];
  }
  return (const unsigned char *)v->data +
         offset * (int64_t)tfd__dtype_size(v->dtype);
}

static void check_copy(const tfd__view *in) {
  size_t size = tfd__dtype_size(in->dtype);
  tfd__view views[2] = {*in};
  tfd__call call = {.name = "copy", .views = views, .in_n = 1, .out_n = 1};
  unsigned char *out = NULL;
  int64_t i;

  assert_int_equal(TFD_OK,
                   tfd__view_set(&views[1], in->dtype, in->dims, in->rank));
  out = malloc((size_t)in->numel * size + 1);
  out[(size_t)in->numel * size] = 0x5a; /* behind the end */
  views[1].data = out;
  assert_int_equal(TFD_OK, tfd__cpu_copy(&call));
  for (i = 0; i < in->numel; i++) {
    assert_memory_equal(element(in, i), out + (size_t)i * size, size);
  }
  assert_int_equal(0x5a, out[(size_t)in->numel * size]);
  free(out);
}

static unsigned char *random_memory(void) {
  unsigned char *memory = malloc(LIMIT * 8);
  size_t i;

  for (i = 0; i < LIMIT * 8; i++) {
    memory[i] = (unsigned char)(i * 2654435761u >> 13);
  }
  return memory;
}

static void copy_follows_any_strides(void **state) {
  unsigned char *memory = random_memory();
  int threads = tfd__threads_get();
  int i;

  (void)state;
  for (i = 0; i < 3000; i++) {
    tfd__view v;

    seed = (uint64_t)i;
    tfd__threads_set(1 + i % 3);
    v = random_view(memory, 1 + (int)pick(TFD_DTYPE_END - 1));
    check_copy(&v);
  }
  tfd__threads_set(threads);
  free(memory);
}

/* Large ones take the parallel paths: transposed, reversed, row by row. */
static void copy_of_large_views(void **state) {
  static const struct {
    int rank;
    int64_t dims[3];
    int64_t strides[3];
    int64_t offset;
  } shapes[] = {
      {1, {150000}, {1}, 0},
      {1, {70000}, {2}, 0},
      {1, {150000}, {-1}, 149999},
      {1, {150000}, {0}, 0},
      {2, {300, 500}, {1, 300}, 0},
      {2, {500, 300}, {300, 1}, 0},
      {2, {3, 50000}, {1, 3}, 0},
      {2, {50000, 3}, {1, 50000}, 0},
      {2, {7, 20000}, {0, 1}, 0},
      {2, {20000, 7}, {1, 0}, 0},
      {3, {8, 100, 33}, {3300, 1, 100}, 0},
      {3, {33, 100, 8}, {1, 33, 3300}, 0},
      {3, {40, 30, 50}, {1500, 50, -1}, 49},
  };
  unsigned char *memory = random_memory();
  int threads = tfd__threads_get();
  size_t i;
  int dtype;

  (void)state;
  for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    for (dtype = 1; dtype < TFD_DTYPE_END; dtype++) {
      tfd__view v = {.dtype = (uint8_t)dtype, .rank = (uint8_t)shapes[i].rank};

      memcpy(v.dims, shapes[i].dims, sizeof shapes[i].dims);
      memcpy(v.strides, shapes[i].strides, sizeof shapes[i].strides);
      v.data = memory + shapes[i].offset * (int64_t)tfd__dtype_size(dtype);
      tfd__view_refresh(&v);
      tfd__threads_set(1 + dtype % 3);
      check_copy(&v);
    }
  }
  tfd__threads_set(threads);
  free(memory);
}

static void copy_of_nothing(void **state) {
  tfd__view views[2];
  tfd__call call = {.name = "copy", .views = views, .in_n = 1, .out_n = 1};
  int64_t dims[2] = {3, 0};

  (void)state;
  assert_int_equal(TFD_OK, tfd__view_set(&views[0], TFD_FLOAT32, dims, 2));
  views[0].data = NULL;
  views[1] = views[0];
  assert_int_equal(TFD_OK, tfd__cpu_copy(&call));
}

static void fill_stores_every_dtype(void **state) {
  static const double values[] = {0, 1, -3, 0.3, 1e6};
  int64_t counts[] = {0, 1, 5, 1000, 100000};
  unsigned char *memory = malloc(100000 * 8 + 1);
  int dtype;
  size_t i;
  size_t k;

  (void)state;
  for (dtype = 1; dtype < TFD_DTYPE_END; dtype++) {
    size_t size = tfd__dtype_size(dtype);

    for (i = 0; i < 5; i++) {
      for (k = 0; k < 5; k++) {
        tfd__view out;
        tfd__call call = {.name = "fill",
                          .views = &out,
                          .reals = &values[k],
                          .out_n = 1,
                          .reals_n = 1};
        unsigned char expected[8];
        int64_t n;

        assert_int_equal(TFD_OK, tfd__view_set(&out, dtype, &counts[i], 1));
        out.data = memory;
        memory[(size_t)counts[i] * size] = 0x5a;
        assert_int_equal(TFD_OK, tfd__cpu_fill(&call));
        tfd__store(expected, dtype, values[k]);
        for (n = 0; n < counts[i]; n++) {
          assert_memory_equal(expected, memory + (size_t)n * size, size);
        }
        assert_int_equal(0x5a, memory[(size_t)counts[i] * size]);
      }
    }
  }
  free(memory);
}

/* --- scratch -------------------------------------------------------------- */

static void scratch_blocks_are_apart_and_aligned(void **state) {
  unsigned char *blocks[40];
  size_t round;
  size_t i;

  (void)state;
  for (round = 0; round < 3; round++) {
    for (i = 0; i < 40; i++) {
      blocks[i] = tfd__scratch(i * 5000);
      assert_non_null(blocks[i]);
      assert_int_equal(0, (uintptr_t)blocks[i] % 64);
      memset(blocks[i], (int)i, i * 5000);
    }
    for (i = 1; i < 40; i++) {
      assert_int_equal(i, blocks[i][0]);
      assert_int_equal(i, blocks[i][i * 5000 - 1]);
    }
    tfd__scratch_reset();
  }
}

static void scratch_is_reused_in_steady_state(void **state) {
  int64_t calls = 0;
  int i;

  (void)state;
  for (i = 0; i < 20; i++) {
    if (i == 2) calls = tfd__alloc_count();
    assert_non_null(tfd__scratch(100));
    assert_non_null(tfd__scratch(3000000));
    assert_non_null(tfd__scratch(700000));
    tfd__scratch_reset();
  }
  assert_int_equal(calls, tfd__alloc_count());
}

static void scratch_reports_missing_memory(void **state) {
  (void)state;
  assert_null(tfd__scratch(SIZE_MAX));
  assert_int_equal(0, strncmp(tfd_error_message(), "out of memory", 13));
  tfd__alloc_fail_at(1);
  assert_null(tfd__scratch((size_t)1 << 30));
  tfd__alloc_fail_at(0);
  tfd__scratch_reset();
  assert_non_null(tfd__scratch(10));
  tfd__scratch_reset();
}

static void *use_scratch(void *arg) {
  (void)arg;
  return tfd__scratch(100000) == NULL ? NULL : (void *)use_scratch;
}

static void scratch_goes_with_its_thread(void **state) {
  int64_t live = 0;
  int i;

  (void)state;
  for (i = 0; i < 5; i++) {
    pthread_t t;
    void *ok = NULL;

    pthread_create(&t, NULL, use_scratch, NULL);
    pthread_join(t, &ok);
    assert_non_null(ok);
    if (i == 0) live = tfd__alloc_live();
  }
  assert_int_equal(live, tfd__alloc_live());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(copy_follows_any_strides),
      cmocka_unit_test(copy_of_large_views),
      cmocka_unit_test(copy_of_nothing),
      cmocka_unit_test(fill_stores_every_dtype),
      cmocka_unit_test(scratch_blocks_are_apart_and_aligned),
      cmocka_unit_test(scratch_is_reused_in_steady_state),
      cmocka_unit_test(scratch_reports_missing_memory),
      cmocka_unit_test(scratch_goes_with_its_thread),
  };

  configure("1", "inline");
  return cmocka_run_group_tests_name("device/core", tests, NULL, NULL);
}
