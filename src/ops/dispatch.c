/* From an op's number and its inputs to queued work and fresh outputs.
**
** Cost: inference, one header and one pooled buffer for each output, and a
** copy of the views; nothing else is allocated for ops of up to
** TFD_CALL_VIEWS inputs and outputs. */
#include "ops/ops.h"

#include <string.h>

#define FAST_INPUTS TFD_CALL_VIEWS

/* One op on its way. `in` is what the caller gave; `ready` holds the same
** values (with the same ids) on the op's device, dense where the kernel asks
** for it. */
typedef struct dispatch {
  const tfd__op *op;
  tfd_context *context;
  tfd_device *device;
  tfd_tensor *const *in;
  int in_n;
  const tfd__view **in_views;
  tfd_tensor **ready;
  tfd__view *views;
  tfd__infer infer;
  bool owned;    /* some of `ready` are temporaries to release */
  bool recorded; /* on tapes */
  bool moved;    /* runs elsewhere than asked: no output is a target's */
  bool failed;   /* it ran for a recorder that defers, and raised */
  /* Updates: input i is targets[i]'s value and output i replaces it. */
  tfd_variable *const *targets;
  int targets_n;
} dispatch;

/* The innermost tf.device, else where the largest-rank input lies: a scalar
** made from a number must not pull an op away from its data. */
static TFD_HOT int choose_device(dispatch *d) {
  const tfd_context *c = d->context;
  tfd_device *device = NULL;
  int i;

  if (c->device_depth > 0) device = c->device_stack[c->device_depth - 1];
  if (d->targets_n > 0) device = d->targets[0]->value->device;
  for (i = 0; device == NULL && i < d->in_n; i++) {
    if (d->in[i] != NULL && d->in[i]->view.rank > 0) device = d->in[i]->device;
  }
  for (i = 0; device == NULL && i < d->in_n; i++) {
    if (d->in[i] != NULL) device = d->in[i]->device;
  }
  if (device == NULL) TFD_TRY(tfd__default_device(&device));
  d->device = device;
  return TFD_OK;
}

/* `partial` is the caller's. */
static TFD_HOT int infer(dispatch *d, const int64_t *ints,
                         const double *reals) {
  tfd__infer *s = &d->infer;
  int i;

  for (i = 0; i < d->in_n; i++) {
    tfd_tensor *t = d->in[i];

    d->ready[i] = t;
    d->in_views[i] = t == NULL ? NULL : &t->view;
  }
  s->op = d->op;
  s->name = d->op->name;
  s->in = d->in_views;
  s->in_n = d->in_n;
  s->ints = ints;
  s->reals = reals;
  s->out_n = 1;
  s->out = s->small;
  s->alias = false;
  s->dense_first = false;
  s->large = NULL;
  return d->op->infer(s);
}

/* Bring input i to the op's device, dense if it must be. */
static int bring(dispatch *d, int i, bool dense) {
  tfd_tensor *t = d->in[i];
  tfd_tensor *moved = NULL;
  int rc;

  if (t->buffer == NULL) return tfd__out_of_place(t, d->op->name, i);
  TFD_TRY(tfd__buffer_check(t->buffer));
  TFD_TRY(tfd__tensor_to_device(t, d->device, &moved));
  if (dense && !moved->view.dense) {
    rc = tfd__tensor_dense(moved, &d->ready[i]);
    tfd__release(moved);
    if (rc != TFD_OK) {
      d->ready[i] = t;
      return rc;
    }
  } else {
    d->ready[i] = moved;
  }
  if (d->ready[i] != t) d->ready[i]->id = t->id;
  d->owned = true;
  return TFD_OK;
}

static inline int make_ready(dispatch *d, int i, bool dense) {
  const tfd_tensor *t = d->in[i];

  if (t == NULL) return TFD_OK;
  if (TFD_LIKELY(t->buffer != NULL && t->device == d->device &&
                 (!dense || t->view.dense))) {
    return tfd__buffer_check(t->buffer);
  }
  return bring(d, i, dense);
}

static void release_ready(dispatch *d) {
  int i;

  if (!d->owned) return;
  for (i = 0; i < d->in_n; i++) {
    if (d->ready[i] != d->in[i]) tfd__release(d->ready[i]);
  }
}

