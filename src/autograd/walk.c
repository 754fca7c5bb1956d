/* The backward walk: from targets to sources over a tape's entries.
**
** Iterative: one pass forward marks what depends on the sources, one pass
** backward runs the rules of marked entries that a gradient reaches.
** Gradients live in an array indexed by slot (tape.h, A1) and are released as
** soon as the entry that made the value has been visited; so are the saved
** tensors of tapes that serve one walk only.
**
** A rule runs on the device that its op ran on, and what it gives stays there
** until another rule needs it: a replica's walk puts nothing on the queue of a
** device that its inputs happen to lie on. */
#include "autograd/gradsum.h"
#include "autograd/routed.h"

#include <string.h>

enum {
  MARK_REACHED = 1, /* depends on a source */
  MARK_SOURCE = 2   /* its gradient is kept for the caller */
};

/* How many entries pass between two looks at the interrupt flag. */
#define INTERRUPT_EVERY 256

struct tfd_walk {
  tfd_object object;
  tfd_tape *tape;      /* owned reference */
  tfd__entry *at;      /* next to visit; NULL past the first */
  tfd__entry *waiting; /* host step whose gradients are to be supplied */
  tfd_object **grads;  /* by slot; owned */
  uint8_t *marks;      /* by slot */
  uint32_t slots_n;
  uint32_t *source_slots;
  tfd_tensor **source_shapes; /* for zeros; owned, NULL unless wanted */
  tfd_device **homes;         /* by source: where its gradient is to lie */
  tfd_object **results;       /* by source; owned */
  int sources_n;
  tfd__id_map extra; /* sources the tape does not know */
  bool zeros;
  bool begun; /* counted in tape->walks */
  bool done;
  bool failed;
  /* Scratch for one rule, room for `room` inputs and outputs. */
  int room;
  tfd_tensor *shells;   /* shape-only stand-ins */
  tfd_tensor **tensors; /* in and out, then dy */
  tfd_object **dx;
  bool *needs;
  tfd__temp temps;
  tfd__routed routed;
};

/* --- life ----------------------------------------------------------------- */

static void scratch_free(tfd_walk *w) {
  tfd__free(w->shells);
  tfd__free(w->tensors);
  tfd__free(w->dx);
  tfd__free(w->needs);
  w->shells = NULL;
  w->tensors = NULL;
  w->dx = NULL;
  w->needs = NULL;
  w->room = 0;
}

/* Host steps need no shells, which are large. */
static int scratch_reserve(tfd_walk *w, int n, bool shells) {
  size_t room = (size_t)(n < 16 ? 16 : n);

  shells = shells || w->shells != NULL;
  if (TFD_LIKELY(n <= w->room && shells == (w->shells != NULL))) return TFD_OK;
  if (room < (size_t)w->room) room = (size_t)w->room;
  scratch_free(w);
  if (shells) w->shells = tfd__calloc(room, sizeof *w->shells);
  w->tensors = tfd__calloc(room * 2, sizeof *w->tensors);
  w->dx = tfd__calloc(room, sizeof *w->dx);
  w->needs = tfd__calloc(room, sizeof *w->needs);
  if ((shells && w->shells == NULL) || w->tensors == NULL || w->dx == NULL ||
      w->needs == NULL) {
    scratch_free(w);
    return tfd__no_memory(room * sizeof *w->shells, "gradient");
  }
  w->room = (int)room;
  return TFD_OK;
}

static void free_grads(tfd_walk *w) {
  uint32_t i;

  for (i = 0; w->grads != NULL && i < w->slots_n; i++) {
    tfd__release(w->grads[i]);
  }
  tfd__routed_forget(&w->routed);
  tfd__free(w->grads);
  tfd__free(w->marks);
  w->grads = NULL;
  w->marks = NULL;
  tfd__ids_free(&w->extra);
}

/* The walk leaves its tape alone; one that served once is emptied. */
static void leave_tape(tfd_walk *w) {
  w->at = NULL;
  w->waiting = NULL;
  if (!w->begun) return;
  w->begun = false;
  w->tape->walks--;
  if (!w->tape->persistent) tfd__tape_drop(w->tape);
}

