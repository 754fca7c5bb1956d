#ifndef TFD_LUA_BIND_H
#define TFD_LUA_BIND_H
/* L8 binding: handles, arguments and errors between C and Lua.
**
** Compiled once against Lua 5.4 and once against LuaJIT; the differences end
** in this header. Invariants:
** B1 A handle is a userdata holding a slot, or on LuaJIT pointing at one: a tag
**    that only this library can write and one pointer, NULL after release. The
**    tag, not the metatable, is what accessors check, so no metatable tampering
**    can confuse types.
** B2 A slot is made before the C call that fills it, so an error in between
**    leaks nothing.
** B3 Tensors and slices always get a new userdata. Every other kind is
**    remembered by pointer: the same C object is the same userdata.
** B4 Devices are borrowed: their slots are never released.
** B5 Upvalue 1 of every function made here is the tensor metatable.
** May include every lower layer's front door. Specs: spec/lua. */

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "base/memory.h"
#include "base/thread.h"
#include "tfdist.h"

#if LUA_VERSION_NUM < 502
#define lua_rawlen lua_objlen
#define lua_newuserdatauv(L, size, n) lua_newuserdata(L, size)
#define TFD_LUA_ENGINE "LuaJIT"
#else
#define TFD_LUA_ENGINE "Lua 5.4"
#endif

#if LUA_VERSION_NUM < 502
/* Slots lie in an array, see bind_handles.c. */
typedef struct tfd__slot {
  tfd_object *object; /* owned unless a device; NULL when released */
  uint32_t life;
} tfd__slot;
typedef struct tfd__handle {
  const void *tag;
  tfd__slot *slot;
  uint32_t life; /* the slot is another handle's when it differs */
} tfd__handle;
#else
typedef struct tfd__slot {
  const void *tag;
  tfd_object *object; /* owned unless a device; NULL when released */
} tfd__slot;
typedef tfd__slot tfd__handle;
#endif

extern const char tfd__slot_tag;

/* Kind names in enum order, "tensor" (generated). */
extern const char *const tfd__lua_kinds[TFD_HANDLE_KINDS];
/* The generated functions, NULL-terminated. */
extern const luaL_Reg tfd__lua_generated[];
/* Set field `enums` of the table on top (generated). */
void tfd__lua_enums(lua_State *L);

/* One name of an enumeration (generated tables end with name NULL). */
typedef struct tfd__lua_enum {
  const char *name;
  int value;
} tfd__lua_enum;

/* --- handles -------------------------------------------------------------- */

#if LUA_VERSION_NUM < 502
extern tfd__slot tfd__slot_released;
/* Push a handle with an empty slot and without a metatable. `metatable` is the
** index of that of tensors. */
tfd__slot *tfd__lua_new_slot(lua_State *L, int metatable);
/* Push an empty slot; fill it, then seal it. */
tfd__slot *tfd__lua_slot(lua_State *L);
/* Once, with the metatable of tensors on top. */
void tfd__lua_make_roll(lua_State *L);

static inline tfd__slot *tfd__lua_handle_slot(tfd__handle *h) {
  return TFD_LIKELY(h->slot->life == h->life) ? h->slot : &tfd__slot_released;
}
#else
static inline tfd__slot *tfd__lua_handle_slot(tfd__handle *h) {
  return h;
}

static inline tfd__slot *tfd__lua_new_slot(lua_State *L, int metatable) {
  tfd__slot *s = lua_newuserdatauv(L, sizeof *s, 0);

  (void)metatable;
  s->tag = &tfd__slot_tag;
  s->object = NULL;
  return s;
}

static inline tfd__slot *tfd__lua_slot(lua_State *L) {
  return tfd__lua_new_slot(L, 0);
}
#endif

/* The slot at stack index i, or NULL when it holds something else. */
static inline tfd__slot *tfd__lua_to_slot(lua_State *L, int i) {
  tfd__handle *h = lua_touserdata(L, i);

  if (h == NULL || lua_rawlen(L, i) != sizeof *h) return NULL;
  return h->tag == &tfd__slot_tag ? tfd__lua_handle_slot(h) : NULL;
}

/* The open operand at i (anything ops accept), or NULL. */
static inline tfd_object *tfd__lua_to_operand(lua_State *L, int i) {
  const tfd__slot *s = tfd__lua_to_slot(L, i);

  if (s == NULL || s->object == NULL) return NULL;
  return s->object->type->operand != NULL ? s->object : NULL;
}

