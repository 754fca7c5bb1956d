/* Recording: which values a tape follows and what it keeps of each op.
**
** Cost of recording an op: one look-up per input and one insertion per output
** in the id map, and one entry in an arena; values nobody needs are kept as
** shapes. Ops that touch no followed value cost the look-ups alone. */
#include "autograd/tape.h"

#include <string.h>

#define CACHED_SLOTS 8

/* --- what an entry keeps -------------------------------------------------- */

/* One op (or host step, op == NULL) to be recorded. */
typedef struct step {
  const tfd__op *op;
  int64_t number;
  tfd_tensor *const *in;
  tfd_tensor *const *ready; /* see tfd__record_fn */
  tfd_tensor *const *out;
  int in_n;
  int out_n;
  const int64_t *ints;
  const double *reals;
  int flags; /* TFD_OP_SAVE_*: the op's, 0 for host steps */
} step;

static inline bool saves_input(const step *s, int i) {
  if (TFD_LIKELY(i < 8)) return (s->flags & (TFD_OP_SAVE_IN0 << i)) != 0;
  return (s->flags & TFD_OP_SAVE_INS) == TFD_OP_SAVE_INS;
}

static inline bool saves_output(const step *s, int i) {
  if (TFD_LIKELY(i < 4)) return (s->flags & (TFD_OP_SAVE_OUT0 << i)) != 0;
  return (s->flags & TFD_OP_SAVE_OUTS) == TFD_OP_SAVE_OUTS;
}

static size_t attribute_bytes(const step *s) {
  if (s->op == NULL) return 0;
  return (size_t)s->op->ints_n * sizeof(int64_t) +
         (size_t)s->op->reals_n * sizeof(double);
}

/* No entry of this step is larger. */
static size_t entry_bound(const step *s) {
  size_t shape = sizeof(tfd__shape_note) + TFD_MAX_RANK * sizeof(int64_t);
  size_t n = (size_t)s->in_n + (size_t)s->out_n;

  return sizeof(tfd__entry) + n * (sizeof(tfd__note) + shape) +
         attribute_bytes(s);
}

static void note_shape(tfd__note *note, const tfd_tensor *t,
                       unsigned char **at_p) {
  tfd__shape_note *shape = (tfd__shape_note *)(void *)*at_p;
  int i;

  shape->device = t->device;
  shape->id = t->id;
  shape->numel = t->view.numel;
  shape->dtype = t->view.dtype;
  shape->rank = t->view.rank;
  for (i = 0; i < t->view.rank; i++) shape->dims[i] = t->view.dims[i];
  note->u.shape = shape;
  note->state = TFD_NOTE_SHAPE;
  *at_p = (unsigned char *)&shape->dims[t->view.rank];
}

/* `at_p` walks over the room for shapes. */
static inline int note_value(tfd__note *note, tfd_tensor *t, bool save,
                             unsigned char **at_p) {
  note->state = TFD_NOTE_ABSENT;
  if (t == NULL) return TFD_OK;
  if (!save) {
    note_shape(note, t, at_p);
    return TFD_OK;
  }
  if (TFD_LIKELY(t->variable == NULL)) {
    tfd__retain(t);
    note->u.tensor = t;
  } else {
    TFD_TRY(tfd__tensor_snapshot(t, &note->u.tensor));
  }
  note->state = TFD_NOTE_SAVED;
  return TFD_OK;
}

void tfd__entry_release(tfd__entry *e) {
  int i;

  for (i = 0; i < e->in_n + e->out_n; i++) {
    if (e->notes[i].state != TFD_NOTE_SAVED) continue;
    e->notes[i].state = TFD_NOTE_ABSENT;
    tfd__release(e->notes[i].u.tensor);
  }
}

/* Uninitialised room for `bytes`; the caller takes it by adding to `used`. */
static int arena_reserve(tfd_tape *tape, size_t bytes, void **p) {
  tfd__chunk *c = tape->current;

  if (!TFD_LIKELY(c != NULL && c->capacity - c->used >= bytes)) {
    TFD_TRY(tfd__chunks_grow(tape, bytes));
    c = tape->current;
  }
  *p = c->data + c->used;
  return TFD_OK;
}

/* --- the tape's state ----------------------------------------------------- */

