/* x[0], x[{ {1, 3}, {}, -1 }]: positions and slices become one strided_slice.
**
** What a key means stands at the head of lua/tfdist/core/index.lua, which has
** the words for what is wrong with one (the hook "index"). */
#include <string.h>

#include "lua/bind.h"
#include "ops/ops.h"

enum {
  TENSOR = 1, /* stack places: x[key], the mark of new axes */
  KEY = 2,
  NEW_AXIS = 3
};

typedef struct slicing {
  lua_State *L;
  tfd_object *x;
  const tfd__view *view;
  /* begin, end, strides, shrink_mask of strided_slice */
  int64_t ints[3 * TFD_LIST_SLOTS + 1];
  int axis; /* of x, next */
  int out;  /* axes of the result so far */
  int new_axes[TFD_MAX_RANK];
  int new_axes_n;
  bool moving; /* some position is one that only a call knows */
} slicing;

/* --- words ---------------------------------------------------------------- */

/* Begin index(problem, ...): push what comes next, then raise it. */
static void begin_problem(lua_State *L, const char *problem) {
  tfd__lua_push_hook(L, TFD_LUA_INDEX_PROBLEM);
  lua_pushstring(L, problem);
}

static void raise_problem(lua_State *L, int n) {
  lua_call(L, n + 1, 0);
  luaL_error(L, "the hook index returned");
}

/* The value at i is no whole number. */
static void not_whole(lua_State *L, int i) {
  lua_pushvalue(L, i);
  begin_problem(L, "whole");
  lua_pushvalue(L, -3);
  raise_problem(L, 1);
}

static void too_many(const slicing *s, int used) {
  begin_problem(s->L, "rank");
  lua_pushinteger(s->L, used);
  lua_pushvalue(s->L, TENSOR);
  raise_problem(s->L, 2);
}

/* --- entries -------------------------------------------------------------- */

static void begin_slicing(slicing *s, lua_State *L, tfd_object *x,
                          const tfd_tensor *t) {
  int axis = 0;

  memset(s, 0, sizeof *s);
  s->L = L;
  s->x = x;
  s->view = &t->view;
  for (axis = 0; axis < 3; axis++)
    s->ints[axis * TFD_LIST_SLOTS] = t->view.rank;
  for (axis = 0; axis < t->view.rank; axis++) {
    s->ints[TFD_LIST_SLOTS + 1 + axis] =
        t->view.dims[axis] < 0 ? TFD_AXIS_END : t->view.dims[axis];
    s->ints[2 * TFD_LIST_SLOTS + 1 + axis] = 1;
  }
}

static void set_range(slicing *s, int64_t begin, int64_t end, int64_t step) {
  s->ints[1 + s->axis] = begin;
  s->ints[TFD_LIST_SLOTS + 1 + s->axis] = end;
  s->ints[2 * TFD_LIST_SLOTS + 1 + s->axis] = step;
}

/* What counts from an end of the next axis that only a call knows. */
static void complain_of_open(const slicing *s) {
  begin_problem(s->L, "open");
  lua_pushinteger(s->L, s->axis);
  lua_pushvalue(s->L, TENSOR);
  raise_problem(s->L, 2);
}

/* The number at the top of the stack picks a position of the next axis. */
static void add_position(slicing *s) {
  lua_State *L = s->L;
  int64_t size = s->view->dims[s->axis];
  int64_t x = 0;

  if (!tfd__lua_to_i64(L, -1, &x)) not_whole(L, -1);
  if (size < 0) {
    if (x < 0) complain_of_open(s);
  } else if (x < -size || x >= size) {
    lua_pushinteger(L, (lua_Integer)x);
    begin_problem(L, "outside");
    lua_pushvalue(L, -3);
    lua_pushinteger(L, s->axis);
    lua_pushvalue(L, TENSOR);
    raise_problem(L, 3);
  }
  if (x < 0) x += size;
  set_range(s, x, x + 1, 1);
  s->ints[3 * TFD_LIST_SLOTS] |= (int64_t)1 << s->axis;
  s->axis++;
}

/* Push the number that the scalar on top holds. */
static void push_scalar(slicing *s, tfd_object *x, bool bound) {
  lua_State *L = s->L;
  tfd_tensor *t = NULL;
  int64_t cell = 0; /* room for an element of any dtype */
  int rc = TFD_OK;

  if (tfd__lua_operand(L, x, &t) != TFD_OK || t->view.rank != 0) {
    begin_problem(L, "scalar");
    lua_pushvalue(L, -3);
    raise_problem(L, 1);
  }
  if (bound && tfd__is_symbolic(t)) {
    begin_problem(L, "unknown");
    lua_pushinteger(L, s->axis);
    lua_pushvalue(L, TENSOR);
    lua_pushvalue(L, -5);
    raise_problem(L, 3);
  }
  rc = tfd__tensor_cell(t, 0, &cell);
  if (rc != TFD_OK) tfd__lua_fail(L, rc);
  if (t->view.dtype == TFD_BOOL)
    lua_pushboolean(L, tfd__load(&cell, TFD_BOOL) != 0);
  else
    lua_pushnumber(L, tfd__load(&cell, t->view.dtype));
}

