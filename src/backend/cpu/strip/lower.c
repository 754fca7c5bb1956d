/* From ops to parts: which ops pass in registers, where each value lies, and
** which steps that makes. Values that another part reads, and those that lose
** their register while they are needed, lie in a slot, a tile of memory; every
** output is stored as soon as it is there. */
#include "backend/cpu/strip/program.h"

#include <string.h>

enum { NONE = -1, MOST_STEPS = 8 * TFD_STRIP_OPS };

typedef struct value {
  int16_t last;   /* op that reads it last; NONE = it is not needed */
  int16_t home;   /* pointer to where it lies in memory, or NONE */
  int16_t output; /* or NONE */
  int16_t part;   /* that makes it */
  uint8_t code;   /* TFD_CODE_none: an eager kernel */
  bool has_slot;
  bool must_store; /* for another part or as an output */
} value;

/* An operand now: in a register, in memory, or one number. */
typedef struct operand {
  int16_t value; /* op, NONE = an input or a literal */
  int16_t reg;   /* or NONE: */
  int16_t at;    /* pointer, NONE = only in the register */
  bool scalar;
} operand;

typedef struct builder {
  tfd__strip *p;
  const tfd__strip_text *text;
  int op; /* in hand */
  int time;
  bool open; /* the last part is steps and goes on */
  int16_t reg[2];
  uint64_t slots;       /* taken */
  uint64_t truth_slots; /* that are or were taken by truth values */
  uint8_t literal_dtypes[TFD_STRIP_LITERALS];
  value values[TFD_STRIP_OPS];
  tfd__strip_part parts[2 * TFD_STRIP_OPS];
  tfd__strip_step steps[MOST_STEPS];
  tfd__strip_call calls[TFD_STRIP_OPS];
} builder;

/* --- what is needed where ------------------------------------------------- */

static uint8_t code_of(const tfd__strip_text *t, const tfd__strip_op *o) {
  uint8_t dtypes[TFD_STRIP_ARGS] = {0};
  int i;

  for (i = 0; i < o->args_n; i++) {
    dtypes[i] = tfd__strip_arg_dtype(t, &o->args[i]);
    /* Registers take no single truth value. */
    if (o->args[i].from == TFD_STRIP_LITERAL && dtypes[i] == TFD_BOOL)
      return TFD_CODE_none;
  }
  return (uint8_t)tfd__strip_code_of(o->kernel, o->args_n, dtypes, o->dtype);
}

/* The value that an operand is; NULL for inputs and literals. */
static value *argument(builder *b, const tfd__strip_arg *arg) {
  return arg->from == TFD_STRIP_RESULT ? &b->values[arg->index] : NULL;
}

static void find_uses(builder *b) {
  const tfd__strip_text *t = b->text;
  int i;
  int k;

  for (i = 0; i < t->ops_n; i++) {
    b->values[i] =
        (value){NONE, NONE, NONE, NONE, code_of(t, &t->ops[i]), false, false};
  }
  for (i = 0; i < t->outputs_n; i++) {
    b->values[t->outputs[i]].output = (int16_t)i;
    b->values[t->outputs[i]].must_store = true;
  }
  for (i = t->ops_n - 1; i >= 0; i--) {
    const tfd__strip_op *o = &t->ops[i];

    if (b->values[i].last == NONE && b->values[i].output == NONE) continue;
    for (k = 0; k < o->args_n; k++) {
      value *v = argument(b, &o->args[k]);

      if (v != NULL && v->last == NONE) v->last = (int16_t)i;
    }
  }
}

static bool needed(const builder *b, int op) {
  return b->values[op].last != NONE || b->values[op].output != NONE;
}

/* Which part makes each value, and which must therefore be in memory. */
static void find_parts(builder *b) {
  const tfd__strip_text *t = b->text;
  bool steps = false;
  int part = -1;
  int i;
  int k;

  for (i = 0; i < t->ops_n; i++) {
    const tfd__strip_op *o = &t->ops[i];
    bool light = b->values[i].code != TFD_CODE_none;

    if (!needed(b, i)) continue;
    if (!light || !steps) part++;
    steps = light;
    b->values[i].part = (int16_t)part;
    for (k = 0; k < o->args_n; k++) {
      value *v = argument(b, &o->args[k]);

      if (v != NULL && v->part != part) v->must_store = true;
    }
  }
}

/* --- memory --------------------------------------------------------------- */