/* Leaves no pointer behind: callers release what is not NULL. */
static void release_outputs(tfd_tensor **out, int n) {
  while (n > 0) {
    tfd__release(out[--n]);
    out[n] = NULL;
  }
}

static int make_aliases(dispatch *d, tfd_tensor **out) {
  const tfd_tensor *base = d->ready[0];
  size_t size = tfd__dtype_size(base->view.dtype);
  int i;

  for (i = 0; i < d->infer.out_n; i++) {
    tfd__out_spec *spec = &d->infer.out[i];
    int rc;

    spec->view.data = (char *)base->view.data + spec->offset * (int64_t)size;
    rc = tfd__tensor_alias(base, &spec->view, &out[i]);
    if (rc != TFD_OK) {
      release_outputs(out, i);
      return rc;
    }
  }
  return TFD_OK;
}

/* Writing over target i is safe when nothing else shows its buffer: no other
** tensor (a tape's snapshot, say) and no other input of this op. */
static bool in_place(const dispatch *d, int i) {
  const tfd__buffer *b = d->targets[i]->value->buffer;
  int k;

  if (d->moved) return false;
  if (atomic_load(&b->object.refs) != 1) return false;
  for (k = 0; k < d->in_n; k++) {
    if (k != i && d->ready[k] != NULL && d->ready[k]->buffer == b) return false;
  }
  return true;
}

static int output_buffer(dispatch *d, int i, tfd__buffer **buffer_p) {
  if (i < d->targets_n && in_place(d, i)) {
    *buffer_p = d->targets[i]->value->buffer;
    tfd__retain(*buffer_p);
    return TFD_OK;
  }
  return tfd__buffer_new(d->device, tfd__view_bytes(&d->infer.out[i].view),
                         buffer_p);
}

static int make_outputs(dispatch *d, tfd_tensor **out) {
  int i;

  for (i = 0; i < d->infer.out_n; i++) {
    tfd__view *view = &d->infer.out[i].view;
    tfd__buffer *buffer = NULL;
    int rc = output_buffer(d, i, &buffer);

    if (rc == TFD_OK) {
      view->data = buffer->data;
      rc = tfd__tensor_wrap(d->device, buffer, view, &out[i]);
    }
    if (rc != TFD_OK) {
      release_outputs(out, i);
      return rc;
    }
  }
  return TFD_OK;
}

/* The op as the device's kernel sees it; outputs have no memory before
** make_outputs. */
static void describe(dispatch *d, const int64_t *ints, const double *reals,
                     tfd__call *call) {
  const tfd_context *c = d->context;
  int i;

  call->kernel = d->device->backend->kernels[d->op->kernel];
  for (i = 0; i < d->in_n; i++) {
    if (TFD_LIKELY(d->ready[i] != NULL)) {
      tfd__view_copy(&d->views[i], &d->ready[i]->view);
    } else {
      memset(&d->views[i], 0, sizeof d->views[i]);
    }
  }
  for (i = 0; i < d->infer.out_n; i++) {
    tfd__view_copy(&d->views[d->in_n + i], &d->infer.out[i].view);
  }
  call->name = d->op->name;
  call->views = d->views;
  call->ints = ints;
  call->reals = reals;
  call->in_n = d->in_n;
  call->out_n = d->infer.out_n;
  call->ints_n = d->op->ints_n;
  call->reals_n = d->op->reals_n;
  call->replica = c->replica;
  call->line = c->line;
  call->file = c->file;
  call->note = c->note;
  call->shows = false;
}

/* Hand the kernel to the device's stream. */
static int submit(dispatch *d, tfd_tensor *const *out, const int64_t *ints,
                  const double *reals) {
  tfd__call call;
  int i;

  describe(d, ints, reals, &call);
  for (i = 0; i < d->targets_n; i++) {
    call.shows |= out[i]->buffer == d->targets[i]->value->buffer;
  }
  TFD_TRY(tfd__stream_submit(d->device, &call));
  if (!tfd__stream_is_inline(d->device)) {
    uint64_t seq = tfd__stream_seq(d->device);

    for (i = 0; i < d->infer.out_n; i++) {
      tfd__buffer *b = out[i]->buffer;

      if (i < d->targets_n && b == d->targets[i]->value->buffer) {
        b->use_seq = seq;
      } else {
        tfd__buffer_made(b, seq);
      }
    }
  }
  return TFD_OK;
}