/* Name of a C function's Lua face and of one argument, for messages. */
typedef struct tfd__lua_arg {
  const char *function; /* "tensor_item", or "Tensor:item" when self is 1 */
  const char *name;     /* "tensor" */
  int index;            /* stack index, from 1 */
  bool self;            /* the method's object */
} tfd__lua_arg;

/* The open handle of `kind` at a->index (TFD_HANDLE_KINDS: any kind).
** Raises TypeError, FailedPrecondition. */
void *tfd__lua_handle(lua_State *L, int kind, const tfd__lua_arg *a);
/* The same, nil gives NULL. */
void *tfd__lua_handle_or_nil(lua_State *L, int kind, const tfd__lua_arg *a);

/* The slot at the top gets its metatable and identity; an empty one becomes
** nil. May run the collector. */
void tfd__lua_seal(lua_State *L, tfd__slot *s);
/* More than 0 while some tidy_begin has no tidy_end yet. */
extern int tfd__lua_tidying;
/* Note the handle on top for the running coroutine's tidy, if any. */
void tfd__lua_tidy_note(lua_State *L);
/* Push an empty slot with the tensor metatable from upvalue 1. Tensors only:
** nothing but tfd__lua_pressure is needed once it is filled. */
static inline tfd__slot *tfd__lua_tensor_slot(lua_State *L) {
  tfd__slot *s = tfd__lua_new_slot(L, lua_upvalueindex(1));

  lua_pushvalue(L, lua_upvalueindex(1));
  lua_setmetatable(L, -2);
  if (!TFD_LIKELY(tfd__lua_tidying == 0)) tfd__lua_tidy_note(L);
  return s;
}
/* Push a handle for n outputs, owned by the array; NULL becomes nil. On any
** Lua error all of them are released. */
void tfd__lua_push_many(lua_State *L, tfd_tensor **out, int n);
/* Push the handle of a borrowed device. */
void tfd__lua_push_device(lua_State *L, tfd_device *device);

/* The handle at i no longer stands for `object`. */
void tfd__lua_forget(lua_State *L, const tfd_object *object, int i);
void tfd__lua_push_metatable(lua_State *L, int kind);
/* Set-up only; both take the value from the top of the stack. */
void tfd__lua_set_metatable(lua_State *L, int kind);
void tfd__lua_set_raise(lua_State *L);
void tfd__lua_make_identity(lua_State *L);

/* --- the collector -------------------------------------------------------- */

/* Full collection, reported to the runtime; false inside another one. */
bool tfd__lua_collect(lua_State *L);
/* A collection as small as suffices to drop unused native memory. */
void tfd__lua_relieve(lua_State *L);
/* Temporaries are best dropped while they are still in the cache, about 500
** bytes each. Lua's own pace is worse than late: Lua 5.4 counts a finalised
** handle as live for one more round, so rounds grow, and with them what is
** pending; LuaJIT leaves tens of thousands, see bind_handles.c. */
#define TFD_LUA_YOUNG 1024
/* Tensors made since tfd__lua_collect_young, and the bytes of most of them. */
extern int tfd__lua_young;
extern int64_t tfd__lua_young_bytes;
/* Drop temporaries, and tensors that lived longer when they have piled up. */
void tfd__lua_collect_young(lua_State *L);
/* An op made this tensor: large temporaries leave the cache sooner. */
void tfd__lua_made_bytes(lua_State *L, const tfd_tensor *t);
/* Only the tape needs most of a step's tensors now: the best moment to drop
** them, for the gradients then use their memory while it is in the cache. */
void tfd__lua_forward_ended(lua_State *L);
/* Collect when it is time. Call with the new handle safely on the stack. */
static inline void tfd__lua_pressure(lua_State *L) {
  if (!TFD_LIKELY(!tfd_memory_should_collect())) tfd__lua_relieve(L);
  if (!TFD_LIKELY(++tfd__lua_young < TFD_LUA_YOUNG)) tfd__lua_collect_young(L);
}

/* --- errors --------------------------------------------------------------- */

/* Raise the record of the call that returned `code`; never returns. */
int tfd__lua_fail(lua_State *L, int code);
/* Raise kind with a formatted message; hint may be NULL. Never returns. */
int tfd__lua_error(lua_State *L, const char *kind, const char *hint,
                   const char *fmt, ...) TFD_PRINTF(4, 5);
