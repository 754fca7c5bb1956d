/* The calling rule: arguments by position in TensorFlow's order, by name in a
** last table, or both.
**
** How a table is read, in the position of
**   a required parameter: a value; but options when all keys are parameters
**     and it names that parameter and every other one that would be missing,
**     unless it is a structure and the one required argument;
**   an optional parameter: options when it is empty or all keys are
**     parameters; a value when all keys are positions (and n), or when the
**     parameter takes keys; anything else is an error.
** Tables with a metatable are values everywhere. What is wrong with a call is
** found here; the hook "complain" has the words.
** Cost: a look at the last argument, and two at each key of the options. */
#include <string.h>

#include "lua/bind.h"

/* --- hooks ---------------------------------------------------------------- */

static const char *const hook_names[TFD_LUA_HOOKS + 1] = {
    "complain", "operands", "operand_list", "plain", "self", "index", NULL};
static const char hook_keys[TFD_LUA_HOOKS];

void tfd__lua_push_hook(lua_State *L, tfd__lua_hook hook) {
  luaL_checkstack(L, 12, NULL);
  lua_pushlightuserdata(L, (void *)(uintptr_t)&hook_keys[hook]);
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1))
    luaL_error(L, "nobody has set the hook %s", hook_names[hook]);
}

/* set_hook(name, fn): what C asks of Lua, see raw.lua. */
static int core_set_hook(lua_State *L) {
  int hook = luaL_checkoption(L, 1, NULL, hook_names);

  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  lua_pushlightuserdata(L, (void *)(uintptr_t)&hook_keys[hook]);
  lua_insert(L, 2);
  lua_rawset(L, LUA_REGISTRYINDEX);
  return 0;
}

/* Begin complain(signature, problem, ...): push what comes next, then call it
** with 2 arguments and those. */
static void begin_complaint(lua_State *L, const char *problem) {
  tfd__lua_push_hook(L, TFD_LUA_COMPLAIN);
  lua_pushvalue(L, lua_upvalueindex(TFD_LUA_SIGNATURE));
  lua_pushstring(L, problem);
}

/* --- what a table is ------------------------------------------------------ */

/* The keys of a table. The values of those that name parameters lie on the
** stack, from `first` on. */
typedef struct survey {
  int first;
  int values_n;
  uint8_t positions[TFD_LUA_MOST_PARAMETERS];
  uint64_t named; /* bit i - 1: parameter i */
  bool empty;
  bool list;    /* has positions */
  bool foreign; /* has keys that name no parameter */
  bool unknown; /* has keys that are no position and not n, either */
} survey;

/* The position of the parameter called like the value at `key`; 0 = none. */
static int position_of(lua_State *L, int key) {
  int position = 0;

  lua_pushvalue(L, key);
  lua_rawget(L, lua_upvalueindex(TFD_LUA_INDEX));
  position = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
  return position;
}

/* True for the key on top that is no name of a parameter, but a position or
** n, which any list may have. */
static bool is_of_list(lua_State *L, bool *position_p) {
  int64_t i = 0;

  *position_p = tfd__lua_to_i64(L, -1, &i) && i >= 1;
  if (*position_p) return true;
  return lua_type(L, -1) == LUA_TSTRING &&
         strcmp(lua_tostring(L, -1), "n") == 0;
}

/* Costs one step for each key. */
static void look_at(lua_State *L, int table, survey *s) {
  s->first = lua_gettop(L) + 1;
  s->values_n = 0;
  s->named = 0;
  s->list = s->foreign = s->unknown = false;
  lua_pushnil(L);
  s->empty = true;
  while (lua_next(L, table) != 0) {
    int position = position_of(L, -2);
    bool of_list = false;

    s->empty = false;
    if (TFD_LIKELY(position > 0)) {
      s->named |= (uint64_t)1 << (position - 1);
      s->positions[s->values_n++] = (uint8_t)position;
      lua_insert(L, -2);
      continue;
    }
    lua_pop(L, 1);
    s->foreign = true;
    if (!is_of_list(L, &of_list)) s->unknown = true;
    s->list = s->list || of_list;
  }
}