static void walk_destroy(void *self) {
  tfd_walk *w = self;
  int i;

  leave_tape(w);
  free_grads(w);
  for (i = 0; w->source_shapes != NULL && i < w->sources_n; i++) {
    tfd__release(w->source_shapes[i]);
  }
  for (i = 0; w->results != NULL && i < w->sources_n; i++) {
    tfd__release(w->results[i]);
  }
  tfd__free(w->source_slots);
  tfd__free(w->source_shapes);
  tfd__free(w->homes);
  tfd__free(w->results);
  scratch_free(w);
  tfd__release(w->tape);
  tfd__free(w);
}

static const tfd__type walk_type = {
    .name = "gradient walk",
    .kind = TFD_HANDLE_WALK,
    .destroy = walk_destroy,
};

static int walk_new(tfd_tape *tape, int sources_n, bool zeros, tfd_walk **w_p) {
  tfd_walk *w = tfd__calloc(1, sizeof *w);
  size_t n = (size_t)tape->slots_n + (size_t)sources_n;

  if (w == NULL) return tfd__no_memory(sizeof *w, "gradient");
  tfd__object_init(&w->object, &walk_type);
  tfd__retain(tape);
  w->tape = tape;
  w->zeros = zeros;
  w->sources_n = sources_n;
  w->grads = tfd__calloc(n, sizeof *w->grads);
  w->marks = tfd__calloc(n, 1);
  w->source_slots = tfd__calloc((size_t)sources_n, sizeof *w->source_slots);
  w->source_shapes = tfd__calloc((size_t)sources_n, sizeof *w->source_shapes);
  w->homes = tfd__calloc((size_t)sources_n, sizeof *w->homes);
  w->results = tfd__calloc((size_t)sources_n, sizeof *w->results);
  if (w->grads == NULL || w->marks == NULL || w->source_slots == NULL ||
      w->source_shapes == NULL || w->homes == NULL || w->results == NULL) {
    tfd__release(w);
    return tfd__no_memory(n * sizeof(void *), "gradient");
  }
  w->slots_n = tape->slots_n;
  *w_p = w;
  return TFD_OK;
}

/* --- sources -------------------------------------------------------------- */

static uint32_t find_slot(const tfd_walk *w, uint64_t id) {
  uint32_t slot = tfd__ids_get(&w->tape->ids, id);

  return slot != TFD_NO_SLOT ? slot : tfd__ids_get(&w->extra, id);
}

static int add_source(tfd_walk *w, int i, tfd_object *source) {
  tfd_tensor *t = NULL;
  uint32_t slot = 0;

  if (tfd__operand(source, &t) != TFD_OK) {
    return tfd__wrap("GradientTape.gradient: source %d", i);
  }
  w->source_slots[i] = TFD_NO_SLOT;
  w->homes[i] = t->device;
  if (w->zeros) TFD_TRY(tfd__tensor_shape_only(t, &w->source_shapes[i]));
  if (!tfd__is_float(t->view.dtype)) {
    tfd__log(TFD_LOG_WARNING,
             "GradientTape.gradient: the dtype of source %d must be "
             "floating-point (as float32), got %s; its gradient is none",
             i, tfd__dtype_name(t->view.dtype));
    return TFD_OK;
  }
  slot = find_slot(w, t->id);
  if (slot == TFD_NO_SLOT) {
    slot = w->slots_n;
    TFD_TRY(tfd__ids_reserve(&w->extra, 1));
    tfd__ids_set(&w->extra, t->id, slot);
    w->slots_n++;
  }
  w->source_slots[i] = slot;
  w->marks[slot] = MARK_SOURCE | MARK_REACHED;
  return TFD_OK;
}

static void reach(tfd_walk *w, const tfd__entry *e) {
  int i;

  for (i = 0; i < e->in_n; i++) {
    uint32_t slot = e->notes[i].slot;

    if (slot != TFD_NO_SLOT && w->marks[slot]) break;
  }
  if (i == e->in_n) return;
  for (i = e->in_n; i < e->in_n + e->out_n; i++) {
    if (e->notes[i].slot != TFD_NO_SLOT) {
      w->marks[e->notes[i].slot] |= MARK_REACHED;
    }
  }
}

