/* Between JSON text and Lua values; lua/tfdist/core/json.lua says the rules.
**
** What is under way lies in a userdata, so that Lua errors leak nothing. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "lua/bind.h"

#define TYPE "tfdist.json"

typedef struct box {
  json_t *value;
  char *text;
} box;

static int box_free(lua_State *L) {
  box *b = luaL_checkudata(L, 1, TYPE);

  json_decref(b->value);
  tfd__free(b->text);
  b->value = NULL;
  b->text = NULL;
  return 0;
}

static box *box_new(lua_State *L) {
  box *b = lua_newuserdatauv(L, sizeof *b, 0);

  memset(b, 0, sizeof *b);
  if (luaL_newmetatable(L, TYPE)) {
    lua_pushcfunction(L, box_free);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
  return b;
}

/* --- from text ------------------------------------------------------------ */

static void push(lua_State *L, const json_t *value, int null);

static void push_array(lua_State *L, const json_t *value, int null) {
  size_t n = json_array_size(value);
  size_t i;

  lua_createtable(L, n < INT_MAX ? (int)n : 0, 1);
  for (i = 0; i < n; i++) {
    push(L, json_array_get(value, i), null);
    lua_rawseti(L, -2, (int)i + 1);
  }
  lua_pushinteger(L, (lua_Integer)n);
  lua_setfield(L, -2, "n");
}

static void push_object(lua_State *L, json_t *value, int null) {
  void *at = json_object_iter(value);

  lua_createtable(L, 0, (int)json_object_size(value));
  for (; at != NULL; at = json_object_iter_next(value, at)) {
    lua_pushlstring(L, json_object_iter_key(at), json_object_iter_key_len(at));
    push(L, json_object_iter_value(at), null);
    lua_rawset(L, -3);
  }
}

static void push(lua_State *L, const json_t *value, int null) {
  switch (json_typeof(value)) {
  case JSON_OBJECT:
    push_object(L, (json_t *)(uintptr_t)value, null);
    break;
  case JSON_ARRAY:
    push_array(L, value, null);
    break;
  case JSON_STRING:
    lua_pushlstring(L, json_string_value(value), json_string_length(value));
    break;
  case JSON_INTEGER:
    lua_pushinteger(L, (lua_Integer)json_integer_value(value));
    break;
  case JSON_REAL:
    lua_pushnumber(L, json_real_value(value));
    break;
  case JSON_NULL:
    lua_pushvalue(L, null);
    break;
  default:
    lua_pushboolean(L, json_is_true(value));
  }
}

/* json_decode(source, what, null) -> value */
static int bind_decode(lua_State *L) {
  size_t n = 0;
  const char *text = luaL_checklstring(L, 1, &n);
  const char *what = luaL_checkstring(L, 2);
  box *b = box_new(L);
  json_error_t error;
  int rc = tfd__json_read(text, n, &b->value, &error);

  if (rc == TFD_RESOURCE_EXHAUSTED && tfd__lua_collect(L)) {
    rc = tfd__json_read(text, n, &b->value, &error);
  }
  if (rc == TFD_INVALID_ARGUMENT) {
    return tfd__lua_error(L, "ValueError", NULL,
                          "%s: not JSON at line %d, column %d: %s", what,
                          error.line, error.column, error.text);
  }
  TFD_LUA_TRY(L, rc);
  luaL_checkstack(L, 3 * TFD_JSON_DEPTH + 8, "JSON");
  push(L, b->value, 3);
  json_decref(b->value);
  b->value = NULL;
  return 1;
}

/* --- to text -------------------------------------------------------------- */

/* Are all keys of the table at i positions up to its length? */
static bool is_list(lua_State *L, int i) {
  int64_t n = (int64_t)lua_rawlen(L, i);
  int64_t key = 0;
  bool list = n > 0;

  if (list) lua_pushnil(L);
  while (list && lua_next(L, i) != 0) {
    lua_pop(L, 1);
    list = lua_type(L, -1) == LUA_TNUMBER && tfd__lua_to_i64(L, -1, &key) &&
           key >= 1 && key <= n;
    if (!list) lua_pop(L, 1);
  }
  return list;
}

/* Nulls that a list may end with or have between its elements. */
#define MOST_HOLES (1 << 20)

/* Entries of the table at i beside its `n`; -1 when a key is a string: JSON's
** objects may have a key n, too. */
static int64_t count_entries(lua_State *L, int i) {
  int64_t count = 0;

  lua_pushnil(L);
  while (lua_next(L, i) != 0) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING) {
      count++;
    } else if (strcmp(lua_tostring(L, -1), "n") != 0) {
      lua_pop(L, 1);
      return -1;
    }
  }
  return count;
}