/* Room for n more slots and ids. */
static inline int reserve_slots(tfd_tape *tape, int n) {
  if ((uint64_t)tape->slots_n + (uint64_t)n >= TFD_NO_SLOT) {
    return tfd__fail(TFD_RESOURCE_EXHAUSTED,
                     "gradient tape: more than %u values on one tape",
                     tape->slots_n);
  }
  return tfd__ids_reserve(&tape->ids, (uint32_t)n);
}

static int track(tfd_tape *tape, uint64_t id) {
  TFD_TRY(reserve_slots(tape, 1));
  tfd__ids_set(&tape->ids, id, tape->slots_n++);
  return TFD_OK;
}

/* Room for one more pointer in a list of n. */
static int list_reserve(void ***list_p, int n, int *capacity_p) {
  int capacity = n < 16 ? 16 : n * 2;
  size_t bytes = (size_t)capacity * sizeof(void *);
  void **more = NULL;

  if (n < *capacity_p) return TFD_OK;
  more = tfd__realloc(*list_p, bytes);
  if (more == NULL) return tfd__no_memory(bytes, "gradient tape");
  *list_p = more;
  *capacity_p = capacity;
  return TFD_OK;
}

static int watch_variable(tfd_tape *tape, tfd_variable *v) {
  TFD_TRY(list_reserve((void ***)&tape->variables, tape->variables_n,
                       &tape->variables_capacity));
  TFD_TRY(track(tape, v->value->id));
  tfd__retain(v);
  tape->variables[tape->variables_n++] = v;
  return TFD_OK;
}

static int watch_constant(tfd_tape *tape, tfd_tensor *t) {
  TFD_TRY(list_reserve((void ***)&tape->constants, tape->constants_n,
                       &tape->constants_capacity));
  TFD_TRY(track(tape, t->id));
  tfd__retain(t);
  tape->constants[tape->constants_n++] = t;
  return TFD_OK;
}

void tfd__tape_drop(tfd_tape *tape) {
  tfd__entry *e = tape->saver;

  for (; e != NULL; e = e->saver) tfd__entry_release(e);
  tfd__chunks_drop(tape);
  tape->last = NULL;
  tape->saver = NULL;
  tape->length = 0;
  tape->slots_n = 0;
  tfd__ids_free(&tape->ids);
}

static void drop_watched(tfd_tape *tape) {
  while (tape->variables_n > 0) {
    tfd__release(tape->variables[--tape->variables_n]);
  }
  while (tape->constants_n > 0) {
    tfd__release(tape->constants[--tape->constants_n]);
  }
}

/* --- recording ------------------------------------------------------------ */

/* A step being written into the arena. */
typedef struct writer {
  tfd__entry *e;
  unsigned char *at; /* room for shapes */
  uint32_t slot;     /* the next free one */
} writer;

static inline int write_inputs(const tfd_tape *tape, const step *s,
                               const uint32_t *slots, writer *w) {
  int i;

  for (i = 0; i < s->in_n; i++) {
    tfd__note *note = &w->e->notes[i];
    tfd_tensor *t = s->in[i];

    if (TFD_LIKELY(i < CACHED_SLOTS)) {
      note->slot = slots[i];
    } else {
      note->slot = t == NULL ? TFD_NO_SLOT : tfd__ids_get(&tape->ids, t->id);
    }
    w->e->in_n = i; /* those that a failure must release */
    /* What was copied to the op's device need not go there again. */
    if (t != NULL && !TFD_LIKELY(s->ready[i]->device == t->device)) {
      t = s->ready[i];
    }
    TFD_TRY(note_value(note, t, saves_input(s, i), &w->at));
  }
  w->e->in_n = s->in_n;
  return TFD_OK;
}

static inline int write_outputs(const step *s, writer *w) {
  int i;

  for (i = 0; i < s->out_n; i++) {
    tfd__note *note = &w->e->notes[s->in_n + i];
    tfd_tensor *t = s->out[i];

    note->slot = tfd__is_float(t->view.dtype) ? w->slot++ : TFD_NO_SLOT;
    w->e->out_n = i;
    TFD_TRY(note_value(note, t, saves_output(s, i), &w->at));
  }
  w->e->out_n = s->out_n;
  return TFD_OK;
}

