/* The case table of collectives on the devices of one process: processors that
** share their memory and devices that see nothing of each other. */
#include "slow_support.h"

#include "comm_cases.h"

enum { RANKS = 5 };

static void check_ranks(tfd_device *(*find)(int), bool small) {
  int n;

  for (n = 1; n <= RANKS; n++) {
    tfd_device *devices[RANKS];
    tfd__group_config config = {.devices = devices, .local = n, .size = n};
    world w = {.small = small};
    int i;

    for (i = 0; i < n; i++) devices[i] = find(i);
    assert_int_equal(TFD_OK, tfd__group_new(&config, &w.group));
    assert_string_equal("shared", w.group->provider->name);
    check_world(&w);
    tfd__release(w.group);
  }
}

static void every_case_on_processors(void **state) {
  (void)state;
  check_ranks(device, false);
}

static void every_case_on_slow_devices(void **state) {
  (void)state;
  check_ranks(slow_device, true);
}

/* Devices of two kinds: the bytes go through the host. */
static tfd_device *mixed_device(int i) {
  return i % 2 == 0 ? device(i) : slow_device(i);
}

static void every_case_on_mixed_devices(void **state) {
  (void)state;
  check_ranks(mixed_device, true);
}

static void nothing_is_left(void **state) {
  (void)state;
  tfd__devices_finish();
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_GROUP));
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_BUFFER));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_case_on_processors),
      cmocka_unit_test(every_case_on_slow_devices),
      cmocka_unit_test(every_case_on_mixed_devices),
      cmocka_unit_test(nothing_is_left),
  };

  configure("5", "queued");
  configure_slow();
  setenv("TFDIST_SLOW_DEVICES", "5", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
