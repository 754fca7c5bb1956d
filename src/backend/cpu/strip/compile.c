/* The making of a program. */
#include "backend/cpu/strip/program.h"

/* --- the text ------------------------------------------------------------- */

static int check_counts(const tfd__strip_text *t) {
  if (t->ops_n >= 1 && t->ops_n <= TFD_STRIP_OPS && t->inputs_n >= 0 &&
      t->inputs_n <= TFD_STRIP_INPUTS && t->outputs_n >= 1 &&
      t->outputs_n <= TFD_STRIP_OUTPUTS)
    return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "strip: %d ops, %d inputs, %d outputs; 1 to %d, 0 to %d and "
                   "1 to %d are possible",
                   t->ops_n, t->inputs_n, t->outputs_n, TFD_STRIP_OPS,
                   TFD_STRIP_INPUTS, TFD_STRIP_OUTPUTS);
}

static int check_arg(const tfd__strip_text *t, int op,
                     const tfd__strip_arg *arg) {
  int most = arg->from == TFD_STRIP_INPUT ? t->inputs_n : op;

  if (arg->from == TFD_STRIP_LITERAL && tfd__dtype_ok(arg->dtype))
    return TFD_OK;
  if (arg->from < TFD_STRIP_LITERAL && arg->index >= 0 && arg->index < most)
    return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "strip: op %d has an operand of kind %d, number %d; there "
                   "are %d inputs and the ops before",
                   op, arg->from, arg->index, t->inputs_n);
}

static int check_op(const tfd__strip_text *t, int op, int *refused_p) {
  const tfd__strip_op *o = &t->ops[op];
  uint8_t dtypes[TFD_STRIP_ARGS] = {0};
  int i;

  for (i = 0; i < o->args_n && i < TFD_STRIP_ARGS; i++) {
    TFD_TRY(check_arg(t, op, &o->args[i]));
    dtypes[i] = tfd__strip_arg_dtype(t, &o->args[i]);
  }
  if (tfd__dtype_ok(o->dtype) && o->ints_n <= TFD_STRIP_ATTRIBUTES &&
      o->reals_n <= TFD_STRIP_ATTRIBUTES &&
      tfd__strip_takes(o->kernel, o->args_n, dtypes))
    return TFD_OK;
  *refused_p = op;
  return tfd__fail(TFD_NOT_IMPLEMENTED,
                   "strip: op %d (kernel %d, %d operands, first %s) is not "
                   "elementwise or can fail",
                   op, (int)o->kernel, o->args_n, tfd__dtype_name(dtypes[0]));
}

static int check_outputs(const tfd__strip_text *t) {
  uint64_t seen = 0;
  int i;

  for (i = 0; i < t->outputs_n; i++) {
    int op = t->outputs[i];

    if (op < 0 || op >= t->ops_n || (seen >> op & 1) != 0) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "strip: output %d is op %d; there are %d ops, each of "
                       "which may leave once",
                       i, op, t->ops_n);
    }
    seen |= (uint64_t)1 << op;
  }
  return TFD_OK;
}

/* --- machines ------------------------------------------------------------- */

static const tfd__strip_machine *machine_of(int bits) {
#if defined(__x86_64__)
  int most = tfd__vector_bits();

  if ((bits == 0 || bits == 512) && most >= 512) return &tfd__strip_machine_512;
  if ((bits == 0 || bits == 256) && most >= 256) return &tfd__strip_machine_256;
#endif
  return bits == 0 || bits == 128 ? &tfd__strip_machine_128 : NULL;
}

/* --- the program ---------------------------------------------------------- */

