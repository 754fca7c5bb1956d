/* Ops and operators without a stop in Lua, and where in the script they are.
**
** Cost of an op made here, on top of the runtime's own: reading the slots,
** one new userdata, and with queued devices one look at the call stack. */
#include <limits.h>
#include <string.h>

#include "comm/comm.h"
#include "lua/bind.h"
#include "ops/attributes.h"

/* What a closure needs; its upvalue 2. Upvalue 3 of metamethods is the
** function for everything else. */
typedef struct op_face {
  tfd__lua_rule rule; /* first, see TFD_LUA_RULE */
  int op;
  int ints_n;
  int reals_n;
  bool complete; /* no attribute is required */
  bool method;   /* the first operand is self */
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS];
} op_face;

enum {
  FACE_UPVALUE = TFD_LUA_RULE,
  SLOW_UPVALUE = 3,
  FAST_OUTPUTS = 8,    /* results that need no list of their own */
  MANY_OUTPUTS = 8192, /* pieces that split and unstack may give */
  FAST_INPUTS = 16
};

/* --- script positions ----------------------------------------------------- */

/* Source names that queued calls point at: kept for ever, so that a position
** outlives the function it came from. A program has few sources. */
enum { SOURCE_SLOTS = 64 };
typedef struct source {
  const char *key;  /* Lua's pointer, may dangle: only compared */
  const char *text; /* our copy of what stood there */
  bool library;
} source;

static _Thread_local source sources[SOURCE_SLOTS];
static char library_prefix[256] = "@lua/tfdist/";

const char *tfd__lua_library_prefix(size_t *length_p) {
  *length_p = strlen(library_prefix);
  return library_prefix;
}

/* A copy of `text` that stays; equal texts share one. NULL without memory. */
static const char *keep_text(const char *text) {
  static _Thread_local struct kept {
    struct kept *next;
    char text[];
  } *all = NULL;
  struct kept *k = all;
  size_t n = strlen(text) + 1;

  while (k != NULL && strcmp(k->text, text) != 0) k = k->next;
  if (k != NULL) return k->text;
  k = tfd__alloc(sizeof *k + n);
  if (k == NULL) return NULL;
  memcpy(k->text, text, n);
  k->next = all;
  all = k;
  return k->text;
}

static const source *find_source(const char *key) {
  uintptr_t hash = (uintptr_t)key >> 4;
  source *s = &sources[(hash ^ (hash >> 6)) % SOURCE_SLOTS];

  if (TFD_LIKELY(s->key == key && s->text != NULL && strcmp(s->text, key) == 0))
    return s;
  s->key = key;
  s->text = keep_text(key);
  s->library = strncmp(key, library_prefix, strlen(library_prefix)) == 0;
  return s;
}

/* True when some device queues its work; fixed once the runtime runs. */
static bool some_queue(void) {
  static int known = -1;
  tfd_device *const *devices = NULL;
  int n = 0;
  int i = 0;

  if (TFD_LIKELY(known >= 0)) return known != 0;
  if (!tfd_is_started() || tfd__devices(&devices, &n) != TFD_OK) return false;
  known = 0;
  for (i = 0; i < n; i++)
    if (!tfd__stream_is_inline(devices[i])) known = 1;
  return known != 0;
}

/* The script's line, if it is among so many frames; else the last position
** noted stays. */
static void note_position(lua_State *L, int levels) {
  lua_Debug ar;
  int level = 1;

  for (level = 1; level < levels; level++) {
    const source *s = NULL;

    if (!lua_getstack(L, level, &ar)) return;
    /* One call when the caller is the script itself, the usual case. */
    lua_getinfo(L, level == 1 ? "Sl" : "S", &ar);
    if (ar.source[0] != '@') continue;
    s = find_source(ar.source);
    if (s->library || s->text == NULL) continue;
    if (level > 1) lua_getinfo(L, "l", &ar);
    tfd_context_set_position(s->text + 1, ar.currentline);
    return;
  }
}

