/* Ops and operators without a stop in Lua, and where in the script they are.
**
** Cost of an op made here, on top of the runtime's own: reading the slots,
** one new userdata, and with queued devices one look at the call stack. */
#include <string.h>

#include "lua/bind.h"
#include "ops/ops.h"

/* What a closure needs; its upvalue 2. Upvalue 3 is the slow function. */
typedef struct op_face {
  int op;
  int n; /* operands that make the fast path */
  int ints_n;
  int reals_n;
  bool numbers;   /* a number may stand for one of two operands */
  bool complete;  /* no attribute is required */
  char kinds[20]; /* of the attributes, see tfd__lua_attributes */
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS];
} op_face;

enum {
  FACE_UPVALUE = 2,
  SLOW_UPVALUE = 3,
  FAST_OUTPUTS = 8,    /* results that need no list of their own */
  MANY_OUTPUTS = 8192, /* pieces that split and unstack may give */
  FAST_INPUTS = 8
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

  if (TFD_LIKELY(s->key == key && s->text != NULL &&
                 strcmp(s->text, key) == 0))
    return s;
  s->key = key;
  s->text = keep_text(key);
  s->library =
      strncmp(key, library_prefix, strlen(library_prefix)) == 0;
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

void tfd__lua_note_position(lua_State *L) {
  /* Deeper stacks keep the last position noted: cost stays bounded. */
  enum { LEVELS = 12 };
  lua_Debug ar;
  int level = 1;

  if (!some_queue()) return;
  for (level = 1; level < LEVELS; level++) {
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

/* Once more after a full collection, if memory was what was missing. */
static int run_again(lua_State *L, int rc, const op_face *f,
                     tfd_object *const *in, const int64_t *ints,
                     const double *reals, tfd_tensor **out, int capacity,
                     int *out_n_p) {
  if (rc != TFD_RESOURCE_EXHAUSTED || !tfd__lua_collect(L)) return rc;
  return tfd_op_run(f->op, in, f->n, ints, f->ints_n, reals, f->reals_n, out,
                    capacity, out_n_p);
}

volatile int tfd__lua_running = -1;

/* Results of ops with many outputs wait here until they are handles; the
** collector may run in between, so pushing starts from a copy. */
static _Thread_local tfd_tensor *many[MANY_OUTPUTS];

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
static int run_with(lua_State *L, const op_face *f, tfd_object *const *in,
                    const int64_t *ints, const double *reals) {
  tfd__slot *slot = NULL;
  int out_n = 0;
  int rc = 0;

  TFD_LUA_ENTER(L);
  tfd__lua_note_position(L);
  slot = tfd__lua_tensor_slot(L);
  tfd__lua_running = f->op;
  rc = tfd_op_run(f->op, in, f->n, ints, f->ints_n, reals, f->reals_n, many,
                  MANY_OUTPUTS, &out_n);
  tfd__lua_running = -1;
  if (!TFD_LIKELY(rc == TFD_OK)) {
    rc = run_again(L, rc, f, in, ints, reals, many, MANY_OUTPUTS, &out_n);
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

static int run_face(lua_State *L, const op_face *f, tfd_object *const *in) {
  return run_with(L, f, in, f->ints, f->reals);
}

/* Everything that is not the plain case goes to the Lua function. */
static int call_slow(lua_State *L) {
  lua_pushvalue(L, lua_upvalueindex(SLOW_UPVALUE));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

static int call_binary(lua_State *L);

static int call_op(lua_State *L) {
  const op_face *f = lua_touserdata(L, lua_upvalueindex(FACE_UPVALUE));
  tfd_object *in[FAST_INPUTS];
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS];
  int top = lua_gettop(L);
  int i = 0;

  if (top < f->n || f->n > FAST_INPUTS) return call_slow(L);
  for (i = 0; i < f->n; i++) {
    in[i] = tfd__lua_to_operand(L, i + 1);
    if (in[i] != NULL) continue;
    return f->numbers && top == 2 ? call_binary(L) : call_slow(L);
  }
  if (top == f->n && f->complete) return run_face(L, f, in);
  memcpy(ints, f->ints, (size_t)f->ints_n * sizeof *ints);
  memcpy(reals, f->reals, (size_t)f->reals_n * sizeof *reals);
  if (!tfd__lua_attributes(L, f->kinds, f->n + 1, top, ints, reals))
    return call_slow(L);
  return run_with(L, f, in, ints, reals);
}

/* Lua calls __unm with its operand twice. */
static int call_unary(lua_State *L) {
  const op_face *f = lua_touserdata(L, lua_upvalueindex(FACE_UPVALUE));
  tfd_object *in = tfd__lua_to_operand(L, 1);

  if (in != NULL) return run_face(L, f, &in);
  lua_settop(L, 1);
  return call_slow(L);
}

/* A scalar like `other` with the number at i, where the op will run; NULL when
** its dtype cannot hold the number exactly, or when there is nothing to compare
** with. The result sits in a slot pushed on the stack. */
static tfd_object *number_operand(lua_State *L, int i, tfd_object *other) {
  double x = lua_tonumber(L, i);
  tfd_device *device = tfd__context_device();
  tfd_tensor *like = NULL;
  tfd_tensor *t = NULL;
  tfd__slot *slot = NULL;
  int dtype = 0;
  int rc = 0;

  if (tfd__operand(other, &like) != TFD_OK) return NULL;
  dtype = like->view.dtype;
  if (dtype == TFD_BOOL) return NULL;
  if (!tfd__is_float(dtype)) {
    unsigned char element[8];

    tfd__store(element, dtype, x);
    if (tfd__load(element, dtype) != x) return NULL;
  }
  slot = tfd__lua_tensor_slot(L);
  if (device == NULL) device = like->device;
  rc = tfd__tensor_from_doubles(device, dtype, NULL, 0, &x, &t);
  if (rc == TFD_RESOURCE_EXHAUSTED && tfd__lua_collect(L))
    rc = tfd__tensor_from_doubles(device, dtype, NULL, 0, &x, &t);
  if (rc != TFD_OK) tfd__lua_fail(L, rc);
  slot->object = (tfd_object *)t;
  return slot->object;
}

static int call_binary(lua_State *L) {
  const op_face *f = lua_touserdata(L, lua_upvalueindex(FACE_UPVALUE));
  tfd_object *in[2] = {NULL, NULL};
  int number = 0;
  int rc = 0;

  in[0] = tfd__lua_to_operand(L, 1);
  in[1] = tfd__lua_to_operand(L, 2);
  if (TFD_LIKELY(in[0] != NULL && in[1] != NULL)) return run_face(L, f, in);
  number = in[0] == NULL ? 1 : 2;
  if (in[2 - number] != NULL && lua_type(L, number) == LUA_TNUMBER) {
    tfd_object *x = number_operand(L, number, in[2 - number]);

    if (x != NULL) {
      tfd__slot *scalar = tfd__lua_to_slot(L, -1);

      in[number - 1] = x;
      rc = run_face(L, f, in);
      /* Nobody else can have seen the scalar: give its memory back now. */
      tfd_release(scalar->object);
      scalar->object = NULL;
      return rc;
    }
  }
  lua_settop(L, 2);
  return call_slow(L);
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
static int make_closure(lua_State *L, lua_CFunction call, int n, int first,
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
  f->n = n;
  read_slots(L, f, first, first + 1, function);
  lua_settop(L, first + 4); /* drop what long lists left */
  lua_pushvalue(L, first + 2);
  lua_pushcclosure(L, call, 3);
  return 1;
}

/* op_function(op, n, ints, reals, slow[, kinds[, numbers]]) */
static int core_op_function(lua_State *L) {
  const tfd__lua_arg a = {"op_function", "n", 2, false};
  int64_t n = tfd__lua_int(L, &a);
  const char *text = luaL_optstring(L, 6, "");
  char kinds[sizeof((op_face *)NULL)->kinds] = "";
  bool numbers = lua_toboolean(L, 7);
  op_face *f = NULL;

  if (n < 0 || n > FAST_INPUTS || strlen(text) >= sizeof kinds)
    n = FAST_INPUTS + 1; /* always slow */
  else
    memcpy(kinds, text, strlen(text) + 1);
  make_closure(L, call_op, (int)n, 3, "op_function");
  lua_getupvalue(L, -1, FACE_UPVALUE);
  f = lua_touserdata(L, -1);
  lua_pop(L, 1);
  memcpy(f->kinds, kinds, sizeof kinds);
  f->numbers = numbers && n == 2;
  f->complete = strpbrk(kinds, "BILFDE") == NULL;
  return 1;
}

/* unary_metamethod(op, ints, reals, slow) */
static int core_unary_metamethod(lua_State *L) {
  return make_closure(L, call_unary, 1, 2, "unary_metamethod");
}

/* binary_metamethod(op, ints, reals, slow) */
static int core_binary_metamethod(lua_State *L) {
  return make_closure(L, call_binary, 2, 2, "binary_metamethod");
}

/* --- the general call ----------------------------------------------------- */

/* op_run(op, inputs, ints, reals) -> outputs */
static int core_op_run(lua_State *L) {
  const tfd__lua_arg op = {"op_run", "op", 1, false};
  const tfd__lua_arg inputs = {"op_run", "inputs", 2, false};
  int64_t number = tfd__lua_int(L, &op);
  tfd__lua_handles in;
  op_face f;
  tfd__slot *slot = NULL;
  int out_n = 0;
  int rc = 0;

  lua_settop(L, 4);
  TFD_LUA_ENTER(L);
  if (number < 0 || number >= tfd_op_count()) number = tfd_op_count();
  tfd__lua_handle_list(L, TFD_HANDLE_KINDS, &inputs, &in);
  read_slots(L, &f, 3, 4, "op_run");
  f.op = (int)number;
  tfd__lua_note_position(L);
  slot = tfd__lua_tensor_slot(L);
  tfd__lua_running = f.op;
  rc = tfd_op_run(f.op, (tfd_object *const *)in.p, in.n, f.ints, f.ints_n,
                  f.reals, f.reals_n, many, MANY_OUTPUTS, &out_n);
  tfd__lua_running = -1;
  if (rc != TFD_OK) {
    f.n = in.n;
    rc = run_again(L, rc, &f, (tfd_object *const *)in.p, f.ints, f.reals,
                   many, MANY_OUTPUTS, &out_n);
    if (rc != TFD_OK) return tfd__lua_fail(L, rc);
  }
  if (out_n != 1) return push_results(L, out_n);
  slot->object = (tfd_object *)many[0];
  tfd__lua_made_bytes(L, (const tfd_tensor *)many[0]);
  tfd__lua_pressure(L);
  return 1;
}

const luaL_Reg tfd__lua_op_functions[] = {
    {"binary_metamethod", core_binary_metamethod},
    {"op_function", core_op_function},
    {"op_run", core_op_run},
    {"set_library_prefix", core_set_library_prefix},
    {"set_position", core_set_position},
    {"unary_metamethod", core_unary_metamethod},
    {NULL, NULL},
};
