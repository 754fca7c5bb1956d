/* Calls of traced functions without a stop in Lua: the key of plain arguments,
** and one call from tensors to results. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "distribute/distribute.h"
#include "lua/bind.h"
#include "ops/ops.h"

enum { KEY_BYTES = 1024, FAST_INPUTS = 64, FAST_RESULTS = 64 };

/* --- keys ----------------------------------------------------------------- */

typedef struct key {
  size_t n;
  bool full;
  char bytes[KEY_BYTES];
} key;

static void put(key *k, const void *data, size_t bytes) {
  if (k->full || bytes > sizeof k->bytes - k->n) {
    k->full = true;
    return;
  }
  memcpy(k->bytes + k->n, data, bytes);
  k->n += bytes;
}

static void put_tag(key *k, char tag) {
  put(k, &tag, 1);
}

/* Seven bits a byte, the last without the eighth: Lua keeps strings of up to 40
** bytes once each and finds them by where they lie. */
static void put_whole(key *k, uint64_t x) {
  char bytes[10];
  size_t n = 0;

  for (; x > 127; x >>= 7) bytes[n++] = (char)(x | 128);
  bytes[n++] = (char)x;
  put(k, bytes, n);
}

static void put_tensor(key *k, const tfd_tensor *t) {
  const tfd__view *v = &t->view;
  int i;

  put_tag(k, 't');
  put_whole(k, (uint64_t)t->device->index);
  put(k, &v->dtype, sizeof v->dtype);
  put(k, &v->rank, sizeof v->rank);
  for (i = 0; i < v->rank; i++) put_whole(k, (uint64_t)v->dims[i]);
}

static bool is_tensor(const tfd_object *x) {
  return x != NULL && x->type->kind == TFD_HANDLE_TENSOR;
}

/* A distributed value is its tensors; others than those are not plain. */
static bool put_value(key *k, const tfd_value *v) {
  int i;

  put_tag(k, 'd');
  put(k, &v->kind, sizeof v->kind);
  put(k, &v->n, sizeof v->n);
  for (i = 0; i < v->n; i++) {
    if (!is_tensor(v->components[i])) return false;
    put_tensor(k, (const tfd_tensor *)v->components[i]);
  }
  return true;
}

/* A variable's id is its own for ever. */
static bool put_handle(key *k, lua_State *L, int i) {
  const tfd__slot *s = tfd__lua_to_slot(L, i);

  if (s == NULL || s->object == NULL) return false;
  switch (s->object->type->kind) {
  case TFD_HANDLE_TENSOR:
    put_tensor(k, (const tfd_tensor *)s->object);
    return true;
  case TFD_HANDLE_VALUE:
    return put_value(k, (const tfd_value *)s->object);
  case TFD_HANDLE_VARIABLE:
    put_tag(k, 'v');
    put(k, &((const tfd_variable *)s->object)->value->id, sizeof(uint64_t));
    return true;
  default:
    return false;
  }
}

static bool is_integer(lua_State *L, int i) {
#if LUA_VERSION_NUM >= 503
  return lua_isinteger(L, i);
#else
  (void)L;
  (void)i;
  return false;
#endif
}

static void put_number(key *k, lua_State *L, int i) {
  double x = lua_tonumber(L, i);

  if (is_integer(L, i)) {
    int64_t whole = lua_tointeger(L, i);

    put_tag(k, 'i');
    put(k, &whole, sizeof whole);
    return;
  }
  put_tag(k, 'n');
  put(k, &x, sizeof x);
}

static void put_text(key *k, lua_State *L, int i) {
  size_t n = 0;
  const char *text = lua_tolstring(L, i, &n);

  put_tag(k, 's');
  put(k, &n, sizeof n);
  put(k, text, n);
}