void tfd__lua_note_position(lua_State *L) {
  enum {
    LEVELS = 12
  }; /* the cost of a call stays bounded, but for a trace's */

  if (tfd__context()->recorder != NULL) {
    note_position(L, INT_MAX);
  } else if (some_queue()) {
    note_position(L, LEVELS);
  }
}

/* However many frames of the library lie above the script's: beside work of all
** replicas they cost nothing, and one line behind is a wrong one. */
void tfd__lua_note_meeting(lua_State *L) {
  if (some_queue() || tfd__groups_are_far() ||
      tfd__context()->recorder != NULL) {
    note_position(L, INT_MAX);
  }
}

void tfd__lua_note_reads(lua_State *L, tfd_object *const *in, int n) {
  int i;

  for (i = 0; i < n; i++) {
    if (in[i] == NULL || in[i]->type->kind != TFD_HANDLE_MIRRORED) continue;
    tfd__lua_note_meeting(L);
    return;
  }
}

int tfd__lua_operand(lua_State *L, tfd_object *x, tfd_tensor **t_p) {
  tfd__lua_note_reads(L, &x, 1);
  return tfd__operand(x, t_p);
}

/* note_position() */
static int core_note_position(lua_State *L) {
  tfd__lua_note_position(L);
  return 0;
}

/* set_position(file, line) */
static int core_set_position(lua_State *L) {
  const char *file = luaL_checkstring(L, 1);
  int line = (int)luaL_checknumber(L, 2);

  tfd_context_set_position(keep_text(file), line);
  return 0;
}

/* set_library_prefix(prefix): sources that start so are not the user's. */
static int core_set_library_prefix(lua_State *L) {
  const char *prefix = luaL_checkstring(L, 1);

  if (strlen(prefix) < sizeof library_prefix)
    memcpy(library_prefix, prefix, strlen(prefix) + 1);
  memset(sources, 0, sizeof sources);
  return 0;
}

/* --- running -------------------------------------------------------------- */

/* Results of ops with many outputs wait here until they are handles; the
** collector may run in between, so pushing starts from a copy. */
static _Thread_local tfd_tensor *many[MANY_OUTPUTS];

/* Once more after a full collection, if memory was what was missing. */
static int run_again(lua_State *L, int rc, int op, tfd_object *const *in,
                     int in_n, const int64_t *ints, int ints_n,
                     const double *reals, int reals_n, int *out_n_p) {
  if (rc != TFD_RESOURCE_EXHAUSTED || !tfd__lua_collect(L)) return rc;
  return tfd_op_run(op, in, in_n, ints, ints_n, reals, reals_n, many,
                    MANY_OUTPUTS, out_n_p);
}

volatile int tfd__lua_running = -1;

static int push_results(lua_State *L, int n) {
  tfd_tensor *few[FAST_OUTPUTS];
  tfd_tensor **out = few;

  if (n > FAST_OUTPUTS) out = tfd__alloc((size_t)n * sizeof *out);
  if (out == NULL) {
    while (n > 0) tfd_release((tfd_object *)many[--n]);
    return tfd__lua_error(L, "ResourceExhausted", NULL,
                          "op_run: out of memory for the results");
  }
  memcpy(out, many, (size_t)n * sizeof *out);
  if (n > FAST_OUTPUTS) {
    /* An error while pushing loses this array only, and that error is the
    ** end of Lua's memory. */
    tfd__lua_push_many(L, out, n);
    tfd__free(out);
  } else {
    tfd__lua_push_many(L, out, n);
  }
  return n;
}

/* Run with these attribute slots and leave the results on the stack. */
static int run_with(lua_State *L, int op, tfd_object *const *in, int in_n,
                    const int64_t *ints, int ints_n, const double *reals,
                    int reals_n) {
  tfd__slot *slot = NULL;
  int out_n = 0;
  int rc = 0;

  TFD_LUA_ENTER(L);
  tfd__lua_note_position(L);
  tfd__lua_note_reads(L, in, in_n);
  slot = tfd__lua_tensor_slot(L);
  tfd__lua_running = op;
  rc = tfd_op_run(op, in, in_n, ints, ints_n, reals, reals_n, many,
                  MANY_OUTPUTS, &out_n);
  tfd__lua_running = -1;
  if (!TFD_LIKELY(rc == TFD_OK)) {
    rc = run_again(L, rc, op, in, in_n, ints, ints_n, reals, reals_n, &out_n);
    if (rc != TFD_OK) return tfd__lua_fail(L, rc);
  }
  if (TFD_LIKELY(out_n == 1)) {
    slot->object = (tfd_object *)many[0];
    tfd__lua_made_bytes(L, (const tfd_tensor *)many[0]);
    tfd__lua_pressure(L);
    return 1;
  }
  return push_results(L, out_n);
}

