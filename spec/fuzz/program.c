/* Programs of ops, variables and gradients through the C API: any order, any
** attributes. Everything is released at the end and nothing is left over; a
** gradient is shaped like its source. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { POOL = 10, STEPS = 12, MOST_OUTPUTS = 64, MOST_INPUTS = 24 };

typedef struct program {
  input in;
  tfd_object *pool[POOL];
  tfd_tape *tape;
} program;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  setenv("TFDIST_CPU_DEVICES", "1", 1);
  setenv("TFDIST_MEMORY_LIMIT", "16777216", 1);
  setenv("TFDIST_LOG", "error", 1);
  return 0;
}

static void put(program *p, tfd_object *object) {
  int at = input_below(&p->in, POOL);

  tfd_release(p->pool[at]);
  p->pool[at] = object;
}

static void new_tensor(program *p) {
  static const int8_t shapes[][5] = {
      {0},          {1, 3},       {1, 4},          {1, 0},
      {2, 2, 3},    {2, 3, 3},    {2, 3, 4},       {2, 0, 3},
      {3, 2, 3, 4}, {3, 2, 3, 3}, {4, 1, 4, 4, 2}, {4, 2, 2, 2, 2},
      {2, 3, 12},   {2, 1, 4},    {3, 2, 4, 1},
  };
  const int8_t *shape =
      shapes[input_below(&p->in, (int)(sizeof shapes / sizeof shapes[0]))];
  int64_t dims[4] = {0};
  double values[32] = {0};
  int64_t n = 1;
  tfd_tensor *t = NULL;
  tfd_dtype dtype = (tfd_dtype)(1 + input_below(&p->in, TFD_DTYPE_END - 1));
  int i;

  for (i = 0; i < shape[0]; i++) {
    dims[i] = shape[1 + i];
    n *= dims[i];
  }
  if (n > 32) n = 1;
  for (i = 0; i < n; i++) {
    values[i] = dtype == TFD_BOOL || dtype == TFD_UINT8 ? input_below(&p->in, 2)
                : tfd__is_int((int)dtype) ? input_below(&p->in, 9) - 2
                                          : input_real(&p->in);
  }
  if (tfd_tensor_from_values(values, n, dtype, dims, shape[0], &t) == TFD_OK)
    put(p, (tfd_object *)t);
}

static void new_variable(program *p) {
  tfd_variable *v = NULL;
  tfd_object *initial = p->pool[input_below(&p->in, POOL)];

  if (initial == NULL) return;
  if (tfd_variable_new(initial, "v", input_below(&p->in, 2), NULL, &v) ==
      TFD_OK)
    put(p, (tfd_object *)v);
}

/* Inputs, ints and reals of one op from the pool and the bytes. */
typedef struct op_call {
  int op;
  const tfd__op *info;
  tfd_object *in[MOST_INPUTS];
  int in_n;
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS];
} op_call;

static void read_call(program *p, op_call *c) {
  int i;

  memset(c, 0, sizeof *c);
  c->op = (input_byte(&p->in) | input_byte(&p->in) << 8) % TFD_OP_N;
  c->info = tfd__op_at(c->op);
  c->in_n = c->info->list_input ? 1 + input_below(&p->in, 4) : c->info->in_n;
  for (i = 0; i < c->in_n; i++) c->in[i] = p->pool[input_below(&p->in, POOL)];
  input_slots(&p->in, c->info->schema, c->ints, c->reals);
  /* Whoever calls from C may get them wrong. */
  if (input_below(&p->in, 20) == 1)
    c->ints[input_below(&p->in, c->info->ints_n)] = input_integer(&p->in);
}

static void run_op(program *p) {
  tfd_tensor *out[MOST_OUTPUTS] = {NULL};
  op_call c;
  int out_n = 0;
  int rc;
  int i;

  read_call(p, &c);
  rc = tfd_op_run(c.op, c.in, c.in_n, c.ints, c.info->ints_n, c.reals,
                  c.info->reals_n, out, MOST_OUTPUTS, &out_n);
  if (rc != TFD_OK) {
    MUST(tfd_error_message()[0] != '\0');
    MUST(rc != TFD_INTERNAL);
    return;
  }
  for (i = 0; i < out_n; i++) {
    /* Views may show few elements as very many: no loops over those. */
    if (i < 3 && tfd_tensor_size(out[i]) < 100000) {
      put(p, (tfd_object *)out[i]);
    } else {
      tfd_release((tfd_object *)out[i]);
    }
  }
}

