/* How many CPU cores this process may use. */
#define _GNU_SOURCE /* CPU sets of any length */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/memory.h"
#include "base/thread.h"

enum { PATH_BYTES = 1024 };

/* Cores in the affinity mask; 0 if it cannot be read. The mask is as long as
** the kernel's, which may be more than the 1024 of a plain cpu_set_t. */
static int affinity_cores(void) {
  for (size_t cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    size_t bytes = CPU_ALLOC_SIZE(cpus);
    cpu_set_t *set = tfd__alloc(bytes);
    int rc = -1;
    int count = 0;

    if (set == NULL) return 0;
    rc = sched_getaffinity(0, bytes, set);
    if (rc == 0) count = CPU_COUNT_S(bytes, set);
    tfd__free(set);
    if (rc == 0) return count;
    if (errno != EINVAL) return 0;
  }
  return 0;
}

/* First line of a small file into buf; false if there is none. */
static bool read_line(const char *dir, const char *name, char *buf,
                      size_t size) {
  char path[PATH_BYTES + 64];
  FILE *file = NULL;
  bool ok = false;

  (void)snprintf(path, sizeof path, "%s/%s", dir, name);
  file = fopen(path, "re");
  if (file == NULL) return false;
  ok = fgets(buf, (int)size, file) != NULL;
  fclose(file);
  return ok;
}

/* Cores granted by one group directory; 0 = no limit. */
static double group_quota(const char *dir, bool unified) {
  char text[128];
  double quota = 0;
  double period = 0;

  if (unified) {
    if (!read_line(dir, "cpu.max", text, sizeof text)) return 0;
    if (sscanf(text, "%lf %lf", &quota, &period) != 2) return 0; /* "max" */
  } else {
    if (!read_line(dir, "cpu.cfs_quota_us", text, sizeof text)) return 0;
    quota = strtod(text, NULL);
    if (!read_line(dir, "cpu.cfs_period_us", text, sizeof text)) return 0;
    period = strtod(text, NULL);
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

/* The smallest quota from `group` up to the hierarchy's root, as every
** ancestor limits its children. Inside a container the path may be the
** host's and not exist; the walk still ends at the visible root. */
static double hierarchy_quota(const char *root, const char *group,
                              bool unified) {
  char dir[PATH_BYTES];
  size_t root_length = strlen(root);
  double least = 0;
  int n = snprintf(dir, sizeof dir, "%s%s", root, group);

  if (n < 0 || (size_t)n >= sizeof dir) return 0;
  for (;;) {
    double quota = group_quota(dir, unified);
    char *slash = strrchr(dir, '/');

    if (quota > 0 && (least <= 0 || quota < least)) least = quota;
    if (slash == NULL || (size_t)(slash - dir) < root_length) break;
    *slash = '\0';
  }
  return least;
}

/* True when the comma-separated list names the cpu controller. */
static bool names_cpu(const char *list) {
  const char *at = list;

  while (*at != '\0') {
    size_t length = strcspn(at, ",");

    if (length == 3 && memcmp(at, "cpu", 3) == 0) return true;
    at += length;
    if (*at == ',') at++;
  }
  return false;
}

/* One line of /proc/self/cgroup, "id:controllers:/group". */
static double line_quota(char *line, const char *mount) {
  char root[PATH_BYTES];
  char *controllers = strchr(line, ':');
  char *group = NULL;

  if (controllers == NULL) return 0;
  *controllers++ = '\0';
  group = strchr(controllers, ':');
  if (group == NULL) return 0;
  *group++ = '\0';
  group[strcspn(group, "\n")] = '\0';
  if (strcmp(group, "/") == 0) group[0] = '\0';
  if (controllers[0] == '\0') return hierarchy_quota(mount, group, true);
  if (!names_cpu(controllers)) return 0;
  (void)snprintf(root, sizeof root, "%s/cpu", mount);
  return hierarchy_quota(root, group, false);
}

double tfd__cgroup_cores(const char *membership, const char *mount) {
  char line[PATH_BYTES];
  double least = 0;
  FILE *file = fopen(membership, "re");

  if (file == NULL) return 0;
  while (fgets(line, sizeof line, file) != NULL) {
    double quota = line_quota(line, mount);

    if (quota > 0 && (least <= 0 || quota < least)) least = quota;
  }
  fclose(file);
  return least;
}

/* TFDIST_CORES, whose value is checked with the other settings; 0 = not set. */
static int share_of_cores(void) {
  char text[TFD_ENV_TEXT];

  return tfd__env_text("TFDIST_CORES", text) ? atoi(text) : 0;
}

int tfd__cores(void) {
  int cores = affinity_cores();
  double quota = tfd__cgroup_cores("/proc/self/cgroup", "/sys/fs/cgroup");

  if (quota > 0 && quota < cores) {
    cores = (int)quota;
    if (quota > cores) cores++; /* a part of a core is still worth a thread */
  }
  if (share_of_cores() > 0 && share_of_cores() < cores)
    cores = share_of_cores();
  return cores > 0 ? cores : 1;
}

int tfd__vector_bits(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return 512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return 256;
#endif
  return 0;
}