static int run_kernel(dispatch *d, const int64_t *ints, const double *reals,
                      tfd_tensor **out) {
  bool dense = (d->op->flags & TFD_OP_STRIDED) == 0;
  int rc = TFD_OK;
  int i;

  for (i = 0; rc == TFD_OK && i < d->in_n; i++) rc = make_ready(d, i, dense);
  if (rc == TFD_OK) rc = make_outputs(d, out);
  if (rc == TFD_OK) {
    rc = submit(d, out, ints, reals);
    if (rc != TFD_OK) release_outputs(out, d->infer.out_n);
  }
  return rc;
}

/* --- ops that the device has no kernel for -------------------------------- */

/* Does the device have a kernel for these dtypes and attributes? */
static bool runs_here(dispatch *d, const int64_t *ints, const double *reals) {
  const tfd__backend *b = d->device->backend;
  tfd__call call;

  if (b->kernels[d->op->kernel] == NULL) return false;
  if (TFD_LIKELY(b->can_run == NULL)) return true;
  describe(d, ints, reals, &call);
  call.stream = d->device->stream;
  return b->can_run(d->op->kernel, &call);
}

/* Once for each op. */
static void notice_placement(const dispatch *d, const tfd_device *used) {
  static atomic_bool said[TFD_OP_N];

  if (atomic_exchange(&said[d->op - tfd__op_at(0)], true)) return;
  tfd__log(TFD_LOG_WARNING,
           "%s has no kernel for %s: it runs on %s, with copies there and back",
           d->op->name, d->device->short_name, used->short_name);
}

static int outputs_to(const dispatch *d, tfd_device *device, tfd_tensor **out) {
  int i;

  for (i = 0; i < d->infer.out_n; i++) {
    tfd_tensor *there = NULL;
    int rc = tfd__tensor_to_device(out[i], device, &there);

    if (rc != TFD_OK) {
      release_outputs(out, d->infer.out_n);
      return rc;
    }
    tfd__release(out[i]);
    out[i] = there;
  }
  return TFD_OK;
}

/* On the first processor device, its results back where they belong. */
static int run_elsewhere(dispatch *d, const int64_t *ints, const double *reals,
                         tfd_tensor **out) {
  tfd_device *asked = d->device;
  tfd_device *cpu = NULL;
  int rc;

  if (!tfd_config_soft_placement()) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "%s: there is no kernel for %s",
                     d->op->name, asked->short_name);
  }
  TFD_TRY(tfd_device_at("CPU", 0, &cpu));
  notice_placement(d, cpu);
  d->device = cpu;
  d->moved = true;
  rc = run_kernel(d, ints, reals, out);
  if (rc == TFD_OK) rc = outputs_to(d, asked, out);
  release_ready(d); /* tapes get what was given */
  memcpy(d->ready, d->in, (size_t)d->in_n * sizeof *d->in);
  d->owned = false;
  d->device = asked;
  return rc;
}

/* -------------------------------------------------------------------------- */

static int run_alias(dispatch *d, tfd_tensor **out) {
  TFD_TRY(make_ready(d, 0, d->infer.dense_first));
  return make_aliases(d, out);
}

static TFD_HOT int check_capacity(const dispatch *d, int capacity) {
  if (d->infer.out_n <= capacity) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: %d outputs, room for %d",
                   d->op->name, d->infer.out_n, capacity);
}

int tfd__check_target(const tfd__op *op, const tfd_variable *v,
                      const tfd__view *get) {
  const tfd__view *have = &v->value->view;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  if (have->dtype == get->dtype && tfd__shapes_agree(have, get)) return TFD_OK;
  return tfd__fail(
      TFD_INVALID_ARGUMENT, "%s: variable \"%s\" is %s %s, the result is %s %s",
      op->name, v->name, tfd__dtype_name(have->dtype), tfd__shape_text(have, a),
      tfd__dtype_name(get->dtype), tfd__shape_text(get, b));
}

