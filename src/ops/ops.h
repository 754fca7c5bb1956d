#ifndef TFD_OPS_OPS_H
#define TFD_OPS_OPS_H
/* L5 ops: the registry, shape inference, dispatch, the current context.
**
** ops/defs/<family>.def holds one line for each op:
**   OP(name, schema, infer, kernel, grad, flags)
** name    C identifier, also the name tfd_op_find knows
** schema  space-separated "arg:kind[=default]"; tensors first, attributes after
**           t   tensor          t?  optional tensor (NULL handle)
**           n   n?  the same, but Lua numbers become int32 (indices, labels)
**           t*  list of tensors (only as the single tensor argument)
**           b   bool   i  int   d  dtype   e(a|b|c)  enum by position
**           f   real
**           l   list of up to 8 ints, absent = nil
**         b, i, d, e take 1 slot in `ints`; l takes TFD_LIST_SLOTS (count,
**         then values; count -1 = absent); f takes 1 slot in `reals`.
** infer   tfd__infer_<infer>: checks everything, sets the outputs
** kernel  TFD_KERNEL_<kernel>, `none` for pure views
** grad    tfd__grad_<grad> (autograd), `none` = no gradient flows
** flags   or-ed TFD_OP_*; 0 = dense inputs, nothing saved for the gradient
**
** May include base, types, backend, device, tensor. Specs: spec/ops. */

#include "tensor/tensor.h"

#define TFD_LIST_SLOTS (1 + TFD_MAX_RANK)
/* As the end of a slice: where the axis ends. No axis is as long. */
#define TFD_AXIS_END ((int64_t)1 << 53)
#define TFD_MAX_INTS 64
#define TFD_MAX_REALS 8

enum {
  TFD_OP_STRIDED = 1 << 0,  /* kernel takes non-dense inputs */
  TFD_OP_STATEFUL = 1 << 1, /* result is not a function of its inputs */
  /* Which values the gradient rule reads. Inputs and outputs not named here
  ** reach the rule as shape-only tensors. */
  TFD_OP_SAVE_IN0 = 1 << 4,
  TFD_OP_SAVE_IN1 = 1 << 5,
  TFD_OP_SAVE_IN2 = 1 << 6,
  TFD_OP_SAVE_IN3 = 1 << 7,
  TFD_OP_SAVE_INS = 0xff << 4, /* the first eight inputs (all of a t* list) */
  TFD_OP_SAVE_OUT0 = 1 << 12,
  TFD_OP_SAVE_OUT1 = 1 << 13,
  TFD_OP_SAVE_OUTS = 0xf << 12
};

typedef enum tfd__op_id {
#define OP(name, schema, infer, kernel, grad, flags) TFD_OP_##name,
#include "ops/defs/all.def"
#undef OP
  TFD_OP_N
} tfd__op_id;

/* What inference sees and fills. */
typedef struct tfd__out_spec {
  tfd__view view; /* dtype, dims (tfd__view_set); for aliases also strides */
  int64_t offset; /* alias only: elements from input 0's first element */
} tfd__out_spec;

typedef struct tfd__infer {
  const struct tfd__op *op;
  const char *name;           /* op->name, for messages */
  const tfd__view *const *in; /* NULL for an absent optional input */
  int in_n;
  const int64_t *ints;
  const double *reals;
  int out_n;          /* default 1 */
  tfd__out_spec *out; /* capacity 4, more after tfd__infer_outputs */
  bool partial;       /* sizes may be unknown (-1), of outputs too */
  bool alias;         /* outputs are views of input 0: no kernel runs */
  bool dense_first;   /* alias of a dense copy when input 0 has gaps */
  tfd__out_spec small[4];
  tfd__out_spec *large; /* freed by dispatch */
} tfd__infer;

/* Set out_n, growing `out`. */
int tfd__infer_outputs(tfd__infer *s, int n);
/* Output i gets dtype and dims, dense. */
int tfd__infer_out(tfd__infer *s, int i, int dtype, const int64_t *dims,
                   int rank);
/* Output 0 is exactly like view v (dense). */
int tfd__infer_like(tfd__infer *s, int i, const tfd__view *v);
/* Output i has dtype, and of two shapes that agree the sizes that are known. */
int tfd__infer_merged(tfd__infer *s, int i, int dtype, const tfd__view *a,
                      const tfd__view *b);
/* The list attribute at slot; *n_p = -1 when absent. */
static inline const int64_t *tfd__list(const int64_t *ints, int slot,
                                       int *n_p) {
  *n_p = (int)ints[slot];
  return ints + slot + 1;
}
/* Common checks; they write the standard messages.
** Unknown sizes agree with all.
** dtype: InvalidArgument "<op>: a is float32 and b is int32; both must have
** the same dtype (use tf.cast)"; want: "<op>: x has dtype int32; expected a
** floating-point dtype"; rank: "<op>: x has rank 1 {3}; expected rank 2". */
int tfd__check_same_dtype(tfd__infer *s, int a, int b);
int tfd__check_float(tfd__infer *s, int i);
int tfd__check_int(tfd__infer *s, int i);
int tfd__check_index(tfd__infer *s, int i); /* int32 or int64 */
int tfd__check_rank(tfd__infer *s, int i, int rank);
/* Input i has just these sizes. `why` follows them in the message. */
int tfd__check_dims(tfd__infer *s, int i, const int64_t *dims, int rank,
                    const char *why);