/* Steps take one strip after the other, so that a slot may go from value to
** value only where their strips lie at the same places: truth values, which are
** bytes, have slots of their own. */
static int16_t take_home(builder *b, int op) {
  value *v = &b->values[op];
  uint64_t truth = b->text->ops[op].dtype == TFD_BOOL ? ~(uint64_t)0 : 0;
  int slot = 0;

  if (v->output != NONE) return (int16_t)(TFD_AT_OUTPUT + v->output);
  while (((b->slots | (b->truth_slots ^ truth)) >> slot & 1) != 0 &&
         slot < b->p->slots_n)
    slot++;
  b->slots |= (uint64_t)1 << slot;
  if (truth != 0) b->truth_slots |= (uint64_t)1 << slot;
  if (slot >= b->p->slots_n) b->p->slots_n = slot + 1;
  v->has_slot = true;
  return (int16_t)(TFD_AT_SLOT + slot);
}

/* After op b->op: slots of values that nobody reads again. */
static void drop_slots(builder *b) {
  for (int i = 0; i <= b->op; i++) {
    value *v = &b->values[i];

    if (!v->has_slot || v->last > b->op) continue;
    b->slots &= ~((uint64_t)1 << (v->home - TFD_AT_SLOT));
    v->has_slot = false;
  }
}

/* The pointer to a literal; NONE = no room. */
static int16_t literal(builder *b, const tfd__strip_arg *arg) {
  tfd__strip *p = b->p;
  uint64_t bits = 0;
  int i;

  tfd__store(&bits, arg->dtype, arg->value);
  for (i = 0; i < p->literals_n; i++) {
    if (p->literals[i] == bits && b->literal_dtypes[i] == arg->dtype)
      return (int16_t)(TFD_AT_LITERAL + i);
  }
  if (i == TFD_STRIP_LITERALS) return NONE;
  p->literals[i] = bits;
  b->literal_dtypes[i] = arg->dtype;
  p->literals_n++;
  return (int16_t)(TFD_AT_LITERAL + i);
}

/* The pointer to a strip of what `at` points to. */
static int16_t splat(builder *b, int at) {
  tfd__strip *p = b->p;
  int i;

  for (i = 0; i < p->splats_n; i++) {
    if (p->splats[i] == at) return (int16_t)(TFD_AT_SPLAT + i);
  }
  p->splats[p->splats_n++] = (uint8_t)at;
  return (int16_t)(TFD_AT_SPLAT + i);
}

static operand operand_of(builder *b, int k) {
  const tfd__strip_arg *arg = &b->text->ops[b->op].args[k];
  operand x = {NONE, NONE, NONE, false};

  if (arg->from == TFD_STRIP_INPUT) {
    x.at = (int16_t)(TFD_AT_INPUT + arg->index);
    x.scalar = b->p->inputs[arg->index].scalar;
  } else if (arg->from == TFD_STRIP_LITERAL) {
    x.at = literal(b, arg);
    x.scalar = true;
  } else {
    x.value = arg->index;
    x.at = b->values[arg->index].home;
    if (b->reg[0] == arg->index) x.reg = 0;
    if (b->reg[1] == arg->index) x.reg = 1;
  }
  return x;
}

/* --- steps ---------------------------------------------------------------- */

static void note_read(builder *b, int at) {
  if (at >= TFD_AT_INPUT && at < TFD_AT_OUTPUT)
    b->p->read[at - TFD_AT_INPUT] = (int16_t)b->time;
}

static void note_written(builder *b, int at) {
  int16_t *when = NULL;

  if (at < TFD_AT_OUTPUT || at >= TFD_AT_LITERAL) return;
  when = &b->p->written[at - TFD_AT_OUTPUT];
  if (*when < 0) *when = (int16_t)b->time;
}

static bool is_splat(int at) {
  return at >= TFD_AT_SPLAT && at < TFD_AT_SLOT;
}

static void emit(builder *b, int code, int form, int reg, int x, int y) {
  tfd__strip_step *s = &b->steps[b->p->steps_n++];

  s->fn = b->p->machine->fns[code][form][reg];
  s->x = (uint8_t)(x < 0 ? 0 : x);
  s->y = (uint8_t)(y < 0 ? 0 : y);
  s->x_moves = is_splat(x) ? 0 : -1;
  s->y_moves = is_splat(y) ? 0 : -1;
  b->time++;
}

static void emit_store(builder *b, int reg) {
  value *v = &b->values[b->reg[reg]];
  bool truth = tfd__strip_gives_truth((tfd__strip_code)v->code);

  v->home = take_home(b, b->reg[reg]);
  emit(b, truth ? TFD_CODE_store_k : TFD_CODE_store, 0, reg, v->home, 0);
  note_written(b, v->home);
}

