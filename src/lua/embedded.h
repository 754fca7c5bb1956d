#ifndef TFD_LUA_EMBEDDED_H
#define TFD_LUA_EMBEDDED_H
/* Lua modules carried as text inside the binary (scripts/embed.lua). */

#include <stddef.h>

typedef struct tfd__embedded {
  const char *name; /* "tfdist.base.errors"; NULL ends a list */
  const char *file; /* "tfdist/base/errors.lua", for chunk names */
  const char *text;
  size_t size;
} tfd__embedded;

/* The host's copy of lua/. */
extern const tfd__embedded tfd__embedded_library[];
/* What FFI is told, generated, in LuaJIT's core module only. */
extern const tfd__embedded tfd__embedded_ffi[];

#endif