/* Raise for the first key that names no parameter; with `lists` those that
** any list may have are left out. */
static void unknown_key(lua_State *L, int table, bool lists) {
  lua_pushnil(L);
  while (lua_next(L, table) != 0) {
    bool of_list = false;

    lua_pop(L, 1);
    if (position_of(L, -1) > 0) continue;
    if (lists && is_of_list(L, &of_list)) continue;
    begin_complaint(L, "unknown");
    lua_pushvalue(L, -4);
    lua_call(L, 3, 0);
  }
}

/* Raise for a key that is a slip in the name of a parameter from i on, which
** the table does not have. */
static void slip(lua_State *L, int table, int i) {
  begin_complaint(L, "slip");
  lua_pushvalue(L, table);
  lua_pushinteger(L, i);
  lua_call(L, 4, 0);
}

/* The bits of the required parameters behind i. */
static uint64_t required_behind(const tfd__lua_rule *r, int i) {
  uint64_t bits = 0;
  int j = 0;

  for (j = i + 1; j <= r->n; j++)
    if (r->marks[j - 1] & TFD_LUA_REQUIRED) bits |= (uint64_t)1 << (j - 1);
  return bits;
}

/* The table in the position of required parameter i is options only if the
** call is complete with it. */
static bool completes(lua_State *L, const tfd__lua_rule *r, int table, int i,
                      survey *s) {
  uint64_t own = (uint64_t)1 << (i - 1);
  uint64_t others = required_behind(r, i);

  lua_rawgeti(L, table, 1);
  if (!lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return false;
  }
  lua_pop(L, 1);
  look_at(L, table, s);
  if (!(s->named & own)) {
    /* A slip in the name of the only option raises. */
    if (i == 1 && s->unknown && (r->marks[0] & TFD_LUA_ANY_KIND))
      slip(L, table, i);
    return false;
  }
  if ((s->named & others) != others) return false;
  if (i == 1 && others == 0 && (r->marks[0] & TFD_LUA_STRUCTURE)) return false;
  if (s->foreign) unknown_key(L, table, false);
  return (s->named & (own - 1)) == 0;
}

/* The table in the position i of an optional parameter, or of none. */
static bool is_options(lua_State *L, const tfd__lua_rule *r, int table, int i,
                       survey *s) {
  int marks = i <= r->n ? r->marks[i - 1] : 0;

  if (marks & TFD_LUA_REQUIRED) return completes(L, r, table, i, s);
  if (i == 1 && (marks & TFD_LUA_STRUCTURE)) return false;
  look_at(L, table, s);
  if (s->empty || (s->named != 0 && !s->list && !s->unknown)) return true;
  /* A value whose keys are an option's and nearly another's is none. */
  if (s->unknown && s->named != 0 && !s->list) slip(L, table, i);
  if ((marks & TFD_LUA_KEYS) || (!s->unknown && s->named == 0)) return false;
  if (s->unknown && (!s->list || s->named != 0)) unknown_key(L, table, true);
  begin_complaint(L, "mixed");
  lua_pushinteger(L, i);
  lua_call(L, 3, 0);
  return false;
}

/* --- binding -------------------------------------------------------------- */

/* The values of the options go to the places of their parameters. */
static void spread(lua_State *L, const survey *s) {
  int i = 0;

  for (i = 0; i < s->values_n; i++) {
    int position = s->positions[i];

    if (!lua_isnil(L, position)) {
      begin_complaint(L, "twice");
      lua_pushinteger(L, position);
      lua_call(L, 3, 0);
    }
    lua_pushvalue(L, s->first + i);
    lua_replace(L, position);
  }
}

/* Push the arguments as a list. */
static void push_values(lua_State *L, int n) {
  int i = 0;

  lua_createtable(L, n, 0);
  for (i = 1; i <= n; i++) {
    lua_pushvalue(L, i);
    lua_rawseti(L, -2, i);
  }
}

