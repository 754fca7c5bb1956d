/* Updates whose slots are shared out: each replica keeps those of its part of
** every variable.
**
** Gradients are added up so that each replica's device gets the sum of its
** part, the optimizer's op updates the part of the variable with the slots, and
** the parts of all replicas are gathered into all copies. Element by element
** that is what tfd_strategy_update does, with the same bits.
** What goes to other processes is paid by the message: long values go as they
** are, the rest of each dtype behind one another. Where the provider's parts
** would be added up in another order than its whole sums, whole sums are made.
** Cost: slots of 1 / n of the variables on each of n replicas, the bytes of one
** all_reduce, two copies of what is packed. */
#include <string.h>

#include "distribute/parts.h"

/* Rows are the unit where a part of them is close to a part of the elements:
** then sparse gradients, which name rows, have a place. */
enum { MANY_ROWS = 8, FEW_ELEMENTS = 4096 };
/* Other parts are a multiple of this long: they share no cache line. */
enum { LINE = 64 };

/* --- parts ---------------------------------------------------------------- */

static bool is_by_rows(const tfd__view *v, int size) {
  return v->rank == 1 ||
         (v->rank > 1 && (v->dims[0] >= (int64_t)MANY_ROWS * size ||
                          v->numel <= FEW_ELEMENTS));
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The elements of a variable whose slots rank r of `size` keeps. */
static tfd__range part_of(const tfd__view *v, int size, int r) {
  bool by_rows = is_by_rows(v, size);
  int64_t units = by_rows ? v->dims[0] : v->numel;
  int64_t inner = by_rows && units > 0 ? v->numel / units : 1;
  int64_t each = (units + size - 1) / size;

  if (!by_rows) each = (each + LINE - 1) / LINE * LINE;
  return (tfd__range){least(r * each, units) * inner,
                      least((r + 1) * each, units) * inner};
}

static int blame(const tfd__parts_job *j, int k) {
  return tfd__wrap("apply_gradients: variable \"%s\"",
                   tfd__copy_of(j, k, 0)->name);
}

/* --- checks --------------------------------------------------------------- */

/* What the op says of a copy and a gradient, as if the slots were whole. */
static int check_op(const tfd__parts_job *j, int k, const tfd__view *grad,
                    const tfd__view *rows) {
  const tfd__view *in[TFD_CALL_VIEWS];
  tfd__infer s = {.op = j->op,
                  .name = j->op->name,
                  .in = in,
                  .in_n = j->op->in_n,
                  .reals = j->reals};
  int t;

  for (t = 0; t < j->slots; t++) in[t] = tfd__whole_view(j, k);
  in[j->slots] = grad;
  in[j->slots + 1] = rows;
  s.out = s.small;
  return j->op->infer(&s) == TFD_OK ? TFD_OK : blame(j, k);
}

static int check_slots(const tfd__parts_job *j, int k, int i) {
  tfd__range s = tfd__part(j, k, tfd__replica_of(j->strategy, i));
  tfd_variable *const *own = &j->targets[((ptrdiff_t)k * j->n + i) * j->slots];
  int t;

  for (t = 0; t < j->slots; t++) {
    const tfd_tensor *x = own[t]->value;
    int64_t n = t == 0 ? tfd__whole_view(j, k)->numel : s.end - s.begin;

    if (x->device == j->strategy->devices[i] && x->view.numel == n &&
        x->view.dtype == tfd__whole_view(j, k)->dtype) {
      continue;
    }
    (void)tfd__fail(TFD_VALUE_ERROR,
                    "\"%s\" has %lld elements of %s on %s; expected %lld of %s "
                    "on %s",
                    own[t]->name, (long long)x->view.numel,
                    tfd__dtype_name(x->view.dtype), x->device->short_name,
                    (long long)n, tfd__dtype_name(tfd__whole_view(j, k)->dtype),
                    j->strategy->devices[i]->short_name);
    return blame(j, k);
  }
  return TFD_OK;
}

/* Local replica i's gradient of variable k, dense and on its device. */
static int take_gradient(tfd__parts_job *j, int k, int i) {
  ptrdiff_t at = (ptrdiff_t)k * j->n + i;
  tfd_object *x = j->grads[at];
  tfd_tensor *rows = NULL;
  tfd_tensor *t = NULL;
  int rc = TFD_OK;

  if (x != NULL && x->type == &tfd__slices_type) {
    if (!j->summed || !is_by_rows(tfd__whole_view(j, k), j->size)) {
      (void)tfd__fail(TFD_NOT_IMPLEMENTED,
                      "the gradient of replica %d is IndexedSlices; expected a "
                      "tensor",
                      tfd__replica_of(j->strategy, i));
      return blame(j, k);
    }
    rows = ((tfd_slices *)x)->indices;
    x = &((tfd_slices *)x)->values->object;
  }
  rc = tfd__operand(x, &t);
  if (rc != TFD_OK) return blame(j, k);
  TFD_TRY(check_op(j, k, &t->view, rows == NULL ? NULL : &rows->view));
  return tfd__tensor_in_place(t, j->strategy->devices[i], &j->moved[at]);
}

static int prepare(tfd__parts_job *j) {
  int k;
  int i;
  int r;

  for (k = 0; k < j->variables; k++) {
    for (r = 0; r < j->size; r++) {
      j->parts[(ptrdiff_t)k * j->size + r] =
          part_of(tfd__whole_view(j, k), j->size, r);
    }
  }
  for (k = 0; k < j->variables; k++) {
    for (i = 0; i < j->n; i++) {
      TFD_TRY(check_slots(j, k, i));
      TFD_TRY(take_gradient(j, k, i));
    }
  }
  return TFD_OK;
}

/* --- updates -------------------------------------------------------------- */

/* The memory of a target's new values: the old where nothing else shows it. */
static int output_of(const tfd_tensor *t, tfd__buffer **out) {
  if (atomic_load(&t->buffer->object.refs) == 1) {
    tfd__retain(t->buffer);
    *out = t->buffer;
    return TFD_OK;
  }
  return tfd__buffer_new(t->device, tfd__view_bytes(&t->view), out);
}

/* `b`, whose reference is taken over, has v's values from now on. */
static void put_in_place(tfd_variable *v, tfd__buffer *b) {
  if (v->value->buffer == b) {
    v->version++;
    tfd__release(b);
  } else {
    tfd__variable_replace(v, b);
  }
}

/* Views of part s as rows where the gradient names rows. */
static void shape(const tfd__parts_job *j, int k, const tfd__view *indices,
                  tfd__view *v) {
  int64_t rows = tfd__whole_view(j, k)->dims[0];
  int64_t inner = rows == 0 ? 1 : tfd__whole_view(j, k)->numel / rows;

  if (indices == NULL || inner == 0) return;
  v->rank = 2;
  v->dims[0] = v->numel / inner;
  v->dims[1] = inner;
  v->strides[0] = inner;
  v->strides[1] = 1;
}

static const tfd__view *indices_of(const tfd__parts_job *j, int k, int i) {
  const tfd_object *x = j->grads[(ptrdiff_t)k * j->n + i];

  if (!j->summed || x->type != &tfd__slices_type) return NULL;
  return &((const tfd_slices *)x)->indices->view;
}

static int submit(const tfd__parts_job *j, tfd_device *device,
                  const tfd__view *views) {
  const tfd_context *c = tfd__context();
  tfd__call call = {.name = j->op->name,
                    .kernel = device->backend->kernels[j->op->kernel],
                    .views = views,
                    .reals = j->reals,
                    .in_n = (int16_t)(j->slots + 2),
                    .out_n = (int16_t)j->slots,
                    .reals_n = (int16_t)j->op->reals_n,
                    .replica = -1,
                    .line = c->line,
                    .file = c->file};

  if (call.kernel == NULL) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "%s: %s has no kernel for it",
                     j->op->name, device->short_name);
  }
  return tfd__stream_submit(device, &call);
}