static void update(program *p) {
  tfd_object *x = p->pool[input_below(&p->in, POOL)];
  tfd_object *y = p->pool[input_below(&p->in, POOL)];
  tfd_variable *v = (tfd_variable *)x;
  op_call c;

  if (x == NULL || x->type->kind != TFD_HANDLE_VARIABLE) return;
  switch (input_below(&p->in, 4)) {
  case 0:
    (void)tfd_variable_assign(v, y);
    break;
  case 1:
    (void)tfd_variable_assign_add(v, y);
    break;
  case 2:
    (void)tfd_variable_assign_sub(v, y);
    break;
  default:
    read_call(p, &c);
    if (c.info->list_input || c.in_n < 1) return;
    (void)tfd_variable_update(v, c.op, c.in + 1, c.in_n - 1, c.ints,
                              c.info->ints_n, c.reals, c.info->reals_n);
    break;
  }
}

static void check_gradient(tfd_object *source, tfd_object *gradient) {
  tfd_tensor *s = NULL;
  tfd_tensor *g = (tfd_tensor *)gradient;

  if (gradient->type->kind != TFD_HANDLE_TENSOR) return;
  MUST(tfd__operand(source, &s) == TFD_OK);
  MUST(tfd__same_shape(&s->view, &g->view));
  MUST(s->view.dtype == g->view.dtype);
}

static void differentiate(program *p) {
  tfd_object *target = p->pool[input_below(&p->in, POOL)];
  tfd_object *source = p->pool[input_below(&p->in, POOL)];
  tfd_walk *walk = NULL;
  tfd_walk_event event = TFD_WALK_HOST;
  tfd_object *gradient = NULL;

  if (target == NULL || source == NULL) return;
  if (tfd_walk_begin(p->tape, &target, 1, &source, 1, NULL, 0,
                     input_below(&p->in, 2), &walk) != TFD_OK)
    return;
  if (tfd_walk_next(walk, &event) == TFD_OK && event == TFD_WALK_DONE &&
      tfd_walk_gradient(walk, 0, &gradient) == TFD_OK && gradient != NULL) {
    check_gradient(source, gradient);
    put(p, gradient);
  }
  tfd_release((tfd_object *)walk);
}

static void watch(program *p) {
  tfd_object *x = p->pool[input_below(&p->in, POOL)];

  if (x != NULL) (void)tfd_tape_watch(p->tape, x);
}

static void step(program *p) {
  switch (input_below(&p->in, 10)) {
  case 0:
    new_tensor(p);
    break;
  case 1:
    new_variable(p);
    break;
  case 2:
    update(p);
    break;
  case 3:
    watch(p);
    break;
  case 4:
    differentiate(p);
    break;
  default:
    run_op(p);
    break;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const tfd_handle_kind kinds[] = {
      TFD_HANDLE_TENSOR, TFD_HANDLE_VARIABLE, TFD_HANDLE_SLICES,
      TFD_HANDLE_TAPE,   TFD_HANDLE_WALK,     TFD_HANDLE_BUFFER};
  program p = {.in = {data, size}};
  size_t k;
  int i;

  for (i = 0; i < 4; i++) new_tensor(&p);
  MUST(tfd_tape_new(true, true, &p.tape) == TFD_OK);
  for (i = 0; i < POOL; i++) {
    if (p.pool[i] != NULL) (void)tfd_tape_watch(p.tape, p.pool[i]);
  }
  for (i = 0; i < STEPS && p.in.left > 0; i++) step(&p);
  (void)tfd_tape_stop(p.tape);
  for (i = 0; i < POOL; i++) tfd_release(p.pool[i]);
  tfd_release((tfd_object *)p.tape);
  for (k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
    MUST(tfd_live_handles(kinds[k]) == 0);
  return 0;
}