static bool put_argument(key *k, lua_State *L, int i) {
  switch (lua_type(L, i)) {
  case LUA_TUSERDATA:
    return put_handle(k, L, i);
  case LUA_TNUMBER:
    put_number(k, L, i);
    return true;
  case LUA_TSTRING:
    put_text(k, L, i);
    return true;
  case LUA_TBOOLEAN:
    put_tag(k, lua_toboolean(L, i) ? 'y' : 'f');
    return true;
  case LUA_TNIL:
    put_tag(k, '0');
    return true;
  default:
    return false;
  }
}

/* The key of the arguments from index `first` on, or nil, and whether a tape is
** around. */
static bool push_key(lua_State *L, int first) {
  const tfd_context *c = tfd__context();
  int n = lua_gettop(L);
  key k;
  int i;

  k.n = 0;
  k.full = c->device_depth > 0 || c->recorder != NULL || c->replica >= 0;
  put_tag(&k, '\1'); /* longer keys begin otherwise */
  for (i = first; i <= n && !k.full; i++) {
    if (!put_argument(&k, L, i)) k.full = true;
  }
  if (k.full) {
    lua_pushnil(L);
  } else {
    lua_pushlstring(L, k.bytes, k.n);
  }
  lua_pushboolean(L, c->tapes != NULL);
  return !k.full && c->tapes == NULL;
}

/* graph_key(...) -> text that equal signatures share, and whether a tape is
** around; nil when an argument is not plain, or a device, a replica or a trace
** is around. */
static int core_graph_key(lua_State *L) {
  push_key(L, 1);
  return 2;
}

/* --- calls ---------------------------------------------------------------- */

typedef struct graph_call {
  tfd_graph *graph;
  tfd_tensor *in[FAST_INPUTS];
  int in_n;
  tfd__lua_ints words;
  tfd__lua_reals numbers;
  tfd_tensor *out[FAST_RESULTS];
  int out_n;
} graph_call;

static int finish(graph_call *c) {
  tfd_graph_event event = TFD_GRAPH_DONE;
  int rc = tfd_graph_next(c->graph, &event);

  if (rc == TFD_OK && event != TFD_GRAPH_DONE) {
    rc = tfd__fail(TFD_FAILED_PRECONDITION,
                   "graph_call: the graph has steps of the host");
  }
  for (c->out_n = 0;
       rc == TFD_OK && c->out_n < tfd_graph_result_count(c->graph);
       c->out_n++) {
    rc = tfd_graph_result(c->graph, c->out_n, &c->out[c->out_n]);
    if (rc != TFD_OK) break;
  }
  (void)tfd_graph_stop(c->graph);
  if (rc == TFD_OK) return rc;
  while (c->out_n > 0) tfd__release(c->out[--c->out_n]);
  return rc;
}

static int run(graph_call *c) {
  TFD_TRY(tfd_graph_start(c->graph, c->in, c->in_n, c->words.p, c->words.n,
                          c->numbers.p, (int)c->numbers.n));
  return finish(c);
}

/* The graph at this index, if the functions here can hold its results. */
static tfd_graph *few_results(lua_State *L, int index, const char *function) {
  const tfd__lua_arg arg = {function, "graph", index, false};
  tfd_graph *graph = tfd__lua_handle(L, TFD_HANDLE_GRAPH, &arg);

  if (tfd_graph_result_count(graph) > FAST_RESULTS) {
    tfd__lua_error(L, "ValueError", NULL, "%s: more than %d results", function,
                   FAST_RESULTS);
  }
  return graph;
}

static void add_inputs(graph_call *c, tfd_object *const *list, int n) {
  int i;

  for (i = 0; i < n && c->in_n < FAST_INPUTS; i++) {
    if (is_tensor(list[i])) c->in[c->in_n++] = (tfd_tensor *)list[i];
  }
}