static void copy_attributes(writer *w, const step *s) {
  tfd__entry *e = w->e;

  e->ints = NULL;
  e->reals = NULL;
  if (s->op == NULL) return;
  if (s->op->ints_n > 0) {
    size_t bytes = (size_t)s->op->ints_n * sizeof(int64_t);

    memcpy(w->at, s->ints, bytes);
    e->ints = (const int64_t *)(void *)w->at;
    w->at += bytes;
  }
  if (s->op->reals_n > 0) {
    size_t bytes = (size_t)s->op->reals_n * sizeof(double);

    memcpy(w->at, s->reals, bytes);
    e->reals = (const double *)(void *)w->at;
    w->at += bytes;
  }
}

/* The entry becomes part of the tape; cannot fail. */
static inline void commit(tfd_tape *tape, const step *s, const writer *w) {
  tfd__entry *e = w->e;
  int i;

  for (i = 0; i < s->out_n; i++) {
    uint32_t slot = e->notes[s->in_n + i].slot;

    if (slot != TFD_NO_SLOT) tfd__ids_set(&tape->ids, s->out[i]->id, slot);
  }
  e->prev = tape->last;
  e->op = s->op;
  e->number = s->number;
  e->bytes = (uint32_t)(w->at - (unsigned char *)e);
  if ((s->flags & (TFD_OP_SAVE_INS | TFD_OP_SAVE_OUTS)) != 0) {
    e->saver = tape->saver;
    tape->saver = e;
  }
  tape->slots_n = w->slot;
  tape->current->used += e->bytes;
  tape->last = e;
  tape->length++;
}

static int append(tfd_tape *tape, const step *s, const uint32_t *slots) {
  writer w = {.slot = tape->slots_n};
  void *room = NULL;
  int rc;

  TFD_TRY(reserve_slots(tape, s->out_n));
  TFD_TRY(arena_reserve(tape, entry_bound(s), &room));
  w.e = room;
  w.at = (unsigned char *)&w.e->notes[s->in_n + s->out_n];
  w.e->in_n = 0;
  w.e->out_n = 0;
  copy_attributes(&w, s);
  rc = write_inputs(tape, s, slots, &w);
  if (rc == TFD_OK) rc = write_outputs(s, &w);
  if (rc == TFD_OK && TFD_LIKELY(w.slot != tape->slots_n)) {
    commit(tape, s, &w);
    return TFD_OK;
  }
  tfd__entry_release(w.e); /* failed, or no output that gradients reach */
  return rc;
}

static bool watches(const tfd_tape *tape, const tfd_tensor *t) {
  return tape->watch_accessed && (t->variable->trainable || tape->follow_all) &&
         tfd__is_float(t->view.dtype);
}

static bool follows(const tfd_tape *tape, const tfd_tensor *t) {
  return tape->follow_all && t->variable == NULL && tfd__is_symbolic(t) &&
         tfd__is_float(t->view.dtype);
}

/* Is it a value with elements to be followed, as tapes around do? */
static bool is_constant(const tfd_tape *tape, const tfd_tensor *t) {
  int i;

  if (t->variable != NULL || tfd__is_symbolic(t)) return false;
  if (!tfd__is_float(t->view.dtype)) return false;
  if (tape->follow_constants) return true;
  for (i = 0; i < tape->around_n; i++) {
    const tfd_tape *around = tape->around[i];

    if (around->follow_constants) return true;
    if (tfd__ids_get(&around->ids, t->id) != TFD_NO_SLOT) return true;
  }
  return false;
}

/* The slot of t, a new one where the tape begins to follow it. */
static inline int slot_for(tfd_tape *tape, tfd_tensor *t, uint32_t *slot_p) {
  uint32_t slot = tfd__ids_get(&tape->ids, t->id);

  *slot_p = slot;
  if (TFD_LIKELY(slot != TFD_NO_SLOT)) return TFD_OK;
  if (t->variable != NULL && watches(tape, t)) {
    *slot_p = tape->slots_n;
    return watch_variable(tape, t->variable);
  }
  if (follows(tape, t)) {
    *slot_p = tape->slots_n;
    return track(tape, t->id);
  }
  if ((tape->around_n > 0 || tape->follow_constants) && is_constant(tape, t)) {
    *slot_p = tape->slots_n;
    return watch_constant(tape, t);
  }
  return TFD_OK;
}