/* Local replica i's part of variable k, and its slots. */
static int update_part(tfd__parts_job *j, int k, int i) {
  ptrdiff_t at = (ptrdiff_t)k * j->n + i;
  tfd_variable *const *own = &j->targets[at * j->slots];
  tfd_device *device = j->strategy->devices[i];
  tfd__range s = tfd__part(j, k, tfd__replica_of(j->strategy, i));
  const tfd__view *indices = indices_of(j, k, i);
  tfd__buffer *out[TFD_CALL_VIEWS] = {NULL};
  tfd__view views[2 * TFD_CALL_VIEWS];
  int rc;
  int t;

  TFD_TRY(output_of(own[0]->value, &j->out[at]));
  if (s.begin == s.end) return TFD_OK;
  memset(views, 0, sizeof views);
  for (t = 0; t < j->slots; t++) {
    const tfd_tensor *x = own[t]->value;
    int64_t from = t == 0 ? s.begin : 0;
    tfd__view *to = &views[j->slots + 2 + t];

    if (t > 0) TFD_TRY_OR(rc = output_of(x, &out[t]), release);
    views[t] =
        tfd__extent_of(x->buffer, &x->view, from, from + s.end - s.begin).view;
    shape(j, k, indices, &views[t]);
    *to = views[t];
    to->data = (char *)(t == 0 ? j->out[at] : out[t])->data +
               (size_t)from * tfd__dtype_size(to->dtype);
  }
  views[j->slots] = j->sums[at].view;
  shape(j, k, indices, &views[j->slots]);
  if (indices != NULL) views[j->slots + 1] = *indices;
  TFD_TRY_OR(rc = submit(j, device, views), release);
  for (t = 0; t < j->slots; t++) {
    tfd__buffer *b = t == 0 ? j->out[at] : out[t];

    b->use_seq = tfd__stream_seq(device);
    if (own[t]->value->buffer != b) tfd__buffer_made(b, b->use_seq);
    if (t > 0) put_in_place(own[t], b);
  }
  return TFD_OK;

release:
  for (t = 1; t < j->slots; t++) tfd__release(out[t]);
  return rc;
}

