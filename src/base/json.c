#include "base/json.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* What reading takes for each byte of a text, and at least: jansson's reader
** stops the process when an allocation fails, so room is looked for first. */
#define ROOM_PER_BYTE 32
#define ROOM_BYTES ((size_t)64 << 10)

static _Thread_local bool lacked = false;
static _Thread_local bool reading = false;

static void *take(size_t bytes) {
  void *p = NULL;

  if (reading) return tfd__alloc_late(bytes, &lacked);
  p = tfd__alloc(bytes);
  if (p == NULL) lacked = true;
  return p;
}

static void use_our_memory(void) {
  json_set_alloc_funcs(take, tfd__free);
}

void tfd__json_begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, use_our_memory);
  lacked = false;
}

bool tfd__json_short(void) {
  return lacked;
}

/* --- reading -------------------------------------------------------------- */

static int refuse(json_error_t *error, size_t at, int line, int column,
                  const char *why) {
  memset(error, 0, sizeof *error);
  error->line = line;
  error->column = column;
  error->position = (int)at;
  (void)snprintf(error->text, sizeof error->text - 1, "%s", why);
  return TFD_INVALID_ARGUMENT;
}

/* Deep texts are refused before they are read: each level takes stack. */
static int check_depth(const char *text, size_t n, json_error_t *error) {
  const char *line = text;
  bool quoted = false;
  int lines = 1;
  int depth = 0;
  size_t i;

  for (i = 0; i < n; i++) {
    char c = text[i];

    if (c == '\n') {
      lines++;
      line = text + i + 1;
    } else if (quoted && c == '\\') {
      i++;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      depth++;
    } else if (!quoted && (c == ']' || c == '}')) {
      depth--;
    }
    if (depth > TFD_JSON_DEPTH) {
      return refuse(error, i, lines, (int)(text + i - line) + 1,
                    "nested deeper than 64 levels");
    }
  }
  return TFD_OK;
}

static int check_room(size_t n) {
  void *room = tfd__alloc(n * ROOM_PER_BYTE + ROOM_BYTES);

  if (room == NULL) return tfd__no_memory(n, "JSON text");
  tfd__free(room);
  return TFD_OK;
}

int tfd__json_read(const char *text, size_t n, json_t **value_p,
                   json_error_t *error_p) {
  json_t *value = NULL;

  if (n > TFD_JSON_BYTES) {
    return refuse(error_p, 0, 1, 1, "longer than 64 MiB");
  }
  TFD_TRY(check_depth(text, n, error_p));
  TFD_TRY(check_room(n));
  tfd__json_begin();
  reading = true;
  value = json_loadb(text, n,
                     JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL,
                     error_p);
  reading = false;
  if (lacked) {
    json_decref(value);
    return tfd__no_memory(n, "JSON text");
  }
  if (value == NULL) return TFD_INVALID_ARGUMENT;
  *value_p = value;
  return TFD_OK;
}

/* --- writing -------------------------------------------------------------- */

int tfd__json_write(const json_t *value, size_t flags, char **text_p,
                    size_t *n_p) {
  size_t n = 0;
  char *text = NULL;

  tfd__json_begin();
  n = json_dumpb(value, NULL, 0, flags | JSON_ENCODE_ANY);
  text = n > 0 ? tfd__alloc(n + 1) : NULL;
  if (text == NULL ||
      json_dumpb(value, text, n, flags | JSON_ENCODE_ANY) != n) {
    tfd__free(text);
    return tfd__no_memory(n, "JSON text");
  }
  text[n] = '\0';
  *text_p = text;
  *n_p = n;
  return TFD_OK;
}
