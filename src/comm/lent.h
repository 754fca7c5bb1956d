/* What every plug-in of collectives has: its one symbol, and the functions that
** it may call, under the names they have in the library. Included by one file
** of a plug-in, after
**   #define TFD_LENT_PROVIDER    its tfd__provider
**   #define TFD_LENT_OPEN()      TFD_OK, or why it cannot be used here */
#include <stdarg.h>
#include <stdio.h>

#include "comm/plugin.h"

static const tfd__provider_host *host;

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

TFD_API int tfd_provider_plugin(const tfd__provider_host *given,
                                const tfd__provider **provider_p);

int tfd_provider_plugin(const tfd__provider_host *given,
                        const tfd__provider **provider_p) {
  if (given->abi != TFD_PROVIDER_ABI) {
    return given->fail(TFD_FAILED_PRECONDITION,
                       "made for table %d of providers, here it is %d",
                       TFD_PROVIDER_ABI, given->abi);
  }
  /* Asked again while threads of the plug-in run. */
  if (host != given) host = given;
  TFD_TRY(TFD_LENT_OPEN());
  *provider_p = &TFD_LENT_PROVIDER;
  return TFD_OK;
}