/* --- all ------------------------------------------------------------------ */

static int run(tfd__parts_job *j) {
  int k;
  int i;

  TFD_TRY(prepare(j));
  TFD_TRY(tfd__parts_add_up(j));
  for (k = 0; k < j->variables; k++) {
    for (i = 0; i < j->n; i++) {
      if (update_part(j, k, i) != TFD_OK) return blame(j, k);
    }
  }
  TFD_TRY(tfd__parts_gather(j));
  for (k = 0; k < j->variables; k++) {
    for (i = 0; i < j->n; i++) {
      tfd__buffer **b = &j->out[(ptrdiff_t)k * j->n + i];

      put_in_place(tfd__copy_of(j, k, i), *b);
      *b = NULL;
    }
  }
  return TFD_OK;
}

static void *take(char **at, size_t n, size_t each) {
  void *p = *at;

  *at += (n * each + 15) / 16 * 16;
  return p;
}

static int make_room(tfd__parts_job *j) {
  size_t parts = (size_t)j->variables * (size_t)j->size;
  size_t own = (size_t)j->variables * (size_t)j->n;
  size_t lengths = (size_t)TFD_PART_PACKS * (size_t)j->size;
  size_t pieces = own + (size_t)TFD_PART_PACKS * (size_t)j->n;
  size_t bytes = parts * (sizeof *j->parts + 2 * sizeof *j->at) +
                 2 * lengths * sizeof *j->lengths +
                 own * (sizeof *j->sums + 2 * sizeof(void *)) +
                 (size_t)j->variables * sizeof *j->pack_of +
                 pieces * (2 * sizeof *j->in + 2 * sizeof *j->views) + 256;
  char *at = tfd__calloc(1, bytes);

  if (at == NULL) return tfd__no_memory(bytes, "apply_gradients");
  j->block = at;
  j->parts = take(&at, parts, sizeof *j->parts);
  j->at = take(&at, parts, sizeof *j->at);
  j->lengths = take(&at, lengths, sizeof *j->lengths);
  j->counts = take(&at, parts + lengths, sizeof *j->counts);
  j->sums = take(&at, own, sizeof *j->sums);
  j->out = take(&at, own, sizeof(void *));
  j->moved = take(&at, own, sizeof(void *));
  j->pack_of = take(&at, (size_t)j->variables, sizeof *j->pack_of);
  j->in = take(&at, pieces, sizeof *j->in);
  j->to = take(&at, pieces, sizeof *j->to);
  j->views = take(&at, 2 * pieces, sizeof *j->views);
  return TFD_OK;
}

