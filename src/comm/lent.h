/* The functions that a plug-in may call, under the names they have in the
** library: included by one file of a plug-in, after it has defined `host`, a
** pointer to the tfd__provider_host it was given. */
#include <stdarg.h>
#include <stdio.h>

#include "comm/plugin.h"

int tfd__fail(tfd_status code, const char *fmt, ...) {
  char text[1024];
  va_list list;

  va_start(list, fmt);
  (void)vsnprintf(text, sizeof text, fmt, list);
  va_end(list);
  return host->fail(code, "%s", text);
}

int tfd__hint(const char *fmt, ...) {
  char text[1024];
  va_list list;

  va_start(list, fmt);
  (void)vsnprintf(text, sizeof text, fmt, list);
  va_end(list);
  return host->hint("%s", text);
}

void tfd__log(tfd__log_level level, const char *fmt, ...) {
  char text[1024];
  va_list list;

  va_start(list, fmt);
  (void)vsnprintf(text, sizeof text, fmt, list);
  va_end(list);
  host->log(level, "%s", text);
}

#define TFD_LEND(type, name, params, args) \
  type name params {                       \
    return host->name args;                \
  }
#include "comm/lent.def"
#undef TFD_LEND