static bool needed_later(const builder *b, int op) {
  return op != NONE && b->values[op].last > b->op;
}

/* The result of this op may take register r's place. */
static bool replaceable(const builder *b, int r) {
  return !needed_later(b, b->reg[r]) || b->values[b->reg[r]].home != NONE;
}

/* The first op after this one that reads `op`. */
static int next_use(const builder *b, int op) {
  int i;
  int k;

  for (i = b->op + 1; i < b->text->ops_n; i++) {
    const tfd__strip_op *o = &b->text->ops[i];

    for (k = 0; k < o->args_n; k++) {
      if (o->args[k].from == TFD_STRIP_RESULT && o->args[k].index == op)
        return i;
    }
  }
  return i;
}

static int register_of_later(const builder *b) {
  return next_use(b, b->reg[0]) >= next_use(b, b->reg[1]) ? 0 : 1;
}

/* A register that may be overwritten although neither was: one value goes to
** memory. */
static int make_room(builder *b) {
  int r = register_of_later(b);

  emit_store(b, r);
  return r;
}

/* A register for something that is in none: unneeded ones first. */
static int room(builder *b) {
  if (!needed_later(b, b->reg[0])) return 0;
  if (!needed_later(b, b->reg[1])) return 1;
  if (replaceable(b, 0)) {
    return replaceable(b, 1) ? register_of_later(b) : 0;
  }
  return replaceable(b, 1) ? 1 : make_room(b);
}

static void emit_move(builder *b, int reg, const operand *x, bool truth) {
  int form = x->scalar ? TFD_FORM_S : TFD_FORM_M;

  if (x->reg >= 0) form = x->reg == reg ? TFD_FORM_R : TFD_FORM_O;
  emit(b, truth ? TFD_CODE_move_k : TFD_CODE_move, form, reg, x->at, 0);
  if (x->reg < 0) note_read(b, x->at);
  b->reg[reg] = x->value;
}

/* Where the operands in registers leave room for the result: in one's place,
** beside them, or where one was that goes to memory. */
static int result_beside(builder *b, const operand *x, const operand *y) {
  int first = x->reg >= 0 ? x->reg : y->reg;
  int second = y->reg >= 0 ? y->reg : first;

  if (!needed_later(b, b->reg[first])) return first;
  if (!needed_later(b, b->reg[second])) return second;
  if (first == second && replaceable(b, 1 - first)) return 1 - first;
  if (replaceable(b, first)) return first;
  if (replaceable(b, second)) return second;
  return make_room(b);
}

static void emit_unary(builder *b, int code) {
  operand x = operand_of(b, 0);
  int reg = x.reg >= 0 ? result_beside(b, &x, &x) : room(b);
  int form = x.scalar ? TFD_FORM_S : TFD_FORM_M;

  if (x.reg >= 0) form = x.reg == reg ? TFD_FORM_R : TFD_FORM_O;
  emit(b, code, form, reg, x.at, 0);
  if (x.reg < 0) note_read(b, x.at);
  b->reg[reg] = (int16_t)b->op;
}

/* Letters of the forms. */
enum { IN_R, IN_O, IN_M, IN_S };

static int letter(const operand *x, int reg) {
  if (x->reg >= 0) return x->reg == reg ? IN_R : IN_O;
  return x->scalar ? IN_S : IN_M;
}

static void emit_binary(builder *b, int code) {
  /* By the letters of x and y. Not all are forms: see below. */
  static const uint8_t forms[4][4] = {
      [IN_R] = {TFD_FORM_RR, TFD_FORM_RO, TFD_FORM_RM, TFD_FORM_RS},
      [IN_O] = {TFD_FORM_OR, TFD_FORMS, TFD_FORM_OM, TFD_FORM_OS},
      [IN_M] = {TFD_FORM_MR, TFD_FORM_MO, TFD_FORM_MM, TFD_FORM_MS},
      [IN_S] = {TFD_FORM_SR, TFD_FORM_SO, TFD_FORM_SM, TFD_FORMS},
  };
  operand x = operand_of(b, 0);
  operand y = operand_of(b, 1);
  int reg = x.reg >= 0 || y.reg >= 0 ? result_beside(b, &x, &y) : room(b);

  if (x.reg >= 0 && x.reg == y.reg && x.reg != reg) {
    emit_move(b, reg, &x, tfd__strip_takes_truth((tfd__strip_code)code));
    x.reg = y.reg = (int16_t)reg;
  } else if (x.reg < 0 && y.reg < 0 && x.scalar && y.scalar) {
    emit_move(b, reg, &x, false);
    x.reg = (int16_t)reg;
  }
  emit(b, code, forms[letter(&x, reg)][letter(&y, reg)], reg, x.at, y.at);
  if (x.reg < 0) note_read(b, x.at);
  if (y.reg < 0) note_read(b, y.at);
  b->reg[reg] = (int16_t)b->op;
}

