/* Between Lua tables and tensors.
**
** Reading a table: one pass finds the shape along the first elements, a
** second one fills typed elements and checks every level against that shape.
** Keys that are no positions are errors: an option written among the values
** would be lost without a word.
** Cost: about 10 ns an element and one buffer of the tensor's size. */
#include <stdio.h>
#include <string.h>

#include "lua/bind.h"
#include "tensor/tensor.h"
#include "types/types.h"

/* The table being read, and where in it the reading is. */
typedef struct reader {
  lua_State *L;
  const char *what; /* operation and argument, for messages */
  const char *name;
  int dtype;
  int rank;
  bool given; /* the caller named the dtype */
  size_t size;
  char *next; /* where the next element goes */
  int64_t dims[TFD_MAX_RANK];
  int64_t at[TFD_MAX_RANK]; /* current indices, from 1 as in the table */
} reader;

/* "[2][3]", the place of the current element down to `depth`. */
static const char *place(const reader *r, int depth, char buf[192]) {
  int used = 0;
  int i = 0;

  buf[0] = '\0';
  for (i = 0; i < depth && used < 160; i++)
    used += snprintf(buf + used, (size_t)(192 - used), "[%lld]",
                     (long long)r->at[i]);
  return buf;
}

static void too_deep(const reader *r) {
  tfd__lua_error(r->L, "ValueError", NULL,
                 "%s: %s is nested deeper than %d levels (or contains itself)",
                 r->what, r->name, TFD_MAX_RANK);
}

/* The list at `table` has a key that is no position: raise. */
static void stray_key(const reader *r, int key, int depth) {
  lua_State *L = r->L;
  char where[192];
  char number[48];
  const char *shown = number;

  (void)place(r, depth, where);
  if (lua_type(L, key) == LUA_TSTRING)
    tfd__lua_error(L, "TypeError",
                   "a list of values has positions only; options go into a "
                   "table of their own, after the values",
                   "%s: the list %s%s has the key \"%.60s\"", r->what, r->name,
                   where, lua_tostring(L, key));
  if (lua_type(L, key) == LUA_TNUMBER)
    snprintf(number, sizeof number, "%.14g", lua_tonumber(L, key));
  else
    shown = tfd__lua_what(L, key);
  tfd__lua_error(L, "TypeError", "a list of values counts from 1, without gaps",
                 "%s: the list %s%s has a key that is no position: %s", r->what,
                 r->name, where, shown);
}

/* The first element of the list at `table` that is nil, though others follow:
** raise. Where the length ends in such a list is for the engine to choose. */
static void hole(reader *r, int table, int depth) {
  lua_State *L = r->L;
  char where[192];
  int64_t i = 1;

  for (;; i++) {
    lua_rawgeti(L, table, (int)i);
    if (lua_isnil(L, -1)) break;
    lua_pop(L, 1);
  }
  r->at[depth] = i;
  tfd__lua_error(L, "TypeError", "a list of values has no holes",
                 "%s: element %s of %s is nil, but elements follow", r->what,
                 place(r, depth + 1, where), r->name);
}

/* Look at one key of the list at `table`, on top of the stack; it stays. */
static void check_key(reader *r, int table, int depth, int64_t n,
                      bool counted) {
  lua_State *L = r->L;
  int key = lua_gettop(L);
  int64_t i = 0;

  if (lua_type(L, key) == LUA_TNUMBER && tfd__lua_to_i64(L, key, &i) &&
      i >= 1) {
    if (i > n && !counted) hole(r, table, depth);
    return;
  }
  if (lua_type(L, key) == LUA_TSTRING && counted &&
      strcmp(lua_tostring(L, key), "n") == 0)
    return;
  stray_key(r, key, depth);
}

/* Behind which key to look, on top of the stack. Engines have the elements of
** long lists in their array part, but for those behind a power of two, and 0
** before the first: half of them need no look. */
static void push_first(const reader *r, int table, int depth, int64_t n) {
  enum { SMALL = 1024 };
  lua_State *L = r->L;

  if (n > SMALL) {
    lua_rawgeti(L, table, 0);
    lua_pushinteger(L, 0);
    if (!lua_isnil(L, -2)) stray_key(r, lua_gettop(L), depth);
    lua_rawgeti(L, table, (int)(n / 2));
    if (!lua_isnil(L, -1)) {
      lua_pop(L, 3);
      lua_pushinteger(L, (lua_Integer)(n / 2));
      return;
    }
    lua_pop(L, 3);
  }
  lua_pushnil(L);
}