static int record_on(tfd_tape *tape, const step *s) {
  uint32_t slots[CACHED_SLOTS];
  bool tracked = false;
  int i;

  for (i = 0; i < s->in_n; i++) {
    uint32_t slot = TFD_NO_SLOT;

    if (s->in[i] != NULL) TFD_TRY(slot_for(tape, s->in[i], &slot));
    if (i < CACHED_SLOTS) slots[i] = slot;
    if (slot != TFD_NO_SLOT) tracked = true;
  }
  if (!tracked || (s->op != NULL && !s->op->differentiable)) return TFD_OK;
  return append(tape, s, slots);
}

static int record_all(const tfd__tapes *tapes, const step *s) {
  int i;

  for (i = 0; i < tapes->n; i++) {
    if (tapes->items[i]->paused == 0) TFD_TRY(record_on(tapes->items[i], s));
  }
  return TFD_OK;
}

/* Gradients of `other` are those of t, added up in one sum. */
static int name_all(const tfd__tapes *tapes, tfd_tensor *t,
                    const tfd_tensor *other) {
  int i;

  for (i = 0; i < tapes->n; i++) {
    tfd_tape *tape = tapes->items[i];
    uint32_t slot = TFD_NO_SLOT;

    if (tape->paused > 0) continue;
    TFD_TRY(slot_for(tape, t, &slot));
    if (slot == TFD_NO_SLOT) continue;
    TFD_TRY(tfd__ids_reserve(&tape->ids, 1));
    tfd__ids_set(&tape->ids, other->id, slot);
  }
  return TFD_OK;
}

/* The recorder of a context; see tfd__record_fn. */
static int record(void *tapes, const tfd__op *op, tfd_tensor *const *in,
                  tfd_tensor *const *ready, int in_n, tfd_tensor *const *out,
                  int out_n, const int64_t *ints, const double *reals) {
  step s = {.op = op,
            .in = in,
            .ready = ready,
            .out = out,
            .in_n = in_n,
            .out_n = out_n,
            .ints = ints,
            .reals = reals};

  if (op == NULL) return name_all(tapes, in[0], out[0]);
  s.flags = op->flags;
  return record_all(tapes, &s);
}

/* --- the context's list --------------------------------------------------- */

static int list_add(tfd_context *c, tfd_tape *tape) {
  tfd__tapes *list = c->tapes;

  if (list == NULL) {
    list = tfd__calloc(1, sizeof *list);
    if (list == NULL) return tfd__no_memory(sizeof *list, "gradient tape");
  }
  if (list->n == list->capacity) {
    int capacity = list->n < 4 ? 4 : list->n * 2;
    size_t bytes = (size_t)capacity * sizeof *list->items;
    tfd_tape **items = tfd__realloc(list->items, bytes);

    if (items == NULL) {
      if (c->tapes == NULL) tfd__free(list);
      return tfd__no_memory(bytes, "gradient tape");
    }
    list->items = items;
    list->capacity = capacity;
  }
  list->items[list->n++] = tape;
  c->tapes = list;
  c->record = record;
  tape->recording = true;
  return TFD_OK;
}

static void list_remove(tfd_tape *tape) {
  tfd_context *c = tape->context;
  tfd__tapes *list = c->tapes;
  int i = 0;

  while (list->items[i] != tape) i++;
  list->n--;
  memmove(&list->items[i], &list->items[i + 1],
          (size_t)(list->n - i) * sizeof *list->items);
  tape->recording = false;
  tape->paused = 0;
  if (list->n > 0) return;
  c->tapes = NULL; /* so that ops outside tapes pay one comparison */
  c->record = NULL;
  tfd__free(list->items);
  tfd__free(list);
}

/* --- the public interface ------------------------------------------------- */

static void tape_destroy(void *self) {
  tfd_tape *tape = self;

  if (tape->recording) list_remove(tape);
  tfd__tape_drop(tape);
  drop_watched(tape);
  while (tape->around_n > 0) tfd__release(tape->around[--tape->around_n]);
  tfd__free(tape->variables);
  tfd__free(tape->constants);
  tfd__free(tape->around);
  tfd__release(tape->context);
  tfd__free(tape);
}

static const tfd__type tape_type = {
    .name = "gradient tape",
    .kind = TFD_HANDLE_TAPE,
    .destroy = tape_destroy,
};