/* --- three operands ------------------------------------------------------- */

/* See that a value which is in a register is in memory too. */
static void keep(builder *b, int reg) {
  if (b->reg[reg] != NONE && b->values[b->reg[reg]].home == NONE)
    emit_store(b, reg);
}

/* x into a register, whose number is returned; what was there may be another
** operand, which is then read from memory. */
static int bring(builder *b, const operand *x, bool truth) {
  int reg = x->reg;

  if (reg >= 0) return reg;
  reg = room(b);
  keep(b, reg);
  emit_move(b, reg, x, truth);
  return reg;
}

/* An operand beside x, which is in register `reg`: in the other one or in
** memory. */
static operand beside(builder *b, int k, int reg) {
  operand y = operand_of(b, k);

  if (y.reg == reg) y.reg = NONE;
  if (y.reg < 0 && y.scalar) {
    note_read(b, y.at);
    y.at = splat(b, y.at);
  }
  return y;
}

/* The result takes the place of x, the first. */
static void emit_ternary(builder *b, int code) {
  const tfd__strip_arg *args = b->text->ops[b->op].args;
  operand x = operand_of(b, 0);
  int reg = bring(b, &x, tfd__strip_takes_truth((tfd__strip_code)code));
  int form = TFD_FORM_RMM;
  operand y = {NONE, NONE, NONE, false};
  operand z = {NONE, NONE, NONE, false};
  int k;

  if (needed_later(b, x.value)) keep(b, reg);
  for (k = 1; k < TFD_STRIP_ARGS && x.value != NONE; k++) {
    if (args[k].from == TFD_STRIP_RESULT && args[k].index == x.value)
      keep(b, reg);
  }
  y = beside(b, 1, reg);
  if (y.reg >= 0 && operand_of(b, 2).reg == y.reg) {
    keep(b, y.reg);
    y = beside(b, 1, reg);
  }
  z = beside(b, 2, reg);
  if (y.reg >= 0) {
    form = TFD_FORM_ROM;
  } else if (z.reg >= 0) {
    form = TFD_FORM_RMO;
  }
  emit(b, code, form, reg, y.at, z.at);
  note_read(b, y.at);
  note_read(b, z.at);
  b->reg[reg] = (int16_t)b->op;
}

/* --- parts ---------------------------------------------------------------- */

/* The last step stores: what is not needed elsewhere is not computed, and the
** last op of a part is needed behind it. */
static void close_steps(builder *b) {
  const tfd__strip_machine *m = b->p->machine;
  int r;

  for (r = 0; r < 2 && b->open; r++) {
    tfd__strip_step *last = &b->steps[b->p->steps_n - 1];

    if (last->fn == m->fns[TFD_CODE_store_k][0][r])
      last->fn = m->fns[TFD_CODE_last_k][0][r];
    if (last->fn == m->fns[TFD_CODE_store][0][r])
      last->fn = m->fns[TFD_CODE_last][0][r];
  }
  b->open = false;
  b->reg[0] = NONE;
  b->reg[1] = NONE;
}

static void begin_part(builder *b, int call) {
  tfd__strip_part *part = &b->parts[b->p->parts_n++];

  part->call = (int16_t)call;
  part->first = (int16_t)b->p->steps_n;
  b->open = call == NONE;
}

static void add_steps(builder *b) {
  int code = b->values[b->op].code;
  int args_n = b->text->ops[b->op].args_n;
  int reg;

  if (!b->open) begin_part(b, NONE);
  if (args_n == 1) emit_unary(b, code);
  if (args_n == 2) emit_binary(b, code);
  if (args_n == TFD_STRIP_ARGS) emit_ternary(b, code);
  reg = b->reg[0] == b->op ? 0 : 1;
  if (b->values[b->op].must_store) emit_store(b, reg);
  for (reg = 0; reg < 2; reg++) {
    if (!needed_later(b, b->reg[reg])) b->reg[reg] = NONE;
  }
}