/* The tensors among the arguments from `first` to `last`, and those of
** distributed values, are the inputs. */
static void take_inputs(lua_State *L, graph_call *c, int first, int last) {
  int i;

  c->in_n = 0;
  for (i = first; i <= last; i++) {
    const tfd__slot *s = tfd__lua_to_slot(L, i);

    if (s == NULL || s->object == NULL) continue;
    if (s->object->type->kind == TFD_HANDLE_VALUE) {
      const tfd_value *v = (const tfd_value *)s->object;

      add_inputs(c, v->components, v->n);
    } else {
      add_inputs(c, &s->object, 1);
    }
  }
}

/* Run it and push the results. */
static int push_results(lua_State *L, graph_call *c) {
  int i;

  TFD_LUA_ENTER(L);
  tfd__lua_note_position(L);
  TFD_LUA_TRY_TWICE(L, run(c));
  for (i = 0; i < c->out_n; i++) tfd__lua_made_bytes(L, c->out[i]);
  tfd__lua_push_many(L, c->out, c->out_n);
  tfd__lua_pressure(L);
  return c->out_n;
}

/* graph_call(graph, words, numbers, ...) -> results. What follows has the
** inputs. For graphs without steps of the host and of few inputs and
** results. */
static int core_graph_call(lua_State *L) {
  const tfd__lua_arg words = {"graph_call", "words", 2, false};
  const tfd__lua_arg numbers = {"graph_call", "numbers", 3, false};
  graph_call c;

  c.graph = few_results(L, 1, "graph_call");
  take_inputs(L, &c, 4, lua_gettop(L));
  tfd__lua_int_list(L, &words, &c.words);
  tfd__lua_real_list(L, &numbers, &c.numbers);
  return push_results(L, &c);
}

/* Push fast[key], for the key on top but one, and the graph in its field 1. */
static bool find_graph(lua_State *L, int fast) {
  lua_pushvalue(L, -2);
  lua_rawget(L, fast);
  if (!lua_istable(L, -1)) return false;
  lua_rawgeti(L, -1, 1);
  return !lua_isnil(L, -1);
}

/* graph_quick(fast, ...) -> fast[key of ...] and the results of the graph that
** is its field 1 and takes neither words nor numbers; false and what graph_key
** gives where there is none or a tape is around. One call for both: most of a
** small graph's time is the way there. */
static int core_graph_quick(lua_State *L) {
  int top = lua_gettop(L);
  graph_call c;

  luaL_checktype(L, 1, LUA_TTABLE);
  if (!push_key(L, 2) || !find_graph(L, 1)) {
    lua_settop(L, top + 2);
    lua_pushboolean(L, false);
    lua_insert(L, -3);
    return 3;
  }
  c.graph = few_results(L, top + 4, "graph_quick");
  take_inputs(L, &c, 2, top);
  c.words.n = 0;
  c.words.p = NULL;
  c.numbers.n = 0;
  c.numbers.p = NULL;
  lua_settop(L, top + 3); /* the entry */
  return push_results(L, &c) + 1;
}

/* The results at c, behind the others in the list at index 6. */
static void keep_results(lua_State *L, graph_call *c, int done) {
  int i;

  for (i = 0; i < c->out_n; i++) tfd__lua_made_bytes(L, c->out[i]);
  tfd__lua_push_many(L, c->out, c->out_n);
  for (i = c->out_n; i > 0; i--) {
    lua_rawseti(L, 6, (done - 1) * c->out_n + i);
  }
  lua_pushinteger(L, done);
  lua_setfield(L, 6, "done");
}

/* Calls that follow each other share out these lists evenly. */
typedef struct graph_calls {
  tfd_graph *graph;
  int n;
  tfd__lua_ints words;
  tfd__lua_reals numbers;
  tfd__lua_handles in;
} graph_calls;

static int run_one(const graph_calls *all, int i, graph_call *one) {
  int words = all->words.n / all->n;
  int numbers = (int)(all->numbers.n / all->n);
  int in = all->in.n / all->n;

  one->graph = all->graph;
  TFD_TRY(tfd_graph_start(
      one->graph, (tfd_tensor *const *)all->in.p + i * (ptrdiff_t)in, in,
      words > 0 ? all->words.p + i * (ptrdiff_t)words : NULL, words,
      numbers > 0 ? all->numbers.p + i * (ptrdiff_t)numbers : NULL, numbers));
  return finish(one);
}