/* Every key of the list at `table` must be a position, or n. */
static void check_keys(reader *r, int table, int depth, int64_t n) {
  lua_State *L = r->L;
  bool counted = false;
  double next = 1; /* as most lists have their positions */

  lua_pushliteral(L, "n");
  lua_rawget(L, table);
  counted = lua_type(L, -1) == LUA_TNUMBER;
  lua_pop(L, 1);
  push_first(r, table, depth, n);
  if (!lua_isnil(L, -1)) next = lua_tonumber(L, -1) + 1;
  while (lua_next(L, table) != 0) {
    lua_pop(L, 1);
    if (next <= (double)n && lua_type(L, -1) == LUA_TNUMBER &&
        lua_tonumber(L, -1) == next) {
      next++;
    } else {
      check_key(r, table, depth, n, counted);
    }
  }
}

static void missing(reader *r, int table, int depth);

/* The field n may promise anything: no memory is taken for elements that are
** not there. */
static void check_promise(reader *r, int64_t n) {
  enum { SMALL = 4096 };
  lua_State *L = r->L;
  int table = lua_gettop(L);
  int64_t there = (int64_t)lua_rawlen(L, table);

  if (n <= there || n <= SMALL) return;
  lua_rawgeti(L, table, (int)(there + 1));
  if (lua_isnil(L, -1)) {
    r->at[r->rank - 1] = there + 1;
    missing(r, table, r->rank - 1);
  }
  lua_pop(L, 1);
}

/* Shape along the first elements, dtype from the first leaf. The value is on
** top of the stack and stays there. False when the leaf is a handle. */
static bool find_shape(reader *r) {
  lua_State *L = r->L;
  int top = lua_gettop(L);
  bool plain = true;

  r->rank = 0;
  while (lua_istable(L, -1)) {
    int64_t n = tfd__lua_list_length(L, lua_gettop(L));

    if (r->rank == TFD_MAX_RANK) too_deep(r);
    r->at[r->rank] = 1;
    r->dims[r->rank++] = n;
    check_promise(r, n);
    if (n == 0) break;
    lua_rawgeti(L, -1, 1);
  }
  if (tfd__lua_to_slot(L, -1) != NULL) plain = false;
  if (!r->given)
    r->dtype = lua_type(L, -1) == LUA_TBOOLEAN ? TFD_BOOL : TFD_FLOAT32;
  lua_settop(L, top);
  return plain;
}

/* TypeError about the leaf on top of the stack. */
static void leaf_error(const reader *r) {
  lua_State *L = r->L;
  char where[192];
  const char *got = tfd__lua_what(L, -1);
  const char *want = r->dtype == TFD_BOOL ? "a boolean" : "a number";

  if (r->rank == 0)
    tfd__lua_error(L, "TypeError", NULL, "%s: %s must be %s (dtype %s), got %s",
                   r->what, r->name, want, tfd__dtype_name(r->dtype), got);
  tfd__lua_error(L, "TypeError", NULL,
                 "%s: element %s of %s must be %s like the others (dtype %s), "
                 "got %s",
                 r->what, place(r, r->rank, where), r->name, want,
                 tfd__dtype_name(r->dtype), got);
}

static void value_error(const reader *r, const char *text) {
  char where[192];

  tfd__lua_error(r->L, "TypeError", NULL, "%s: %s%s = %s does not fit dtype %s",
                 r->what, r->name, place(r, r->rank, where), text,
                 tfd__dtype_name(r->dtype));
}

