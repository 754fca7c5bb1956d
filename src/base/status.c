#include "base/status.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/memory.h"

/* Fixed sizes: reporting a failure must not itself need memory. Longer texts
** are cut and end in "...". */
enum { MESSAGE_BYTES = 4096, HINT_BYTES = 1024, WHERE_BYTES = 512 };

typedef struct record {
  int code;
  int replica;
  char message[MESSAGE_BYTES];
  char hint[HINT_BYTES];
  char where[WHERE_BYTES];
} record;

static _Thread_local record last = {.code = TFD_OK, .replica = -1};

/* Replace the end of a text that did not fit by "...". */
static void mark_cut(char *buf, size_t size, int wanted) {
  if (wanted < 0) {
    buf[0] = '\0';
  } else if ((size_t)wanted >= size) {
    memcpy(buf + size - 4, "...", 4);
  }
}

static void set_text(char *buf, size_t size, const char *text) {
  int n = snprintf(buf, size, "%s", text != NULL ? text : "");

  mark_cut(buf, size, n);
}

/* The arguments may point into the record (fail with the old message inside
** the new one), so the text is made aside first. */
static void set_formatted(char *buf, size_t size, const char *fmt,
                          va_list args) {
  char text[MESSAGE_BYTES];
  int n = vsnprintf(text, size, fmt, args);

  mark_cut(text, size, n);
  memcpy(buf, text, strlen(text) + 1);
}

int tfd__fail(tfd_status code, const char *fmt, ...) {
  va_list args;

  va_start(args, fmt);
  set_formatted(last.message, sizeof last.message, fmt, args);
  va_end(args);
  last.code = (int)code;
  last.replica = -1;
  last.hint[0] = '\0';
  last.where[0] = '\0';
  return last.code;
}

int tfd__hint(const char *fmt, ...) {
  va_list args;

  va_start(args, fmt);
  set_formatted(last.hint, sizeof last.hint, fmt, args);
  va_end(args);
  return last.code;
}

int tfd__wrap(const char *fmt, ...) {
  char prefix[HINT_BYTES];
  char text[MESSAGE_BYTES];
  va_list args;
  int n = 0;

  va_start(args, fmt);
  set_formatted(prefix, sizeof prefix, fmt, args);
  va_end(args);
  n = snprintf(text, sizeof text, "%s: %s", prefix, last.message);
  mark_cut(text, sizeof text, n);
  memcpy(last.message, text, strlen(text) + 1);
  return last.code;
}

int tfd__error_set_place(int replica, const char *where) {
  last.replica = replica;
  if (where != last.where) set_text(last.where, sizeof last.where, where);
  return last.code;
}

void tfd__error_save(tfd__error *e) {
  tfd__error_free(e);
  e->code = (tfd_status)last.code;
  e->replica = last.replica;
  e->message = tfd__strdup(last.message);
  if (last.hint[0] != '\0') e->hint = tfd__strdup(last.hint);
  if (last.where[0] != '\0') e->where = tfd__strdup(last.where);
}

int tfd__error_raise(const tfd__error *e) {
  if (e->code == TFD_OK) return TFD_OK;
  last.code = (int)e->code;
  last.replica = e->replica;
  set_text(last.message, sizeof last.message,
           e->message != NULL ? e->message
                              : "the message was lost, out of memory");
  set_text(last.hint, sizeof last.hint, e->hint);
  set_text(last.where, sizeof last.where, e->where);
  return last.code;
}

void tfd__error_free(tfd__error *e) {
  tfd__free(e->message);
  tfd__free(e->hint);
  tfd__free(e->where);
  *e = (tfd__error){.code = TFD_OK, .replica = -1};
}

/* --- public readers ------------------------------------------------------ */

const char *tfd_version(void) {
  return TFD_VERSION;
}

const char *tfd_status_kind(int status) {
  static const char *const kinds[] = {
#define STATUS_KIND(constant, kind) kind,
      TFD_STATUS_LIST(STATUS_KIND)
#undef STATUS_KIND
  };

  if (status < 0 || status >= TFD_STATUS_END) return kinds[TFD_INTERNAL];
  return kinds[status];
}

const char *tfd_error_message(void) {
  return last.message;
}

const char *tfd_error_hint(void) {
  return last.hint;
}

int tfd_error_replica(void) {
  return last.replica;
}

const char *tfd_error_where(void) {
  return last.where;
}

/* --- log ----------------------------------------------------------------- */

static const char *const level_names[] = {"error", "warning", "info", "debug"};

int tfd__env_log_level(int *level_p) {
  return tfd__env_word("TFDIST_LOG", level_names, (int)TFD_LOG_DEBUG + 1,
                       "error, warning, info or debug", level_p);
}

/* Who starts the runtime hears of a word that is none; logging is no reason to
** lose the record of what went wrong. */
static int level_from_environment(void) {
  int level = (int)TFD_LOG_WARNING;
  char text[TFD_ENV_TEXT];
  int i;

  if (!tfd__env_text("TFDIST_LOG", text)) return level;
  for (i = 0; i <= (int)TFD_LOG_DEBUG; i++) {
    if (strcasecmp(text, level_names[i]) == 0) level = i;
  }
  return level;
}

void tfd__log(tfd__log_level level, const char *fmt, ...) {
  static atomic_int enabled = -1; /* racing first calls find the same value */
  int limit = atomic_load_explicit(&enabled, memory_order_relaxed);
  char line[MESSAGE_BYTES];
  va_list args;
  int used = 0;
  size_t length = 0;

  if (limit < 0) {
    limit = level_from_environment();
    atomic_store_explicit(&enabled, limit, memory_order_relaxed);
  }
  if ((int)level > limit) return;
  used = snprintf(line, sizeof line, "tfdist: %s: ", level_names[level]);
  va_start(args, fmt);
  (void)vsnprintf(line + used, sizeof line - (size_t)used - 1, fmt, args);
  va_end(args);
  length = strlen(line);
  line[length] = '\n';
  /* One write keeps lines of several threads and processes whole. */
  if (write(STDERR_FILENO, line, length + 1) < 0) return;
}