/* Argument's name by its schema position ("x", "labels"). */
const char *tfd__arg_name(const tfd__infer *s, int i, char buf[32]);

typedef int (*tfd__infer_fn)(tfd__infer *s);

typedef struct tfd__op {
  const char *name;
  const char *schema;
  tfd__infer_fn infer;
  tfd__kernel_id kernel;
  int flags;
  bool differentiable; /* grad column is not `none` */
  bool list_input;     /* one t* argument */
  int in_n;            /* tensor arguments in the schema */
  int ints_n;          /* slots */
  int reals_n;
  const struct tfd__param *params; /* see ops/attributes.h */
  int params_n;
} tfd__op;

const tfd__op *tfd__op_at(int op); /* no check */
/* True when tensor argument `i` of the schema may be absent. */
bool tfd__is_optional(const tfd__op *op, int i);
/* Attributes that a caller outside the runtime gave: enums and dtypes are
** ones there are, lists fit their slots. Errors: ValueError. */
int tfd__check_slots(const tfd__op *op, const int64_t *ints);

/* Slots from "name=value name=value", where values are written as in schemas,
** lists as [0,1]; NULL is "". What is not named has its default.
** Errors: ValueError naming the op and the attribute. */
int tfd__attributes_read(const tfd__op *op, const char *text, int64_t *ints,
                         double *reals);

/* --- the current context -------------------------------------------------- */

/* Called after an op ran when a tape is active; autograd sets it. `ready` holds
** the inputs as the kernel saw them: some may be copies on the op's device.
** op == NULL: out[0] is another name of in[0]. */
typedef int (*tfd__record_fn)(void *tapes, const tfd__op *op,
                              tfd_tensor *const *in, tfd_tensor *const *ready,
                              int in_n, tfd_tensor *const *out, int out_n,
                              const int64_t *ints, const double *reals);

/* An op that is about to run, as a recorder sees it; valid for the call. */
typedef struct tfd__pending {
  const tfd__op *op;
  tfd_device *device; /* where it would run */
  /* Symbolic ones are the recorder's own; others are constants. A variable's
  ** value comes as input 0 of `identity`, a read at this point of the program,
  ** and as the target of an update. NULL = absent. */
  tfd_tensor *const *in;
  int in_n;
  const int64_t *ints;
  const double *reals;
  tfd_tensor *const *out; /* symbolic: the op's results from now on */
  int out_n;
  bool alias;          /* results are views of input 0 */
  bool followed;       /* tapes see it as a step; else `identity` only reads */
  const char *refused; /* it ran, as it was left to: what was said of its
                       ** values; NULL = nothing */
  /* Output i replaces targets[i]'s value: updates, whose inputs 0.. are those
  ** values, and assignments, which are `copy` of the new value. */
  tfd_variable *const *targets;
  int targets_n;
  int replica; /* -1 outside replicas */
  int line;    /* script position */
  const char *file;
  const char *note; /* as tfd_context_set_note was told */
} tfd__pending;

/* What devices or processes do together, made by another layer. */
typedef struct tfd__joint {
  tfd_object object;
  const char *name;
  int reals_n; /* numbers that it takes */
  int out_n;   /* tensors that it gives */
  /* Do it with these tensors, of the shapes that were recorded. Owns: what it
  ** puts into out. */
  int (*run)(struct tfd__joint *self, tfd_tensor *const *in,
             const double *reals, tfd_tensor **out);
  /* What can begin before all of `in` is there: parts_n parts in their order,
  ** each once inputs i with part_of[i] = its number are there. The others may
  ** be NULL then. `run` follows, which begins what has not, or `drop`. */
  int parts_n;        /* 0 = nothing */
  const int *part_of; /* of each input, parts_n = of none */
  int (*begin)(struct tfd__joint *self, int part, tfd_tensor *const *in);
  void (*drop)(struct tfd__joint *self);
} tfd__joint;