/* An integer element: exact or an error. */
static void put_integer(reader *r) {
  lua_State *L = r->L;
  int64_t x = 0;
  char text[48];

  if (!tfd__lua_to_i64(L, -1, &x)) {
    snprintf(text, sizeof text, "%.14g", lua_tonumber(L, -1));
    value_error(r, text);
  }
  switch (r->dtype) {
  case TFD_INT8:
    *(int8_t *)r->next = (int8_t)x;
    break;
  case TFD_UINT8:
    *(uint8_t *)r->next = (uint8_t)x;
    break;
  case TFD_INT16: {
    int16_t y = (int16_t)x;
    memcpy(r->next, &y, sizeof y);
    break;
  }
  case TFD_INT32: {
    int32_t y = (int32_t)x;
    memcpy(r->next, &y, sizeof y);
    break;
  }
  default:
    memcpy(r->next, &x, sizeof x);
    return;
  }
  if (tfd__load(r->next, r->dtype) != (double)x) {
    snprintf(text, sizeof text, "%lld", (long long)x);
    value_error(r, text);
  }
}

/* The leaf on top of the stack becomes the next element. */
static void put_leaf(reader *r) {
  lua_State *L = r->L;
  int type = lua_type(L, -1);

  if (r->dtype == TFD_BOOL) {
    if (type != LUA_TBOOLEAN) leaf_error(r);
    *(uint8_t *)r->next = (uint8_t)lua_toboolean(L, -1);
  } else if (type != LUA_TNUMBER) {
    leaf_error(r);
  } else if (r->dtype == TFD_FLOAT32) {
    float x = (float)lua_tonumber(L, -1);

    memcpy(r->next, &x, sizeof x);
  } else if (tfd__is_float(r->dtype)) {
    tfd__store(r->next, r->dtype, lua_tonumber(L, -1));
  } else {
    put_integer(r);
  }
  r->next += r->size;
}

static void ragged(const reader *r, int depth, int64_t n) {
  char here[192];
  const char *where = place(r, depth, here);

  if (n < 0)
    tfd__lua_error(r->L, "ValueError", NULL,
                   "%s: element %s of %s is %s, but the elements before it "
                   "are lists; all must have one shape",
                   r->what, where, r->name, tfd__lua_what(r->L, -1));
  tfd__lua_error(r->L, "ValueError", NULL,
                 "%s: element %s of %s has %lld elements, but the elements "
                 "before it have %lld; all must have one shape",
                 r->what, where, r->name, (long long)n,
                 (long long)r->dims[depth]);
}

/* Element r->at[depth] is nil: a hole, or past what the field n promised. */
static void missing(reader *r, int table, int depth) {
  check_keys(r, table, depth, r->at[depth] - 1);
  r->rank = depth + 1;
  leaf_error(r);
}

/* Elements of the table on top of the stack, at this depth. Recursion is
** bounded by TFD_MAX_RANK. False when a handle was met. */
static bool put_list(reader *r, int depth) {
  lua_State *L = r->L;
  int table = lua_gettop(L);
  int64_t n = r->dims[depth];
  int64_t i = 0;

  for (i = 1; i <= n; i++) {
    bool is_table = false;

    r->at[depth] = i;
    lua_rawgeti(L, table, (int)i);
    is_table = lua_istable(L, -1);
    if (!is_table && tfd__lua_to_slot(L, -1) != NULL) return false;
    if (lua_isnil(L, -1)) missing(r, table, depth);
    if (depth + 1 == r->rank) {
      if (is_table) {
        if (depth + 1 == TFD_MAX_RANK) too_deep(r);
        leaf_error(r);
      }
      put_leaf(r);
    } else {
      int64_t inner = -1;

      if (is_table) inner = tfd__lua_list_length(L, table + 1);
      if (inner != r->dims[depth + 1]) ragged(r, depth + 1, inner);
      if (!put_list(r, depth + 1)) return false;
    }
    lua_settop(L, table);
  }
  check_keys(r, table, depth, n);
  lua_settop(L, table);
  return true;
}

static int64_t product(const reader *r) {
  int64_t n = 1;
  int i = 0;

  for (i = 0; i < r->rank; i++)
    if (!tfd__mul_i64(n, r->dims[i], &n)) return -1;
  return n;
}

static int met_handle(lua_State *L) {
  lua_pushnil(L);
  lua_pushliteral(L, "handle");
  return 2;
}

