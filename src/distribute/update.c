/* Gradients of all replicas to updated copies of variables in one pass.
**
** Where every copy lies with a replica and the group can go on with a sum
** (tfd__group_fuse), device d takes stretch d of every variable: it adds up all
** replicas' gradients there and updates all copies and their slots, so that no
** sum is ever stored. Copies with the same bits are computed once, which halves
** an optimizer's work on two devices. In other cases gradients are reduced
** first and copies updated one by one: where each replica has a copy all sums
** are one collective of the group, which several GPUs have NCCL for.
** Cost: one pass over n gradients and n copies shared by n devices. */
#include "distribute/distribute.h"

#include <string.h>

#define WHAT "apply_gradients" /* in messages */

typedef struct job {
  tfd_strategy *strategy;
  const tfd__op *op;
  int op_number;
  tfd_variable *const *targets; /* variable-major, then copy, then slot */
  tfd_object *const *grads;     /* variable-major, n each */
  const double *reals;
  tfd__buckets *begun; /* of the gradients; NULL = none */
  tfd__buffer **out;   /* owned once set, one for each target */
  tfd__view *views;    /* of one call */
  int variables;
  int n;      /* replicas */
  int copies; /* of each variable */
  int slots;  /* targets of one copy */
} job;

static tfd_variable *const *targets_of(const job *j, int k) {
  return j->targets + (ptrdiff_t)k * j->copies * j->slots;
}

static tfd_object *const *grads_of(const job *j, int k) {
  return j->grads + (ptrdiff_t)k * j->n;
}

/* The failure just recorded is about variable k. */
static int blame(const job *j, int k) {
  return tfd__wrap("apply_gradients: variable \"%s\"",
                   targets_of(j, k)[0]->name);
}

/* What the op says of copy c of variable k and a gradient; rows is NULL for a
** dense one. */
static int check_op(const job *j, int k, int c, const tfd__view *grad,
                    const tfd__view *rows) {
  const tfd__view *in[TFD_CALL_VIEWS];
  tfd__infer s = {.op = j->op,
                  .name = j->op->name,
                  .in = in,
                  .in_n = j->op->in_n,
                  .reals = j->reals};
  int t;

  for (t = 0; t < j->slots; t++) {
    in[t] = &targets_of(j, k)[c * j->slots + t]->value->view;
  }
  in[j->slots] = grad;
  in[j->slots + 1] = rows;
  s.out = s.small;
  return j->op->infer(&s) == TFD_OK ? TFD_OK : blame(j, k);
}

/* --- one variable after the other ----------------------------------------- */

/* Copy c of variable k by a gradient that is complete. */
static int update_copy(const job *j, int k, int c, tfd_object *grad) {
  tfd_variable *const *own = targets_of(j, k) + (ptrdiff_t)c * j->slots;
  tfd_object *in[2] = {grad, NULL};
  tfd_slices *s = NULL;

  if (grad != NULL && grad->type == &tfd__slices_type) {
    s = (tfd_slices *)grad;
    in[0] = &s->values->object;
    in[1] = &s->indices->object;
  }
  return tfd_variables_update(own, j->slots, j->op_number, in, 2, NULL, 0,
                              j->reals, j->op->reals_n);
}

static int update_after_reduce(const job *j, int k) {
  tfd_device *devices[TFD_MAX_REPLICAS];
  tfd_value *sum = NULL;
  int rc = TFD_OK;
  int c;

  for (c = 0; c < j->copies; c++) {
    devices[c] = targets_of(j, k)[c * j->slots]->value->device;
  }
  TFD_TRY(tfd_strategy_reduce(j->strategy, TFD_REDUCE_SUM, "apply_gradients",
                              grads_of(j, k), j->n, devices, j->copies, 0,
                              &sum));
  for (c = 0; rc == TFD_OK && c < j->copies; c++) {
    rc = update_copy(j, k, c, sum->components[c]);
  }
  tfd__release(sum);
  return rc;
}

/* A sum has the shape and dtype of each of its parts. */
static int check_alone(const job *j, int k) {
  int c;

  for (c = 0; c < j->n; c++) {
    tfd_object *x = grads_of(j, k)[c];
    tfd_tensor *grad = NULL;
    tfd_tensor *rows = NULL;
    int rc = TFD_OK;

    if (x != NULL && x->type == &tfd__slices_type) {
      rc = tfd__operand(&((tfd_slices *)x)->indices->object, &rows);
      x = &((tfd_slices *)x)->values->object;
    }
    if (rc == TFD_OK) rc = tfd__operand(x, &grad);
    if (rc != TFD_OK) return blame(j, k);
    TFD_TRY(check_op(j, k, c < j->copies ? c : 0, &grad->view,
                     rows == NULL ? NULL : &rows->view));
  }
  return TFD_OK;
}

