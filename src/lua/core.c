/* The module `tfdist.core`: metatables, handle functions, registration. */
#include "lua/bind.h"

#include <string.h>

#include "lua/embedded.h"

/* :release() and __close. A second call does nothing; devices
** live for ever. */
static int core_release(lua_State *L) {
  tfd__slot *s = tfd__lua_to_slot(L, 1);
  tfd_object *object = NULL;
  tfd_handle_kind kind = TFD_HANDLE_TENSOR;

  if (s == NULL) {
    const tfd__lua_arg a = {"handle:release", "handle", 1, true};

    return tfd__lua_type_error(L, &a, "a handle");
  }
  object = s->object;
  if (object == NULL) return 0;
  kind = object->type->kind;
  if (kind == TFD_HANDLE_DEVICE) return 0;
  if (kind != TFD_HANDLE_TENSOR && kind != TFD_HANDLE_SLICES)
    tfd__lua_forget(L, object, 1);
  s->object = NULL;
  tfd_release(object);
  return 0;
}

#if LUA_VERSION_NUM >= 504
/* __gc: never raises. */
static int finalise(lua_State *L) {
  tfd__slot *s = tfd__lua_to_slot(L, 1);
  tfd_object *object = s != NULL ? s->object : NULL;

  if (object == NULL) return 0;
  s->object = NULL;
  if (object->type->kind != TFD_HANDLE_DEVICE) tfd_release(object);
  return 0;
}
#endif

/* kind(x) */
static int core_kind(lua_State *L) {
  const tfd__slot *s = tfd__lua_to_slot(L, 1);
  int kind = 0;

  if (s == NULL) {
    lua_pushnil(L);
    return 1;
  }
  if (s->object != NULL) {
    lua_pushstring(L, tfd__lua_kinds[s->object->type->kind]);
    return 1;
  }
  /* Released: the metatable still tells. */
  if (!lua_getmetatable(L, 1)) return 0;
  for (kind = 0; kind < TFD_HANDLE_KINDS; kind++) {
    tfd__lua_push_metatable(L, kind);
    if (lua_rawequal(L, -1, -2)) {
      lua_pushstring(L, tfd__lua_kinds[kind]);
      return 1;
    }
    lua_pop(L, 1);
  }
  return 0;
}

/* metatable(kind) */
static int core_metatable(lua_State *L) {
  const tfd__lua_arg a = {"metatable", "kind", 1, false};
  const char *name = tfd__lua_string(L, &a);
  int kind = 0;

  while (kind < TFD_HANDLE_KINDS && strcmp(tfd__lua_kinds[kind], name) != 0)
    kind++;
  if (kind == TFD_HANDLE_KINDS)
    return tfd__lua_error(L, "ValueError", NULL,
                          "metatable: there is no handle kind \"%s\"", name);
  tfd__lua_push_metatable(L, kind);
  return 1;
}

static int core_is_operand(lua_State *L) {
  lua_pushboolean(L, tfd__lua_to_operand(L, 1) != NULL);
  return 1;
}

/* The operand at i, with `tensors` only a tensor. */
static bool is_leaf(lua_State *L, int i, bool tensors) {
  const tfd_object *object = tfd__lua_to_operand(L, i);

  return object != NULL &&
         (!tensors || object->type->kind == TFD_HANDLE_TENSOR);
}

/* operand_count(x[, tensors]) -> n if x is a plain list of n open operands
** (tensors) and nothing else, with or without its field n; nil else. */
static int core_operand_count(lua_State *L) {
  bool tensors = lua_toboolean(L, 2);
  int n = 0;
  int keys = 0;

  lua_settop(L, 1);
  if (!lua_istable(L, 1) || lua_getmetatable(L, 1)) return 0;
  for (n = 0;; n++) {
    lua_rawgeti(L, 1, n + 1);
    if (!is_leaf(L, -1, tensors)) break;
    lua_settop(L, 1);
  }
  if (!lua_isnil(L, -1)) return 0;
  lua_pushliteral(L, "n");
  lua_rawget(L, 1);
  if (!lua_isnil(L, -1)) {
    if (lua_type(L, -1) != LUA_TNUMBER || lua_tonumber(L, -1) != n) return 0;
    keys--;
  }
  lua_settop(L, 1);
  lua_pushnil(L);
  while (lua_next(L, 1) != 0) {
    lua_pop(L, 1);
    if (++keys > n) return 0;
  }
  lua_pushinteger(L, n);
  return 1;
}

/* same_elements(a, b, n): whether two lists begin with the same n values. */
static int core_same_elements(lua_State *L) {
  int n = (int)luaL_checknumber(L, 3);
  bool same = lua_istable(L, 1) && lua_istable(L, 2);
  int i = 0;

  lua_settop(L, 2);
  for (i = 1; same && i <= n; i++) {
    lua_rawgeti(L, 1, i);
    lua_rawgeti(L, 2, i);
    same = lua_rawequal(L, 3, 4);
    lua_settop(L, 2);
  }
  lua_pushboolean(L, same);
  return 1;
}

static int core_is_released(lua_State *L) {
  const tfd__slot *s = tfd__lua_to_slot(L, 1);

  lua_pushboolean(L, s != NULL && s->object == NULL);
  return 1;
}