/* Complain about parameter i: (signature, problem, i, values, given). */
static void complain_of(lua_State *L, const tfd__lua_rule *r,
                        const char *problem, int i, int given) {
  begin_complaint(L, problem);
  lua_pushinteger(L, i);
  push_values(L, r->n);
  lua_pushinteger(L, given);
  lua_call(L, 5, 0);
}

/* Whether the table at `given`, the last argument, is options. What it holds
** comes to lie behind all places of parameters. */
static bool has_options(lua_State *L, const tfd__lua_rule *r, int given,
                        survey *s) {
  if (lua_getmetatable(L, given)) {
    lua_pop(L, 1);
    return false;
  }
  if (given < r->n) lua_settop(L, r->n);
  return is_options(L, r, given, given, s);
}

void tfd__lua_bind(lua_State *L, const tfd__lua_rule *r) {
  int given = lua_gettop(L);
  bool options = false;
  survey s;
  int i = 0;

  while (given > 0 && lua_isnil(L, given)) given--;
  lua_settop(L, given);
  luaL_checkstack(L, 2 * r->n + 16, NULL);
  options = given > 0 && lua_istable(L, given) && has_options(L, r, given, &s);
  if (options) {
    lua_pushnil(L);
    lua_replace(L, given--);
  }
  if (given > r->n) {
    begin_complaint(L, "many");
    lua_pushvalue(L, given);
    lua_call(L, 3, 0);
  }
  if (options) spread(L, &s);
  lua_settop(L, r->n);
  for (i = 1; i <= r->n; i++) {
    int marks = r->marks[i - 1];

    if ((marks & TFD_LUA_REQUIRED) && lua_isnil(L, i))
      complain_of(L, r, "missing", i, given);
    if ((marks & TFD_LUA_LABEL) && !lua_isnil(L, i) &&
        lua_type(L, i) != LUA_TSTRING)
      complain_of(L, r, "label", i, given);
  }
}

/* The binder of a signature; upvalue 2 is its rule, 5 its defaults. */
static int call_binder(lua_State *L) {
  const tfd__lua_rule *r = lua_touserdata(L, lua_upvalueindex(TFD_LUA_RULE));
  int i = 0;

  tfd__lua_bind(L, r);
  for (i = 1; i <= r->n; i++) {
    if (!(r->marks[i - 1] & TFD_LUA_DEFAULT) || !lua_isnil(L, i)) continue;
    lua_rawgeti(L, lua_upvalueindex(TFD_LUA_DEFAULTS), i);
    lua_replace(L, i);
  }
  return r->n;
}

static int mark_of(lua_State *L, char letter) {
  switch (letter) {
  case 'r':
    return TFD_LUA_REQUIRED;
  case 'k':
    return TFD_LUA_KEYS;
  case 's':
    return TFD_LUA_KEYS | TFD_LUA_STRUCTURE;
  case 'a':
    return TFD_LUA_ANY_KIND;
  case 'l':
    return TFD_LUA_LABEL;
  case 'd':
    return TFD_LUA_DEFAULT;
  default:
    return luaL_error(L, "binder: there is no mark %c", letter);
  }
}

/* binder(marks, index, signature, defaults) -> function(...) that gives one
** value for each parameter. `marks` has the letters of each, and a comma. */
static int core_binder(lua_State *L) {
  size_t length = 0;
  const char *text = luaL_checklstring(L, 1, &length);
  tfd__lua_rule *r = NULL;
  size_t i = 0;

  lua_settop(L, 4);
  lua_pushvalue(L, lua_upvalueindex(1));
  r = lua_newuserdatauv(L, sizeof *r, 0);
  memset(r, 0, sizeof *r);
  for (i = 0; i < length; i++) {
    if (r->n == TFD_LUA_MOST_PARAMETERS)
      return luaL_error(L, "binder: too many parameters");
    if (text[i] == ',')
      r->n++;
    else
      r->marks[r->n] |= (uint8_t)mark_of(L, text[i]);
  }
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_pushvalue(L, 4);
  lua_pushcclosure(L, call_binder, 5);
  return 1;
}

const luaL_Reg tfd__lua_rule_functions[] = {
    {"binder", core_binder},
    {"set_hook", core_set_hook},
    {NULL, NULL},
};