static void reach_all(tfd_walk *w) {
  tfd__chunk *c = w->tape->first;

  for (; c != NULL; c = c->next) {
    size_t at = 0;
    tfd__entry *e = NULL;

    while ((e = tfd__chunk_entry(c, at)) != NULL) {
      reach(w, e);
      at += e->bytes;
    }
  }
}

/* --- gradients that come in ----------------------------------------------- */

/* What a gradient must look like. */
typedef struct expected {
  int dtype;
  int rank;
  const int64_t *dims;
} expected;

static expected expect_tensor(const tfd_tensor *t) {
  return (expected){t->view.dtype, t->view.rank, t->view.dims};
}

static expected expect_note(const tfd__note *note) {
  if (note->state == TFD_NOTE_SAVED) return expect_tensor(note->u.tensor);
  return (expected){note->u.shape->dtype, note->u.shape->rank,
                    note->u.shape->dims};
}

/* Where the op ran: where its outputs lay. */
static tfd_device *entry_device(const tfd__entry *e) {
  const tfd__note *note = &e->notes[e->in_n];

  return note->state == TFD_NOTE_SAVED ? note->u.tensor->device
                                       : note->u.shape->device;
}

static int check_gradient(const tfd_object *grad, expected e, tfd_status code,
                          const char *what, int i) {
  const tfd_slices *s = (const tfd_slices *)grad;
  const tfd_tensor *t = (const tfd_tensor *)grad;
  expected got = {0, 0, NULL};
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  if (tfd__gradient_is_dense(grad)) {
    got = expect_tensor(t);
  } else {
    got = (expected){s->values->view.dtype, s->rank, s->dims};
  }
  if (TFD_LIKELY(got.dtype == e.dtype && got.rank == e.rank &&
                 memcmp(got.dims, e.dims, (size_t)e.rank * sizeof *e.dims) ==
                     0)) {
    return TFD_OK;
  }
  return tfd__fail(code, "%s %d is %s %s; expected %s %s", what, i,
                   tfd__dtype_name(got.dtype),
                   tfd__dims_text(got.dims, got.rank, a),
                   tfd__dtype_name(e.dtype), tfd__dims_text(e.dims, e.rank, b));
}

/* An owned gradient from a caller's handle. */
static int take_gradient(tfd_object *object, expected e, const char *what,
                         int i, tfd_object **grad_p) {
  tfd_tensor *t = NULL;

  if (object->type == &tfd__slices_type) {
    TFD_TRY(check_gradient(object, e, TFD_INVALID_ARGUMENT, what, i));
    tfd__retain(object);
    *grad_p = object;
    return TFD_OK;
  }
  if (tfd__operand(object, &t) != TFD_OK) return tfd__wrap("%s %d", what, i);
  TFD_TRY(check_gradient(&t->object, e, TFD_INVALID_ARGUMENT, what, i));
  TFD_TRY(tfd__value_of(t, &t));
  *grad_p = &t->object;
  return TFD_OK;
}

static int seed(tfd_walk *w, int i, tfd_object *target, tfd_object *given) {
  tfd_device *chosen = tfd__context_device();
  tfd_object *grad = NULL;
  tfd_tensor *t = NULL;
  uint32_t slot = 0;

  if (tfd__operand(target, &t) != TFD_OK) {
    return tfd__wrap("GradientTape.gradient: target %d", i);
  }
  if (!tfd__is_float(t->view.dtype)) {
    tfd__log(TFD_LOG_WARNING,
             "GradientTape.gradient: the dtype of target %d must be "
             "floating-point (as float32), got %s; nothing flows from it",
             i, tfd__dtype_name(t->view.dtype));
    return TFD_OK;
  }
  if (given != NULL) {
    TFD_TRY(take_gradient(given, expect_tensor(t),
                          "GradientTape.gradient: output_gradients", i, &grad));
  }
  slot = find_slot(w, t->id);
  if (slot == TFD_NO_SLOT || !w->marks[slot]) {
    tfd__release(grad);
    return TFD_OK;
  }
  if (grad == NULL) {
    /* A target that is a source need not have been made where it is used. */
    bool moves = chosen != NULL && (w->marks[slot] & MARK_SOURCE);

    TFD_TRY(tfd__filled(moves ? chosen : t->device, t->view.dtype, t->view.dims,
                        t->view.rank, 1.0, &t));
    grad = &t->object;
  }
  return tfd__gradient_add(&w->grads[slot], grad);
}