static TFD_HOT int check_targets(const dispatch *d) {
  int i;

  if (d->targets_n > d->infer.out_n || (d->targets_n > 0 && d->infer.alias)) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: not an op that updates a variable",
                     d->op->name);
  }
  for (i = 0; i < d->targets_n; i++) {
    TFD_TRY(tfd__check_target(d->op, d->targets[i], &d->infer.out[i].view));
  }
  return TFD_OK;
}

/* On tapes, `in` telling what the inputs are and `ready` their values. */
static TFD_HOT int record(dispatch *d, tfd_tensor *const *in,
                          const int64_t *ints, const double *reals,
                          tfd_tensor **out) {
  const tfd_context *c = d->context;
  int rc;

  if (TFD_LIKELY(c->tapes == NULL) || !d->recorded) return TFD_OK;
  rc = c->record(c->tapes, d->op, in, d->ready, d->in_n, out, d->infer.out_n,
                 ints, reals);
  if (rc != TFD_OK) release_outputs(out, d->infer.out_n);
  return rc;
}

/* --- the recorder before the run ------------------------------------------ */

static int dispatch_run(dispatch *d, const int64_t *ints, const double *reals,
                        tfd_tensor **out, int capacity);

/* Symbolic inputs are the recorder's own; are sizes unknown? */
static int check_symbols(const dispatch *d, bool *partial_p) {
  tfd__recorder *r = d->context->recorder;
  int i;

  for (i = 0; i < d->in_n; i++) {
    tfd_tensor *t = d->in[i];

    if (t == NULL || t->buffer != NULL) continue;
    if (t->tracer != &r->tracer) {
      if (r->adopt == NULL) return tfd__out_of_place(t, d->op->name, i);
      TFD_TRY(r->adopt(r, t, d->op->name, i));
    }
    *partial_p = *partial_p || t->view.numel < 0;
  }
  return TFD_OK;
}

int tfd__taken_for(tfd_tensor *t, tfd_tensor **value_p) {
  const tfd_context *c = tfd__context();
  int rc;

  if (c->tapes == NULL) return TFD_OK;
  rc = c->record(c->tapes, NULL, &t, &t, 1, value_p, 1, NULL, NULL);
  if (rc != TFD_OK) release_outputs(value_p, 1);
  return rc;
}

/* The value that a variable has at this point of the program. */
TFD_COLD static int read_variable(tfd_tensor *t, tfd_tensor **value_p) {
  dispatch d = {.op = tfd__op_at(TFD_OP_identity), .in = &t, .in_n = 1};

  TFD_TRY(dispatch_run(&d, NULL, NULL, value_p, 1));
  return tfd__taken_for(t, value_p);
}

/* Inputs that are variables' values become reads, which tapes take for the
** variables, as where ops run, but save: not the values of today. */
static int read_variables(dispatch *d) {
  int i;

  if (d->op == tfd__op_at(TFD_OP_identity)) return TFD_OK;
  for (i = 0; i < d->in_n; i++) {
    tfd_tensor *t = d->in[i];

    if (t == NULL || t->variable == NULL) continue;
    if (i < d->targets_n && t == d->targets[i]->value) continue;
    TFD_TRY(read_variable(t, &d->ready[i]));
    d->owned = true;
  }
  return TFD_OK;
}

static int make_symbols(dispatch *d, tfd_tensor **out) {
  const tfd_context *c = d->context;
  int i;

  for (i = 0; i < d->infer.out_n; i++) {
    const tfd__view *v = &d->infer.out[i].view;
    int rc = tfd__tensor_symbolic(&c->recorder->tracer, d->device, v->dtype,
                                  v->dims, v->rank, c->file, c->line, &out[i]);

    if (rc != TFD_OK) {
      release_outputs(out, i);
      return rc;
    }
  }
  return TFD_OK;
}

/* `out` are the op's results if it is taken, else nothing. */
static int show(dispatch *d, const int64_t *ints, const double *reals,
                tfd_tensor **out, bool *taken_p) {
  const tfd_context *c = d->context;
  tfd__pending p = {.op = d->op,
                    .device = d->device,
                    .in = d->ready,
                    .in_n = d->in_n,
                    .ints = ints,
                    .reals = reals,
                    .out = out,
                    .out_n = d->infer.out_n,
                    .alias = d->infer.alias,
                    .followed = d->recorded,
                    .refused = d->failed ? tfd_error_message() : NULL,
                    .targets = d->targets,
                    .targets_n = d->targets_n,
                    .replica = c->replica,
                    .line = c->line,
                    .file = c->file,
                    .note = c->note};
  int rc;

  TFD_TRY(make_symbols(d, out));
  rc = c->recorder->see(c->recorder, &p, taken_p);
  if (rc == TFD_OK && *taken_p) return record(d, d->ready, ints, reals, out);
  release_outputs(out, d->infer.out_n);
  return rc;
}