int tfd__lua_run(lua_State *L, int op, tfd_object *const *in, int in_n,
                 const int64_t *ints, const double *reals) {
  const tfd__op *o = tfd__op_at(op);

  return run_with(L, op, in, in_n, ints, o->ints_n, reals, o->reals_n);
}

static int run_face(lua_State *L, const op_face *f, tfd_object *const *in,
                    int in_n) {
  return run_with(L, f->op, in, in_n, f->ints, f->ints_n, f->reals, f->reals_n);
}

/* Everything that is not the plain case goes to the Lua function. */
static int call_slow(lua_State *L) {
  lua_pushvalue(L, lua_upvalueindex(SLOW_UPVALUE));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* Lua calls __unm with its operand twice. */
static int call_unary(lua_State *L) {
  const op_face *f = lua_touserdata(L, lua_upvalueindex(FACE_UPVALUE));
  tfd_object *in = tfd__lua_to_operand(L, 1);

  if (in != NULL) return run_face(L, f, &in, 1);
  lua_settop(L, 1);
  return call_slow(L);
}

/* A scalar of this dtype with the number at i, on a slot pushed on the stack;
** NULL when the dtype cannot hold the number exactly. */
static tfd__slot *push_scalar(lua_State *L, int i, int dtype,
                              tfd_device *device) {
  double x = lua_tonumber(L, i);
  tfd_tensor *t = NULL;
  tfd__slot *slot = NULL;
  int rc = 0;

  if (!tfd__is_float(dtype)) {
    unsigned char element[8];

    tfd__store(element, dtype, x);
    if (tfd__load(element, dtype) != x) return NULL;
  }
  slot = tfd__lua_tensor_slot(L);
  rc = tfd__tensor_from_doubles(device, dtype, NULL, 0, &x, &t);
  if (rc == TFD_RESOURCE_EXHAUSTED && tfd__lua_collect(L))
    rc = tfd__tensor_from_doubles(device, dtype, NULL, 0, &x, &t);
  if (rc != TFD_OK) tfd__lua_fail(L, rc);
  slot->object = (tfd_object *)t;
  return slot;
}

/* The same like `other`, where the op will run; NULL for booleans, too. */
static tfd__slot *push_scalar_like(lua_State *L, int i, tfd_object *other) {
  tfd_device *device = tfd__context_device();
  tfd_tensor *like = NULL;

  if (tfd__lua_operand(L, other, &like) != TFD_OK) return NULL;
  if (like->view.dtype == TFD_BOOL) return NULL;
  return push_scalar(L, i, tfd__dtype_taken(like),
                     device != NULL ? device : like->device);
}

/* Nobody else can have seen the scalar: give its memory back now. */
static void drop_scalar(tfd__slot *scalar) {
  tfd_object *object = scalar->object;

  scalar->object = NULL;
  tfd_release(object);
}

static int call_binary(lua_State *L) {
  const op_face *f = lua_touserdata(L, lua_upvalueindex(FACE_UPVALUE));
  tfd_object *in[2] = {NULL, NULL};
  int number = 0;
  int rc = 0;

  in[0] = tfd__lua_to_operand(L, 1);
  in[1] = tfd__lua_to_operand(L, 2);
  if (TFD_LIKELY(in[0] != NULL && in[1] != NULL)) return run_face(L, f, in, 2);
  number = in[0] == NULL ? 1 : 2;
  if (in[2 - number] != NULL && lua_type(L, number) == LUA_TNUMBER) {
    tfd__slot *scalar = push_scalar_like(L, number, in[2 - number]);

    if (scalar != NULL) {
      in[number - 1] = scalar->object;
      rc = run_face(L, f, in, 2);
      drop_scalar(scalar);
      return rc;
    }
  }
  lua_settop(L, 2);
  return call_slow(L);
}

/* --- ops by their schema -------------------------------------------------- */

/* The operands of a call. */
typedef struct operands {
  tfd_object **p;
  int n;
  tfd_object *small[FAST_INPUTS];
  tfd__slot *scalars[FAST_INPUTS]; /* made of numbers, for this call */
  int scalars_n;
} operands;

/* The operands in the list at `index`, of in->n elements; false when there is
** something else in it, or in another order than that of a list. Where a key
** that is no position stands is for the engine to choose. */
static bool read_in_order(lua_State *L, int index, operands *in) {
  int64_t key = 0;
  int i = 0;

  lua_pushnil(L);
  for (i = 0; lua_next(L, index) != 0; i++) {
    bool next = i < in->n && lua_type(L, -2) == LUA_TNUMBER &&
                tfd__lua_to_i64(L, -2, &key) && key == i + 1;

    if (next) in->p[i] = tfd__lua_to_operand(L, -1);
    if (!next || in->p[i] == NULL) {
      lua_pop(L, 2);
      return false;
    }
    lua_pop(L, 1);
  }
  return i == in->n;
}

/* The operands in the list at `index`; false when there is something else in
** it. A list that C asked for has its length in n. */
static bool read_operand_list(lua_State *L, int index, bool trusted,
                              operands *in) {
  int64_t n =
      trusted ? tfd__lua_list_length(L, index) : (int64_t)lua_rawlen(L, index);
  int i = 0;

  if (n < (trusted ? 0 : 1) || n > INT32_MAX / 16) return false;
  if (n > FAST_INPUTS)
    in->p = lua_newuserdatauv(L, (size_t)n * sizeof *in->p, 0);
  in->n = (int)n;
  if (!trusted) return read_in_order(L, index, in);
  for (i = 0; i < in->n; i++) {
    lua_rawgeti(L, index, i + 1);
    in->p[i] = tfd__lua_to_operand(L, -1);
    lua_pop(L, 1);
    if (in->p[i] == NULL) return false;
  }
  return true;
}

/* The dtype for the list at `index`: booleans are never numbers. */
static int list_dtype(lua_State *L, int index, int dtype) {
  int top = lua_gettop(L);
  int depth = 0;

  luaL_checkstack(L, TFD_MAX_RANK + 4, NULL);
  lua_pushvalue(L, index);
  for (depth = 0; depth < TFD_MAX_RANK && lua_istable(L, -1); depth++)
    lua_rawgeti(L, -1, 1);
  if (lua_isboolean(L, -1)) dtype = 0;
  lua_settop(L, top);
  return dtype;
}

/* An operand for the number or the plain list in place i. Positions are int32,
** the others like the operand `like`. */
static bool make_operand(lua_State *L, const tfd__op *op, operands *in, int i,
                         tfd_object *like) {
  const tfd__param *p = &op->params[i];
  tfd__slot *scalar = NULL;
  tfd_tensor *t = NULL;
  int dtype = p->kind == 'n' ? TFD_INT32 : 0;

  if (lua_type(L, i + 1) == LUA_TNUMBER && p->kind == 't') {
    scalar = like == NULL ? NULL : push_scalar_like(L, i + 1, like);
    if (scalar == NULL) return false;
    in->scalars[in->scalars_n++] = scalar;
    in->p[i] = scalar->object;
    return true;
  }
  if (!lua_istable(L, i + 1)) return false;
  if (p->kind == 't' && like != NULL) {
    if (tfd__lua_operand(L, like, &t) != TFD_OK) return false;
    dtype = tfd__dtype_taken(t);
  }
  if (!tfd__lua_push_table(L, i + 1, list_dtype(L, i + 1, dtype), op->name,
                           p->name))
    return false;
  lua_replace(L, i + 1);
  in->p[i] = tfd__lua_to_operand(L, i + 1);
  return true;
}

/* Operands for the numbers and plain lists among the first arguments, where
** those say what they become: the dtype is that of the first operand that is
** not bool. */
static bool make_operands(lua_State *L, const tfd__op *op, operands *in) {
  tfd_object *like = NULL;
  int i = 0;

  for (i = 0; i < in->n && like == NULL; i++) {
    tfd_tensor *t = NULL;

    if (in->p[i] == NULL || op->params[i].kind != 't') continue;
    if (tfd__lua_operand(L, in->p[i], &t) != TFD_OK) continue;
    if (t->view.dtype != TFD_BOOL) like = in->p[i];
  }
  for (i = 0; i < in->n; i++) {
    if (in->p[i] != NULL || lua_isnoneornil(L, i + 1)) continue;
    if (!make_operand(L, op, in, i, like)) return false;
  }
  return true;
}

/* What make_operands may turn into an operand. */
static bool is_makeable(lua_State *L, int i) {
  if (lua_type(L, i) == LUA_TNUMBER) return true;
  if (!lua_istable(L, i)) return false;
  if (!lua_getmetatable(L, i)) return true;
  lua_pop(L, 1);
  return false;
}

/* The operands at the bottom of the stack; false when one has to be made. */
static bool read_operands(lua_State *L, const op_face *f, operands *in) {
  const tfd__op *op = tfd__op_at(f->op);
  bool made = false;
  int i = 0;

  in->p = in->small;
  in->n = op->in_n;
  in->scalars_n = 0;
  if (op->list_input) {
    if (!lua_istable(L, 1) || lua_getmetatable(L, 1)) return false;
    return read_operand_list(L, 1, false, in);
  }
  for (i = 0; i < in->n; i++) {
    in->p[i] = tfd__lua_to_operand(L, i + 1);
    if (TFD_LIKELY(in->p[i] != NULL)) continue;
    if (is_makeable(L, i + 1) && !(f->method && i == 0))
      made = true;
    else if (op->params[i].required || !lua_isnoneornil(L, i + 1))
      return false;
  }
  return TFD_LIKELY(!made) || make_operands(L, op, in);
}

/* Operands for the values at the bottom of the stack, by Lua. */
static void convert_operands(lua_State *L, const op_face *f, operands *in) {
  const tfd__op *op = tfd__op_at(f->op);
  int i = 0;

  if (op->list_input) {
    tfd__lua_push_hook(L, TFD_LUA_OPERAND_LIST);
    lua_pushvalue(L, lua_upvalueindex(TFD_LUA_SIGNATURE));
    lua_pushvalue(L, 1);
    lua_call(L, 2, 1);
    lua_replace(L, 1);
    if (read_operand_list(L, 1, true, in)) return;
    luaL_error(L, "%s: the list did not become one of tensors", op->name);
  }
  tfd__lua_push_hook(L, TFD_LUA_OPERANDS);
  lua_pushvalue(L, lua_upvalueindex(TFD_LUA_SIGNATURE));
  lua_pushinteger(L, op->in_n);
  for (i = 1; i <= op->in_n; i++) lua_pushvalue(L, i);
  lua_call(L, op->in_n + 2, 1);
  in->scalars_n = 0;
  for (i = 0; i < op->in_n; i++) {
    lua_rawgeti(L, -1, i + 1);
    lua_replace(L, i + 1);
    in->p[i] = tfd__lua_to_operand(L, i + 1);
  }
}

/* The last argument may hold arguments by name: a table without element 1. */
static bool may_name(lua_State *L) {
  bool first = false;

  lua_rawgeti(L, -1, 1);
  first = !lua_isnil(L, -1);
  lua_pop(L, 1);
  return !first;
}

/* The call as it stands, positional and plain; false for any other. What is
** made for it lies behind the places of all parameters, and only if it is. */
static bool read_plain_call(lua_State *L, const op_face *f, operands *in,
                            int64_t *ints, double *reals) {
  const tfd__op *op = tfd__op_at(f->op);
  int top = lua_gettop(L);

  if (top > f->rule.n) return false;
  if (top == f->rule.n && !lua_isnil(L, top) &&
      lua_type(L, top) != LUA_TSTRING) /* `name` */
    return false;
  lua_settop(L, f->rule.n);
  if (read_operands(L, f, in) &&
      tfd__lua_attributes(L, op, op->in_n + 1, false, ints, reals))
    return true;
  lua_settop(L, top);
  return false;
}

/* Any call; raises what is wrong with it. */
static void read_call(lua_State *L, const op_face *f, bool bound, operands *in,
                      int64_t *ints, double *reals) {
  const tfd__op *op = tfd__op_at(f->op);

  if (f->method && tfd__lua_to_operand(L, 1) == NULL) {
    if (lua_gettop(L) == 0) lua_pushnil(L);
    tfd__lua_push_hook(L, TFD_LUA_SELF);
    lua_pushvalue(L, lua_upvalueindex(TFD_LUA_SIGNATURE));
    lua_pushvalue(L, 1);
    lua_call(L, 2, 0);
  }
  if (!bound) tfd__lua_bind(L, &f->rule);
  if (!read_operands(L, f, in)) convert_operands(L, f, in);
  memcpy(ints, f->ints, (size_t)f->ints_n * sizeof *ints);
  memcpy(reals, f->reals, (size_t)f->reals_n * sizeof *reals);
  tfd__lua_attributes(L, op, op->in_n + 1, true, ints, reals);
}

static int call_op(lua_State *L) {
  const op_face *f = lua_touserdata(L, lua_upvalueindex(FACE_UPVALUE));
  const tfd__op *op = tfd__op_at(f->op);
  operands in;
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS];
  int top = lua_gettop(L);
  bool bound = false;
  int n = 0;

  if (top > 0 && lua_istable(L, top) && may_name(L) &&
      (!f->method || tfd__lua_to_operand(L, 1) != NULL)) {
    tfd__lua_bind(L, &f->rule);
    bound = true;
  } else if (top == op->in_n && f->complete && read_operands(L, f, &in)) {
    n = run_face(L, f, in.p, in.n);
    while (in.scalars_n > 0) drop_scalar(in.scalars[--in.scalars_n]);
    return n;
  }
  if (!bound) lua_settop(L, top);
  memcpy(ints, f->ints, (size_t)f->ints_n * sizeof *ints);
  memcpy(reals, f->reals, (size_t)f->reals_n * sizeof *reals);
  if (!read_plain_call(L, f, &in, ints, reals))
    read_call(L, f, bound, &in, ints, reals);
  n = tfd__lua_run(L, f->op, in.p, in.n, ints, reals);
  while (in.scalars_n > 0) drop_scalar(in.scalars[--in.scalars_n]);
  return n;
}