int tfd_tape_new(bool persistent, bool watch_accessed_variables,
                 tfd_tape **tape_p) {
  TFD_GIVEN_POINTER(tape_p);

  tfd_tape *tape = tfd__calloc(1, sizeof *tape);
  int rc;

  if (tape == NULL) return tfd__no_memory(sizeof *tape, "gradient tape");
  tfd__object_init(&tape->object, &tape_type);
  tape->persistent = persistent;
  tape->watch_accessed = watch_accessed_variables;
  tape->context = tfd__context();
  tfd__retain(tape->context);
  rc = list_add(tape->context, tape);
  if (rc != TFD_OK) {
    tfd__release(tape);
    return rc;
  }
  *tape_p = tape;
  return TFD_OK;
}

int tfd_tape_follow_all(tfd_tape *tape) {
  TFD_GIVEN(tape, TAPE);
  tape->follow_all = true;
  return TFD_OK;
}

int tfd_tape_follow_constants(tfd_tape *tape) {
  TFD_GIVEN(tape, TAPE);
  tape->follow_constants = true;
  return TFD_OK;
}

int tfd_tape_follow_tape(tfd_tape *tape, tfd_tape *around) {
  TFD_GIVEN(tape, TAPE);
  TFD_GIVEN(around, TAPE);

  if (around == tape) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "GradientTape: a tape cannot follow itself");
  }
  TFD_TRY(list_reserve((void ***)&tape->around, tape->around_n,
                       &tape->around_capacity));
  tfd__retain(around);
  tape->around[tape->around_n++] = around;
  return TFD_OK;
}

int tfd_tape_stop(tfd_tape *tape) {
  TFD_GIVEN(tape, TAPE);
  if (!tape->recording) {
    return tfd__fail(TFD_RUNTIME_ERROR, "GradientTape: tape is not recording");
  }
  list_remove(tape);
  return TFD_OK;
}

int tfd_tape_resume(tfd_tape *tape) {
  TFD_GIVEN(tape, TAPE);
  if (tape->recording) {
    return tfd__fail(TFD_RUNTIME_ERROR,
                     "GradientTape: tape is already recording");
  }
  return list_add(tape->context, tape);
}

bool tfd_tape_is_recording(const tfd_tape *tape) {
  TFD_GIVEN_OR(tape, TAPE, false);
  return tape->recording;
}

bool tfd_tape_is_persistent(const tfd_tape *tape) {
  TFD_GIVEN_OR(tape, TAPE, false);
  return tape->persistent;
}

int tfd_tape_keep(tfd_tape *tape) {
  TFD_GIVEN(tape, TAPE);
  if (tape->used && !tape->persistent) {
    return tfd__fail(TFD_RUNTIME_ERROR,
                     "GradientTape: its records were dropped when the "
                     "gradient was computed");
  }
  tape->persistent = true;
  return TFD_OK;
}

int tfd_tape_watch(tfd_tape *tape, tfd_object *operand) {
  TFD_GIVEN(tape, TAPE);

  tfd_tensor *t = NULL;

  if (tfd__operand(operand, &t) != TFD_OK) {
    return tfd__wrap("GradientTape.watch");
  }
  if (!tfd__is_float(t->view.dtype)) {
    tfd__log(TFD_LOG_WARNING,
             "GradientTape.watch: the dtype of the watched tensor must be "
             "floating-point (as float32), got %s; its gradients are none",
             tfd__dtype_name(t->view.dtype));
    return TFD_OK;
  }
  if (tfd__ids_get(&tape->ids, t->id) != TFD_NO_SLOT) return TFD_OK;
  if (t->variable != NULL) return watch_variable(tape, t->variable);
  return track(tape, t->id);
}

int tfd_tape_reset(tfd_tape *tape) {
  TFD_GIVEN(tape, TAPE);
  if (tape->walks > 0) {
    return tfd__fail(TFD_RUNTIME_ERROR,
                     "GradientTape.reset: a gradient of this tape is being "
                     "computed");
  }
  tfd__tape_drop(tape);
  drop_watched(tape);
  tape->used = false;
  return TFD_OK;
}

int64_t tfd_tape_length(const tfd_tape *tape) {
  TFD_GIVEN_OR(tape, TAPE, 0);
  return tape->length;
}