/* One call, from (graph, words, inputs, ...) at index 1. */
static int run_listed(lua_State *L, const char *function, graph_call *one) {
  const tfd__lua_arg words = {function, "words", 2, false};
  const tfd__lua_arg inputs = {function, "inputs", 3, false};
  graph_calls all = {.graph = few_results(L, 1, function), .n = 1};

  tfd__lua_int_list(L, &words, &all.words);
  tfd__lua_handle_list(L, TFD_HANDLE_TENSOR, &inputs, &all.in);
  tfd__lua_note_position(L);
  TFD_LUA_ENTER(L);
  TFD_LUA_TRY_TWICE(L, run_one(&all, 0, one));
  return 0;
}

/* graph_list(graph, words, inputs) -> a list of the results, with n. */
static int core_graph_list(lua_State *L) {
  graph_call one;
  int i;

  run_listed(L, "graph_list", &one);
  for (i = 0; i < one.out_n; i++) tfd__lua_made_bytes(L, one.out[i]);
  tfd__lua_push_many(L, one.out, one.out_n);
  lua_createtable(L, one.out_n, 1);
  lua_insert(L, -1 - one.out_n);
  for (i = one.out_n; i > 0; i--) lua_rawseti(L, -1 - i, i);
  lua_pushinteger(L, one.out_n);
  lua_setfield(L, -2, "n");
  tfd__lua_pressure(L);
  return 1;
}

/* graph_into_walk(graph, words, inputs, walk): the results are what the step
** that waits gives; no handle is made for them. */
static int core_graph_into_walk(lua_State *L) {
  const tfd__lua_arg walk = {"graph_into_walk", "walk", 4, false};
  tfd_walk *w = tfd__lua_handle(L, TFD_HANDLE_WALK, &walk);
  graph_call one;
  int rc;

  run_listed(L, "graph_into_walk", &one);
  rc = tfd_walk_supply(w, (tfd_object *const *)one.out, one.out_n);
  while (one.out_n > 0) tfd__release(one.out[--one.out_n]);
  TFD_LUA_TRY(L, rc);
  return 0;
}

/* graph_calls(graph, n, words, numbers, inputs, results): n calls one after the
** other, of which the lists hold what each takes. `results` gets what they
** give, and in its field done how many of them are through, also when one
** fails. For graphs as those of graph_call. */
static int core_graph_calls(lua_State *L) {
  const tfd__lua_arg words = {"graph_calls", "words", 3, false};
  const tfd__lua_arg numbers = {"graph_calls", "numbers", 4, false};
  const tfd__lua_arg inputs = {"graph_calls", "inputs", 5, false};
  graph_calls all;
  graph_call one;
  int i;

  all.graph = few_results(L, 1, "graph_calls");
  all.n = (int)luaL_checkinteger(L, 2);
  luaL_argcheck(L, all.n > 0, 2, "a number of calls");
  luaL_checktype(L, 6, LUA_TTABLE);
  tfd__lua_int_list(L, &words, &all.words);
  tfd__lua_real_list(L, &numbers, &all.numbers);
  tfd__lua_handle_list(L, TFD_HANDLE_TENSOR, &inputs, &all.in);
  tfd__lua_note_position(L);
  for (i = 0; i < all.n; i++) {
    TFD_LUA_ENTER(L);
    TFD_LUA_TRY_TWICE(L, run_one(&all, i, &one));
    keep_results(L, &one, i + 1);
  }
  tfd__lua_pressure(L);
  return 0;
}

/* --- what tapes want ------------------------------------------------------ */

/* Room for n flags, on top of the stack: a function of many constants has as
** many. */
static char *room_for_flags(lua_State *L, int n) {
  return lua_newuserdatauv(L, (size_t)n + 1, 0);
}