/* "a number", "a tensor", "nil": what the value at i is, for messages. */
const char *tfd__lua_what(lua_State *L, int i);
/* TypeError: <function>: argument <name> must be <expected>, got <what>. */
int tfd__lua_type_error(lua_State *L, const tfd__lua_arg *a,
                        const char *expected);

/* Raise Cancelled and forget the interrupt. */
int tfd__lua_interrupted(lua_State *L);
/* First statement of every function that may take long. */
#define TFD_LUA_ENTER(L)                                                    \
  do {                                                                      \
    if (!TFD_LIKELY(!tfd__interrupt_get())) return tfd__lua_interrupted(L); \
  } while (0)
#define TFD_LUA_TRY(L, call)                                              \
  do {                                                                    \
    int tfd_rc_ = (call);                                                 \
    if (!TFD_LIKELY(tfd_rc_ == TFD_OK)) return tfd__lua_fail(L, tfd_rc_); \
  } while (0)
/* For calls that allocate: once more after a full collection. */
#define TFD_LUA_TRY_TWICE(L, call)                                        \
  do {                                                                    \
    int tfd_rc_ = (call);                                                 \
    if (tfd_rc_ == TFD_RESOURCE_EXHAUSTED && tfd__lua_collect(L))         \
      tfd_rc_ = (call);                                                   \
    if (!TFD_LIKELY(tfd_rc_ == TFD_OK)) return tfd__lua_fail(L, tfd_rc_); \
  } while (0)

/* --- arguments and results ------------------------------------------------ */

/* Lists up to this length need no memory of their own; longer ones live in a
** userdata that is pushed, so indices counted from the top move. */
#define TFD_LUA_SMALL 16

typedef struct tfd__lua_ints {
  int64_t *p; /* NULL when n = 0 */
  int n;
  int64_t small[TFD_LUA_SMALL];
} tfd__lua_ints;
typedef struct tfd__lua_reals {
  double *p;
  int64_t n;
  double small[TFD_LUA_SMALL];
} tfd__lua_reals;
typedef struct tfd__lua_handles {
  void **p; /* borrowed objects, NULL for holes */
  int n;
  void *small[TFD_LUA_SMALL];
} tfd__lua_handles;

/* nil is an empty list in all three. */
void tfd__lua_int_list(lua_State *L, const tfd__lua_arg *a, tfd__lua_ints *l);
void tfd__lua_real_list(lua_State *L, const tfd__lua_arg *a, tfd__lua_reals *l);
void tfd__lua_handle_list(lua_State *L, int kind, const tfd__lua_arg *a,
                          tfd__lua_handles *l);
/* Length of the list at i: its field n if that is a number, else #list. */
int64_t tfd__lua_list_length(lua_State *L, int i);

/* The whole number at i; false when there is none. */
bool tfd__lua_to_i64(lua_State *L, int i, int64_t *x_p);
int64_t tfd__lua_int(lua_State *L, const tfd__lua_arg *a);
double tfd__lua_real(lua_State *L, const tfd__lua_arg *a);
bool tfd__lua_bool(lua_State *L, const tfd__lua_arg *a);
const char *tfd__lua_string(lua_State *L, const tfd__lua_arg *a);
const char *tfd__lua_bytes(lua_State *L, const tfd__lua_arg *a, size_t *n_p);
int tfd__lua_enum_arg(lua_State *L, const tfd__lua_enum *names,
                      const tfd__lua_arg *a);
/* Push the name, or nil for a number without one. */
void tfd__lua_push_enum(lua_State *L, const tfd__lua_enum *names, int value);
static inline void tfd__lua_push_string(lua_State *L, const char *text) {
  if (text == NULL)
    lua_pushnil(L);
  else
    lua_pushstring(L, text);
}
static inline void tfd__lua_push_bytes(lua_State *L, const void *data,
                                       size_t bytes) {
  if (data == NULL)
    lua_pushnil(L);
  else
    lua_pushlstring(L, (const char *)data, bytes);
}

/* --- calls ---------------------------------------------------------------- */

