/* LuaJIT's handles: which of them the collector has taken.
**
** A userdata with a finaliser costs LuaJIT more than an op: it is looked at
** twice, called into, and stays for one more cycle. So handles have none. A
** roll counts them: each has a place in a weak table, which the collector
** empties, and a slot at the same place of an array, which says what is to be
** released. Once a cycle a finaliser of the roll's own compares the two.
** Invariants:
** H1 A slot's object is VACANT exactly when its place may be given away.
** H2 A slot's `life` grows when its place becomes vacant. A handle that a
**    user's finaliser brings back to life reads as released by that.
** H3 Chunks stay until the state closes, so that no such handle dangles.
** Cost: 16 bytes of Lua's heap and 18 of the array for each handle at most in
** use; of chunks without a handle only the latter. */
#include "lua/bind.h"

const char tfd__slot_tag = 0;

#if LUA_VERSION_NUM < 502
#include <string.h>

#include "tensor/tensor.h"

enum {
  CHUNK = 4096,
  AHEAD = 16,
  FEW = CHUNK / 64 /* places for which a chunk is not begun again */
};

/* Fields of the metatable of tensors. */
enum {
  ROLL = 1,
  CURRENT = 2 /* the weak table of the current chunk */
};

typedef struct chunk {
  struct chunk *next;
  int table; /* reference to the weak table, LUA_NOREF while there is none */
  int vacant_n;
  uint16_t vacant[CHUNK];
  tfd__slot slots[CHUNK];
} chunk;

typedef struct roll {
  chunk *first;
  chunk *current;
  bool watched; /* a finaliser waits for the end of the cycle */
  bool closed;
} roll;

tfd__slot tfd__slot_released = {NULL, 0};
static const char vacant_mark = 0;
#define VACANT ((tfd_object *)(uintptr_t)&vacant_mark)

static const char watch_key = 0; /* registry: metatable of watchers */

static void vacate(chunk *c, int place) {
  c->slots[place].object = VACANT;
  c->slots[place].life++;
  c->vacant[c->vacant_n++] = (uint16_t)place;
}

static void release(tfd_object *object) {
  if (object != NULL && object->type->kind != TFD_HANDLE_DEVICE)
    tfd_release(object);
}

/* Most objects have left the cache, and are read one after the other: their
** first lines, and then those of their buffers, are asked for in time. */
static void fetch(const chunk *c, int place) {
  const tfd_object *far =
      place >= AHEAD ? c->slots[place - AHEAD].object : NULL;
  const tfd_object *near =
      place >= AHEAD / 2 ? c->slots[place - AHEAD / 2].object : NULL;

  if (far != NULL) __builtin_prefetch(far, 1);
  if (near != NULL && near != VACANT && near->type->kind == TFD_HANDLE_TENSOR) {
    const char *buffer = (const char *)((const tfd_tensor *)near)->buffer;

    if (buffer == NULL) return;
    __builtin_prefetch(buffer, 1);
    __builtin_prefetch(buffer + 64, 1);
  }
}