static int compare(const void *a, const void *b) {
  uintptr_t x = (uintptr_t) * (void *const *)a;
  uintptr_t y = (uintptr_t) * (void *const *)b;

  return (x > y) - (x < y);
}

static bool has_twice(lua_State *L, const tfd__lua_handles *list,
                      const tfd__lua_handles *more) {
  size_t n = (size_t)list->n;
  void **sorted = NULL;
  int i;

  if (n == 0) return false;
  sorted = lua_newuserdatauv(L, n * sizeof *sorted, 0);
  for (i = 0; i < list->n; i++) sorted[i] = list->p[i];
  qsort(sorted, n, sizeof *sorted, compare);
  for (i = 1; i < list->n; i++) {
    if (sorted[i - 1] == sorted[i]) return true;
  }
  for (i = 0; i < more->n; i++) {
    void *one = more->p[i];

    if (bsearch(&one, sorted, n, sizeof *sorted, compare) != NULL) return true;
  }
  return false;
}

/* tape_followed(list, more) -> a text with "1" for each operand of both lists
** that tapes follow and "0" for each other; nil when they follow none. Second:
** is one of the first list in the lists twice? */
static int core_tape_followed(lua_State *L) {
  const tfd__lua_arg list = {"tape_followed", "list", 1, false};
  const tfd__lua_arg more = {"tape_followed", "more", 2, false};
  tfd__lua_handles operands[2];
  char *flags = NULL;
  bool any = false;
  bool twice = false;
  size_t n = 0;
  int k;
  int i;

  tfd__lua_handle_list(L, TFD_HANDLE_KINDS, &list, &operands[0]);
  tfd__lua_handle_list(L, TFD_HANDLE_KINDS, &more, &operands[1]);
  flags = room_for_flags(L, operands[0].n + operands[1].n);
  for (k = 0; k < 2; k++) {
    for (i = 0; i < operands[k].n; i++) {
      bool follows = false;

      TFD_LUA_TRY(L, tfd_tape_follows(operands[k].p[i], &follows));
      any = any || follows;
      flags[n++] = follows ? '1' : '0';
    }
  }
  if (!any) return 0;
  twice = has_twice(L, &operands[0], &operands[1]);
  lua_pushlstring(L, flags, n);
  lua_pushboolean(L, twice);
  return 2;
}

/* walk_wanted(walk, n) -> likewise, of the n inputs of the step that waits,
** those whose gradients are wanted; "2" for those that have one so far. */
static int core_walk_wanted(lua_State *L) {
  const tfd__lua_arg walk = {"walk_wanted", "walk", 1, false};
  tfd_walk *w = tfd__lua_handle(L, TFD_HANDLE_WALK, &walk);
  int n = (int)lua_tointeger(L, 2);
  char *flags = NULL;
  int i;

  luaL_argcheck(L, n >= 0, 2, "a number of inputs");
  flags = room_for_flags(L, n);
  for (i = 0; i < n; i++) {
    bool needs = false;
    bool has = false;

    TFD_LUA_TRY(L, tfd_walk_needs(w, i, &needs, &has));
    flags[i] = (char)('0' + needs + has);
  }
  lua_pushlstring(L, flags, (size_t)n);
  return 1;
}