/* --- one entry ------------------------------------------------------------ */

static tfd_tensor *stand_in(const tfd__note *note, tfd_tensor *shell) {
  const tfd__shape_note *shape = note->u.shape;
  int64_t stride = 1;
  int i;

  if (note->state == TFD_NOTE_SAVED) return note->u.tensor;
  if (note->state == TFD_NOTE_ABSENT) return NULL;
  atomic_init(&shell->object.refs, 1);
  shell->object.type = &tfd__tensor_type;
  shell->object.mark = TFD_OPEN_MARK + (uint32_t)TFD_HANDLE_TENSOR;
  shell->device = shape->device;
  shell->id = shape->id;
  shell->view.numel = shape->numel;
  shell->view.dtype = shape->dtype;
  shell->view.rank = shape->rank;
  shell->view.dense = true;
  for (i = shape->rank - 1; i >= 0; i--) {
    shell->view.dims[i] = shape->dims[i];
    shell->view.strides[i] = stride;
    stride *= shape->dims[i];
  }
  return shell;
}

/* A rule's answer for input i: checked and added up. */
static int store(tfd_walk *w, const tfd__note *note, int i, tfd_object *grad) {
  int rc = check_gradient(grad, expect_note(note), TFD_INTERNAL,
                          "the gradient of input", i);

  if (rc != TFD_OK) {
    tfd__release(grad);
    return rc;
  }
  return tfd__gradient_add(&w->grads[note->slot], grad);
}

static int store_all(tfd_walk *w, const tfd__entry *e, int rc) {
  int i;

  for (i = 0; i < e->in_n; i++) {
    tfd_object *grad = w->dx[i];

    w->dx[i] = NULL;
    if (grad == NULL) continue;
    if (rc == TFD_OK && w->needs[i]) {
      rc = store(w, &e->notes[i], i, grad);
    } else {
      tfd__release(grad);
    }
  }
  return rc;
}

/* A sparse gradient passes through ops that hand it on as it is. */
static int pass_sparse(tfd_walk *w, const tfd__entry *e) {
  tfd_object **dy = &w->grads[e->notes[1].slot];

  TFD_TRY(tfd__gradient_join(dy));
  tfd__retain(*dy);
  return store(w, &e->notes[0], 0, *dy);
}

static bool is_needed(const tfd_walk *w, const tfd__note *note) {
  return note->slot != TFD_NO_SLOT && w->marks[note->slot] != 0;
}

static int run_rule(tfd_walk *w, const tfd__entry *e, tfd__grad_fn rule) {
  tfd__grad g = {.op = e->op,
                 .ints = e->ints,
                 .reals = e->reals,
                 .device = entry_device(e)};
  int n = e->in_n + e->out_n;
  int i;

  TFD_TRY(scratch_reserve(w, n, true));
  for (i = 0; i < n; i++) {
    tfd_tensor *t = stand_in(&e->notes[i], &w->shells[i]);

    w->tensors[i] = t;
    if (t == NULL || TFD_LIKELY(t->view.numel >= 0)) continue;
    TFD_TRY(tfd__sizes_known(t->view.dims, t->view.rank));
  }
  for (i = 0; i < e->in_n; i++) {
    w->needs[i] = is_needed(w, &e->notes[i]);
  }
  for (i = 0; i < e->out_n; i++) {
    uint32_t slot = e->notes[e->in_n + i].slot;

    w->tensors[n + i] = NULL;
    if (slot == TFD_NO_SLOT) continue;
    TFD_TRY(tfd__gradient_densify(&w->grads[slot]));
    w->tensors[n + i] = (tfd_tensor *)w->grads[slot];
  }
  g.in = w->tensors;
  g.out = w->tensors + e->in_n;
  g.dy = w->tensors + n;
  g.needs = w->needs;
  g.dx = w->dx;
  g.in_n = e->in_n;
  g.out_n = e->out_n;
  g.temps = &w->temps;
  if (w->routed.to != NULL) tfd__routed_recall(&w->routed, e, w->grads, &g);
  /* Who follows the gradients wants each to come from the one behind it. */
  g.of_relu = tfd__routed_may_begin(e) && g.needs[0] &&
              !(w->marks[e->notes[0].slot] & MARK_SOURCE) &&
              tfd__context()->tapes == NULL;
  i = rule(&g);
  if (g.of_relu && i == TFD_OK) tfd__routed_begin(&w->routed, e, &g);
  i = store_all(w, e, i);
  tfd__temps_clear(g.temps);
  return i;
}