/* retain(x): another handle of the same tensor, with a life of its own. */
static int core_retain(lua_State *L) {
  const tfd__lua_arg a = {"retain", "handle", 1, false};
  tfd_object *object = tfd__lua_handle(L, TFD_HANDLE_KINDS, &a);
  tfd__slot *slot = tfd__lua_slot(L);

  slot->object = object;
  if (object->type->kind != TFD_HANDLE_DEVICE) tfd_retain(object);
  tfd__lua_seal(L, slot);
  return 1;
}

/* adopt(cell): the handle that an FFI call left in a `T *[1]` cell; the
** reference moves into the handle. LuaJIT gives a cdata's own address. */
static int core_adopt(lua_State *L) {
  tfd_object *const *cell = lua_topointer(L, 1);
  tfd_object *object = NULL;
  tfd__slot *slot = NULL;

  if (lua_type(L, 1) != 10) return luaL_error(L, "adopt: FFI cells only");
  memcpy(&object, cell, sizeof object);
  if (object != NULL && object->type->kind == TFD_HANDLE_DEVICE) {
    tfd__lua_push_device(L, (tfd_device *)object);
    return 1;
  }
  slot = tfd__lua_slot(L);
  slot->object = object;
  tfd__lua_seal(L, slot);
  return 1;
}

static int core_collect(lua_State *L) {
  tfd__lua_collect(L);
  return 0;
}

/* set_raise(fn): fn(kind, message, hint, where, replica, op, argument, bound,
** exit_code) raises. */
static int core_set_raise(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  tfd__lua_set_raise(L);
  return 0;
}

/* fail(code): raise the record of an FFI call that returned `code`. */
static int core_fail(lua_State *L) {
  return tfd__lua_fail(L, (int)luaL_checknumber(L, 1));
}

/* check_interrupt(): for long loops in Lua and before FFI calls. */
static int core_check_interrupt(lua_State *L) {
  TFD_LUA_ENTER(L);
  return 0;
}

/* forward_ended(): a gradient is about to be taken, for the last time. */
static int core_forward_ended(lua_State *L) {
  tfd__lua_forward_ended(L);
  return 0;
}

const luaL_Reg tfd__lua_core_functions[] = {
    {"adopt", core_adopt},
    {"check_interrupt", core_check_interrupt},
    {"collect", core_collect},
    {"fail", core_fail},
    {"forward_ended", core_forward_ended},
    {"is_operand", core_is_operand},
    {"is_released", core_is_released},
    {"kind", core_kind},
    {"metatable", core_metatable},
    {"operand_count", core_operand_count},
    {"release", core_release},
    {"retain", core_retain},
    {"same_elements", core_same_elements},
    {"set_raise", core_set_raise},
    {NULL, NULL},
};

/* Add functions to the table on top; upvalue 1 is the tensor metatable. */
static void add_functions(lua_State *L, const luaL_Reg *list) {
  for (; list->name != NULL; list++) {
    tfd__lua_push_metatable(L, TFD_HANDLE_TENSOR);
    lua_pushcclosure(L, list->func, 1);
    lua_setfield(L, -2, list->name);
  }
}

/* Every kind's metatable starts with :release() and Lua 5.4's finaliser. */
static void make_metatables(lua_State *L) {
  int kind = 0;

  for (kind = 0; kind < TFD_HANDLE_KINDS; kind++) {
    lua_createtable(L, 2, 4); /* LuaJIT's roll of handles takes the list */
    lua_pushstring(L, tfd__lua_kinds[kind]);
    lua_setfield(L, -2, "__name");
#if LUA_VERSION_NUM >= 504
    lua_pushcfunction(L, finalise);
    lua_setfield(L, -2, "__gc");
#endif
    lua_pushcfunction(L, core_release);
    lua_setfield(L, -2, "__close");
    lua_newtable(L);
    lua_pushcfunction(L, core_release);
    lua_setfield(L, -2, "release");
    lua_setfield(L, -2, "__index");
    tfd__lua_set_metatable(L, kind);
  }
#if LUA_VERSION_NUM < 502
  tfd__lua_push_metatable(L, TFD_HANDLE_TENSOR);
  tfd__lua_make_roll(L);
  lua_pop(L, 1);
#endif
}

int luaopen_tfdist_core(lua_State *L) {
#if LUA_VERSION_NUM < 502
  const tfd__embedded *e = NULL;

#endif
  tfd__lua_spin_bounded();
  tfd__lua_finish_on_close(L);
  make_metatables(L);
  tfd__lua_make_identity(L);
  lua_newtable(L);
  add_functions(L, tfd__lua_generated);
  add_functions(L, tfd__lua_core_functions);
  add_functions(L, tfd__lua_index_functions);
  add_functions(L, tfd__lua_graph_functions);
  add_functions(L, tfd__lua_op_functions);
  add_functions(L, tfd__lua_rule_functions);
  add_functions(L, tfd__lua_table_functions);
  add_functions(L, tfd__lua_system_functions);
  add_functions(L, tfd__lua_tidy_functions);
  add_functions(L, tfd__lua_json_functions);
  add_functions(L, tfd__lua_message_functions);
  tfd__lua_enums(L);
  lua_pushstring(L, TFD_LUA_ENGINE);
  lua_setfield(L, -2, "engine");
#if LUA_VERSION_NUM < 502
  for (e = tfd__embedded_ffi; e->name != NULL; e++) {
    lua_pushlstring(L, e->text, e->size);
    lua_setfield(L, -2, e->name);
  }
#endif
  return 1;
}