/* walk_gradients(walk, n) -> a list of the gradients of n sources, with n. */
static int core_walk_gradients(lua_State *L) {
  const tfd__lua_arg walk = {"walk_gradients", "walk", 1, false};
  tfd_walk *w = tfd__lua_handle(L, TFD_HANDLE_WALK, &walk);
  int n = (int)lua_tointeger(L, 2);
  int i;

  lua_createtable(L, n, 1);
  for (i = 0; i < n; i++) {
    tfd__slot *s = tfd__lua_slot(L);

    TFD_LUA_TRY_TWICE(L, tfd_walk_gradient(w, i, &s->object));
    tfd__lua_seal(L, s);
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushinteger(L, n);
  lua_setfield(L, -2, "n");
  return 1;
}

/* --- what a trace has read ------------------------------------------------ */

/* Are the values at a and b the same to a script? NaN is NaN; zeros of two
** signs, and an integer and a float, are equal but not the same. */
static bool same_value(lua_State *L, int a, int b) {
  double x = 0;
  double y = 0;

  if (lua_type(L, a) != LUA_TNUMBER || lua_type(L, b) != LUA_TNUMBER) {
    return lua_rawequal(L, a, b);
  }
  if (is_integer(L, a) != is_integer(L, b)) return false;
  x = lua_tonumber(L, a);
  y = lua_tonumber(L, b);
  if (!lua_rawequal(L, a, b)) return isnan(x) && isnan(y);
  return signbit(x) == signbit(y);
}

/* Has `table` the n fields of `copy`, and beside them at most ignored ones?
** The three are absolute indices. */
static bool same_table(lua_State *L, int table, int copy, int ignored,
                       lua_Integer n) {
  int top = lua_gettop(L);

  lua_pushnil(L);
  while (lua_next(L, table)) { /* key, value */
    lua_pushvalue(L, -2);
    lua_rawget(L, copy);
    if (same_value(L, -2, -1)) {
      n--;
    } else {
      lua_pushvalue(L, -3);
      lua_rawget(L, ignored);
      if (!lua_toboolean(L, -1)) {
        lua_settop(L, top);
        return false;
      }
    }
    lua_settop(L, top + 1); /* the key */
  }
  return n == 0;
}

/* same_fields(tables, copies, counts, n, ignored) -> whether table i still has
** the fields of copy i, counts[i] of them, without a look at those whose names
** are in `ignored`, which no copy has. */
static int core_same_fields(lua_State *L) {
  lua_Integer n = lua_tointeger(L, 4);
  int ignored = 5;
  bool same = true;
  int i;

  for (i = 1; i <= 3; i++) luaL_checktype(L, i, LUA_TTABLE);
  luaL_checktype(L, ignored, LUA_TTABLE);
  for (i = 1; i <= n && same; i++) {
    lua_Integer count = 0;

    lua_rawgeti(L, 3, i);
    count = lua_tointeger(L, -1);
    lua_rawgeti(L, 1, i);
    lua_rawgeti(L, 2, i);
    same = lua_istable(L, -1) && lua_istable(L, -2) &&
           same_table(L, lua_gettop(L) - 1, lua_gettop(L), ignored, count);
    lua_settop(L, ignored);
  }
  lua_pushboolean(L, same);
  return 1;
}

/* same_values(tables, keys, values, n) -> whether tables[i][keys[i]] still is
** values[i] for i up to n. */
static int core_same_values(lua_State *L) {
  lua_Integer n = lua_tointeger(L, 4);
  bool same = true;
  int i;

  for (i = 1; i <= 3; i++) luaL_checktype(L, i, LUA_TTABLE);
  for (i = 1; i <= n && same; i++) {
    lua_rawgeti(L, 1, i);
    lua_rawgeti(L, 2, i);
    luaL_checktype(L, -2, LUA_TTABLE);
    lua_rawget(L, -2);
    lua_rawgeti(L, 3, i);
    same = same_value(L, -2, -1);
    lua_settop(L, 4);
  }
  lua_pushboolean(L, same);
  return 1;
}

const luaL_Reg tfd__lua_graph_functions[] = {
    {"graph_call", core_graph_call},
    {"graph_calls", core_graph_calls},
    {"graph_into_walk", core_graph_into_walk},
    {"graph_key", core_graph_key},
    {"graph_list", core_graph_list},
    {"graph_quick", core_graph_quick},
    {"same_fields", core_same_fields},
    {"same_values", core_same_values},
    {"tape_followed", core_tape_followed},
    {"walk_gradients", core_walk_gradients},
    {"walk_wanted", core_walk_wanted},
    {NULL, NULL},
};