static void add_call(builder *b) {
  const tfd__strip_op *o = &b->text->ops[b->op];
  tfd__strip_call *c = &b->calls[b->p->calls_n];
  int i;

  close_steps(b);
  begin_part(b, b->p->calls_n++);
  memset(c, 0, sizeof *c);
  c->call.name = tfd__strip_name(o->kernel);
  /* The kernel `copy` does not broadcast. */
  c->call.kernel =
      tfd__cpu_backend
          .kernels[o->kernel == TFD_KERNEL_copy ? TFD_KERNEL_cast : o->kernel];
  c->call.in_n = o->args_n;
  c->call.out_n = 1;
  c->call.ints_n = o->ints_n;
  c->call.reals_n = o->reals_n;
  c->call.replica = -1;
  if (o->ints_n > 0)
    memcpy(c->ints, o->ints, (size_t)o->ints_n * sizeof *o->ints);
  if (o->reals_n > 0)
    memcpy(c->reals, o->reals, (size_t)o->reals_n * sizeof *o->reals);
  for (i = 0; i < o->args_n; i++) {
    operand x = operand_of(b, i);

    c->at[i] = (uint8_t)x.at;
    c->scalar[i] = x.scalar;
    c->dtype[i] = tfd__strip_arg_dtype(b->text, &o->args[i]);
    note_read(b, x.at);
  }
  b->values[b->op].home = take_home(b, b->op);
  c->at[i] = (uint8_t)b->values[b->op].home;
  c->dtype[i] = o->dtype;
  note_written(b, c->at[i]);
  b->time++;
}

/* Has the eager kernel loops for these dtypes? No elements, no other failure.
 */
static int try_call(builder *b, int *refused_p) {
  const tfd__strip_call *c = &b->calls[b->p->calls_n - 1];
  tfd__view views[TFD_STRIP_ARGS + 1] = {{.rank = 0}};
  tfd__call call = c->call;
  int rc;
  int i;

  for (i = 0; i <= call.in_n; i++) {
    views[i] = (tfd__view){.dtype = c->dtype[i], .rank = 1, .dense = true};
    views[i].strides[0] = 1;
  }
  call.views = views;
  call.ints = c->ints;
  call.reals = c->reals;
  rc = call.kernel(&call);
  if (rc != TFD_OK) *refused_p = b->op;
  return rc;
}

/* --- all ------------------------------------------------------------------ */

static int no_room(builder *b, int *refused_p) {
  const tfd__strip_op *o = &b->text->ops[b->op];
  int i;

  for (i = 0; i < o->args_n; i++) {
    if (o->args[i].from != TFD_STRIP_LITERAL || literal(b, &o->args[i]) != NONE)
      continue;
    *refused_p = b->op;
    return tfd__fail(TFD_NOT_IMPLEMENTED,
                     "strip: op %d brings more literals than %d", b->op,
                     TFD_STRIP_LITERALS);
  }
  return TFD_OK;
}

static int copy_of(const void *from, int n, size_t size, void *copy_p) {
  size_t bytes = (size_t)n * size;
  void *copy = tfd__alloc(bytes > 0 ? bytes : size);

  if (copy == NULL) return tfd__no_memory(bytes, "fused ops");
  memcpy(copy, from, bytes);
  memcpy(copy_p, &copy, sizeof copy);
  return TFD_OK;
}

static int hand_over(const builder *b) {
  tfd__strip *p = b->p;

  TFD_TRY(copy_of(b->parts, p->parts_n, sizeof *p->parts, &p->parts));
  TFD_TRY(copy_of(b->steps, p->steps_n, sizeof *p->steps, &p->steps));
  return copy_of(b->calls, p->calls_n, sizeof *p->calls, &p->calls);
}

int tfd__strip_lower(tfd__strip *p, const tfd__strip_text *text,
                     int *refused_p) {
  builder *b = tfd__calloc(1, sizeof *b);
  int rc = TFD_OK;

  if (b == NULL) return tfd__no_memory(sizeof *b, "fused ops");
  b->p = p;
  b->text = text;
  close_steps(b);
  find_uses(b);
  find_parts(b);
  for (b->op = 0; b->op < text->ops_n && rc == TFD_OK; b->op++) {
    if (!needed(b, b->op)) continue;
    rc = no_room(b, refused_p);
    if (rc != TFD_OK) break;
    if (b->values[b->op].code == TFD_CODE_none) {
      add_call(b);
      rc = try_call(b, refused_p);
    } else {
      add_steps(b);
    }
    drop_slots(b);
  }
  close_steps(b);
  if (rc == TFD_OK) rc = hand_over(b);
  tfd__free(b);
  return rc;
}
