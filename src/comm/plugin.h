#ifndef TFD_COMM_PLUGIN_H
#define TFD_COMM_PLUGIN_H
/* What a provider of collectives in a shared object of its own
** (base/plugins.h) shares with the library: it is opened when its name is
** first asked for, and may call what stands in the table. The names there are
** those of the library's functions; lent.h gives a plug-in functions of these
** names, so that its code reads as any other's. */

#include "base/environment.h"
#include "comm/private.h"
#include "comm/ways.h"

typedef struct tfd__provider_host {
  int abi; /* TFD_PROVIDER_ABI; first for ever */
  int (*fail)(tfd_status code, const char *fmt, ...);
  int (*hint)(const char *fmt, ...);
  void (*log)(tfd__log_level level, const char *fmt, ...);
#define TFD_LEND(type, name, params, args) type(*name) params;
#include "comm/lent.def"
#undef TFD_LEND
} tfd__provider_host;

/* The plug-in's one symbol. It looks at host->abi first. Errors: made by
** host->fail; the message is kept as the reason why there is no such
** provider. */
typedef int tfd__provider_plugin(const tfd__provider_host *host,
                                 const tfd__provider **provider_p);
#define TFD_PROVIDER_PLUGIN "tfd_provider_plugin"

#endif
