/* Attributes as users write them, for the calls that need no thought:
** positional, right type, no options table. Everything else is left to the
** Lua side, which knows all forms and all messages. */
#include <string.h>

#include "lua/bind.h"
#include "ops/ops.h"

/* A list of whole numbers and nothing else, into a list slot. Metatables do
** not matter: shapes have one. */
static bool read_list(lua_State *L, int index, int64_t *slot) {
  int64_t n = 0;
  int i = 0;

  n = (int64_t)lua_rawlen(L, index);
  /* An empty table may stand for options. */
  if (n == 0 || n > TFD_MAX_RANK) return false;
  for (i = 1; i <= n; i++) {
    bool whole = false;

    lua_rawgeti(L, index, i);
    whole = tfd__lua_to_i64(L, -1, &slot[i]);
    lua_pop(L, 1);
    if (!whole) return false;
  }
  lua_pushinteger(L, (lua_Integer)n);
  if (lua_next(L, index) != 0) {
    lua_pop(L, 2);
    return false;
  }
  slot[0] = n;
  return true;
}

/* The dtype of this very name. */
static bool read_dtype(lua_State *L, int index, int64_t *slot) {
  const char *name =
      lua_type(L, index) == LUA_TSTRING ? lua_tostring(L, index) : NULL;
  int dtype = 0;

  if (name == NULL) return false;
  for (dtype = 1; dtype < TFD_DTYPE_END; dtype++) {
    if (strcmp(name, tfd__dtype_name(dtype)) != 0) continue;
    *slot = dtype;
    return true;
  }
  return false;
}

static bool read_ints(lua_State *L, int index, char kind, int64_t *slot) {
  switch (kind) {
  case 'b':
    if (!lua_isboolean(L, index)) return false;
    slot[0] = lua_toboolean(L, index);
    return true;
  case 'i':
    return tfd__lua_to_i64(L, index, slot);
  case 'l':
    if (lua_istable(L, index)) return read_list(L, index, slot);
    slot[0] = 1;
    return tfd__lua_to_i64(L, index, &slot[1]);
  case 'd':
    return read_dtype(L, index, slot);
  default: /* names of enumerations */
    return false;
  }
}

bool tfd__lua_attributes(lua_State *L, const char *kinds, int first, int top,
                         int64_t *ints, double *reals) {
  int index = first;

  for (; *kinds != 0; kinds++, index++) {
    bool required = *kinds >= 'A' && *kinds <= 'Z';
    char kind = required ? (char)(*kinds - 'A' + 'a') : *kinds;
    bool absent = index > top || lua_isnil(L, index);

    if (kind == 'x') { /* `name`; the slow way says what is wrong with it */
      if (!absent && lua_type(L, index) != LUA_TSTRING) return false;
      continue;
    }
    if (absent && required) return false;
    if (kind == 'f') {
      if (!absent && lua_type(L, index) != LUA_TNUMBER) return false;
      if (!absent) *reals = lua_tonumber(L, index);
      reals++;
      continue;
    }
    if (!absent && !read_ints(L, index, kind, ints)) return false;
    ints += kind == 'l' ? TFD_LIST_SLOTS : 1;
  }
  return index > top;
}
