/* Attributes as users write them: numbers, booleans, words and lists go into
** slots here, whatever else can stand for one becomes plain in Lua first. */
#include <string.h>

#include "lua/bind.h"
#include "ops/attributes.h"

/* A list of whole numbers and nothing else, into a list slot. Of tables with
** elements the metatable does not matter: shapes have one. */
static bool read_list(lua_State *L, int index, int64_t *slot) {
  int64_t n = (int64_t)lua_rawlen(L, index);
  int i = 0;

  if (n > TFD_MAX_RANK) return false;
  if (n == 0 && lua_getmetatable(L, index)) {
    lua_pop(L, 1);
    return false;
  }
  for (i = 1; i <= n; i++) {
    bool whole = false;

    lua_rawgeti(L, index, i);
    whole = tfd__lua_to_i64(L, -1, &slot[i]);
    lua_pop(L, 1);
    if (!whole) return false;
  }
  if (n > 0)
    lua_pushinteger(L, (lua_Integer)n);
  else
    lua_pushnil(L);
  if (lua_next(L, index) != 0) {
    lua_pop(L, 2);
    return false;
  }
  slot[0] = n;
  return true;
}

/* The dtype of this very name. */
static bool read_dtype(const char *name, int64_t *slot) {
  int dtype = 0;

  for (dtype = 1; dtype < TFD_DTYPE_END; dtype++) {
    if (strcmp(name, tfd__dtype_name(dtype)) != 0) continue;
    *slot = dtype;
    return true;
  }
  return false;
}

static bool read_choice(const tfd__param *p, const char *word, size_t length,
                        int64_t *slot) {
  int position = tfd__param_choice(p, word, length);

  *slot = position;
  return position >= 0;
}

/* The value at `index`, which is not nil, if it is what the attribute takes. */
static bool read_plain(lua_State *L, const tfd__param *p, int index,
                       int64_t *ints, double *reals) {
  int type = lua_type(L, index);
  int64_t *slot = &ints[p->slot];
  const char *word = NULL;
  size_t length = 0;

  switch (p->kind) {
  case 'b':
    slot[0] = lua_toboolean(L, index);
    return type == LUA_TBOOLEAN;
  case 'i':
    return tfd__lua_to_i64(L, index, slot);
  case 'f':
    if (type != LUA_TNUMBER) return false;
    reals[p->slot] = lua_tonumber(L, index);
    return true;
  case 'l':
    if (type == LUA_TTABLE) return read_list(L, index, slot);
    slot[0] = 1;
    return tfd__lua_to_i64(L, index, &slot[1]);
  default: /* d, e */
    if (type != LUA_TSTRING) return false;
    word = lua_tolstring(L, index, &length);
    return p->kind == 'd' ? read_dtype(word, slot)
                          : read_choice(p, word, length, slot);
  }
}

/* The value at `index` becomes plain(op, name, kind, value, choices), which
** raises what is wrong with it. A list that is too long is told by the rule. */
static void read_careful(lua_State *L, const tfd__op *op, const tfd__param *p,
                         int index, int64_t *ints, double *reals) {
  int top = lua_gettop(L);
  int rc = TFD_OK;

  tfd__lua_push_hook(L, TFD_LUA_PLAIN);
  lua_pushstring(L, op->name);
  lua_pushstring(L, p->name);
  lua_pushlstring(L, &p->kind, 1);
  lua_pushvalue(L, index);
  if (p->choices != NULL)
    lua_pushlstring(L, p->choices, strcspn(p->choices, ")"));
  else
    lua_pushnil(L);
  lua_call(L, 5, 1);
  if (!read_plain(L, p, top + 1, ints, reals)) {
    ints[p->slot] = (int64_t)lua_rawlen(L, top + 1);
    rc = tfd__param_check(op, p, ints);
    if (rc != TFD_OK) tfd__lua_fail(L, rc);
    luaL_error(L, "%s: %s did not become plain", op->name, p->name);
  }
  lua_settop(L, top);
}

bool tfd__lua_attributes(lua_State *L, const tfd__op *op, int from,
                         bool careful, int64_t *ints, double *reals) {
  int i = 0;

  for (i = op->in_n; i < op->params_n; i++) {
    const tfd__param *p = &op->params[i];
    int index = from + i - op->in_n;

    if (lua_isnoneornil(L, index)) {
      if (p->required) return false;
    } else if (!read_plain(L, p, index, ints, reals)) {
      if (!careful) return false;
      read_careful(L, op, p, index, ints, reals);
    }
  }
  return true;
}