int tfd_tape_variable(tfd_tape *tape, int index, tfd_variable **variable_p) {
  TFD_GIVEN(tape, TAPE);
  TFD_GIVEN_POINTER(variable_p);
  if (index < 0 || index >= tape->variables_n) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "GradientTape: no watched variable %d; there are %d",
                     index, tape->variables_n);
  }
  tfd__retain(tape->variables[index]);
  *variable_p = tape->variables[index];
  return TFD_OK;
}

int tfd_tape_variable_count(const tfd_tape *tape) {
  TFD_GIVEN_OR(tape, TAPE, 0);
  return tape->variables_n;
}

int tfd_tape_constant(tfd_tape *tape, int index, tfd_tensor **tensor_p) {
  TFD_GIVEN(tape, TAPE);
  TFD_GIVEN_POINTER(tensor_p);
  if (index < 0 || index >= tape->constants_n) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "GradientTape: no followed constant %d; there are %d",
                     index, tape->constants_n);
  }
  tfd__retain(tape->constants[index]);
  *tensor_p = tape->constants[index];
  return TFD_OK;
}

int tfd_tape_constant_count(const tfd_tape *tape) {
  TFD_GIVEN_OR(tape, TAPE, 0);
  return tape->constants_n;
}

static int resolve_inputs(tfd_object *const *inputs, int inputs_n,
                          tfd_tensor **in) {
  int i;

  for (i = 0; i < inputs_n; i++) {
    in[i] = NULL;
    if (inputs[i] == NULL) continue;
    if (tfd__operand(inputs[i], &in[i]) != TFD_OK) {
      return tfd__wrap("custom_gradient: input %d", i);
    }
  }
  return TFD_OK;
}

int tfd_tape_record_host(int64_t number, tfd_object *const *inputs,
                         int inputs_n, tfd_tensor *const *outputs,
                         int outputs_n) {
  TFD_GIVEN_LIST(inputs, inputs_n);
  TFD_GIVEN_HANDLES(outputs, outputs_n, TENSOR);

  tfd_context *c = tfd__context();
  tfd_tensor *small[CACHED_SLOTS];
  step s = {.number = number,
            .in = small,
            .ready = small,
            .out = outputs,
            .in_n = inputs_n,
            .out_n = outputs_n};
  tfd_tensor **in = small;
  int rc;

  if (c->tapes == NULL) return TFD_OK;
  if (inputs_n > CACHED_SLOTS) {
    in = tfd__alloc((size_t)inputs_n * sizeof *in);
    if (in == NULL) return tfd__no_memory((size_t)inputs_n * 8, "tape");
    s.in = in;
    s.ready = in;
  }
  rc = resolve_inputs(inputs, inputs_n, in);
  if (rc == TFD_OK) rc = record_all(c->tapes, &s);
  if (in != small) tfd__free(in);
  return rc;
}

int tfd_tape_pause_all(bool pause) {
  tfd_context *c = tfd__context();
  tfd__tapes *list = c->tapes;
  int i;

  if (pause) {
    c->unfollowed++;
  } else if (c->unfollowed > 0) {
    c->unfollowed--;
  }
  for (i = 0; list != NULL && i < list->n; i++) {
    if (pause) {
      list->items[i]->paused++;
    } else if (list->items[i]->paused > 0) {
      list->items[i]->paused--;
    }
  }
  return TFD_OK;
}

int tfd_tape_follows(tfd_object *operand, bool *follows_p) {
  TFD_GIVEN_POINTER(follows_p);

  const tfd__tapes *list = tfd__context()->tapes;
  tfd_tensor *t = NULL;
  int i;

  TFD_TRY(tfd__operand(operand, &t));
  *follows_p = false;
  for (i = 0; list != NULL && i < list->n; i++) {
    const tfd_tape *tape = list->items[i];

    if (tape->paused > 0) continue;
    if (tfd__ids_get(&tape->ids, t->id) != TFD_NO_SLOT ||
        (t->variable != NULL && watches(tape, t))) {
      *follows_p = true;
    }
  }
  return TFD_OK;
}

int tfd_tape_active(void) {
  const tfd__tapes *list = tfd__context()->tapes;
  int n = 0;
  int i;

  for (i = 0; list != NULL && i < list->n; i++) {
    if (list->items[i]->paused == 0) n++;
  }
  return n;
}
