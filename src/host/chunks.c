/* Where Lua code comes from: text only, the library from inside the binary.
**
** Damaged bytecode crashes both engines and neither has a verifier, so every
** way to load a chunk refuses it unless --allow-bytecode was given. Only the
** library is bytecode: it was made with this engine when the host was. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/host.h"
#include "lua/embedded.h"

static bool allow_bytecode = false;
static const char *const refused =
    "is bytecode, which is refused; give --allow-bytecode to trust it";

static const char *chunk_mode(void) {
  return allow_bytecode ? "bt" : "t";
}

/* After a failed load: say what was refused, and how to allow it. `what`
** names the chunk. The message is on top. */
static void explain(lua_State *L, const char *what) {
  const char *text = lua_tostring(L, -1);

  if (text == NULL || allow_bytecode) return;
  if (strncmp(text, "attempt to load ", 16) != 0) return;
  lua_pushfstring(L, "%s %s", what, refused);
  lua_remove(L, -2);
}

int tfd__chunks_load_file(lua_State *L, const char *path) {
  int status = luaL_loadfilex(L, path, chunk_mode());

  if (status != LUA_OK) explain(L, path != NULL ? path : "stdin");
  return status;
}

int tfd__chunks_load(lua_State *L, const char *text, size_t size,
                     const char *name) {
  int status = luaL_loadbufferx(L, text, size, name, chunk_mode());

  if (status != LUA_OK) explain(L, "the chunk");
  return status;
}

/* --- load, loadstring, loadfile, dofile ----------------------------------- */

/* Call the engine's own function (upvalue 1) with its mode argument (at index
** upvalue 2) restricted to text. */
static int load_text(lua_State *L) {
  int mode = (int)lua_tointeger(L, lua_upvalueindex(2));
  int n = lua_gettop(L);

  if (n < mode) {
    lua_settop(L, mode);
    n = mode;
  }
  if (lua_isnil(L, mode)) {
    lua_pushliteral(L, "t");
    lua_replace(L, mode);
  } else if (lua_isstring(L, mode) &&
             strchr(lua_tostring(L, mode), 'b') != NULL) {
    bool text_too = strchr(lua_tostring(L, mode), 't') != NULL;

    if (!text_too) {
      lua_pushnil(L);
      lua_pushfstring(L, "the chunk %s", refused);
      return 2;
    }
    lua_pushliteral(L, "t");
    lua_replace(L, mode);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, n, LUA_MULTRET);
  if (lua_gettop(L) == 2 && lua_isnil(L, 1)) explain(L, "the chunk");
  return lua_gettop(L);
}

#if LUA_VERSION_NUM >= 503
static int dofile_done(lua_State *L, int status, lua_KContext context) {
  (void)status;
  (void)context;
  return lua_gettop(L) - 1;
}
#define CALL_FILE(L) lua_callk(L, 0, LUA_MULTRET, 0, dofile_done)
#else
#define CALL_FILE(L) lua_call(L, 0, LUA_MULTRET)
#endif

static int dofile_text(lua_State *L) {
  const char *path = luaL_optstring(L, 1, NULL);

  lua_settop(L, 1);
  if (tfd__chunks_load_file(L, path) != LUA_OK) return lua_error(L);
  CALL_FILE(L);
  return lua_gettop(L) - 1;
}

static void restrict_global(lua_State *L, const char *name, int mode) {
  lua_getglobal(L, name);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return;
  }
  lua_pushinteger(L, mode);
  lua_pushcclosure(L, load_text, 2);
  lua_setglobal(L, name);
}

/* --- searchers ------------------------------------------------------------ */

/* Push package.searchers or package.loaders. */
static void push_searchers(lua_State *L) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, LUA_VERSION_NUM < 502 ? "loaders" : "searchers");
  lua_remove(L, -2);
}

static int load_error(lua_State *L, const char *name, const char *path) {
  return luaL_error(L, "error loading module '%s' from file '%s':\n\t%s", name,
                    path, lua_tostring(L, -1));
}