/* --- making the closures -------------------------------------------------- */

/* Attribute slots from the lists at `ints` and `reals` (nil = none). */
static void read_slots(lua_State *L, op_face *f, int ints, int reals,
                       const char *function) {
  const tfd__lua_arg a = {function, "ints", ints, false};
  const tfd__lua_arg b = {function, "reals", reals, false};
  tfd__lua_ints i;
  tfd__lua_reals r;

  tfd__lua_int_list(L, &a, &i);
  tfd__lua_real_list(L, &b, &r);
  if (i.n > TFD_MAX_INTS || r.n > TFD_MAX_REALS)
    tfd__lua_error(L, "ValueError", NULL, "%s: too many attributes", function);
  f->ints_n = i.n;
  f->reals_n = (int)r.n;
  if (i.n > 0) memcpy(f->ints, i.p, (size_t)i.n * sizeof *i.p);
  if (r.n > 0) memcpy(f->reals, r.p, (size_t)r.n * sizeof *r.p);
}

/* Closure over (tensor metatable, face, slow); `first` is the index of the
** ints argument, the reals and the slow function follow. */
static int make_closure(lua_State *L, lua_CFunction call, int first,
                        const char *function) {
  const tfd__lua_arg op = {function, "op", 1, false};
  const tfd__lua_arg slow = {function, "slow", first + 2, false};
  op_face *f = NULL;
  int64_t number = 0;

  lua_settop(L, first + 2);
  number = tfd__lua_int(L, &op);
  if (number < 0 || number >= tfd_op_count())
    return tfd__lua_error(L, "NotImplementedError", NULL,
                          "%s: there is no op number %d", function,
                          (int)number);
  if (!lua_isfunction(L, first + 2))
    return tfd__lua_type_error(L, &slow, "a function");
  lua_pushvalue(L, lua_upvalueindex(1));
  f = lua_newuserdatauv(L, sizeof *f, 0);
  memset(f, 0, sizeof *f);
  f->op = (int)number;
  read_slots(L, f, first, first + 1, function);
  lua_settop(L, first + 4); /* drop what long lists left */
  lua_pushvalue(L, first + 2);
  lua_pushcclosure(L, call, 3);
  return 1;
}