static int dtype_argument(lua_State *L, int i) {
  const tfd__lua_arg a = {"tensor_from_table", "dtype", i, false};
  int dtype = 0;

  TFD_LUA_TRY(L, tfd_dtype_find(tfd__lua_string(L, &a), &dtype));
  return dtype;
}

/* Memory for r's elements: `small`, or a userdata under the value on top. */
static char *make_room(reader *r, char small[16], size_t *bytes_p) {
  lua_State *L = r->L;
  int64_t n = product(r);
  char *data = small;

  r->size = tfd__dtype_size(r->dtype);
  if (n < 0 || !tfd__mul_size((size_t)n, r->size, bytes_p))
    tfd__lua_error(L, "InvalidArgument", NULL, "%s: %s has too many elements",
                   r->what, r->name);
  if (*bytes_p > 16) {
    data = lua_newuserdatauv(L, *bytes_p, 0);
    lua_insert(L, -2);
  }
  r->next = data;
  return data;
}

bool tfd__lua_push_table(lua_State *L, int index, int dtype, const char *what,
                         const char *name) {
  reader r = {
      .L = L, .what = what, .name = name, .given = dtype != 0, .dtype = dtype};
  int top = lua_gettop(L);
  size_t bytes = 0;
  char *data = NULL;
  tfd_tensor *tensor = NULL;
  tfd__slot *slot = NULL;
  char small[16];
  int rc = TFD_OK;

  luaL_checkstack(L, 2 * TFD_MAX_RANK + 16, NULL);
  lua_pushvalue(L, index);
  if (!find_shape(&r)) {
    lua_settop(L, top);
    return false;
  }
  data = make_room(&r, small, &bytes);
  if (r.rank == 0) {
    put_leaf(&r);
  } else if (!put_list(&r, 0)) {
    lua_settop(L, top);
    return false;
  }
  slot = tfd__lua_tensor_slot(L);
  rc = tfd_tensor_from_bytes(data, bytes, (tfd_dtype)r.dtype, r.dims, r.rank,
                             &tensor);
  if (rc == TFD_RESOURCE_EXHAUSTED && tfd__lua_collect(L))
    rc = tfd_tensor_from_bytes(data, bytes, (tfd_dtype)r.dtype, r.dims, r.rank,
                               &tensor);
  if (rc != TFD_OK) tfd__lua_fail(L, rc);
  slot->object = (tfd_object *)tensor;
  lua_replace(L, top + 1);
  lua_settop(L, top + 1);
  tfd__lua_pressure(L);
  return true;
}

/* tensor_from_table(value[, dtype[, what, name]]) -> tensor | nil, "handle" */
static int core_tensor_from_table(lua_State *L) {
  int dtype = 0;

  lua_settop(L, 4);
  TFD_LUA_ENTER(L);
  if (!lua_isnil(L, 2)) dtype = dtype_argument(L, 2);
  if (tfd__lua_push_table(L, 1, dtype, luaL_optstring(L, 3, "constant"),
                          luaL_optstring(L, 4, "value")))
    return 1;
  return met_handle(L);
}

/* --- the other way -------------------------------------------------------- */

/* Elements of a tensor on the host, in a userdata on the stack. */
typedef struct writer {
  lua_State *L;
  const tfd_tensor *tensor;
  int dtype;
  int rank;
  size_t size;
  const char *next;
} writer;

static void push_element(lua_State *L, const char *data, int dtype) {
  float f = 0;
  int64_t i = 0;

  switch (dtype) {
  case TFD_FLOAT32:
    memcpy(&f, data, sizeof f);
    lua_pushnumber(L, (lua_Number)f);
    break;
  case TFD_INT64:
    memcpy(&i, data, sizeof i);
    lua_pushinteger(L, (lua_Integer)i);
    break;
  case TFD_BOOL:
    lua_pushboolean(L, *data != 0);
    break;
  default:
    if (tfd__is_float(dtype))
      lua_pushnumber(L, tfd__load(data, dtype));
    else
      lua_pushinteger(L, (lua_Integer)tfd__load(data, dtype));
  }
}