/* A position that only a call of a traced function knows: the face of Lua makes
** a gather of it, once the rest of the list has passed. */
static bool is_moving(slicing *s, tfd_object *x) {
  tfd_tensor *t = NULL;

  return tfd__lua_operand(s->L, x, &t) == TFD_OK && t->view.rank == 0 &&
         tfd__is_symbolic(t);
}

static void add_scalar(slicing *s, tfd_object *x) {
  if (is_moving(s, x)) {
    s->moving = true;
    s->axis++;
    return;
  }
  push_scalar(s, x, false);
  add_position(s);
  lua_pop(s->L, 1);
}

/* Push part i of the range on top, a scalar as its number. */
static void push_part(slicing *s, int i) {
  tfd_object *x = NULL;

  lua_rawgeti(s->L, -1, i);
  x = tfd__lua_to_operand(s->L, -1);
  if (x == NULL) return;
  push_scalar(s, x, true);
  lua_remove(s->L, -2);
}

/* Part i of the range on top, or `absent`; a bound is clamped as in Python. */
static int64_t read_bound(slicing *s, int i, int64_t low, int64_t high,
                          int64_t absent) {
  lua_State *L = s->L;
  int64_t x = absent;

  push_part(s, i);
  if (!lua_isnil(L, -1)) {
    if (!tfd__lua_to_i64(L, -1, &x)) not_whole(L, -1);
    if (x < 0) x += s->view->dims[s->axis];
    x = x < low ? low : x > high ? high : x;
  }
  lua_pop(L, 1);
  return x;
}

static void complain_of_range(slicing *s, const char *problem) {
  begin_problem(s->L, problem);
  lua_pushinteger(s->L, s->axis);
  lua_pushvalue(s->L, -4);
  raise_problem(s->L, 2);
}

/* Nothing but begin, end and step stands in the range on top. */
static int64_t read_step(slicing *s) {
  lua_State *L = s->L;
  int64_t step = 1;
  int64_t key = 0;

  lua_pushnil(L);
  while (lua_next(L, -2) != 0) {
    lua_pop(L, 1);
    if (tfd__lua_to_i64(L, -1, &key) && key >= 1 && key <= 3) continue;
    complain_of_range(s, "entry");
  }
  push_part(s, 3);
  if (!lua_isnil(L, -1) && !tfd__lua_to_i64(L, -1, &step)) not_whole(L, -1);
  if (step == 0) complain_of_range(s, "step");
  lua_pop(L, 1);
  return step;
}

/* The same for an axis whose size is not known: from a position on. */
static void add_open_range(slicing *s, int64_t step) {
  int64_t begin = read_bound(s, 1, -1, TFD_AXIS_END, 0);
  int64_t end = read_bound(s, 2, -1, TFD_AXIS_END - 1, TFD_AXIS_END);

  if (step < 0 || begin < 0 || end != TFD_AXIS_END) complain_of_open(s);
  set_range(s, begin, end, step);
}

/* The table on top is { begin, end, step }. */
static void add_range(slicing *s) {
  int64_t step = read_step(s);
  int64_t size = s->view->dims[s->axis];
  int64_t low = step > 0 ? 0 : -1;
  int64_t high = step > 0 ? size : size - 1;

  if (size < 0) {
    add_open_range(s, step);
  } else {
    int64_t begin = read_bound(s, 1, low, high, step > 0 ? low : high);
    int64_t end = read_bound(s, 2, low, high, step > 0 ? high : low);

    set_range(s, begin, end, step);
  }
  s->axis++;
  s->out++;
}

/* Tables without a metatable are lists, and so are shapes. */
static bool is_plain(lua_State *L) {
  bool plain = false;

  if (!lua_istable(L, -1)) return false;
  if (!lua_getmetatable(L, -1)) return true;
  lua_pushliteral(L, "__name");
  lua_rawget(L, -2);
  plain = lua_type(L, -1) == LUA_TSTRING &&
          strcmp(lua_tostring(L, -1), "shape") == 0;
  lua_pop(L, 2);
  return plain;
}

static bool is_dots(lua_State *L) {
  return lua_type(L, -1) == LUA_TSTRING &&
         strcmp(lua_tostring(L, -1), "...") == 0;
}