static int differentiate(tfd_walk *w, const tfd__entry *e) {
  tfd__grad_fn rule = tfd__grad_rule((int)(e->op - tfd__op_at(0)));
  int rc = TFD_OK;

  if (rule == NULL) return TFD_OK;
  TFD_TRY(tfd_device_push(entry_device(e)));
  if (rule == tfd__grad_identity &&
      !tfd__gradient_is_dense(w->grads[e->notes[1].slot])) {
    rc = pass_sparse(w, e);
  } else {
    rc = run_rule(w, e, rule);
  }
  (void)tfd_device_pop();
  return rc == TFD_OK ? rc : tfd__wrap("gradient of %s", e->op->name);
}

static bool has_gradient(const tfd_walk *w, const tfd__entry *e) {
  int i;

  for (i = e->in_n; i < e->in_n + e->out_n; i++) {
    uint32_t slot = e->notes[i].slot;

    if (slot != TFD_NO_SLOT && w->grads[slot] != NULL) return true;
  }
  return false;
}

/* Nothing before this entry can refer to its outputs any more. */
static void finish_entry(tfd_walk *w, tfd__entry *e) {
  int i;

  for (i = e->in_n; i < e->in_n + e->out_n; i++) {
    uint32_t slot = e->notes[i].slot;

    if (slot == TFD_NO_SLOT || (w->marks[slot] & MARK_SOURCE)) continue;
    tfd__release(w->grads[slot]);
    w->grads[slot] = NULL;
  }
  if (!w->tape->persistent) tfd__entry_release(e);
  w->at = e->prev;
}

/* All entries are visited: keep the sources' gradients, drop the rest. They go
** to their sources' devices unless the caller works on one of its choice, as
** replicas do: then they stay where they were made. */
static int finish(tfd_walk *w) {
  tfd_device *chosen = tfd__context_device();
  int i;

  for (i = 0; i < w->sources_n; i++) {
    uint32_t slot = w->source_slots[i];
    tfd_tensor *t = w->source_shapes[i];

    if (slot != TFD_NO_SLOT && w->grads[slot] != NULL) {
      TFD_TRY(tfd__gradient_join(&w->grads[slot]));
      if (chosen == NULL) {
        TFD_TRY(tfd__gradient_to_device(&w->grads[slot], w->homes[i]));
      }
      tfd__retain(w->grads[slot]);
      w->results[i] = w->grads[slot];
    } else if (w->zeros) {
      TFD_TRY(tfd__filled(chosen != NULL ? chosen : w->homes[i], t->view.dtype,
                          t->view.dims, t->view.rank, 0.0, &t));
      w->results[i] = &t->object;
    }
  }
  leave_tape(w);
  free_grads(w);
  w->done = true;
  return TFD_OK;
}

static int advance(tfd_walk *w) {
  int count = 0;

  while (w->at != NULL) {
    tfd__entry *e = w->at;

    if (++count % INTERRUPT_EVERY == 0 && tfd__interrupt_get()) {
      return tfd__fail(TFD_CANCELLED, "GradientTape.gradient: interrupted");
    }
    if (has_gradient(w, e)) {
      if (e->op == NULL) {
        w->waiting = e;
        return TFD_OK;
      }
      TFD_TRY(differentiate(w, e));
    }
    finish_entry(w, e);
  }
  return finish(w);
}

/* --- the public interface ------------------------------------------------- */

static int check_begin(const tfd_tape *tape, int targets_n,
                       int target_grads_n) {
  if (tape->used && !tape->persistent) {
    (void)tfd__fail(TFD_RUNTIME_ERROR,
                    "GradientTape.gradient: a non-persistent GradientTape can "
                    "only be used to compute one set of gradients (or "
                    "jacobians)");
    return tfd__hint("make it with tf.GradientTape(fn, { persistent = true })");
  }
  if (target_grads_n != 0 && target_grads_n != targets_n) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "GradientTape.gradient: %d output_gradients for %d "
                     "targets; give one for each",
                     target_grads_n, targets_n);
  }
  return TFD_OK;
}