/* Release what the collector has taken from the chunk's table. */
static void compare_chunk(lua_State *L, chunk *c) {
  static _Thread_local bool seen[CHUNK];
  int place = 0;

  memset(seen, 0, sizeof seen);
  lua_rawgeti(L, LUA_REGISTRYINDEX, c->table);
  lua_pushnil(L);
  while (lua_next(L, -2) != 0) {
    seen[lua_tointeger(L, -2) - 1] = true;
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  c->vacant_n = 0;
  /* Downwards, so that places are given away upwards. */
  for (place = CHUNK - 1; place >= 0; place--) {
    tfd_object *object = c->slots[place].object;

    fetch(c, place);
    if (object == VACANT) {
      c->vacant[c->vacant_n++] = (uint16_t)place;
    } else if (!seen[place]) {
      vacate(c, place);
      release(object);
    }
  }
}

static void compare(lua_State *L, roll *r) {
  chunk *c = NULL;

  luaL_checkstack(L, 4, NULL);
  for (c = r->first; c != NULL; c = c->next) {
    if (c->vacant_n == CHUNK && c->table != LUA_NOREF && c != r->first) {
      luaL_unref(L, LUA_REGISTRYINDEX, c->table);
      c->table = LUA_NOREF;
    }
    if (c->vacant_n < CHUNK) compare_chunk(L, c);
  }
  r->current = NULL;
}

/* A userdata that nobody holds is finalised when this cycle ends. */
static void watch(lua_State *L, roll *r) {
  roll **watched = lua_newuserdata(L, sizeof *watched);

  *watched = r;
  lua_pushlightuserdata(L, (void *)(uintptr_t)&watch_key);
  lua_rawget(L, LUA_REGISTRYINDEX);
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
  r->watched = true;
}

static int cycle_ended(lua_State *L) {
  roll *r = *(roll **)lua_touserdata(L, 1);

  if (r->closed) return 0;
  r->watched = false;
  compare(L, r);
  watch(L, r);
  return 0;
}

/* The state closes: all handles are released, those in use as well. */
static int close_roll(lua_State *L) {
  roll *r = lua_touserdata(L, 1);
  chunk *c = NULL;
  int place = 0;

  r->closed = true;
  for (c = r->first; c != NULL; c = c->next) {
    for (place = 0; place < CHUNK; place++) {
      tfd_object *object = c->slots[place].object;

      if (object == VACANT) continue;
      c->slots[place].object = NULL;
      release(object);
    }
  }
  return 0;
}

static void add_chunk(lua_State *L, roll *r) {
  chunk *c = lua_newuserdata(L, sizeof *c);
  int place = 0;

  luaL_ref(L, LUA_REGISTRYINDEX);
  c->table = LUA_NOREF;
  c->vacant_n = 0;
  for (place = CHUNK - 1; place >= 0; place--) {
    c->slots[place].life = 0;
    vacate(c, place);
  }
  c->next = r->first;
  r->first = c;
}

static void add_table(lua_State *L, chunk *c) {
  lua_createtable(L, CHUNK, 0);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  c->table = luaL_ref(L, LUA_REGISTRYINDEX);
}

/* A chunk with vacant places becomes the current one. */
static void find_room(lua_State *L, roll *r, int metatable) {
  chunk *c = r->first;

  luaL_checkstack(L, 4, NULL);
  while (c != NULL && c->vacant_n < FEW) c = c->next;
  if (c == NULL) {
    add_chunk(L, r);
    c = r->first;
  }
  if (c->table == LUA_NOREF) add_table(L, c);
  if (!r->watched) watch(L, r);
  lua_rawgeti(L, LUA_REGISTRYINDEX, c->table);
  lua_rawseti(L, metatable, CURRENT);
  r->current = c;
}

/* Making room may end a cycle, after which no chunk is current: the place is
** taken when nothing is made any more. */
tfd__slot *tfd__lua_new_slot(lua_State *L, int metatable) {
  tfd__handle *h = lua_newuserdata(L, sizeof *h);
  roll *r = NULL;
  tfd__slot *s = NULL;
  int place = 0;

  lua_rawgeti(L, metatable, ROLL);
  r = lua_touserdata(L, -1);
  lua_pop(L, 1);
  while (!TFD_LIKELY(r->current != NULL && r->current->vacant_n > 0))
    find_room(L, r, metatable);
  place = r->current->vacant[--r->current->vacant_n];
  s = &r->current->slots[place];
  s->object = NULL;
  h->slot = s;
  h->life = s->life;
  h->tag = &tfd__slot_tag;
  lua_rawgeti(L, metatable, CURRENT);
  lua_pushvalue(L, -2);
  lua_rawseti(L, -2, place + 1);
  lua_pop(L, 1);
  return s;
}

/* A userdata with this finaliser; the metatable stays on top. */
static void *new_finalised(lua_State *L, size_t size, lua_CFunction gc) {
  void *made = lua_newuserdata(L, size);

  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, gc);
  lua_setfield(L, -2, "__gc");
  lua_pushvalue(L, -1);
  lua_setmetatable(L, -3);
  return made;
}

void tfd__lua_make_roll(lua_State *L) {
  roll *r = NULL;

  r = new_finalised(L, sizeof *r, close_roll);
  memset(r, 0, sizeof *r);
  lua_pop(L, 1);
  lua_rawseti(L, -2, ROLL);
  lua_pushlightuserdata(L, (void *)(uintptr_t)&watch_key);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, cycle_ended);
  lua_setfield(L, -2, "__gc");
  lua_rawset(L, LUA_REGISTRYINDEX);
}
#endif