static void fill_in(tfd__strip *p, const tfd__strip_text *t) {
  int i;

  p->inputs_n = t->inputs_n;
  p->outputs_n = t->outputs_n;
  for (i = 0; i < t->inputs_n; i++) {
    p->inputs[i] = t->inputs[i];
    /* A byte cannot be repeated over lanes: it becomes a tile. */
    if (p->inputs[i].dtype == TFD_BOOL) p->inputs[i].scalar = false;
    p->input_sizes[i] = (uint8_t)tfd__dtype_size(p->inputs[i].dtype);
    p->read[i] = -1;
  }
  for (i = 0; i < t->outputs_n; i++) {
    p->output_dtypes[i] = t->ops[t->outputs[i]].dtype;
    p->output_sizes[i] = (uint8_t)tfd__dtype_size(p->output_dtypes[i]);
    p->written[i] = -1;
  }
}

static size_t widest(const tfd__strip *p) {
  size_t most = sizeof(float);
  int i;
  int k;

  for (i = 0; i < p->inputs_n; i++) {
    if (p->input_sizes[i] > most) most = p->input_sizes[i];
  }
  for (i = 0; i < p->calls_n; i++) {
    for (k = 0; k <= p->calls[i].call.in_n; k++) {
      size_t size = tfd__dtype_size(p->calls[i].dtype[k]);

      if (size > most) most = size;
    }
  }
  return most;
}

static void plan_block(tfd__strip *p) {
  tfd__strip_block *b = &p->block;

  b->splat = TFD_STRIP_MOST * sizeof(float);
  /* A line more, so that equal places of two tiles are not in one set of the
  ** cache. */
  b->tile = TFD_STRIP_TILE * widest(p) + 64;
  b->end = TFD_STRIP_MOST * sizeof(double);
  b->splats_at = (sizeof(tfd__strip_frame) + 63) / 64 * 64;
  b->slots_at = b->splats_at + (size_t)p->splats_n * b->splat;
  b->tiles_at = b->slots_at + (size_t)p->slots_n * b->tile;
  b->ends_at = b->tiles_at + (size_t)p->inputs_n * b->tile;
  b->all = b->ends_at + (size_t)p->outputs_n * b->end;
}

int tfd__strip_compile(const tfd__strip_text *text, tfd__strip **program_p,
                       int *refused_p) {
  const tfd__strip_machine *machine = machine_of(text->bits);
  tfd__strip_opened *opened = NULL;
  tfd__strip *p = NULL;
  int rc = TFD_OK;
  int i;

  *refused_p = -1;
  if (machine == NULL) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "strip: there are no vectors of %d bits here, only up to "
                     "%d",
                     text->bits, tfd__vector_bits());
  }
  TFD_TRY(check_counts(text));
  for (i = 0; i < text->ops_n; i++) TFD_TRY(check_op(text, i, refused_p));
  TFD_TRY(check_outputs(text));
  p = tfd__calloc(1, sizeof *p);
  opened = tfd__alloc(sizeof *opened);
  if (p == NULL || opened == NULL) {
    rc = tfd__no_memory(sizeof *p + sizeof *opened, "fused ops");
  } else {
    p->machine = machine;
    tfd__strip_open(text, opened);
    fill_in(p, &opened->text);
    rc = tfd__strip_lower(p, &opened->text, refused_p);
    if (*refused_p >= 0) *refused_p = opened->was[*refused_p];
    if (rc == TFD_OK) plan_block(p);
  }
  tfd__free(opened);
  if (rc != TFD_OK) {
    tfd__strip_free(p);
    return rc;
  }
  *program_p = p;
  return TFD_OK;
}

void tfd__strip_free(tfd__strip *p) {
  if (p == NULL) return;
  tfd__free(p->parts);
  tfd__free(p->steps);
  tfd__free(p->calls);
  tfd__free(p);
}

bool tfd__strip_in_place(const tfd__strip *p, int output, int input) {
  return p->inputs[input].dtype == p->output_dtypes[output] &&
         p->read[input] < p->written[output];
}

static int compile(int ordinal, const tfd__strip_text *text,
                   tfd__strip **program_p, int *refused_p) {
  (void)ordinal;
  return tfd__strip_compile(text, program_p, refused_p);
}

const tfd__fuser tfd__cpu_fuser = {.takes = tfd__strip_takes,
                                   .compile = compile,
                                   .free = tfd__strip_free,
                                   .in_place = tfd__strip_in_place};