/* What C asks of Lua; set once, by name. */
typedef enum tfd__lua_hook {
  TFD_LUA_COMPLAIN,     /* complain(signature, problem, ...) raises */
  TFD_LUA_OPERANDS,     /* operands(signature, n, ...) -> list of n */
  TFD_LUA_OPERAND_LIST, /* operand_list(signature, list) -> list with n */
  TFD_LUA_PLAIN, /* plain(op, name, kind, x, choices) -> number, boolean, ... */
  TFD_LUA_SELF,  /* self(signature, x) raises unless x may be self */
  TFD_LUA_INDEX_PROBLEM, /* index(problem, ...) raises */
  TFD_LUA_HOOKS
} tfd__lua_hook;
void tfd__lua_push_hook(lua_State *L, tfd__lua_hook hook);

/* What a parameter is to the calling rule. */
enum {
  TFD_LUA_REQUIRED = 1,
  TFD_LUA_KEYS = 2,      /* a value may be a table with names as keys */
  TFD_LUA_STRUCTURE = 4, /* in the first place any table is the value */
  TFD_LUA_ANY_KIND = 8,  /* nothing is said of its values */
  TFD_LUA_LABEL = 16,    /* `name`: a string or nothing */
  TFD_LUA_DEFAULT = 32,
  TFD_LUA_MOST_PARAMETERS = 64
};

typedef struct tfd__lua_rule {
  int n;
  uint8_t marks[TFD_LUA_MOST_PARAMETERS];
} tfd__lua_rule;

/* Upvalues of functions that bind: the rule (or what begins with it), name ->
** position, what complain is given, and defaults. */
enum {
  TFD_LUA_RULE = 2,
  TFD_LUA_INDEX = 3,
  TFD_LUA_SIGNATURE = 4,
  TFD_LUA_DEFAULTS = 5
};

/* The arguments of the running function become one for each parameter, nil
** where none was given. Raises what is wrong with the call. */
void tfd__lua_bind(lua_State *L, const tfd__lua_rule *r);

/* Push a tensor of the number, boolean or nested list at `index`; dtype 0 = by
** its first element. False when a handle is among the elements. `what` and
** `name` are for messages. */
bool tfd__lua_push_table(lua_State *L, int index, int dtype, const char *what,
                         const char *name);
/* Run an op, with the slots of its schema, and leave the results on the stack;
** returns their number. */
int tfd__lua_run(lua_State *L, int op, tfd_object *const *in, int in_n,
                 const int64_t *ints, const double *reals);

struct tfd__op;
/* The attributes at stack indices from..from + count - 1 into slots that hold
** the defaults. False for what is not plainly right, unless `careful`: then
** hooks make it plain or raise. Slots may be in any state after false. */
bool tfd__lua_attributes(lua_State *L, const struct tfd__op *op, int from,
                         bool careful, int64_t *ints, double *reals);

/* --- the parts of the module ---------------------------------------------- */

/* Functions written by hand, NULL-terminated; all get upvalue 1. */
extern const luaL_Reg tfd__lua_core_functions[];
extern const luaL_Reg tfd__lua_index_functions[];
extern const luaL_Reg tfd__lua_graph_functions[];
extern const luaL_Reg tfd__lua_op_functions[];
extern const luaL_Reg tfd__lua_rule_functions[];
extern const luaL_Reg tfd__lua_table_functions[];
extern const luaL_Reg tfd__lua_system_functions[];
void tfd__lua_finish_on_close(lua_State *L);
extern const luaL_Reg tfd__lua_tidy_functions[];
extern const luaL_Reg tfd__lua_json_functions[];
extern const luaL_Reg tfd__lua_message_functions[];

/* The op that Lua code is running or queueing, for the report of a crash;
** -1 = none. */
extern volatile int tfd__lua_running;
/* Source prefix of the Lua library's files, "@lua/tfdist/" or the like. */
const char *tfd__lua_library_prefix(size_t *length_p);
/* Tell the runtime the script line that asks for work, when work is queued. */
void tfd__lua_note_position(lua_State *L);
/* The same before work of all replicas, and before what other processes may
** have to be told of. */
void tfd__lua_note_meeting(lua_State *L);
/* The same where one of these has copies in other processes, which reading it
** may add up. */
void tfd__lua_note_reads(lua_State *L, tfd_object *const *in, int n);
/* tfd__operand, which may read so. */
int tfd__lua_operand(lua_State *L, tfd_object *x, tfd_tensor **t_p);

/* libgomp has looked: the environment is the user's again. */
void tfd__lua_spin_bounded(void);

TFD_API int luaopen_tfdist_core(lua_State *L);

#endif