/* Let the context's recorder take the op over. */
TFD_COLD static int offer(dispatch *d, const int64_t *ints, const double *reals,
                          tfd_tensor **out, int capacity, bool *taken_p) {
  int rc;

  TFD_TRY(check_symbols(d, &d->infer.partial));
  TFD_TRY(infer(d, ints, reals));
  TFD_TRY(check_capacity(d, capacity));
  TFD_TRY(check_targets(d));
  TFD_TRY(choose_device(d));
  rc = read_variables(d);
  if (rc == TFD_OK) rc = show(d, ints, reals, out, taken_p);
  release_ready(d);
  d->owned = false;
  if (rc == TFD_OK && !*taken_p) { /* inference starts again */
    tfd__free(d->infer.large);
    d->infer.large = NULL;
  }
  return rc;
}

/* Inference has failed: because a symbolic tensor is where it does not belong?
 */
TFD_COLD static int blame_symbols(const dispatch *d, int rc) {
  int i;

  for (i = 0; i < d->in_n; i++) {
    if (d->in[i] != NULL && tfd__is_symbolic(d->in[i])) {
      return tfd__out_of_place(d->in[i], d->op->name, i);
    }
  }
  return rc;
}

/* out holds new references on success. */
static int run_now(dispatch *d, const int64_t *ints, const double *reals,
                   tfd_tensor **out, int capacity) {
  int rc;

  rc = infer(d, ints, reals);
  if (!TFD_LIKELY(rc == TFD_OK)) {
    (void)blame_symbols(d, rc);
    return tfd__blame(d->op->name, NULL, -1);
  }
  TFD_TRY(check_capacity(d, capacity));
  TFD_TRY(check_targets(d));
  if (d->in_n + d->infer.out_n > TFD_CALL_VIEWS && !d->infer.alias) {
    size_t bytes = (size_t)(d->in_n + d->infer.out_n) * sizeof *d->views;

    d->views = tfd__alloc(bytes);
    if (d->views == NULL) return tfd__no_memory(bytes, d->op->name);
  }
  TFD_TRY(choose_device(d));
  if (d->infer.alias) {
    rc = run_alias(d, out);
  } else if (TFD_LIKELY(runs_here(d, ints, reals))) {
    rc = run_kernel(d, ints, reals, out);
  } else {
    rc = run_elsewhere(d, ints, reals, out);
  }
  if (rc == TFD_OK) rc = record(d, d->in, ints, reals, out);
  release_ready(d);
  return rc;
}

/* What a queue raises after this, an op that was submitted after it raises. */
static int settle(const dispatch *d) {
  if (tfd__stream_is_inline(d->device)) return TFD_OK;
  return tfd__stream_wait(d->device, UINT64_MAX, TFD_FOREVER);
}

/* The recorder gets it back where its values are refused. */
TFD_COLD static int run_or_defer(dispatch *d, const int64_t *ints,
                                 const double *reals, tfd_tensor **out,
                                 int capacity) {
  bool taken = false;
  int rc;

  TFD_TRY(settle(d));
  rc = run_now(d, ints, reals, out, capacity);
  if (rc == TFD_OK) {
    rc = settle(d);
    if (rc != TFD_OK) release_outputs(out, d->infer.out_n);
  }
  if (rc != TFD_INVALID_ARGUMENT) return rc;
  tfd__free(d->infer.large);
  d->owned = d->moved = d->infer.partial = false;
  d->failed = true;
  return offer(d, ints, reals, out, capacity, &taken);
}

