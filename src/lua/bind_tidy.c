/* Notes of the tensor handles that tf.tidy releases.
**
** Each coroutine has its own stack of lists, so that replicas that take turns
** do not answer for each other's tensors. A list holds its handles weakly:
** what the collector takes first is simply missing. Cost outside of tidy: one
** test of a counter for each new handle. */
#include "lua/bind.h"

int tfd__lua_tidying = 0;

/* Registry key of: coroutine -> { list, the stack entry below }. */
static const char stacks_key = 0;

/* Push the table of stacks, made on first use; keys are weak, so that an
** abandoned coroutine takes its lists along. */
static void push_stacks(lua_State *L) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)&stacks_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_newtable(L);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_pushlightuserdata(L, (void *)(uintptr_t)&stacks_key);
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

/* Push the running coroutine's top entry, or nil. */
static void push_entry(lua_State *L) {
  push_stacks(L);
  lua_pushthread(L);
  lua_rawget(L, -2);
  lua_remove(L, -2);
}

/* The value on top becomes the running coroutine's top entry. */
static void set_entry(lua_State *L) {
  push_stacks(L);
  lua_pushthread(L);
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 2);
}

void tfd__lua_tidy_note(lua_State *L) {
  int handle = lua_gettop(L);
  int64_t n = 0;

  luaL_checkstack(L, 8, NULL);
  push_entry(L);
  if (lua_istable(L, -1)) {
    lua_rawgeti(L, -1, 1);
    lua_getfield(L, -1, "n");
    n = (int64_t)lua_tonumber(L, -1) + 1;
    lua_pop(L, 1);
    lua_pushvalue(L, handle);
    lua_rawseti(L, -2, (int)n);
    lua_pushinteger(L, (lua_Integer)n);
    lua_setfield(L, -2, "n");
  }
  lua_settop(L, handle);
}

/* tidy_begin(): note the handles that this coroutine makes from now on. */
static int core_tidy_begin(lua_State *L) {
  lua_settop(L, 0);
  push_entry(L);
  lua_createtable(L, 2, 0);
  lua_newtable(L); /* the list */
  lua_newtable(L);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_pushinteger(L, 0);
  lua_setfield(L, -2, "n");
  lua_rawseti(L, 2, 1);
  lua_pushvalue(L, 1);
  lua_rawseti(L, 2, 2);
  set_entry(L);
  tfd__lua_tidying++;
  return 0;
}

/* tidy_end() -> the handles noted since the last tidy_begin, with n. */
static int core_tidy_end(lua_State *L) {
  lua_settop(L, 0);
  push_entry(L);
  if (!lua_istable(L, 1))
    return tfd__lua_error(L, "RuntimeError", NULL,
                          "tidy_end: there was no tidy_begin");
  lua_rawgeti(L, 1, 1);
  lua_rawgeti(L, 1, 2);
  set_entry(L);
  tfd__lua_tidying--;
  return 1;
}

/* tidy_note(handle): the enclosing tidy answers for it, if there is one. */
static int core_tidy_note(lua_State *L) {
  lua_settop(L, 1);
  if (tfd__lua_tidying > 0) tfd__lua_tidy_note(L);
  return 0;
}

const luaL_Reg tfd__lua_tidy_functions[] = {
    {"tidy_begin", core_tidy_begin},
    {"tidy_end", core_tidy_end},
    {"tidy_note", core_tidy_note},
    {NULL, NULL},
};