static int update_alone(const job *j, int k) {
  int rc = TFD_OK;
  int c;

  if (j->strategy->group->size > 1) {
    rc = update_after_reduce(j, k);
  } else {
    for (c = 0; rc == TFD_OK && c < j->copies; c++) {
      rc = update_copy(j, k, c, grads_of(j, k)[0]);
    }
  }
  return rc == TFD_OK ? rc : blame(j, k);
}

/* --- all gradients at once ----------------------------------------------- */

/* The copies of variable k by its sums, one for each replica here. */
static int update_copies(const job *j, int k, tfd_object *const *sums) {
  int rc = TFD_OK;
  int c;

  for (c = 0; rc == TFD_OK && c < j->copies; c++) {
    rc = update_copy(j, k, c, sums[c]);
  }
  return rc == TFD_OK ? rc : blame(j, k);
}

static int update_at_once(const job *j) {
  tfd_value *sums = NULL;
  int rc = TFD_OK;
  int k;

  TFD_TRY(tfd_strategy_all_reduce(j->strategy, TFD_REDUCE_SUM, WHAT, j->grads,
                                  j->variables * j->n, &sums));
  for (k = 0; rc == TFD_OK && k < j->variables; k++) {
    rc = update_copies(j, k, sums->components + k * j->n);
  }
  tfd__release(sums);
  return rc;
}

/* A bucket that fails leaves all variables as they were. */
static int update_from(const job *j, tfd__buckets *b) {
  int k;

  TFD_TRY(tfd__buckets_finish(b));
  for (k = 0; k < j->variables; k++) {
    TFD_TRY(update_copies(j, k, tfd__buckets_sums(b, k)));
  }
  return TFD_OK;
}

static int update_over_workers(const job *j) {
  tfd__bucket_plan plan = {0};
  tfd__buckets *own = NULL;
  int rc;

  if (j->begun != NULL) return update_from(j, j->begun);
  rc = tfd__bucket_plan_new(j->strategy, j->grads, j->variables, &plan);
  if (rc == TFD_OK && plan.n == 0) {
    rc = update_at_once(j);
  } else if (rc == TFD_OK) {
    rc = tfd__buckets_new(j->strategy, WHAT, j->grads, j->variables, &plan,
                          &own);
    if (rc == TFD_OK) rc = update_from(j, own);
    tfd__buckets_free(own);
  }
  tfd__bucket_plan_free(&plan);
  return rc;
}

/* --- all devices together ------------------------------------------------- */

/* Has each replica a copy of its own, and its sums from the group? */
static bool is_mirrored(const job *j) {
  return j->n > 1 && j->copies == j->n && j->strategy->devices_n == j->n &&
         tfd_strategy_adds_up(j->strategy);
}

/* Are gradients and copies of variable k all dense and in their places? */
static bool fits(const job *j, int k) {
  int c;
  int t;

  for (c = 0; c < j->n; c++) {
    tfd_object *x = grads_of(j, k)[c];
    const tfd_device *device = j->strategy->devices[c];
    const tfd_tensor *g = (const tfd_tensor *)x;

    if (x == NULL || x->type != &tfd__tensor_type || g->buffer == NULL ||
        !g->view.dense || g->device != device) {
      return false;
    }
    for (t = 0; t < j->slots; t++) {
      if (targets_of(j, k)[c * j->slots + t]->value->device != device) {
        return false;
      }
    }
  }
  return true;
}

/* What the op itself checks, for every copy with its own gradient. */
static int check_together(const job *j, int k) {
  tfd_tensor *grads[TFD_MAX_REPLICAS];
  int c;

  for (c = 0; c < j->n; c++) grads[c] = (tfd_tensor *)grads_of(j, k)[c];
  if (tfd__check_components(j->strategy, "gradients", grads, j->n) != TFD_OK) {
    return blame(j, k);
  }
  for (c = 0; c < j->n; c++) TFD_TRY(check_op(j, k, c, &grads[c]->view, NULL));
  return TFD_OK;
}

