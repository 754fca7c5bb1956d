#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* Fixed sizes: reporting a failure must not itself need memory. Longer texts
** are cut and end in "...". */
enum {
  MESSAGE_BYTES = 4096,
  HINT_BYTES = 1024,
  WHERE_BYTES = 512,
  NOTE_BYTES = 2048
};

typedef struct record {
  int code;
  int replica;
  const char *op;       /* NULL = not said */
  const char *argument; /* NULL = not said */
  int64_t bound;        /* -1 = not said */
  tfd__exit exit;
  char message[MESSAGE_BYTES];
  char hint[HINT_BYTES];
  char where[WHERE_BYTES];
  char note[NOTE_BYTES];
} record;

static _Thread_local record last = {.code = TFD_OK, .replica = -1, .bound = -1};

/* A record begins: what it is about is not said yet. */
static void begin(tfd_status code, int replica) {
  last.code = (int)code;
  last.replica = replica;
  last.op = NULL;
  last.argument = NULL;
  last.bound = -1;
  last.exit = code == TFD_INTERNAL ? TFD_EXIT_INTERNAL : TFD_EXIT_ANY;
  last.note[0] = '\0';
}

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
  begin(code, -1);
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

int tfd__error_set_note(const char *note) {
  if (note != last.note) set_text(last.note, sizeof last.note, note);
  return last.code;
}

int tfd__blame(const char *op, const char *argument, int64_t bound) {
  if (op != NULL) last.op = op;
  if (argument != NULL) last.argument = argument;
  if (bound >= 0) last.bound = bound;
  return last.code;
}

int tfd__exit_with(tfd__exit code) {
  last.exit = code;
  return last.code;
}

int tfd__error_set(tfd_status code, int replica, const char *message,
                   const char *hint, const char *where) {
  begin(code, replica);
  set_text(last.message, sizeof last.message, message);
  set_text(last.hint, sizeof last.hint, hint);
  set_text(last.where, sizeof last.where, where);
  return last.code;
}

int tfd__error_code(void) {
  return last.code;
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

const char *tfd_error_note(void) {
  return last.note;
}

const char *tfd_error_op(void) {
  return last.op != NULL ? last.op : "";
}

const char *tfd_error_argument(void) {
  return last.argument != NULL ? last.argument : "";
}

int64_t tfd_error_bound(void) {
  return last.bound;
}

int tfd_error_exit_code(void) {
  return (int)last.exit;
}
