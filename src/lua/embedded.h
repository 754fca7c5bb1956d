#ifndef TFD_LUA_EMBEDDED_H
#define TFD_LUA_EMBEDDED_H
/* Lua modules carried inside the binary: as text (scripts/embed.lua) and, of
** the host's library, as bytecode of its own engine (scripts/compile.c). */

#include <stddef.h>

typedef struct tfd__embedded {
  const char *name; /* "tfdist.base.errors"; NULL ends a list */
  const char *file; /* "tfdist/base/errors.lua", for chunk names */
  const char *text;
  size_t size;
} tfd__embedded;

typedef struct tfd__code {
  const char *bytes;
  size_t size;
} tfd__code;

/* The name of an embedded file's chunk, for lua_pushfstring. */
#define TFD_EMBEDDED_CHUNK "@lua/%s"

/* The host's copy of lua/: the texts are for people, the bytecode is run. */
extern const tfd__embedded tfd__embedded_library[];
extern const tfd__code tfd__embedded_code[]; /* in the same order */
/* What FFI is told, generated, in LuaJIT's core module only. */
extern const tfd__embedded tfd__embedded_ffi[];

#endif