/* Memory for the new values: the old one where nothing else shows it. */
static int make_outputs(job *j, int k) {
  int per = j->copies * j->slots;
  int i;

  for (i = 0; i < per; i++) {
    const tfd_tensor *t = targets_of(j, k)[i]->value;
    tfd__buffer **out = &j->out[(ptrdiff_t)k * per + i];

    if (atomic_load(&t->buffer->object.refs) == 1) {
      tfd__retain(t->buffer);
      *out = t->buffer;
    } else {
      TFD_TRY(tfd__buffer_new(t->device, tfd__view_bytes(&t->view), out));
    }
  }
  return TFD_OK;
}

static void set_views(const job *j, int k) {
  int per = j->copies * j->slots;
  tfd__view *v = j->views;
  int i;

  for (i = 0; i < per; i++) {
    v[i] = targets_of(j, k)[i]->value->view;
    v[per + j->n + 1 + i] = v[i];
    v[per + j->n + 1 + i].data = j->out[(ptrdiff_t)k * per + i]->data;
  }
  for (i = 0; i < j->n; i++) {
    v[per + i] = ((tfd_tensor *)grads_of(j, k)[i])->view;
  }
  memset(&v[per + j->n], 0, sizeof *v); /* no indices */
}

/* The variables that are updated together, one after the other. */
typedef struct updates {
  job *j;
  const bool *together;
  int next;
  int64_t range[2];
} updates;

static void next_update(void *arg, int number, tfd__fused_call *f) {
  updates *u = arg;
  const job *j = u->j;
  const tfd_context *c = tfd__context();
  const tfd_tensor *first = NULL;
  int per = j->copies * j->slots;

  (void)number;
  while (!u->together[u->next]) u->next++;
  first = targets_of(j, u->next)[0]->value;
  set_views(j, u->next++);
  f->call = (tfd__call){.name = j->op->name,
                        .views = j->views,
                        .ints = u->range,
                        .reals = j->reals,
                        .in_n = (int16_t)(per + j->n + 1),
                        .out_n = (int16_t)per,
                        .ints_n = 2,
                        .reals_n = (int16_t)j->op->reals_n,
                        .replica = -1,
                        .line = c->line,
                        .file = c->file};
  f->range = u->range;
  f->numel = first->view.numel;
  /* The same variable twice in the lists: on the same device, in order. */
  f->owner = first->id;
}

/* The new memory is the variables' from now on; it is written once their
** devices have passed the last fence. */
static void put_in_place(job *j, int k) {
  int per = j->copies * j->slots;
  int i;

  for (i = 0; i < per; i++) {
    tfd_variable *v = targets_of(j, k)[i];
    tfd__buffer *b = j->out[(ptrdiff_t)k * per + i];

    if (v->value->buffer == b) {
      v->version++;
      b->use_seq = tfd__stream_seq(v->value->device);
    } else {
      tfd__buffer_made(b, tfd__stream_seq(v->value->device));
      tfd__retain(b);
      tfd__variable_replace(v, b);
    }
  }
}

static int run_together(job *j, const bool *together) {
  updates u = {.j = j, .together = together};
  tfd__fused f = {
      .kernel = (tfd__kernel_id)j->op->kernel, .call = next_update, .arg = &u};
  int k;

  for (k = 0; k < j->variables; k++) {
    if (!together[k]) continue;
    TFD_TRY(make_outputs(j, k));
    f.elements += targets_of(j, k)[0]->value->view.numel;
    f.calls++;
  }
  TFD_TRY(tfd__group_fuse(j->strategy->group, &f));
  for (k = 0; k < j->variables; k++) {
    if (together[k]) put_in_place(j, k);
  }
  return TFD_OK;
}

static int run(job *j, bool *together) {
  bool mirrored = is_mirrored(j);
  bool possible =
      mirrored && tfd__group_can_fuse(j->strategy->group, j->op->kernel);
  int n = 0;
  int k;

  for (k = 0; k < j->variables; k++) {
    together[k] = possible && fits(j, k);
    n += together[k];
  }
  /* All or nothing: what is wrong is said before the first update. */
  for (k = 0; k < j->variables; k++) {
    TFD_TRY(together[k] ? check_together(j, k) : check_alone(j, k));
  }
  if (!tfd__group_is_alone(j->strategy->group)) return update_over_workers(j);
  if (mirrored && !possible) return update_at_once(j);
  if (n > 0) TFD_TRY(run_together(j, together));
  for (k = 0; k < j->variables; k++) {
    if (!together[k]) TFD_TRY(update_alone(j, k));
  }
  return TFD_OK;
}

/* --- the public entry ----------------------------------------------------- */

