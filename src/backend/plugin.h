#ifndef TFD_BACKEND_PLUGIN_H
#define TFD_BACKEND_PLUGIN_H
/* What a back end in a shared object of its own (base/plugins.h) shares with
** the library. It is opened when the runtime starts and sees no symbol of the
** library: what it may call is in the table that it is given. */

#include "backend/backend.h"

typedef struct tfd__plugin_host {
  int abi; /* TFD_BACKEND_ABI; first for ever */
  int (*fail)(tfd_status code, const char *fmt, ...);
  int (*hint)(const char *fmt, ...);
  int (*error_set_place)(int replica, const char *where);
  int (*error_set_note)(const char *note);
  int (*blame)(const char *op, const char *argument, int64_t bound);
  void (*error_save)(tfd__error *e);
  int (*error_raise)(const tfd__error *e);
  void (*error_free)(tfd__error *e);
  void (*log)(tfd__log_level level, const char *fmt, ...);
  void *(*alloc)(size_t bytes);
  void *(*alloc_aligned)(size_t alignment, size_t bytes);
  void (*free)(void *p);
  void *(*scratch)(size_t bytes);
  void (*scratch_reset)(void);
  void (*use_threads)(int n);
  int (*cores)(void);
  int (*check_running)(void);
  bool (*tensor_float_32)(void);
  const tfd__backend *cpu; /* its kernels work on any memory of the process */
} tfd__plugin_host;

/* The plug-in's one symbol. It looks at host->abi first. Errors: made by
** host->fail; the message is kept as the reason why there is no such device. */
typedef int tfd__backend_plugin(const tfd__plugin_host *host,
                                const tfd__backend **backend_p);
#define TFD_BACKEND_PLUGIN "tfd_backend_plugin"

#endif