/* Likewise; or out is symbolic. */
static int run(dispatch *d, const int64_t *ints, const double *reals,
               tfd_tensor **out, int capacity) {
  if (!TFD_LIKELY(d->context->recorder == NULL)) {
    bool taken = false;

    TFD_TRY(offer(d, ints, reals, out, capacity, &taken));
    if (taken) return TFD_OK;
    if (d->context->recorder->defers) {
      return run_or_defer(d, ints, reals, out, capacity);
    }
  }
  return run_now(d, ints, reals, out, capacity);
}

static int dispatch_run(dispatch *d, const int64_t *ints, const double *reals,
                        tfd_tensor **out, int capacity) {
  const tfd__view *in_views[FAST_INPUTS];
  tfd_tensor *ready[FAST_INPUTS];
  tfd__view views[TFD_CALL_VIEWS];
  void *heap = NULL;
  int rc;

  d->context = tfd__context();
  d->in_views = in_views;
  d->ready = ready;
  d->views = views;
  d->owned = false;
  d->moved = false;
  d->failed = false;
  d->infer.partial = false;
  d->infer.large = NULL;
  if (d->in_n > FAST_INPUTS) {
    size_t bytes = (size_t)d->in_n * 2 * sizeof(void *);

    heap = tfd__alloc(bytes);
    if (heap == NULL) return tfd__no_memory(bytes, d->op->name);
    d->in_views = heap;
    d->ready = (tfd_tensor **)heap + d->in_n;
  }
  rc = run(d, ints, reals, out, capacity);
  if (!TFD_LIKELY(d->views == views)) tfd__free(d->views);
  if (!TFD_LIKELY(d->infer.large == NULL)) tfd__free(d->infer.large);
  if (!TFD_LIKELY(heap == NULL)) tfd__free(heap);
  return rc;
}

int tfd__run(int op, tfd_tensor *const *in, int in_n, const int64_t *ints,
             const double *reals, tfd_tensor **out, int capacity,
             int *out_n_p) {
  dispatch d;

  d.op = tfd__op_at(op);
  d.in = in;
  d.in_n = in_n;
  d.targets_n = 0;
  d.recorded = true;
  TFD_TRY(dispatch_run(&d, ints, reals, out, capacity));
  *out_n_p = d.infer.out_n;
  return TFD_OK;
}

int tfd__value_of(tfd_tensor *t, tfd_tensor **value_p) {
  if (t->variable == NULL || tfd__context()->recorder == NULL) {
    return tfd__tensor_snapshot(t, value_p);
  }
  return read_variable(t, value_p);
}

int tfd__run_update(int op, tfd_variable *const *targets, int targets_n,
                    tfd_tensor *const *in, int in_n, const int64_t *ints,
                    const double *reals) {
  tfd_tensor *out[TFD_CALL_VIEWS];
  dispatch d;
  int i;

  d.op = tfd__op_at(op);
  d.in = in;
  d.in_n = in_n;
  d.targets = targets;
  d.targets_n = targets_n;
  d.recorded = false;
  TFD_TRY(dispatch_run(&d, ints, reals, out, TFD_CALL_VIEWS));
  for (i = 0; i < targets_n; i++) {
    if (!TFD_LIKELY(out[i]->buffer != NULL)) break; /* recorded */
    if (out[i]->buffer == targets[i]->value->buffer) {
      targets[i]->version++;
    } else {
      tfd__retain(out[i]->buffer);
      tfd__variable_replace(targets[i], out[i]->buffer);
    }
  }
  release_outputs(out, d.infer.out_n);
  return TFD_OK;
}

/* --- the public entry ----------------------------------------------------- */

static int check_arguments(int op, int inputs_n, int ints_n, int reals_n) {
  const tfd__op *o;

  if (op < 0 || op >= TFD_OP_N) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "there is no op number %d", op);
  }
  o = tfd__op_at(op);
  if (o->list_input ? inputs_n < 1 : inputs_n != o->in_n) {
    return tfd__fail(TFD_INVALID_ARGUMENT, "%s: %d inputs given, it takes %s%d",
                     o->name, inputs_n, o->list_input ? "at least " : "",
                     o->list_input ? 1 : o->in_n);
  }
  if (ints_n != o->ints_n || reals_n != o->reals_n) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: %d integer and %d real attributes given, it takes "
                     "%d and %d",
                     o->name, ints_n, reals_n, o->ints_n, o->reals_n);
  }
  return TFD_OK;
}