/* What the schema of f's op says. */
static void read_schema(op_face *f) {
  const tfd__op *op = tfd__op_at(f->op);
  int i = 0;

  f->ints_n = op->ints_n;
  f->reals_n = op->reals_n;
  f->complete = true;
  tfd__op_defaults(op, f->ints, f->reals);
  for (i = 0; i < op->params_n; i++) {
    if (!op->params[i].required) continue;
    f->rule.marks[i] = TFD_LUA_REQUIRED;
    if (i >= op->in_n) f->complete = false;
  }
  f->rule.marks[i] = TFD_LUA_LABEL;
  f->rule.n = op->params_n + 1;
}

/* op_function(op, index, signature[, method]) */
static int core_op_function(lua_State *L) {
  const tfd__lua_arg op = {"op_function", "op", 1, false};
  const tfd__lua_arg index = {"op_function", "index", 2, false};
  const tfd__lua_arg signature = {"op_function", "signature", 3, false};
  int64_t number = tfd__lua_int(L, &op);
  op_face *f = NULL;

  lua_settop(L, 4);
  if (number < 0 || number >= tfd_op_count())
    return tfd__lua_error(L, "NotImplementedError", NULL,
                          "op_function: there is no op number %d", (int)number);
  if (!lua_istable(L, 2)) return tfd__lua_type_error(L, &index, "a table");
  if (!lua_istable(L, 3)) return tfd__lua_type_error(L, &signature, "a table");
  lua_pushvalue(L, lua_upvalueindex(1));
  f = lua_newuserdatauv(L, sizeof *f, 0);
  memset(f, 0, sizeof *f);
  f->op = (int)number;
  f->method = lua_toboolean(L, 4);
  read_schema(f);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 3);
  lua_pushcclosure(L, call_op, 4);
  return 1;
}

