/* coroutine.resume and coroutine.wrap, the same as the engine's, with two
** additions: signals know the running thread (a hook set on the main thread
** does not stop a coroutine of Lua 5.4), and nesting has a limit on LuaJIT,
** which has none of its own and overruns the C stack. */
#include "host/host.h"

#if LUA_VERSION_NUM < 502
enum { MAX_DEPTH = 10000 };
static int depth = 0;

/* NULL, or why co cannot be resumed. */
static const char *refusal(lua_State *L, lua_State *co) {
  lua_Debug ar;

  if (depth >= MAX_DEPTH) return "C stack overflow";
  if (L == co) return "cannot resume running coroutine";
  if (lua_status(co) == LUA_YIELD) return NULL;
  if (lua_status(co) != LUA_OK) return "cannot resume dead coroutine";
  if (lua_getstack(co, 0, &ar) > 0)
    return "cannot resume non-suspended coroutine";
  return lua_gettop(co) == 0 ? "cannot resume dead coroutine" : NULL;
}

static int resume(lua_State *L, lua_State *co, int n, int *results_p) {
  int status = 0;

  depth++;
  status = lua_resume(co, n);
  depth--;
  (void)L;
  *results_p = lua_gettop(co);
  return status;
}
#else
static const char *refusal(lua_State *L, lua_State *co) {
  (void)L;
  (void)co;
  return NULL; /* lua_resume itself refuses */
}

static int resume(lua_State *L, lua_State *co, int n, int *results_p) {
  return lua_resume(co, L, n, results_p);
}
#endif

/* Results on L, or -1 with the error value on L. */
static int run(lua_State *L, lua_State *co, int n) {
  lua_State *before = tfd__signals_current();
  const char *why = refusal(L, co);
  int status = 0;
  int results = 0;

  if (why == NULL && !lua_checkstack(co, n))
    why = "too many arguments to resume";
  if (why != NULL) {
    lua_pushstring(L, why);
    return -1;
  }
  lua_xmove(L, co, n);
  tfd__signals_running(co);
  status = resume(L, co, n, &results);
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

#if LUA_VERSION_NUM >= 504
  if (co == NULL) return luaL_typeerror(L, 1, "thread");
#else
  luaL_argcheck(L, co != NULL, 1, "coroutine expected");
#endif
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
#if LUA_VERSION_NUM >= 504
  if (status != LUA_OK && status != LUA_YIELD) {
    status = lua_resetthread(co); /* closes pending variables */
    lua_xmove(co, L, 1);
  }
#endif
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
