/* Names, counts and settings of devices. */
#include "device_support.h"

static void settings_are_checked_before_the_start(void **state) {
  int64_t n = 0;

  (void)state;
  assert_int_equal(TFD_VALUE_ERROR, tfd_config_set_cpu_devices(0));
  assert_int_equal(TFD_VALUE_ERROR, tfd_config_set_cpu_devices(65));
  assert_int_equal(TFD_VALUE_ERROR, tfd_config_set_device_threads(-1));
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_config_set_queue_mode((tfd_queue_mode)7));
  assert_false(tfd_is_started());
  setenv("TFDIST_CPU_DEVICES", "two", 1);
  assert_int_equal(TFD_VALUE_ERROR, tfd_device_count("", &n));
  assert_non_null(strstr(tfd_error_message(), "TFDIST_CPU_DEVICES"));
  assert_non_null(strstr(tfd_error_message(), "\"two\""));
  setenv("TFDIST_CPU_DEVICES", "65", 1);
  assert_int_equal(TFD_VALUE_ERROR, tfd_device_count("", &n));
  setenv("TFDIST_CPU_DEVICES", "1", 1);
  setenv("TFDIST_QUEUE", "sometimes", 1);
  assert_int_equal(TFD_VALUE_ERROR, tfd_device_count("", &n));
  assert_non_null(strstr(tfd_error_message(), "TFDIST_QUEUE"));
  setenv("TFDIST_QUEUE", "auto", 1);
  setenv("TFDIST_THREADS", "-3", 1);
  assert_int_equal(TFD_VALUE_ERROR, tfd_device_count("", &n));
  assert_non_null(strstr(tfd_error_message(), "TFDIST_THREADS"));
  setenv("TFDIST_THREADS", "1", 1);
  setenv("TFDIST_MEMORY_LIMIT", "12 parsecs", 1);
  assert_int_equal(TFD_VALUE_ERROR, tfd_device_count("", &n));
  assert_non_null(strstr(tfd_error_message(), "TFDIST_MEMORY_LIMIT"));
  unsetenv("TFDIST_MEMORY_LIMIT");
  assert_false(tfd_is_started());
}

static void calls_win_over_the_environment(void **state) {
  int64_t n = 0;

  (void)state;
  assert_int_equal(TFD_OK, tfd_config_set_cpu_devices(2));
  assert_int_equal(TFD_OK, tfd_config_set_device_threads(3));
  assert_int_equal(TFD_OK, tfd_device_count("CPU", &n));
  assert_int_equal(2, n);
  assert_true(tfd_is_started());
  assert_int_equal(3, tfd_device_threads(device(1)));
  /* auto: several devices are queued */
  assert_true(tfd_device_is_queued(device(0)));
  assert_true(tfd_device_is_queued(device(1)));
}

static void settings_are_fixed_after_the_start(void **state) {
  (void)state;
  assert_int_equal(TFD_RUNTIME_ERROR, tfd_config_set_cpu_devices(2));
  assert_int_equal(TFD_RUNTIME_ERROR,
                   tfd_config_set_queue_mode(TFD_QUEUE_INLINE));
  assert_int_equal(TFD_RUNTIME_ERROR, tfd_config_set_device_threads(1));
}

static void devices_are_counted_by_type(void **state) {
  tfd_device *d = NULL;
  int64_t n = -1;

  (void)state;
  assert_int_equal(TFD_OK, tfd_device_count("", &n));
  assert_int_equal(2, n);
  assert_int_equal(TFD_OK, tfd_device_count("cpu", &n));
  assert_int_equal(2, n);
  assert_int_equal(TFD_OK, tfd_device_count("GPU", &n));
  assert_int_equal(0, n);
  assert_int_equal(TFD_INDEX_ERROR, tfd_device_at("CPU", 2, &d));
  assert_int_equal(TFD_INDEX_ERROR, tfd_device_at("CPU", -1, &d));
  assert_int_equal(TFD_INDEX_ERROR, tfd_device_at("GPU", 0, &d));
}