static int seed_all(tfd_walk *w, tfd_object *const *targets, int targets_n,
                    tfd_object *const *target_grads, int target_grads_n) {
  int i;

  for (i = 0; i < targets_n; i++) {
    TFD_TRY(
        seed(w, i, targets[i], target_grads_n > 0 ? target_grads[i] : NULL));
  }
  return TFD_OK;
}

int tfd_walk_begin(tfd_tape *tape, tfd_object *const *targets, int targets_n,
                   tfd_object *const *sources, int sources_n,
                   tfd_object *const *target_grads, int target_grads_n,
                   bool unconnected_zero, tfd_walk **walk_p) {
  TFD_GIVEN(tape, TAPE);
  TFD_GIVEN_LIST(targets, targets_n);
  TFD_GIVEN_LIST(sources, sources_n);
  TFD_GIVEN_HANDLES(target_grads, target_grads_n, KINDS);
  TFD_GIVEN_POINTER(walk_p);

  tfd_walk *w = NULL;
  int rc = TFD_OK;
  int i;

  TFD_TRY(check_begin(tape, targets_n, target_grads_n));
  TFD_TRY(walk_new(tape, sources_n, unconnected_zero, &w));
  for (i = 0; rc == TFD_OK && i < sources_n; i++) {
    rc = add_source(w, i, sources[i]);
  }
  if (rc == TFD_OK) {
    reach_all(w);
    if (tape->recording && !tape->persistent) rc = tfd_tape_stop(tape);
  }
  if (rc == TFD_OK) {
    rc = seed_all(w, targets, targets_n, target_grads, target_grads_n);
  }
  if (rc != TFD_OK) {
    tfd__release(w);
    return rc;
  }
  w->at = tape->last;
  w->begun = true;
  tape->walks++;
  tape->used = true;
  *walk_p = w;
  return TFD_OK;
}

int tfd_walk_next(tfd_walk *walk, tfd_walk_event *event_p) {
  TFD_GIVEN(walk, WALK);
  TFD_GIVEN_POINTER(event_p);

  int rc = TFD_OK;

  if (walk->failed || walk->waiting != NULL) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     walk->failed ? "gradient: this walk has failed before"
                                  : "gradient: the waiting host step needs its "
                                    "gradients first (tfd_walk_supply)");
  }
  if (!walk->done) rc = advance(walk);
  if (rc != TFD_OK) {
    walk->failed = true;
    leave_tape(walk);
    return rc;
  }
  *event_p = walk->waiting != NULL ? TFD_WALK_HOST : TFD_WALK_DONE;
  return TFD_OK;
}

static int check_waiting(const tfd_walk *w) {
  if (w->waiting != NULL) return TFD_OK;
  return tfd__fail(TFD_FAILED_PRECONDITION,
                   "gradient: no host step is waiting");
}

int tfd_walk_host(tfd_walk *walk, int64_t *number_p, int *outputs_n_p) {
  TFD_GIVEN(walk, WALK);
  TFD_GIVEN_POINTER(number_p);
  TFD_GIVEN_POINTER(outputs_n_p);
  TFD_TRY(check_waiting(walk));
  *number_p = walk->waiting->number;
  *outputs_n_p = walk->waiting->out_n;
  return TFD_OK;
}

int tfd_walk_output_grad(tfd_walk *walk, int index, tfd_object **grad_p) {
  TFD_GIVEN(walk, WALK);
  TFD_GIVEN_POINTER(grad_p);

  const tfd__entry *e = walk->waiting;
  uint32_t slot = 0;

  TFD_TRY(check_waiting(walk));
  if (index < 0 || index >= e->out_n) {
    return tfd__fail(TFD_INDEX_ERROR, "gradient: no output %d; there are %d",
                     index, e->out_n);
  }
  slot = e->notes[e->in_n + index].slot;
  *grad_p = NULL;
  if (slot == TFD_NO_SLOT) return TFD_OK;
  TFD_TRY(tfd__gradient_join(&walk->grads[slot]));
  tfd__retain(walk->grads[slot]);
  *grad_p = walk->grads[slot];
  return TFD_OK;
}

