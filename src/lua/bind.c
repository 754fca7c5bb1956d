#include "lua/bind.h"

#include <stdio.h>
#include <string.h>

#include "ops/ops.h"

/* Addresses used as registry keys. */
static const char metatable_keys[TFD_HANDLE_KINDS];
static const char identity_key = 0; /* weak: pointer -> handle */

static void registry_get(lua_State *L, const void *key) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)key);
  lua_rawget(L, LUA_REGISTRYINDEX);
}

/* Pops the value. */
static void registry_set(lua_State *L, const void *key) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)key);
  lua_insert(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

void tfd__lua_push_metatable(lua_State *L, int kind) {
  registry_get(L, &metatable_keys[kind]);
}

void tfd__lua_set_metatable(lua_State *L, int kind) {
  registry_set(L, &metatable_keys[kind]);
}

void tfd__lua_make_identity(lua_State *L) {
  lua_newtable(L);
  lua_newtable(L);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  registry_set(L, &identity_key);
}

const char *tfd__lua_what(lua_State *L, int i) {
  const tfd__slot *s = tfd__lua_to_slot(L, i);
  const char *name = NULL;

  if (s != NULL) {
    if (s->object == NULL) return "a released handle";
    return lua_pushfstring(L, "a %s", s->object->type->name);
  }
  if (luaL_getmetafield(L, i, "__name")) name = lua_tostring(L, -1);
  if (name != NULL) return lua_pushfstring(L, "a %s", name);
  switch (lua_type(L, i)) {
  case LUA_TNONE:
  case LUA_TNIL:
    return "nil";
  case LUA_TTHREAD:
    return "a coroutine";
  case LUA_TLIGHTUSERDATA:
    return "a light userdata";
  default:
    return lua_pushfstring(L, "a %s", luaL_typename(L, i));
  }
}

int tfd__lua_type_error(lua_State *L, const tfd__lua_arg *a,
                        const char *expected) {
  const char *what = NULL;
  const char *verb = strchr(a->function, ':');
  char hint[128];

  if (lua_gettop(L) < a->index) lua_settop(L, a->index);
  what = tfd__lua_what(L, a->index);
  if (!a->self || verb == NULL)
    return tfd__lua_error(L, "TypeError", NULL,
                          "%s: argument \"%s\" must be %s, got %s", a->function,
                          a->name, expected, what);
  snprintf(hint, sizeof hint, "call %s%s(...) with a colon", a->name, verb);
  return tfd__lua_error(L, "TypeError", hint,
                        "%s: the first argument must be the %s itself, got %s",
                        a->function, a->name, what);
}

/* --- handles -------------------------------------------------------------- */

static const char *kind_name(int kind) {
  return kind < TFD_HANDLE_KINDS ? tfd__lua_kinds[kind] : "handle";
}

void *tfd__lua_handle(lua_State *L, int kind, const tfd__lua_arg *a) {
  const tfd__slot *s = tfd__lua_to_slot(L, a->index);
  char expected[64];

  if (TFD_LIKELY(s != NULL && s->object != NULL)) {
    if (TFD_LIKELY(kind == TFD_HANDLE_KINDS ||
                   (int)s->object->type->kind == kind))
      return s->object;
  } else if (s != NULL) {
    /* Functions of no class have names that only this library knows. */
    if (strchr(a->function, ':') == NULL)
      tfd__lua_error(L, "FailedPrecondition", NULL, "handle is released");
    tfd__lua_error(L, "FailedPrecondition", NULL, "%s: handle is released",
                   a->function);
    return NULL;
  }
  snprintf(expected, sizeof expected, "a %s", kind_name(kind));
  tfd__lua_type_error(L, a, expected);
  return NULL;
}

void *tfd__lua_handle_or_nil(lua_State *L, int kind, const tfd__lua_arg *a) {
  if (lua_isnoneornil(L, a->index)) return NULL;
  return tfd__lua_handle(L, kind, a);
}

#if LUA_VERSION_NUM < 502
tfd__slot *tfd__lua_slot(lua_State *L) {
  tfd__slot *s = NULL;

  tfd__lua_push_metatable(L, TFD_HANDLE_TENSOR);
  s = tfd__lua_new_slot(L, lua_gettop(L));
  lua_remove(L, -2);
  return s;
}
#endif

/* The handle of `object` that exists already goes on the stack, if any. */
static bool push_known(lua_State *L, const tfd_object *object) {
  registry_get(L, &identity_key);
  lua_pushlightuserdata(L, (void *)(uintptr_t)object);
  lua_rawget(L, -2);
  lua_remove(L, -2);
  if (!lua_isnil(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

/* Remember the handle on top under its object. */
static void remember(lua_State *L, const tfd_object *object) {
  registry_get(L, &identity_key);
  lua_pushlightuserdata(L, (void *)(uintptr_t)object);
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

void tfd__lua_seal(lua_State *L, tfd__slot *s) {
  int kind = 0;

  if (s->object == NULL) {
    lua_pop(L, 1);
    lua_pushnil(L);
    return;
  }
  kind = (int)s->object->type->kind;
  registry_get(L, &metatable_keys[kind]);
  lua_setmetatable(L, -2);
  if (kind != TFD_HANDLE_TENSOR && kind != TFD_HANDLE_SLICES) {
    if (push_known(L, s->object)) {
      if (kind != TFD_HANDLE_DEVICE) tfd_release(s->object);
      s->object = NULL;
      lua_remove(L, -2);
      return;
    }
    remember(L, s->object);
  } else if (tfd__lua_tidying > 0) {
    tfd__lua_tidy_note(L);
  }
  tfd__lua_pressure(L);
}

void tfd__lua_forget(lua_State *L, const tfd_object *object, int i) {
  registry_get(L, &identity_key);
  lua_pushlightuserdata(L, (void *)(uintptr_t)object);
  lua_rawget(L, -2);
  if (lua_rawequal(L, -1, i)) {
    lua_pushlightuserdata(L, (void *)(uintptr_t)object);
    lua_pushnil(L);
    lua_rawset(L, -4);
  }
  lua_pop(L, 2);
}

void tfd__lua_push_device(lua_State *L, tfd_device *device) {
  tfd_object *object = (tfd_object *)device;
  tfd__slot *s = NULL;

  if (object == NULL) {
    lua_pushnil(L);
    return;
  }
  if (push_known(L, object)) return;
  s = tfd__lua_slot(L);
  s->object = object;
  tfd__lua_seal(L, s);
}

typedef struct pending {
  tfd_tensor **out;
  int n;
  int done;
} pending;

/* Protected part of push_many: may run out of Lua memory. */
static int push_pending(lua_State *L) {
  pending *p = lua_touserdata(L, 1);

  lua_settop(L, 0);
  luaL_checkstack(L, p->n + 8, "too many results");
  for (p->done = 0; p->done < p->n; p->done++) {
    tfd__slot *s = tfd__lua_slot(L);

    s->object = (tfd_object *)p->out[p->done];
    if (s->object == NULL) {
      lua_pop(L, 1);
      lua_pushnil(L);
      continue;
    }
    registry_get(L, &metatable_keys[TFD_HANDLE_TENSOR]);
    lua_setmetatable(L, -2);
  }
  return p->n;
}

void tfd__lua_push_many(lua_State *L, tfd_tensor **out, int n) {
  pending p = {out, n, 0};
  int i = 0;

  if (lua_checkstack(L, n + 8)) {
    lua_pushcfunction(L, push_pending);
    lua_pushlightuserdata(L, &p);
    if (lua_pcall(L, 1, n, 0) == 0) {
      tfd__lua_pressure(L);
      return;
    }
  } else {
    lua_pushliteral(L, "too many results");
  }
  for (i = p.done; i < n; i++) tfd_release((tfd_object *)out[i]);
  lua_error(L);
}

/* --- the collector -------------------------------------------------------- */

/* Finalisers may make tensors; they must not start a second collection. */
static _Thread_local bool collecting = false;

bool tfd__lua_collect(lua_State *L) {
  if (collecting) return false;
  collecting = true;
  lua_gc(L, LUA_GCCOLLECT, 0);
  collecting = false;
  tfd_memory_collected();
  return true;
}

void tfd__lua_relieve(lua_State *L) {
#if LUA_VERSION_NUM >= 504
  /* In generational mode a step looks at young objects only, which is what
  ** temporaries are; its cost does not depend on the script's own tables. In
  ** incremental mode it does next to nothing. */
  int64_t before = tfd_live_bytes();

  if (collecting) return;
  collecting = true;
  lua_gc(L, LUA_GCSTEP, 0);
  collecting = false;
  if (tfd_live_bytes() <= before / 4 * 3) {
    tfd_memory_collected();
    return;
  }
#endif
  tfd__lua_collect(L);
}

int tfd__lua_young = 0;
int64_t tfd__lua_young_bytes = 0;

/* What was there after the last full collection. */
static struct {
  int64_t kilobytes;
  int64_t tensors;
} after_full;

/* Garbage tensors weigh more than Lua knows; this many, and as many as are in
** use, and as many as make up for a larger heap to look through, may wait. */
static bool tensors_pile_up(void) {
  return tfd_live_handles(TFD_HANDLE_TENSOR) >
         2 * after_full.tensors + 65536 + 4 * after_full.kilobytes;
}

static void note_full(lua_State *L) {
  after_full.kilobytes = lua_gc(L, LUA_GCCOUNT, 0);
  after_full.tensors = tfd_live_handles(TFD_HANDLE_TENSOR);
}

#if LUA_VERSION_NUM >= 504
/* A step of generational mode costs what the young objects cost. It puts off
** Lua's own decision to look at old objects, so that is taken here, by Lua's
** rule: when the heap has doubled. In incremental mode it is a small step. */
void tfd__lua_collect_young(lua_State *L) {
  int64_t kilobytes = lua_gc(L, LUA_GCCOUNT, 0);

  tfd__lua_young = 0;
  tfd__lua_young_bytes = 0;
  if (collecting || !lua_gc(L, LUA_GCISRUNNING, 0)) return;
  if (after_full.kilobytes == 0) after_full.kilobytes = kilobytes;
  if (kilobytes > 2 * after_full.kilobytes || tensors_pile_up()) {
    tfd__lua_collect(L);
    note_full(L);
    return;
  }
  collecting = true;
  lua_gc(L, LUA_GCSTEP, 0);
  collecting = false;
}

/* What a core's own cache holds. */
#define CACHE_BYTES (1 << 20)

/* Not too often either: what survives two collections counts as old, and is
** looked at again when everything is. So a tape that records, which holds
** all it sees, puts this off until its gradient is taken. */
void tfd__lua_made_bytes(lua_State *L, const tfd_tensor *t) {
  tfd__lua_young_bytes += tfd_tensor_size(t) * 4;
  if (tfd__lua_young_bytes >= CACHE_BYTES && tfd__lua_young >= 16 &&
      tfd__context()->tapes == NULL)
    tfd__lua_collect_young(L);
}

void tfd__lua_forward_ended(lua_State *L) {
  if (tfd__lua_young_bytes >= CACHE_BYTES) tfd__lua_collect_young(L);
}
#else
/* LuaJIT's cycle looks at the whole heap, which costs about 0.3 ms for each
** MiB. A step without bounds runs one cycle to its end; LUA_GCCOLLECT would
** sweep everything once more before it. */
static void collect_cycle(lua_State *L) {
  enum { UNBOUNDED = 1 << 20, STEPS = 64 };
  int i = 0;

  collecting = true;
  for (i = 0; i < STEPS; i++)
    if (lua_gc(L, LUA_GCSTEP, UNBOUNDED) == 1) break;
  collecting = false;
  tfd_memory_collected();
  note_full(L);
}

/* So many ops make up for the cycle of a small heap (a fifth of their time, if
** they are small, for half as many), while the headers of the pending tensors
** are still kept for the next ones. The heap counts with what is pending, about
** 100 bytes for each tensor. */
void tfd__lua_collect_young(lua_State *L) {
  enum {
    OPS = TFD_HEADERS_KEPT - 2 * TFD_LUA_YOUNG,
    SMALL_HEAP = 8192 /* KiB */
  };
  static int64_t made = 0;

  made += tfd__lua_young;
  tfd__lua_young = 0;
  if (collecting || !lua_gc(L, LUA_GCISRUNNING, 0)) return;
  if ((made < OPS || lua_gc(L, LUA_GCCOUNT, 0) > SMALL_HEAP) &&
      !tensors_pile_up())
    return;
  made = 0;
  collect_cycle(L);
}

void tfd__lua_made_bytes(lua_State *L, const tfd_tensor *t) {
  (void)L;
  (void)t;
}

void tfd__lua_forward_ended(lua_State *L) {
  (void)L;
}
#endif

/* --- lists ---------------------------------------------------------------- */

int64_t tfd__lua_list_length(lua_State *L, int i) {
  int64_t n = -1;

  lua_pushliteral(L, "n");
  lua_rawget(L, i);
  if (lua_type(L, -1) == LUA_TNUMBER) tfd__lua_to_i64(L, -1, &n);
  lua_pop(L, 1);
  return n >= 0 ? n : (int64_t)lua_rawlen(L, i);
}

/* Length of the list argument; room for its elements of `size` bytes in
** `small` or in a userdata left on the stack. *p = NULL for no elements. */
static int list_room(lua_State *L, const tfd__lua_arg *a, size_t size,
                     void *small, void **p, const char *expected) {
  int64_t n = 0;

  *p = NULL;
  luaL_checkstack(L, 8, NULL);
  if (lua_isnoneornil(L, a->index)) return 0;
  if (!lua_istable(L, a->index)) tfd__lua_type_error(L, a, expected);
  n = tfd__lua_list_length(L, a->index);
  if (n > INT32_MAX / 16)
    tfd__lua_error(L, "ValueError", NULL, "%s: \"%s\" has too many elements",
                   a->function, a->name);
  if (n > 0) {
    *p = n <= TFD_LUA_SMALL ? small : lua_newuserdatauv(L, (size_t)n * size, 0);
  }
  return (int)n;
}

static void element_error(lua_State *L, const tfd__lua_arg *a, int i,
                          const char *expected) {
  tfd__lua_error(L, "TypeError", NULL, "%s: \"%s\"[%d] must be %s, got %s",
                 a->function, a->name, i, expected, tfd__lua_what(L, -1));
}

void tfd__lua_int_list(lua_State *L, const tfd__lua_arg *a, tfd__lua_ints *l) {
  void *p = NULL;
  int i = 0;

  l->n = list_room(L, a, sizeof *l->p, l->small, &p, "a list of integers");
  l->p = p;
  for (i = 0; i < l->n; i++) {
    lua_rawgeti(L, a->index, i + 1);
    if (!tfd__lua_to_i64(L, -1, &l->p[i]))
      element_error(L, a, i + 1, "a whole number");
    lua_pop(L, 1);
  }
}

void tfd__lua_real_list(lua_State *L, const tfd__lua_arg *a,
                        tfd__lua_reals *l) {
  void *p = NULL;
  int i = 0;

  l->n = list_room(L, a, sizeof *l->p, l->small, &p, "a list of numbers");
  l->p = p;
  for (i = 0; i < l->n; i++) {
    lua_rawgeti(L, a->index, i + 1);
    if (lua_type(L, -1) != LUA_TNUMBER) element_error(L, a, i + 1, "a number");
    l->p[i] = lua_tonumber(L, -1);
    lua_pop(L, 1);
  }
}

void tfd__lua_handle_list(lua_State *L, int kind, const tfd__lua_arg *a,
                          tfd__lua_handles *l) {
  void *p = NULL;
  int i = 0;

  l->n = list_room(L, a, sizeof *l->p, l->small, &p, "a list of handles");
  l->p = p;
  for (i = 0; i < l->n; i++) {
    const tfd__slot *s = NULL;

    lua_rawgeti(L, a->index, i + 1);
    s = tfd__lua_to_slot(L, -1);
    l->p[i] = s != NULL ? s->object : NULL;
    if (s != NULL && s->object == NULL)
      tfd__lua_error(L, "FailedPrecondition", NULL,
                     "%s: \"%s\"[%d]: handle is released", a->function, a->name,
                     i + 1);
    if ((s == NULL && !lua_isnil(L, -1)) ||
        (s != NULL && kind != TFD_HANDLE_KINDS &&
         (int)s->object->type->kind != kind))
      element_error(L, a, i + 1, kind_name(kind));
    lua_pop(L, 1);
  }
}

/* --- single values -------------------------------------------------------- */

bool tfd__lua_to_i64(lua_State *L, int i, int64_t *x_p) {
  lua_Number x = 0;

  if (lua_type(L, i) != LUA_TNUMBER) return false;
#if LUA_VERSION_NUM >= 503
  if (lua_isinteger(L, i)) {
    *x_p = (int64_t)lua_tointeger(L, i);
    return true;
  }
#endif
  x = lua_tonumber(L, i);
  if (!(x >= -9223372036854775808.0 && x < 9223372036854775808.0)) return false;
  *x_p = (int64_t)x;
  return (lua_Number)*x_p == x;
}

int64_t tfd__lua_int(lua_State *L, const tfd__lua_arg *a) {
  int64_t x = 0;

  if (tfd__lua_to_i64(L, a->index, &x)) return x;
  if (lua_type(L, a->index) == LUA_TNUMBER)
    return tfd__lua_error(L, "TypeError", NULL,
                          "%s: argument \"%s\" must be a whole number, got %g",
                          a->function, a->name, lua_tonumber(L, a->index));
  return tfd__lua_type_error(L, a, "a whole number");
}

double tfd__lua_real(lua_State *L, const tfd__lua_arg *a) {
  if (lua_type(L, a->index) != LUA_TNUMBER)
    tfd__lua_type_error(L, a, "a number");
  return lua_tonumber(L, a->index);
}

bool tfd__lua_bool(lua_State *L, const tfd__lua_arg *a) {
  int type = lua_type(L, a->index);

  if (type != LUA_TBOOLEAN && type > LUA_TNIL)
    tfd__lua_type_error(L, a, "true or false");
  return lua_toboolean(L, a->index);
}

const char *tfd__lua_bytes(lua_State *L, const tfd__lua_arg *a, size_t *n_p) {
  if (lua_type(L, a->index) != LUA_TSTRING)
    tfd__lua_type_error(L, a, "a string");
  return lua_tolstring(L, a->index, n_p);
}

const char *tfd__lua_string(lua_State *L, const tfd__lua_arg *a) {
  size_t n = 0;
  const char *text = tfd__lua_bytes(L, a, &n);

  if (strlen(text) != n)
    tfd__lua_error(L, "ValueError", NULL,
                   "%s: argument \"%s\" must not contain zero bytes",
                   a->function, a->name);
  return text;
}

static bool same_name(const char *a, const char *b) {
  for (; *a != 0 && *b != 0; a++, b++) {
    int c = *a >= 'A' && *a <= 'Z' ? *a - 'A' + 'a' : *a;

    if (c != *b) return false;
  }
  return *a == *b;
}

int tfd__lua_enum_arg(lua_State *L, const tfd__lua_enum *names,
                      const tfd__lua_arg *a) {
  const char *text = tfd__lua_string(L, a);
  const tfd__lua_enum *e = NULL;
  luaL_Buffer b;

  for (e = names; e->name != NULL; e++)
    if (same_name(text, e->name)) return e->value;
  luaL_buffinit(L, &b);
  for (e = names; e->name != NULL; e++) {
    luaL_addstring(&b, e == names ? "\"" : ", \"");
    luaL_addstring(&b, e->name);
    luaL_addchar(&b, '"');
  }
  luaL_pushresult(&b);
  return tfd__lua_error(L, "ValueError", NULL,
                        "%s: argument \"%s\" must be one of %s, got \"%s\"",
                        a->function, a->name, lua_tostring(L, -1), text);
}

void tfd__lua_push_enum(lua_State *L, const tfd__lua_enum *names, int value) {
  const tfd__lua_enum *e = names;

  while (e->name != NULL && e->value != value) e++;
  tfd__lua_push_string(L, e->name);
}
