/* Settings that are fixed once the first device is used: calls win over the
** environment, the environment over defaults. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/environment.h"
#include "base/failpoint.h"
#include "device/private.h"

static tfd__config asked = {.queue_mode = -1, .device_threads = -1};

static int check_not_started(const char *what) {
  if (!tfd_is_started()) return TFD_OK;
  return tfd__fail(TFD_RUNTIME_ERROR,
                   "%s: must come before the first tensor or device is used; "
                   "the runtime has started",
                   what);
}

int tfd_config_set_cpu_devices(int count) {
  if (count < 1 || count > TFD_MAX_CPU_DEVICES) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "set_cpu_devices: %d devices; expected 1 to %d", count,
                     TFD_MAX_CPU_DEVICES);
  }
  TFD_TRY(check_not_started("set_cpu_devices"));
  asked.cpu_devices = count;
  return TFD_OK;
}

int tfd_config_set_queue_mode(tfd_queue_mode mode) {
  if ((int)mode < TFD_QUEUE_AUTO || (int)mode > TFD_QUEUE_QUEUED) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "set_queue_mode: %d is no queue mode; expected auto, "
                     "inline or queued",
                     (int)mode);
  }
  TFD_TRY(check_not_started("set_queue_mode"));
  asked.queue_mode = (int)mode;
  return TFD_OK;
}

int tfd_config_set_device_threads(int count) {
  if (count < 0) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "set_device_threads: %d threads; expected 0 (share the "
                     "cores equally) or more",
                     count);
  }
  TFD_TRY(check_not_started("set_device_threads"));
  asked.device_threads = count;
  return TFD_OK;
}

/* Those of other GPUs than `gpu`; without `to`: how many they are. */
static int parts_of_others(int gpu, tfd__gpu_part *to) {
  int n = 0;
  int i;

  for (i = 0; i < asked.gpu_parts_n; i++) {
    if (asked.gpu_parts[i].gpu == gpu) continue;
    if (to != NULL) to[n] = asked.gpu_parts[i];
    n++;
  }
  return n;
}

int tfd_config_set_gpu_devices(int gpu, const int64_t *limits, int limits_n) {
  TFD_GIVEN_LIST(limits, limits_n);

  int others = 0;
  int i;

  if (gpu < 0 || limits_n < 1) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "set_gpu_devices: GPU %d, %d logical devices; expected a "
                     "GPU counted from 0, and 1 device or more",
                     gpu, limits_n);
  }
  TFD_TRY(check_not_started("set_gpu_devices"));
  for (i = 0; i < limits_n; i++) {
    if (limits[i] >= 0) continue;
    return tfd__fail(TFD_VALUE_ERROR,
                     "set_gpu_devices: a limit of %lld bytes; expected 0 "
                     "(none) or more",
                     (long long)limits[i]);
  }
  others = parts_of_others(gpu, NULL);
  if (limits_n > TFD_MAX_GPU_PARTS - others) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "set_gpu_devices: %d logical devices of GPUs; expected %d "
                     "at most",
                     others + limits_n, TFD_MAX_GPU_PARTS);
  }
  asked.gpu_parts_n = parts_of_others(gpu, asked.gpu_parts);
  for (i = 0; i < limits_n; i++) {
    asked.gpu_parts[asked.gpu_parts_n++] =
        (tfd__gpu_part){gpu, (size_t)limits[i]};
  }
  return TFD_OK;
}

/* --- environment ---------------------------------------------------------- */

/* *value_p is left alone when the variable is unset or empty. */
static int env_int(const char *name, int low, int high, int *value_p) {
  char text[TFD_ENV_TEXT];
  char *end = NULL;
  long value = 0;

  if (!tfd__env_text(name, text)) return TFD_OK;
  errno = 0;
  value = strtol(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value < low ||
      value > high) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s is \"%s\"; expected a whole number from %d to %d",
                     name, text, low, high);
  }
  *value_p = (int)value;
  return TFD_OK;
}

