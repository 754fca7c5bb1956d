/* Compile the embedded Lua library with the engine that will run it.
**
** usage: compile OUT.c
**
** Linked with that engine and with the texts of scripts/embed.lua, it writes
** the array tfd__embedded_code: their bytecode, with lines and names for
** errors, in the same order. To read text takes 10 to 20 times as long as to
** read bytecode, and was most of a script's start. */
#include <lauxlib.h>
#include <lua.h>
#include <stdio.h>
#include <stdlib.h>

#include "lua/embedded.h"

enum { BYTES_PER_LINE = 20 };

typedef struct literal {
  FILE *out;
  size_t size;
} literal;

/* A lua_Writer: the bytes as parts of a C string literal. */
static int put(lua_State *L, const void *bytes, size_t size, void *data) {
  const unsigned char *b = bytes;
  literal *to = data;
  size_t i = 0;

  (void)L;
  for (i = 0; i < size; i++) {
    if (to->size % BYTES_PER_LINE == 0)
      fputs(to->size ? "\"\n\"" : "\"", to->out);
    fprintf(to->out, "\\%03o", b[i]);
    to->size++;
  }
  return ferror(to->out);
}

static int dump(lua_State *L, literal *to) {
#if LUA_VERSION_NUM >= 503
  return lua_dump(L, put, to, 0);
#else
  return lua_dump(L, put, to);
#endif
}

static int compile_all(lua_State *L, FILE *out) {
  const tfd__embedded *e = tfd__embedded_library;
  int n = 0;

  fputs("/* Written by scripts/compile.c. */\n#include \"lua/embedded.h\"\n",
        out);
  fputs("const tfd__code tfd__embedded_code[] = {\n", out);
  for (n = 0; e[n].name != NULL; n++) {
    literal to = {out, 0};

    lua_pushfstring(L, TFD_EMBEDDED_CHUNK, e[n].file);
    if (luaL_loadbuffer(L, e[n].text, e[n].size, lua_tostring(L, -1)) != 0) {
      fprintf(stderr, "compile: %s\n", lua_tostring(L, -1));
      return 1;
    }
    fputs("{", out);
    if (dump(L, &to) != 0) return 1;
    fprintf(out, "\", %zu},\n", to.size);
    lua_settop(L, 0);
  }
  fputs("};\n", out);
  return 0;
}

int main(int argc, char **argv) {
  lua_State *L = luaL_newstate();
  FILE *out = argc == 2 ? fopen(argv[1], "w") : NULL;
  int status = 1;

  if (L == NULL || out == NULL) {
    fprintf(stderr, "compile: cannot write %s\n", argc == 2 ? argv[1] : "?");
    return 1;
  }
  status = compile_all(L, out);
  lua_close(L);
  if (fclose(out) != 0) status = 1;
  if (status != 0) remove(argv[1]);
  return status;
}