/* Sees the ops of a context after inference and before they run. While one is
** there:
** - What it takes over does not run; its results are symbolic. Their values
**   cannot be read, and they are inputs of ops under the same recorder only, or
**   under those that adopt them.
** - Inference works on sizes that are not known (-1).
** - Tapes record after it, on symbolic tensors, and their gradients are ops
**   that it sees in turn; sizes must be known for that.
** - Variables are read, updated and assigned in the order of the calls; their
**   values and versions stay. A new one needs values that are there.
** - Copies between devices are `identity` for the device they go to.
** - Tensors made from the host's values or files are real, and constants. */
typedef struct tfd__recorder {
  tfd__tracer tracer; /* symbolic tensors hold references to it */
  /* What it records may never run: what it left to run comes again, as refused,
  ** in place of the error that its values are no good. */
  bool defers;
  /* Take the op over (*taken_p = true) or leave it to run, which those without
  ** symbolic inputs can. */
  int (*see)(struct tfd__recorder *self, const tfd__pending *op, bool *taken_p);
  /* Take over what updates all targets and gives `out`, symbolic tensors;
  ** Owns: a reference to j. */
  int (*join)(struct tfd__recorder *self, tfd__joint *j, tfd_tensor *const *in,
              int in_n, tfd_variable *const *targets, int targets_n,
              const double *reals, tfd_tensor *const *out);
  /* May t, symbolic and of another recorder, be input i of `what`? NULL: none
  ** may. */
  int (*adopt)(struct tfd__recorder *self, tfd_tensor *t, const char *what,
               int i);
} tfd__recorder;

struct tfd_context {
  tfd_object object;
  tfd_device *device_stack[32];
  int device_depth;
  void *tapes; /* autograd's list of recording tapes; NULL = none */
  tfd__record_fn record;
  tfd__recorder *recorder; /* owned reference; NULL = none */
  tfd__recorder *paused;   /* likewise: the recorder that does not record */
  int unfollowed;          /* nested pauses of recording on tapes */
  int autocast;            /* 1 + what autocast variables become, 0 = off */
  int replica;             /* -1 outside replicas */
  int update; /* 1 + the copy that an update function works on, 0 = none */
  struct tfd_strategy *strategy; /* whose replica this is; borrowed */
  int line;                      /* script position of the running op */
  const char *file;
  const char *note; /* what errors of ops say besides, for ever; NULL = none */
  uint32_t about;   /* which variables collectives are about, 0 = none: equal
                    ** in all processes that do the same */
  int calls;        /* nested ones, which borrow their operands */
  struct tfd__lent *lent; /* operands made for them, newest first */
};

/* The calling thread's context; made on first use, never NULL. */
tfd_context *tfd__context(void);
/* Owns: t, on success, until no call is under way: a handle whose every operand
** is another tensor lends them so. */
int tfd__context_lend(tfd_tensor *t);
void tfd__context_take_back(tfd_context *c);
/* A call that takes operands; the outermost one's end frees what was lent. */
static inline tfd_context *tfd__call_begin(void) {
  tfd_context *c = tfd__context();

  c->calls++;
  return c;
}
static inline void tfd__call_end(tfd_context *c) {
  if (--c->calls == 0 && c->lent != NULL) tfd__context_take_back(c);
}
/* Innermost tf.device, else NULL. */
tfd_device *tfd__context_device(void);
/* Make `recorder` (NULL = none) the current context's. *before_p gets the one
** before and its reference. */
void tfd__context_record(tfd__recorder *recorder, tfd__recorder **before_p);
/* Ops run, or are recorded again, in the current context. */
void tfd__context_pause(bool paused);
/* Fail because `what` cannot be recorded, if there is a recorder. */
int tfd__refuse_recorder(const char *what);
/* Device for new tensors: the above, else the first device. Starts the
** runtime. */
int tfd__default_device(tfd_device **device_p);

/* Fail unless an update's result can stand in the variable's place. */
int tfd__check_target(const tfd__op *op, const tfd_variable *v,
                      const tfd__view *get);

/* The dtype that ops take t in: the context's for an autocast variable. */
int tfd__dtype_taken(const tfd_tensor *t);

/* Run one op on tensors already resolved. in[i] == NULL: optional, absent.
** out has room for `capacity`; Owns: out[0..*out_n_p). Records on tapes. */
int tfd__run(int op, tfd_tensor *const *in, int in_n, const int64_t *ints,
             const double *reals, tfd_tensor **out, int capacity, int *out_n_p);

/* t's values as they are now, whatever is written later: what a recorder sees
** as a read if t is a variable's. */
int tfd__value_of(tfd_tensor *t, tfd_tensor **value_p);
/* Let tapes take *value_p for t. On failure *value_p is released. */
int tfd__taken_for(tfd_tensor *t, tfd_tensor **value_p);

/* Run an update op: outputs 0..targets_n-1 replace the targets' values, which
** are inputs 0..targets_n-1 (but for `copy`), in place where nothing else shows
** their buffers. Kernels of such ops must allow out i == in i. Tapes do not
** see it. */
int tfd__run_update(int op, tfd_variable *const *targets, int targets_n,
                    tfd_tensor *const *in, int in_n, const int64_t *ints,
                    const double *reals);

#define OP(name, schema, infer, kernel, grad, flags) \
  int tfd__infer_##infer(tfd__infer *s);
#include "ops/defs/all.def"
#undef OP

#endif