static int check_lists(const job *j, int op, int targets_n, int grads_n,
                       int reals_n) {
  int per = j->variables * j->slots;

  if (j->slots >= 1 && reals_n == j->op->reals_n && j->op->ints_n == 0 &&
      !j->op->list_input && j->op->in_n < TFD_CALL_VIEWS && grads_n > 0 &&
      grads_n % j->n == 0 && targets_n > 0 && targets_n % per == 0 &&
      targets_n / per <= TFD_MAX_REPLICAS) {
    return TFD_OK;
  }
  return tfd__fail(TFD_VALUE_ERROR,
                   "strategy_update: %s with %d targets, %d gradients and %d "
                   "attributes on %d replicas",
                   tfd_op_name(op), targets_n, grads_n, reals_n, j->n);
}

/* The job's lists are parts of one block. */
static void *make_lists(job *j, void *room, int targets_n, bool **together_p) {
  size_t views = (size_t)(2 * j->copies * j->slots + j->n + 1);
  size_t variables = (size_t)j->variables;
  size_t bytes = views * sizeof *j->views + (size_t)targets_n * sizeof(void *) +
                 variables * sizeof(bool);

  if (room == NULL) room = tfd__alloc(bytes);
  if (room == NULL) {
    (void)tfd__no_memory(bytes, "strategy_update");
    return NULL;
  }
  memset(room, 0, bytes);
  j->views = room;
  j->out = (tfd__buffer **)(void *)(j->views + views);
  *together_p = (bool *)(void *)(j->out + targets_n);
  return room;
}

/* With what was not recorded, or is run again. room_p: tfd__update's. */
static int make_update(job *j, int targets_n, void **room_p) {
  bool *together = NULL;
  void *room =
      make_lists(j, room_p == NULL ? NULL : *room_p, targets_n, &together);
  uint32_t before = 0;
  int rc;
  int i;

  if (room == NULL) return TFD_RESOURCE_EXHAUSTED;
  before = tfd__set_about(
      tfd__about_all(j->targets, j->variables, j->copies * j->slots));
  rc = run(j, together);
  (void)tfd__set_about(before);
  for (i = 0; i < targets_n; i++) tfd__release(j->out[i]);
  if (room_p == NULL) {
    tfd__free(room);
  } else {
    *room_p = room;
  }
  return rc;
}

static int update(const tfd__update *u) {
  job j = {.strategy = u->strategy,
           .op_number = u->op,
           .targets = u->targets,
           .grads = u->grads,
           .reals = u->reals,
           .begun = u->begun};

  if (u->op < 0 || u->op >= TFD_OP_N) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "there is no op number %d", u->op);
  }
  j.op = tfd__op_at(u->op);
  j.n = j.strategy->group->local;
  j.slots = j.op->in_n - 2;
  j.variables = u->grads_n / j.n;
  TFD_TRY(check_lists(&j, u->op, u->targets_n, u->grads_n, u->reals_n));
  j.copies = u->targets_n / (j.variables * j.slots);
  if (tfd__context()->recorder != NULL) return tfd__record_update(u);
  return make_update(&j, u->targets_n, u->room_p);
}

int tfd_strategy_update(tfd_strategy *strategy, int op,
                        tfd_variable *const *targets, int targets_n,
                        tfd_object *const *grads, int grads_n,
                        const double *reals, int reals_n) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_HANDLES(targets, targets_n, VARIABLE);
  TFD_GIVEN_HANDLES(grads, grads_n, KINDS);
  TFD_GIVEN_LIST(reals, reals_n);

  const tfd__update u = {.strategy = strategy,
                         .op = op,
                         .targets = targets,
                         .targets_n = targets_n,
                         .grads = grads,
                         .grads_n = grads_n,
                         .reals = reals,
                         .reals_n = reals_n,
                         .what = WHAT,
                         .make = update};

  return update(&u);
}

int tfd_strategy_apply(tfd_strategy *strategy, const char *name,
                       const char *attributes, tfd_variable *const *targets,
                       int targets_n, tfd_object *const *grads, int grads_n) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_POINTER(name);

  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS] = {0};
  const tfd__op *op = NULL;
  int number = 0;

  TFD_TRY(tfd_op_find(name, &number));
  op = tfd__op_at(number);
  TFD_TRY(tfd__attributes_read(op, attributes, ints, reals));
  return tfd_strategy_update(strategy, number, targets, targets_n, grads,
                             grads_n, reals, op->reals_n);
}