static void drop_all(tfd__parts_job *j) {
  int at;

  tfd__parts_drop_packs(j);
  for (at = 0; j->block != NULL && at < j->variables * j->n; at++) {
    tfd__extent_end(&j->sums[at]);
    tfd__release(j->out[at]);
    tfd__release(j->moved[at]);
  }
  tfd__release(j->whole);
  tfd__free(j->block);
}

/* --- the public entries --------------------------------------------------- */

int tfd_strategy_part(const tfd_strategy *strategy, const int64_t *dims,
                      int dims_n, int replica, int64_t *first_p,
                      int64_t *count_p, bool *rows_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_LIST(dims, dims_n);
  TFD_GIVEN_POINTER(first_p);
  TFD_GIVEN_POINTER(count_p);
  TFD_GIVEN_POINTER(rows_p);

  int size = strategy->group->size;
  tfd__view v;
  tfd__range s;

  TFD_TRY(tfd__view_set(&v, TFD_FLOAT32, dims, dims_n));
  if (replica < 0 || replica >= size) {
    return tfd__fail(TFD_INDEX_ERROR, "there is no replica %d; there are %d",
                     replica, size);
  }
  s = part_of(&v, size, replica);
  *first_p = s.begin;
  *count_p = s.end - s.begin;
  *rows_p = is_by_rows(&v, size);
  return TFD_OK;
}

static int check_lists(const tfd__parts_job *j, int op, int targets_n,
                       int grads_n, int reals_n) {
  if (j->slots >= 1 && reals_n == j->op->reals_n && j->op->ints_n == 0 &&
      !j->op->list_input && j->op->in_n < TFD_CALL_VIEWS && grads_n > 0 &&
      j->strategy->devices_n == j->n && grads_n % j->n == 0 &&
      targets_n == grads_n * j->slots) {
    return TFD_OK;
  }
  return tfd__fail(TFD_VALUE_ERROR,
                   "strategy_update_parts: %s with %d targets, %d gradients "
                   "and %d attributes on %d replicas",
                   tfd_op_name(op), targets_n, grads_n, reals_n, j->n);
}

static int make_update(const tfd__update *u) {
  return tfd_strategy_update_parts(u->strategy, u->op, u->targets, u->targets_n,
                                   u->grads, u->grads_n, u->summed, u->reals,
                                   u->reals_n);
}

int tfd_strategy_update_parts(tfd_strategy *strategy, int op,
                              tfd_variable *const *targets, int targets_n,
                              tfd_object *const *grads, int grads_n,
                              bool summed, const double *reals, int reals_n) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_HANDLES(targets, targets_n, VARIABLE);
  TFD_GIVEN_HANDLES(grads, grads_n, KINDS);
  TFD_GIVEN_LIST(reals, reals_n);

  tfd__parts_job j = {.strategy = strategy,
                      .targets = targets,
                      .grads = grads,
                      .reals = reals,
                      .summed = summed,
                      .n = strategy->group->local,
                      .size = strategy->group->size};
  uint32_t before = 0;
  int rc;

  if (op < 0 || op >= TFD_OP_N) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "there is no op number %d", op);
  }
  j.op = tfd__op_at(op);
  j.slots = j.op->in_n - 2;
  j.variables = grads_n / j.n;
  TFD_TRY(check_lists(&j, op, targets_n, grads_n, reals_n));
  if (tfd__context()->recorder != NULL) {
    const tfd__update u = {.strategy = strategy,
                           .op = op,
                           .targets = targets,
                           .targets_n = targets_n,
                           .grads = grads,
                           .grads_n = grads_n,
                           .summed = summed,
                           .reals = reals,
                           .reals_n = reals_n,
                           .make = make_update};
    return tfd__record_update(&u);
  }
  before = tfd__set_about(tfd__about_all(targets, j.variables, j.n * j.slots));
  rc = make_room(&j);
  if (rc == TFD_OK) rc = run(&j);
  (void)tfd__set_about(before);
  drop_all(&j);
  return rc;
}
