/* Errors as the objects that Lua's side makes of them. */
#include <stdarg.h>
#include <stdio.h>

#include "lua/bind.h"

/* Registry key of the function that raises error objects. */
static const char raise_key = 0;

void tfd__lua_set_raise(lua_State *L) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)&raise_key);
  lua_insert(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

/* Call the raise function with the `n` values on top. Without one (the core
** module was loaded alone) a plain "kind: message" is raised. */
static int raise(lua_State *L, int n) {
  luaL_checkstack(L, 10, NULL);
  lua_pushlightuserdata(L, (void *)(uintptr_t)&raise_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return luaL_error(L, "%s: %s", lua_tostring(L, -n),
                      lua_tostring(L, -n + 1));
  }
  lua_insert(L, -n - 1);
  lua_call(L, n, 0);
  return luaL_error(L, "the raise function returned");
}

int tfd__lua_fail(lua_State *L, int code) {
  const char *hint = tfd_error_hint();
  const char *where = tfd_error_where();
  const char *op = tfd_error_op();
  const char *argument = tfd_error_argument();
  int64_t bound = tfd_error_bound();
  int replica = tfd_error_replica();
  int exit_code = tfd_error_exit_code();
  const char *note = tfd_error_note();

  if (tfd__interrupt_get()) return tfd__lua_interrupted(L);
  lua_pushstring(L, tfd_status_kind(code));
  /* Whether a NaN has a sign says nothing, and differs between machines. */
  luaL_gsub(L, tfd_error_message(), "-nan", "nan");
  tfd__lua_push_string(L, hint != NULL && hint[0] != 0 ? hint : NULL);
  tfd__lua_push_string(L, where != NULL && where[0] != 0 ? where : NULL);
  if (replica >= 0)
    lua_pushinteger(L, replica);
  else
    lua_pushnil(L);
  tfd__lua_push_string(L, op[0] != 0 ? op : NULL);
  tfd__lua_push_string(L, argument[0] != 0 ? argument : NULL);
  if (bound >= 0)
    lua_pushinteger(L, (lua_Integer)bound);
  else
    lua_pushnil(L);
  if (exit_code > 0)
    lua_pushinteger(L, exit_code);
  else
    lua_pushnil(L);
  tfd__lua_push_string(L, note[0] != 0 ? note : NULL);
  return raise(L, 10);
}

int tfd__lua_error(lua_State *L, const char *kind, const char *hint,
                   const char *fmt, ...) {
  char text[1024];
  va_list args;

  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  lua_pushstring(L, kind);
  lua_pushstring(L, text);
  tfd__lua_push_string(L, hint);
  return raise(L, 3);
}

int tfd__lua_interrupted(lua_State *L) {
  tfd_interrupt(false);
  lua_sethook(L, NULL, 0, 0);
  return tfd__lua_error(L, "Cancelled", NULL, "interrupted");
}
