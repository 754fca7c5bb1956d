/* Lines on stderr, as far as TFDIST_LOG asks for them. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/environment.h"

enum { LINE_BYTES = 4096 }; /* longer lines are cut */

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
  char line[LINE_BYTES];
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