/* unary_metamethod(op, ints, reals, slow) */
static int core_unary_metamethod(lua_State *L) {
  return make_closure(L, call_unary, 2, "unary_metamethod");
}

/* binary_metamethod(op, ints, reals, slow) */
static int core_binary_metamethod(lua_State *L) {
  return make_closure(L, call_binary, 2, "binary_metamethod");
}

/* --- the general call ----------------------------------------------------- */

/* op_run(op, inputs, ints, reals) -> outputs */
static int core_op_run(lua_State *L) {
  const tfd__lua_arg op = {"op_run", "op", 1, false};
  const tfd__lua_arg inputs = {"op_run", "inputs", 2, false};
  int64_t number = tfd__lua_int(L, &op);
  tfd__lua_handles in;
  op_face f;

  lua_settop(L, 4);
  if (number < 0 || number >= tfd_op_count()) number = tfd_op_count();
  tfd__lua_handle_list(L, TFD_HANDLE_KINDS, &inputs, &in);
  read_slots(L, &f, 3, 4, "op_run");
  return run_with(L, (int)number, (tfd_object *const *)in.p, in.n, f.ints,
                  f.ints_n, f.reals, f.reals_n);
}

const luaL_Reg tfd__lua_op_functions[] = {
    {"binary_metamethod", core_binary_metamethod},
    {"note_position", core_note_position},
    {"op_function", core_op_function},
    {"op_run", core_op_run},
    {"set_library_prefix", core_set_library_prefix},
    {"set_position", core_set_position},
    {"unary_metamethod", core_unary_metamethod},
    {NULL, NULL},
};