/* Length of the table at i when it is written as an array, else -1. */
static int64_t array_length(lua_State *L, int i) {
  int64_t entries = count_entries(L, i);
  bool counted = false;
  int64_t n = 0;

  lua_pushliteral(L, "n");
  lua_rawget(L, i);
  counted = lua_type(L, -1) == LUA_TNUMBER;
  lua_pop(L, 1);
  if (entries < 0 || (!counted && !is_list(L, i))) return -1;
  n = tfd__lua_list_length(L, i);
  if (n - entries > MOST_HOLES) {
    tfd__lua_error(L, "ValueError", NULL,
                   "json.encode: a list of %g with %g elements", (double)n,
                   (double)entries);
  }
  return n;
}

/* jansson gave nothing for the string at i, a key or a value: raise. */
static void refuse_string(lua_State *L, int i) {
  if (tfd__json_short()) {
    tfd__lua_fail(L, tfd__no_memory(lua_rawlen(L, i), "JSON text"));
  }
  tfd__lua_error(L, "ValueError", NULL,
                 "json.encode: \"%.60s\" is not UTF-8, or a key with a zero",
                 lua_tostring(L, i));
}

static json_t *number(lua_State *L, int i) {
  double x = lua_tonumber(L, i);

  if (!isfinite(x)) {
    tfd__lua_error(L, "ValueError", NULL, "json.encode: JSON has no %s",
                   isnan(x) ? "NaN"
                   : x > 0  ? "inf"
                            : "-inf");
  }
  if (x == floor(x) && fabs(x) < 9007199254740992.0) {
    return json_integer((json_int_t)x);
  }
  return json_real(x);
}

/* The value at i; of a table, one without elements. */
static json_t *make(lua_State *L, int i, int null) {
  size_t n = 0;
  const char *text = NULL;

  if (lua_isnil(L, i) || lua_rawequal(L, i, null)) return json_null();
  switch (lua_type(L, i)) {
  case LUA_TBOOLEAN:
    return json_boolean(lua_toboolean(L, i));
  case LUA_TNUMBER:
    return number(L, i);
  case LUA_TSTRING:
    text = lua_tolstring(L, i, &n);
    return json_stringn(text, n);
  case LUA_TTABLE:
    return array_length(L, i) < 0 ? json_object() : json_array();
  default:
    tfd__lua_error(L, "TypeError", NULL, "json.encode: cannot write %s",
                   tfd__lua_what(L, i));
    return NULL;
  }
}

static void fill(lua_State *L, int i, json_t *value, int depth, int null);

/* The value on top goes into an array, or into an object by the key below it;
** popped. `parent` owns it before anything can fail. */
static void add(lua_State *L, json_t *parent, int depth, int null) {
  int top = lua_gettop(L);
  json_t *value = make(L, top, null);
  size_t n = 0;
  const char *key = NULL;
  int rc = 0;

  if (value == NULL) refuse_string(L, top);
  if (json_is_array(parent)) {
    rc = json_array_append_new(parent, value);
  } else {
    key = lua_tolstring(L, top - 1, &n);
    rc = strlen(key) < n ? -1 : json_object_setn_new(parent, key, n, value);
  }
  if (rc != 0) refuse_string(L, json_is_array(parent) ? top : top - 1);
  fill(L, top, value, depth + 1, null);
  lua_pop(L, 1);
}

/* The elements of the table at i, if it is one. */
static void fill(lua_State *L, int i, json_t *value, int depth, int null) {
  int64_t n = 0;
  int64_t k = 0;

  if (depth > TFD_JSON_DEPTH) {
    tfd__lua_error(L, "ValueError", NULL,
                   "json.encode: nested deeper than %d levels or contains "
                   "itself",
                   TFD_JSON_DEPTH);
  }
  luaL_checkstack(L, 8, "JSON");
  if (json_is_array(value)) {
    n = array_length(L, i);
    for (k = 1; k <= n; k++) {
      lua_rawgeti(L, i, (int)k);
      add(L, value, depth, null);
    }
  } else if (json_is_object(value)) {
    lua_pushnil(L);
    while (lua_next(L, i) != 0) {
      if (lua_type(L, -2) != LUA_TSTRING) {
        tfd__lua_error(L, "TypeError", NULL,
                       "json.encode: a key must be a string, got %s",
                       tfd__lua_what(L, -2));
      }
      add(L, value, depth, null);
    }
  }
}

/* json_encode(value, pretty, null) -> text */
static int bind_encode(lua_State *L) {
  size_t flags = lua_toboolean(L, 2) ? JSON_INDENT(2) : JSON_COMPACT;
  box *b = NULL;
  size_t n = 0;

  lua_settop(L, 3);
  b = box_new(L);
  tfd__json_begin();
  b->value = make(L, 1, 3);
  if (b->value == NULL) refuse_string(L, 1);
  fill(L, 1, b->value, 1, 3);
  TFD_LUA_TRY_TWICE(
      L, tfd__json_write(b->value, flags | JSON_SORT_KEYS, &b->text, &n));
  lua_pushlstring(L, b->text, n);
  tfd__free(b->text);
  b->text = NULL;
  json_decref(b->value);
  b->value = NULL;
  return 1;
}

const luaL_Reg tfd__lua_json_functions[] = {
    {"json_decode", bind_decode}, {"json_encode", bind_encode}, {NULL, NULL}};