static void every_form_of_a_name_finds_its_device(void **state) {
  static const struct {
    const char *name;
    int ordinal;
  } forms[] = {
      {"CPU:1", 1},
      {"cpu:1", 1},
      {"Cpu:1", 1},
      {"/cpu:1", 1},
      {"/CPU:1", 1},
      {"/device:CPU:1", 1},
      {"/device:cpu:1", 1},
      {"device:CPU:1", 1},
      {"/job:localhost/replica:0/task:0/device:CPU:1", 1},
      {"/job:localhost/replica:0/task:0/cpu:1", 1},
      {"/replica:0/task:0/device:CPU:1", 1},
      {"/job:localhost/device:CPU:1", 1},
      {"/cpu", 0},
      {"CPU", 0},
      {"/device:CPU", 0},
      {"CPU:0", 0},
      {"CPU:01", 1},
  };
  size_t i;

  (void)state;
  for (i = 0; i < sizeof forms / sizeof forms[0]; i++) {
    tfd_device *d = NULL;

    if (tfd_device_find(forms[i].name, &d) != TFD_OK) {
      fail_msg("\"%s\": %s", forms[i].name, tfd_error_message());
    }
    assert_ptr_equal(device(forms[i].ordinal), d);
  }
}

static void a_name_leads_back_to_its_device(void **state) {
  int i;

  (void)state;
  for (i = 0; i < 2; i++) {
    tfd_device *d = NULL;

    assert_int_equal(TFD_OK, tfd_device_find(tfd_device_name(device(i)), &d));
    assert_ptr_equal(device(i), d);
    assert_int_equal(TFD_OK,
                     tfd_device_find(tfd_device_short_name(device(i)), &d));
    assert_ptr_equal(device(i), d);
  }
  assert_string_equal("/job:localhost/replica:0/task:0/device:CPU:1",
                      tfd_device_name(device(1)));
  assert_string_equal("/cpu:1", tfd_device_short_name(device(1)));
}

static void unknown_devices_are_named_with_those_there_are(void **state) {
  static const char *const names[] = {
      "/gpu:0",
      "GPU:0",
      "CPU:2",
      "/cpu:999999",
      "TPU:0",
      "/job:worker/replica:0/task:1/device:CPU:0",
      "/job:localhost/replica:0/task:3/device:CPU:0",
  };
  char text[128];
  size_t i;

  (void)state;
  for (i = 0; i < sizeof names / sizeof names[0]; i++) {
    tfd_device *d = NULL;

    assert_int_equal(TFD_INVALID_ARGUMENT, tfd_device_find(names[i], &d));
    snprintf(text, sizeof text,
             "no device \"%s\"; devices here: /cpu:0, "
             "/cpu:1",
             names[i]);
    assert_string_equal(text, tfd_error_message());
    assert_null(d);
  }
}

static void malformed_names_are_value_errors(void **state) {
  static const char *const names[] = {
      "",
      "/",
      "//cpu:0",
      "/cpu:0/",
      "cpu:",
      "cpu:x",
      "cpu:-1",
      "cpu: 1",
      "/cpu:0/cpu:1",
      "1cpu:0",
      ":0",
      "/job:localhost",
      "/task:0",
      "/job:/cpu:0",
      "/replica:a/cpu:0",
      "/device:",
      "/device:CPU:*",
      "cpu:0:1",
      "averyverylongdevicetype:0",
      "cpu:1234567",
      ("/job:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
       "/cpu:0"),
  };
  size_t i;

  (void)state;
  for (i = 0; i < sizeof names / sizeof names[0]; i++) {
    tfd_device *d = NULL;
    int rc = tfd_device_find(names[i], &d);

    if (rc != TFD_VALUE_ERROR) fail_msg("\"%s\" gave %d", names[i], rc);
    assert_null(d);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(settings_are_checked_before_the_start),
      cmocka_unit_test(calls_win_over_the_environment),
      cmocka_unit_test(settings_are_fixed_after_the_start),
      cmocka_unit_test(devices_are_counted_by_type),
      cmocka_unit_test(every_form_of_a_name_finds_its_device),
      cmocka_unit_test(a_name_leads_back_to_its_device),
      cmocka_unit_test(unknown_devices_are_named_with_those_there_are),
      cmocka_unit_test(malformed_names_are_value_errors),
  };

  configure("1", "auto");
  return cmocka_run_group_tests_name("device/names", tests, NULL, NULL);
}