static void push_list(writer *w, int depth) {
  lua_State *L = w->L;
  int64_t n = tfd_tensor_dim(w->tensor, depth);
  int64_t i = 0;

  lua_createtable(L, (int)n, 0);
  for (i = 1; i <= n; i++) {
    if (depth + 1 == w->rank) {
      push_element(L, w->next, w->dtype);
      w->next += w->size;
    } else {
      push_list(w, depth + 1);
    }
    lua_rawseti(L, -2, (int)i);
  }
}

/* Read the tensor argument's elements; they stay in a userdata on top. */
static writer read_tensor(lua_State *L, const char *function, size_t *bytes_p) {
  const tfd__lua_arg a = {function, "tensor", 1, true};
  tfd_tensor *t = NULL;
  writer w = {.L = L};
  size_t bytes = 0;
  void *data = NULL;
  int rc = 0;

  lua_settop(L, 1);
  t = tfd__lua_handle(L, TFD_HANDLE_TENSOR, &a);
  luaL_checkstack(L, 2 * TFD_MAX_RANK + 16, NULL);
  w.tensor = t;
  w.dtype = (int)tfd_tensor_dtype(t);
  w.rank = tfd_tensor_rank(t);
  w.size = tfd__dtype_size(w.dtype);
  bytes = w.size * (size_t)tfd_tensor_size(t);
  if (tfd__interrupt_get()) tfd__lua_interrupted(L);
  if (t->buffer == NULL) tfd__lua_fail(L, tfd__no_values(t, function));
  data = lua_newuserdatauv(L, bytes > 0 ? bytes : 1, 0);
  rc = tfd_tensor_read(t, data, bytes);
  if (rc != TFD_OK) tfd__lua_fail(L, rc);
  w.next = data;
  *bytes_p = bytes;
  return w;
}

/* tensor_to_table(t) */
static int core_tensor_to_table(lua_State *L) {
  size_t bytes = 0;
  writer w = read_tensor(L, "Tensor:totable", &bytes);

  if (w.rank == 0)
    push_element(L, w.next, w.dtype);
  else
    push_list(&w, 0);
  return 1;
}

/* tensor_to_flat(t) */
static int core_tensor_to_flat(lua_State *L) {
  size_t bytes = 0;
  writer w = read_tensor(L, "Tensor:toflat", &bytes);
  int n = (int)(bytes / w.size);
  int i = 0;

  lua_createtable(L, n, 0);
  for (i = 0; i < n; i++) {
    push_element(L, w.next + (size_t)i * w.size, w.dtype);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* tensor_bytes(t) */
static int core_tensor_bytes(lua_State *L) {
  size_t bytes = 0;
  writer w = read_tensor(L, "Tensor:bytes", &bytes);

  lua_pushlstring(L, w.next, bytes);
  return 1;
}

/* item(t[, i]) */
static int core_item(lua_State *L) {
  const tfd__lua_arg self = {"Tensor:item", "tensor", 1, true};
  const tfd__lua_arg at = {"Tensor:item", "index", 2, false};
  tfd_tensor *t = tfd__lua_handle(L, TFD_HANDLE_TENSOR, &self);
  int dtype = (int)tfd_tensor_dtype(t);
  int64_t index = 0;
  int64_t cell = 0; /* room for an element of any dtype */

  TFD_LUA_ENTER(L);
  if (lua_isnoneornil(L, 2)) {
    if (!TFD_LIKELY(tfd_tensor_size(t) == 1 || t->buffer == NULL))
      return tfd__lua_error(
          L, "ValueError", "call t:item(i) or t:totable()",
          "Tensor:item: the tensor has %lld elements; without a position it "
          "must have exactly one",
          (long long)tfd_tensor_size(t));
  } else {
    index = tfd__lua_int(L, &at);
  }
  /* Whole numbers do not go through a double, which has 53 bits. */
  TFD_LUA_TRY(L, tfd__tensor_cell(t, index, &cell));
  push_element(L, (const char *)&cell, dtype);
  return 1;
}

const luaL_Reg tfd__lua_table_functions[] = {
    {"item", core_item},
    {"tensor_bytes", core_tensor_bytes},
    {"tensor_from_table", core_tensor_from_table},
    {"tensor_to_flat", core_tensor_to_flat},
    {"tensor_to_table", core_tensor_to_table},
    {NULL, NULL},
};