/* The entry on top. `left` axes are for "...". */
static void add_entry(slicing *s, int left) {
  lua_State *L = s->L;
  tfd_object *operand = tfd__lua_to_operand(L, -1);

  if (is_dots(L)) {
    s->axis += left;
    s->out += left;
  } else if (lua_rawequal(L, -1, NEW_AXIS)) {
    if (s->new_axes_n < TFD_MAX_RANK) s->new_axes[s->new_axes_n] = s->out;
    s->new_axes_n++;
    s->out++;
  } else if (lua_isnil(L, -1)) {
    s->axis++;
    s->out++;
  } else if (operand != NULL) {
    add_scalar(s, operand);
  } else if (is_plain(L)) {
    add_range(s);
  } else {
    add_position(s);
  }
}

/* --- lists ---------------------------------------------------------------- */

/* How many entries the list has: its last position, or n. */
static int list_length(lua_State *L) {
  enum { MOST = 1024 };
  int64_t n = 0;
  int64_t key = 0;

  lua_pushnil(L);
  while (lua_next(L, KEY) != 0) {
    lua_pop(L, 1);
    if (tfd__lua_to_i64(L, -1, &key) && key >= 1) {
      if (key > n) n = key;
    } else if (lua_type(L, -1) != LUA_TSTRING ||
               strcmp(lua_tostring(L, -1), "n") != 0) {
      begin_problem(L, "key");
      lua_pushvalue(L, -3);
      raise_problem(L, 1);
    }
  }
  lua_pushliteral(L, "n");
  lua_rawget(L, KEY);
  if (tfd__lua_to_i64(L, -1, &key) && key > n) n = key;
  lua_pop(L, 1);
  return n > MOST ? MOST : (int)n;
}

/* The axes that "..." stands for: those that the n entries leave. */
static int count_left(slicing *s, int n) {
  lua_State *L = s->L;
  int used = 0;
  bool dots = false;
  int i = 0;

  for (i = 1; i <= n; i++) {
    lua_rawgeti(L, KEY, i);
    if (is_dots(L)) {
      if (dots) {
        begin_problem(L, "dots");
        raise_problem(L, 0);
      }
      dots = true;
    } else if (!lua_rawequal(L, -1, NEW_AXIS)) {
      used++;
    }
    lua_pop(L, 1);
  }
  if (used > s->view->rank) too_many(s, used);
  return s->view->rank - used;
}

/* The view, and then its new axes one after the other. */
static int run_slicing(slicing *s) {
  lua_State *L = s->L;
  const double no_reals[1] = {0};
  int i = 0;

  if (s->view->rank == 0)
    tfd__lua_run(L, TFD_OP_identity, &s->x, 1, s->ints, no_reals);
  else
    tfd__lua_run(L, TFD_OP_strided_slice, &s->x, 1, s->ints, no_reals);
  for (i = 0; i < s->new_axes_n; i++) {
    int64_t axis = i < TFD_MAX_RANK ? s->new_axes[i] : 0;
    tfd_object *x = tfd__lua_to_operand(L, -1);

    tfd__lua_run(L, TFD_OP_expand_dims, &x, 1, &axis, no_reals);
  }
  return 1;
}

/* The key alone is a list of one. */
static void wrap_key(lua_State *L) {
  lua_createtable(L, 1, 0);
  lua_pushvalue(L, KEY);
  lua_rawseti(L, -2, 1);
  lua_replace(L, KEY);
}

/* A number alone: the usual case, without a list. */
static int pick_row(slicing *s) {
  lua_State *L = s->L;

  if (s->view->rank == 0) {
    begin_problem(L, "none");
    raise_problem(L, 0);
  }
  lua_pushvalue(L, KEY);
  add_position(s);
  return run_slicing(s);
}

/* index(x, key, new_axis) -> x[key] for numbers and lists; nothing for what is
** neither, for a list with positions that only a call knows, and for an x that
** is no open operand. */
static int core_index(lua_State *L) {
  tfd_object *x = tfd__lua_to_operand(L, TENSOR);
  tfd_tensor *t = NULL;
  slicing s;
  int left = 0;
  int n = 0;
  int i = 0;

  lua_settop(L, 3);
  if (x == NULL) return 0;
  TFD_LUA_TRY(L, tfd__lua_operand(L, x, &t));
  begin_slicing(&s, L, x, t);
  if (lua_type(L, KEY) == LUA_TNUMBER) return pick_row(&s);
  lua_pushvalue(L, KEY);
  if (lua_rawequal(L, KEY, NEW_AXIS) || is_dots(L))
    wrap_key(L);
  else if (!is_plain(L))
    return 0;
  n = list_length(L);
  left = count_left(&s, n);
  for (i = 1; i <= n; i++) {
    lua_rawgeti(L, KEY, i);
    add_entry(&s, left);
    lua_pop(L, 1);
  }
  return s.moving ? 0 : run_slicing(&s);
}

const luaL_Reg tfd__lua_index_functions[] = {
    {"index", core_index},
    {NULL, NULL},
};
