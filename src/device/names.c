/* Device names as TensorFlow writes them: components separated by slashes,
** "/job:localhost/replica:0/task:0/device:CPU:1", any of them left out, and
** the old short forms "/cpu:1", "CPU:1", "/cpu". Types in any case. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "device/private.h"

const char tfd__copy_name[] = "copy";

static int malformed(const char *text) {
  (void)tfd__fail(TFD_VALUE_ERROR, "\"%s\" is not a device name", text);
  return tfd__hint("write \"/cpu:0\", \"GPU:1\" or \"/job:localhost/replica:0/"
                   "task:0/device:CPU:0\"");
}

/* Decimal digits only, up to six. */
static bool parse_number(const char *p, int *value_p) {
  size_t digits = strspn(p, "0123456789");

  if (digits == 0 || digits > 6 || p[digits] != '\0') return false;
  *value_p = atoi(p);
  return true;
}

/* Letter first, then letters, digits and underscores. */
static bool is_word(const char *p, size_t n) {
  size_t i;

  if (n == 0 || !isalpha((unsigned char)p[0])) return false;
  for (i = 1; i < n; i++) {
    if (!isalnum((unsigned char)p[i]) && p[i] != '_') return false;
  }
  return true;
}

/* "CPU:1", "cpu", "GPU:0". A device may be named once. */
static bool parse_device(const char *p, tfd__name *name) {
  const char *colon = strchr(p, ':');
  size_t n = colon == NULL ? strlen(p) : (size_t)(colon - p);
  size_t i;

  if (name->type[0] != '\0') return false;
  if (!is_word(p, n) || n >= sizeof name->type) return false;
  for (i = 0; i < n; i++) {
    name->type[i] = (char)toupper((unsigned char)p[i]);
  }
  name->type[n] = '\0';
  name->ordinal = 0;
  return colon == NULL || parse_number(colon + 1, &name->ordinal);
}

static const char *after(const char *part, const char *key) {
  size_t n = strlen(key);

  return strncasecmp(part, key, n) == 0 ? part + n : NULL;
}

static bool parse_part(const char *part, tfd__name *name) {
  const char *p = NULL;
  int value = 0;

  if ((p = after(part, "job:")) != NULL) {
    if (strcmp(p, "localhost") != 0) name->local = false;
    return is_word(p, strlen(p));
  }
  if ((p = after(part, "replica:")) != NULL ||
      (p = after(part, "task:")) != NULL) {
    if (!parse_number(p, &value)) return false;
    if (value != 0) name->local = false;
    return true;
  }
  p = after(part, "device:");
  return parse_device(p != NULL ? p : part, name);
}

int tfd__name_parse(const char *text, tfd__name *name) {
  char part[64];
  const char *p = text;

  memset(name, 0, sizeof *name);
  name->local = true;
  if (p[0] == '/') p++;
  for (;;) {
    size_t n = strcspn(p, "/");

    if (n == 0 || n >= sizeof part) return malformed(text);
    memcpy(part, p, n);
    part[n] = '\0';
    if (!parse_part(part, name)) return malformed(text);
    if (p[n] == '\0') break;
    p += n + 1;
  }
  if (name->type[0] == '\0') return malformed(text);
  return TFD_OK;
}

tfd_device *tfd__name_match(const tfd__name *name) {
  int i;

  if (!name->local) return NULL;
  for (i = 0; i < tfd__rt.n; i++) {
    tfd_device *d = tfd__rt.devices[i];

    if (d->ordinal == name->ordinal &&
        strcmp(d->backend->device_type, name->type) == 0) {
      return d;
    }
  }
  return NULL;
}

/* "/cpu:0, /cpu:1" */
static void list_devices(char *text, size_t size) {
  size_t used = 0;
  int i;

  text[0] = '\0';
  for (i = 0; i < tfd__rt.n; i++) {
    int n = snprintf(text + used, size - used, "%s%s", i == 0 ? "" : ", ",
                     tfd__rt.devices[i]->short_name);

    if (n < 0 || (size_t)n >= size - used) return;
    used += (size_t)n;
  }
}

/* Why devices of this type were lost while they were found; NULL: they were
** not. */
static const char *why_lost(const char *type) {
  const tfd__backend_entry *list = NULL;
  int n = 0;

  for (tfd__backends(&list, &n); n > 0; n--, list++) {
    if (list->lost && strcmp(list->type, type) == 0) return list->reason;
  }
  return NULL;
}

/* The error for a name that is well formed. */
static int no_device(const char *name, const tfd__name *parsed) {
  char here[1024]; /* 64 devices need less */
  const char *lost = why_lost(parsed->type);

  if (lost != NULL) {
    (void)tfd__fail(TFD_INTERNAL, "no device \"%s\" any more: %s", name, lost);
    return tfd__exit_with(TFD_EXIT_DEVICE_LOST);
  }
  list_devices(here, sizeof here);
  (void)tfd__fail(TFD_INVALID_ARGUMENT, "no device \"%s\"; devices here: %s",
                  name, here);
  if (parsed->local && strcmp(parsed->type, "CPU") == 0 &&
      parsed->ordinal < TFD_MAX_CPU_DEVICES)
    return tfd__hint("the option --cpu-devices=%d of tfdist, or "
                     "TFDIST_CPU_DEVICES=%d in the environment, splits the "
                     "processor into %d devices",
                     parsed->ordinal + 1, parsed->ordinal + 1,
                     parsed->ordinal + 1);
  return tfd__hint("names are as /cpu:0; `tfdist devices` lists them, "
                   "`tfdist doctor` says what is missing");
}

int tfd_device_find(const char *name, tfd_device **device_p) {
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_POINTER(device_p);

  tfd__name parsed;
  tfd_device *device = NULL;
  tfd_device *const *devices = NULL;
  int n = 0;

  TFD_TRY(tfd__devices(&devices, &n));
  TFD_TRY(tfd__name_parse(name, &parsed));
  device = tfd__name_match(&parsed);
  if (device == NULL) return no_device(name, &parsed);
  *device_p = device;
  return TFD_OK;
}