static int resolve(const tfd__op *o, tfd_object *const *inputs, int inputs_n,
                   tfd_tensor **in) {
  int i;

  for (i = 0; i < inputs_n; i++) {
    in[i] = NULL;
    if (inputs[i] == NULL && !o->list_input && tfd__is_optional(o, i)) continue;
    if (tfd__operand(inputs[i], &in[i]) != TFD_OK) {
      return tfd__wrap("%s: input %d", o->name, i);
    }
  }
  return TFD_OK;
}

int tfd__dtype_taken(const tfd_tensor *t) {
  int autocast = tfd__context()->autocast;

  if (TFD_LIKELY(autocast == 0) || t->variable == NULL ||
      !t->variable->autocast || !tfd__is_float(t->view.dtype)) {
    return t->view.dtype;
  }
  return autocast - 1;
}

/* Autocast variables' values in `in` become casts; made[i] owns in[i] then. */
static int cast_variables(tfd_tensor **in, int in_n, tfd_tensor **made) {
  int i;
  int n = 0;

  for (i = 0; i < in_n; i++) {
    int64_t to = in[i] == NULL ? 0 : tfd__dtype_taken(in[i]);

    if (in[i] == NULL || to == in[i]->view.dtype) continue;
    TFD_TRY(tfd__run(TFD_OP_cast, &in[i], 1, &to, NULL, &made[i], 1, &n));
    in[i] = made[i];
  }
  return TFD_OK;
}

/* tfd__run where the context casts variables. */
TFD_COLD static int run_autocast(int op, tfd_tensor **in, int in_n,
                                 const int64_t *ints, const double *reals,
                                 tfd_tensor **outputs, int capacity,
                                 int *outputs_n_p) {
  tfd_tensor **made = tfd__calloc((size_t)in_n + 1, sizeof *made);
  int rc = TFD_OK;
  int i;

  if (made == NULL) return tfd__no_memory((size_t)in_n * sizeof *made, "op");
  if (op != TFD_OP_cast && op != TFD_OP_identity) {
    rc = cast_variables(in, in_n, made);
  }
  if (rc == TFD_OK) {
    rc = tfd__run(op, in, in_n, ints, reals, outputs, capacity, outputs_n_p);
  }
  for (i = 0; i < in_n; i++) tfd__release(made[i]);
  tfd__free(made);
  return rc;
}

int tfd_op_run(int op, tfd_object *const *inputs, int inputs_n,
               const int64_t *ints, int ints_n, const double *reals,
               int reals_n, tfd_tensor **outputs, int outputs_capacity,
               int *outputs_n_p) {
  tfd_tensor *small[FAST_INPUTS];
  tfd_tensor **in = small;
  tfd_context *c = NULL;
  int rc;

  /* Counts are compared with what the op takes in any case. */
  if (!TFD_LIKELY(inputs != NULL && ints != NULL && reals != NULL &&
                  outputs != NULL && outputs_n_p != NULL)) {
    TFD_GIVEN_LIST(inputs, inputs_n);
    TFD_GIVEN_LIST(ints, ints_n);
    TFD_GIVEN_LIST(reals, reals_n);
    TFD_GIVEN_LIST(outputs, outputs_capacity);
    TFD_GIVEN_POINTER(outputs_n_p);
  }
  TFD_TRY(check_arguments(op, inputs_n, ints_n, reals_n));
  TFD_TRY(tfd__check_slots(tfd__op_at(op), ints));
  if (inputs_n > FAST_INPUTS) {
    in = tfd__alloc((size_t)inputs_n * sizeof *in);
    if (in == NULL) return tfd__no_memory((size_t)inputs_n * 8, "op");
  }
  c = tfd__call_begin();
  rc = resolve(tfd__op_at(op), inputs, inputs_n, in);
  if (rc == TFD_OK && !TFD_LIKELY(c->autocast == 0)) {
    rc = run_autocast(op, in, inputs_n, ints, reals, outputs, outputs_capacity,
                      outputs_n_p);
  } else if (rc == TFD_OK) {
    rc = tfd__run(op, in, inputs_n, ints, reals, outputs, outputs_capacity,
                  outputs_n_p);
  }
  tfd__call_end(c);
  if (in != small) tfd__free(in);
  return rc;
}