/* package.path, text only. */
static int search_path(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  const char *path = NULL;

  lua_getglobal(L, "package");
  lua_getfield(L, -1, "searchpath");
  lua_pushvalue(L, 1);
  lua_getfield(L, -3, "path");
  if (!lua_isstring(L, -1))
    return luaL_error(L, "'package.path' must be a string");
  lua_call(L, 2, 2);
  if (lua_isnil(L, -2)) return 1; /* the list of places tried */
  lua_pop(L, 1);
  path = lua_tostring(L, -1);
  if (tfd__chunks_load_file(L, path) != LUA_OK)
    return load_error(L, name, path);
  lua_pushstring(L, path);
  return 2;
}

/* TFDIST_DEV=dir: the library from a source tree instead of the binary. */
static int load_from_tree(lua_State *L, const char *root,
                          const tfd__embedded *e) {
  const char *path = lua_pushfstring(L, "%s/%s", root, e->file);

  if (tfd__chunks_load_file(L, path) != LUA_OK)
    return load_error(L, e->name, path);
  lua_pushstring(L, path);
  return 2;
}

static const tfd__embedded *find_embedded(const char *name) {
  const tfd__embedded *e = tfd__embedded_library;

  while (e->name != NULL && strcmp(e->name, name) != 0) e++;
  return e->name != NULL ? e : NULL;
}

static int search_embedded(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  const tfd__embedded *e = find_embedded(name);
  const char *root = lua_tostring(L, lua_upvalueindex(1));
  const tfd__code *code = NULL;
  const char *chunk = NULL;

  if (e == NULL) {
    lua_pushfstring(L, "%sno module '%s' inside tfdist",
                    LUA_VERSION_NUM < 502 ? "\n\t" : "", name);
    return 1;
  }
  if (root != NULL) return load_from_tree(L, root, e);
  code = &tfd__embedded_code[e - tfd__embedded_library];
  chunk = lua_pushfstring(L, TFD_EMBEDDED_CHUNK, e->file);
  if (luaL_loadbufferx(L, code->bytes, code->size, chunk, "b") != LUA_OK)
    return lua_error(L);
  lua_pushstring(L, chunk + 1);
  return 2;
}

/* Insert the embedded library right behind package.preload. */
static void add_searcher(lua_State *L, bool use_environment) {
  const char *root = use_environment ? getenv("TFDIST_DEV") : NULL;
  int i = 0;

  push_searchers(L);
  for (i = (int)lua_rawlen(L, -1); i >= 2; i--) {
    lua_rawgeti(L, -1, i);
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushstring(L, root);
  lua_pushcclosure(L, search_embedded, 1);
  lua_rawseti(L, -2, 2);
  if (!allow_bytecode) {
    lua_pushcfunction(L, search_path);
    lua_rawseti(L, -2, 3);
  }
  lua_pop(L, 1);
}

/* Drop "./?.so" from package.cpath unless the environment names it: a C
** module must not come from wherever the user happens to stand. */
static void trim_cpath(lua_State *L, bool use_environment) {
  static const char *const names[] = {"LUA_CPATH_5_4", "LUA_CPATH"};
  static const char here[] = "./?.so";
  const char *path = NULL;
  size_t i = 0;

  for (i = 0; use_environment && i < 2; i++) {
    const char *value = getenv(names[i]);

    if (value != NULL && strstr(value, here) != NULL) return;
  }
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "cpath");
  path = lua_tostring(L, -1);
  lua_pushfstring(L, ";%s;", path);
  luaL_gsub(L, lua_tostring(L, -1), ";./?.so;", ";");
  /* without the two separators added above */
  path = lua_tostring(L, -1);
  lua_pushlstring(L, path + 1, strlen(path) > 1 ? strlen(path) - 2 : 0);
  lua_setfield(L, -5, "cpath");
  lua_pop(L, 4);
}

void tfd__chunks_open(lua_State *L, const tfd__options *o) {
  allow_bytecode = o->allow_bytecode;
  add_searcher(L, !o->ignore_environment);
  trim_cpath(L, !o->ignore_environment);
  if (allow_bytecode) return;
  restrict_global(L, "load", 3);
  restrict_global(L, "loadfile", 2);
  if (LUA_VERSION_NUM < 502) restrict_global(L, "loadstring", 3);
  lua_pushcfunction(L, dofile_text);
  lua_setglobal(L, "dofile");
}