/* The note of an input of the step that waits. */
static int input_note(const tfd_walk *w, int index, const tfd__note **note_p) {
  TFD_TRY(check_waiting(w));
  if (index < 0 || index >= w->waiting->in_n) {
    return tfd__fail(TFD_INDEX_ERROR, "gradient: no input %d; there are %d",
                     index, w->waiting->in_n);
  }
  *note_p = &w->waiting->notes[index];
  return TFD_OK;
}

int tfd_walk_needs(tfd_walk *walk, int index, bool *needs_p, bool *has_p) {
  TFD_GIVEN(walk, WALK);
  TFD_GIVEN_POINTER(needs_p);
  TFD_GIVEN_POINTER(has_p);

  const tfd__note *note = NULL;

  TFD_TRY(input_note(walk, index, &note));
  *needs_p = is_needed(walk, note);
  *has_p = *needs_p && walk->grads[note->slot] != NULL;
  return TFD_OK;
}

int tfd_walk_sum(tfd_walk *walk, int index, tfd_object **grad_p) {
  TFD_GIVEN(walk, WALK);
  TFD_GIVEN_POINTER(grad_p);

  const tfd__note *note = NULL;

  TFD_TRY(input_note(walk, index, &note));
  *grad_p = NULL;
  if (!is_needed(walk, note)) return TFD_OK;
  TFD_TRY(tfd__gradient_join(&walk->grads[note->slot]));
  *grad_p = walk->grads[note->slot];
  if (*grad_p != NULL) tfd__retain(*grad_p);
  return TFD_OK;
}

int tfd_walk_take(tfd_walk *walk, int index) {
  TFD_GIVEN(walk, WALK);

  const tfd__note *note = NULL;

  TFD_TRY(input_note(walk, index, &note));
  if (!is_needed(walk, note)) return TFD_OK;
  tfd__release(walk->grads[note->slot]);
  walk->grads[note->slot] = NULL;
  return TFD_OK;
}

/* Check all of them, then add them up. */
static int take_supplied(tfd_walk *w, tfd_object *const *grads) {
  const tfd__entry *e = w->waiting;
  int rc = TFD_OK;
  int i;

  TFD_TRY(scratch_reserve(w, e->in_n, false));
  for (i = 0; rc == TFD_OK && i < e->in_n; i++) {
    w->needs[i] = is_needed(w, &e->notes[i]);
    if (grads[i] == NULL || e->notes[i].state == TFD_NOTE_ABSENT) continue;
    rc = take_gradient(grads[i], expect_note(&e->notes[i]),
                       "custom_gradient: the gradient of input", i, &w->dx[i]);
  }
  if (rc == TFD_OK) return store_all(w, e, TFD_OK);
  while (i-- > 0) {
    tfd__release(w->dx[i]);
    w->dx[i] = NULL;
  }
  return rc;
}

int tfd_walk_supply(tfd_walk *walk, tfd_object *const *grads, int grads_n) {
  TFD_GIVEN(walk, WALK);
  TFD_GIVEN_HANDLES(grads, grads_n, KINDS);

  int rc;

  TFD_TRY(check_waiting(walk));
  if (grads_n != walk->waiting->in_n) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "custom_gradient: expected %d gradients from the gradient "
                     "function, got %d",
                     walk->waiting->in_n, grads_n);
  }
  TFD_TRY(tfd_device_push(entry_device(walk->waiting)));
  rc = take_supplied(walk, grads);
  (void)tfd_device_pop();
  if (rc != TFD_OK) {
    walk->failed = true;
    leave_tape(walk);
    return rc;
  }
  finish_entry(walk, walk->waiting);
  walk->waiting = NULL;
  return TFD_OK;
}

int tfd_walk_gradient(tfd_walk *walk, int index, tfd_object **grad_p) {
  TFD_GIVEN(walk, WALK);
  TFD_GIVEN_POINTER(grad_p);
  if (!walk->done) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "gradient: the walk is not at its end");
  }
  if (index < 0 || index >= walk->sources_n) {
    return tfd__fail(TFD_INDEX_ERROR, "gradient: no source %d; there are %d",
                     index, walk->sources_n);
  }
  tfd__retain(walk->results[index]);
  *grad_p = walk->results[index];
  return TFD_OK;
}