static int env_queue(const char *name, int *mode_p) {
  /* tfd_queue_mode counts in this order. */
  static const char *const modes[] = {"auto", "inline", "queued"};

  return tfd__env_word(name, modes, 3, "inline, queued or auto", mode_p);
}

/* What is read later, or by Lua, in places that cannot refuse a word that is
** none. */
static int check_others(void) {
  static const char *const names[] = {"TFDIST_STRICT_FP32", "TFDIST_FFI",
                                      "TFDIST_AUTO_CLUSTER", "TFDIST_INSECURE",
                                      "TFDIST_CUDA_GRAPHS"};
  static const char *const words[] = {"0", "1"};
  size_t i;
  int value = 0;

  for (i = 0; i < sizeof names / sizeof *names; i++) {
    TFD_TRY(tfd__env_word(names[i], words, 2, "0 or 1", &value));
  }
  return env_int("TFDIST_RESTART", 0, INT_MAX, &value);
}

/* Power of 1024 that a suffix stands for, -1 if it is none: "", "K", "MiB". */
static int size_shift(const char *suffix) {
  static const char letters[] = "KMGT";
  const char *letter = NULL;

  if (suffix[0] == '\0' || strcasecmp(suffix, "B") == 0) return 0;
  letter = strchr(letters, suffix[0] & ~0x20);
  if (letter == NULL || *letter == '\0') return -1;
  if (suffix[1] != '\0' && strcasecmp(suffix + 1, "B") != 0 &&
      strcasecmp(suffix + 1, "iB") != 0) {
    return -1;
  }
  return 10 * (int)(letter - letters + 1);
}

static int env_size(const char *name, size_t *bytes_p) {
  char text[TFD_ENV_TEXT];
  char *end = NULL;
  double value = 0;
  int shift = 0;

  if (!tfd__env_text(name, text)) return TFD_OK;
  value = strtod(text, &end);
  shift = end == text ? -1 : size_shift(end);
  if (shift >= 0) value *= (double)((int64_t)1 << shift);
  if (shift < 0 || !(value >= 1) || value > 1e18) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s is \"%s\"; expected a size such as 512M or 16GiB",
                     name, text);
  }
  *bytes_p = (size_t)value;
  return TFD_OK;
}

static int resolve(tfd__config *c) {
  int devices = 1;
  int queue = TFD_QUEUE_AUTO;
  int threads = 0;
  int level = 0;
  int cores = 0; /* read by tfd__cores */
  int gpus = 0;
  size_t limit = 0;

  TFD_TRY(tfd__env_log_level(&level));
  TFD_TRY(tfd__failpoints_read());
  TFD_TRY(env_int("TFDIST_CPU_DEVICES", 1, TFD_MAX_CPU_DEVICES, &devices));
  TFD_TRY(env_int("TFDIST_GPU_DEVICES", 1, TFD_MAX_GPU_PARTS, &gpus));
  TFD_TRY(env_queue("TFDIST_QUEUE", &queue));
  TFD_TRY(env_int("TFDIST_THREADS", 0, 4096, &threads));
  TFD_TRY(env_int("TFDIST_CORES", 1, 4096, &cores));
  TFD_TRY(env_size("TFDIST_MEMORY_LIMIT", &limit));
  TFD_TRY(check_others());
  c->cpu_devices = asked.cpu_devices > 0 ? asked.cpu_devices : devices;
  c->queue_mode = asked.queue_mode >= 0 ? asked.queue_mode : queue;
  c->device_threads =
      asked.device_threads >= 0 ? asked.device_threads : threads;
  c->memory_limit = limit;
  c->gpu_devices = gpus;
  memcpy(c->gpu_parts, asked.gpu_parts, sizeof c->gpu_parts);
  c->gpu_parts_n = asked.gpu_parts_n;
  return TFD_OK;
}

/* To start again with the same would not help. */
int tfd__config_resolve(tfd__config *c) {
  int rc = resolve(c);

  return rc == TFD_OK ? rc : tfd__exit_with(TFD_EXIT_USAGE);
}

int tfd__config_check(void) {
  tfd__config config;

  return tfd__config_resolve(&config);
}
