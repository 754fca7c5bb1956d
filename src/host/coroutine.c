/* Coroutines, and what else nests in C.
**
** Lua 5.4: coroutine.resume and coroutine.wrap, the same as the engine's, but
** signals know the running thread: a hook set on the main thread does not stop
** a coroutine. LuaJIT: the engine's own functions stay, behind a look at the
** stack, for LuaJIT counts nothing that nests in C and overruns the C stack. */
#include "host/host.h"

#if LUA_VERSION_NUM < 502
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* The most that nesting may take: 120 times string.gsub, whose buffer is the
** largest, or 13,000 coroutines. Each coroutine that ends in an error puts a
** position before its text: with no limit but the stack, minutes of copying. */
enum { MOST = 1 << 20 };

/* Below this address too much of the stack is used. */
static const char *lowest = NULL;

static void measure_stack(void) {
  struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  size_t most = MOST;

  getrlimit(RLIMIT_STACK, &limit);
  if (limit.rlim_cur / 2 < most) most = (size_t)limit.rlim_cur / 2;
  lowest = (const char *)__builtin_frame_address(0) - most;
}

static int is_deep(lua_State *L) {
  lua_pushboolean(L, (const char *)__builtin_frame_address(0) < lowest);
  return 1;
}

/* In Lua, since an error that C raises after lua_resume leaves this engine on
** the dead coroutine, where the next exit from a compiled trace ends the
** process. Tail calls: messages name the caller's line and the function. */
static const char guards[] =
    "local deep, flush = ...\n"
    "local error = error\n"
    "local full = 'C stack overflow'\n"
    "local function guard(call)\n"
    "  return function(...)\n"
    "    if deep() then error(full, 2) end\n"
    "    return call(...)\n"
    "  end\n"
    "end\n"
    "local resume, wrap = coroutine.resume, coroutine.wrap\n"
    "function coroutine.resume(...)\n"
    "  if deep() then return false, full end\n"
    "  return resume(...)\n"
    "end\n"
    "function coroutine.wrap(f)\n"
    "  if type(f) ~= 'function' then return wrap(f) end\n"
    "  return guard(wrap(f))\n"
    "end\n"
    "local function guard_all(library, ...)\n"
    "  for _, name in ipairs { ... } do\n"
    "    library[name] = guard(library[name])\n"
    "  end\n"
    "end\n"
    "local show = print\n"
    "function print(...)\n"
    "  show(...)\n"
    "  flush()\n"
    "end\n"
    "guard_all(_G, 'dofile', 'load', 'print', 'require')\n"
    "guard_all(string, 'gsub')\n"
    "guard_all(table, 'foreach', 'foreachi', 'sort')\n";

/* Lua 5.4's print shows its line at once, wherever it goes. */
static int flush(lua_State *L) {
  (void)L;
  (void)fflush(stdout);
  return 0;
}

void tfd__coroutines_open(lua_State *L) {
  measure_stack();
  if (luaL_loadbuffer(L, guards, sizeof guards - 1, "=[C]") != LUA_OK)
    lua_error(L);
  lua_pushcfunction(L, is_deep);
  lua_pushcfunction(L, flush);
  lua_call(L, 2, 0);
}
#else
/* Results on L, or -1 with the error value on L. */
static int run(lua_State *L, lua_State *co, int n) {
  lua_State *before = tfd__signals_current();
  int status = 0;
  int results = 0;

  if (!lua_checkstack(co, n)) {
    lua_pushliteral(L, "too many arguments to resume");
    return -1;
  }
  lua_xmove(L, co, n);
  tfd__signals_running(co);
  status = lua_resume(co, L, n, &results);
  tfd__signals_running(before);
  if (status != LUA_OK && status != LUA_YIELD) {
    lua_xmove(co, L, 1);
    return -1;
  }
  if (!lua_checkstack(L, results + 1)) {
    lua_pop(co, results);
    lua_pushliteral(L, "too many results to resume");
    return -1;
  }
  lua_xmove(co, L, results);
  return results;
}

static int coroutine_resume(lua_State *L) {
  lua_State *co = lua_tothread(L, 1);
  int n = 0;

  if (co == NULL) return luaL_typeerror(L, 1, "thread");
  n = run(L, co, lua_gettop(L) - 1);
  lua_pushboolean(L, n >= 0);
  if (n < 0) n = 1;
  lua_insert(L, -(n + 1));
  return n + 1;
}

static int wrapped(lua_State *L) {
  lua_State *co = lua_tothread(L, lua_upvalueindex(1));
  int n = run(L, co, lua_gettop(L));
  int status = 0;

  if (n >= 0) return n;
  status = lua_status(co);
  if (status != LUA_OK && status != LUA_YIELD) {
    status = lua_resetthread(co); /* closes pending variables */
    lua_xmove(co, L, 1);
  }
  if (status != LUA_ERRMEM && lua_type(L, -1) == LUA_TSTRING) {
    luaL_where(L, 1);
    lua_insert(L, -2);
    lua_concat(L, 2);
  }
  return lua_error(L);
}

static int coroutine_wrap(lua_State *L) {
  lua_State *co = NULL;

  luaL_checktype(L, 1, LUA_TFUNCTION);
  co = lua_newthread(L);
  lua_pushvalue(L, 1);
  lua_xmove(L, co, 1);
  lua_pushcclosure(L, wrapped, 1);
  return 1;
}

void tfd__coroutines_open(lua_State *L) {
  lua_getglobal(L, "coroutine");
  lua_pushcfunction(L, coroutine_resume);
  lua_setfield(L, -2, "resume");
  lua_pushcfunction(L, coroutine_wrap);
  lua_setfield(L, -2, "wrap");
  lua_pop(L, 1);
}
#endif
