/* Calls of a program: pointers in, one piece of work, results out.
**
** Cost of a call: for each input and variable a look and a pointer, for each
** result a pooled buffer and a header; nothing else is allocated. The frame,
** the program's address and all pointers and words, travels as the attributes
** of one call, so that queued calls do not meet. A run whose first results are
** wanted before the last are there has several calls.
**
** A program runs in the order of its device's stream; so its arena, its views
** and its attributes belong to the call that runs. */
#include "graph/graph.h"

#include <string.h>

/* --- on the stream -------------------------------------------------------- */

static void fill_in(tfd__program *p, const int64_t *given) {
  const int64_t *words = given + p->inputs_n + p->variables_n + p->fresh_n;
  const int64_t *slots = tfd__launches_slots(p, given);
  bool launcher = p->device->backend->launcher != NULL;
  int i;

  for (i = 0; i < p->patches_n; i++) {
    const tfd__patch *patch = &p->patches[i];

    p->views[patch->view].data =
        (char *)(uintptr_t)slots[patch->slot] + patch->offset;
  }
  for (i = 0; i < p->redraws_n; i++) {
    memcpy(p->ints + p->redraws[i].to, words + p->redraws[i].from * 4,
           4 * sizeof *words);
  }
  for (i = 0; i < p->renumbers_n; i++) {
    tfd__renumber *r = &p->renumbers[i];
    const int64_t *from = words + p->words_n + r->from;
    size_t bytes = (size_t)r->n * sizeof *p->reals;

    if (launcher && !r->varies && p->ran &&
        memcmp(p->reals + r->to, from, bytes) != 0) {
      r->varies = p->batches_stale = true;
    }
    memcpy(p->reals + r->to, from, bytes);
  }
  given += p->keepings_at - TFD_FRAME_SLOTS;
  for (i = 0; i < p->keepings_n; i++) {
    p->keepings[i]->kept.wanted = given[2 * i];
    p->keepings[i]->kept.data = (void *)(uintptr_t)given[2 * i + 1];
  }
  p->ran = true;
}

static int run_program(const tfd__call *outer) {
  const int64_t *frame = outer->ints;
  tfd__program *p = (tfd__program *)(uintptr_t)frame[TFD_FRAME_PROGRAM];
  int first = (int)frame[TFD_FRAME_FIRST];
  int64_t begin = tfd__span_begin();
  int rc;

  if (first == 0) fill_in(p, frame + TFD_FRAME_SLOTS);
  rc = tfd__launches_run(p, outer, frame + TFD_FRAME_SLOTS, first,
                         (int)frame[TFD_FRAME_END]);
  tfd__span_end(TFD_SPAN_GRAPH, p->name, begin, outer->replica);
  return rc;
}

/* --- what a call needs ---------------------------------------------------- */

static int bring_input(const tfd__program *p, tfd_tensor *t,
                       tfd_tensor **ready_p) {
  TFD_TRY(tfd__buffer_check(t->buffer));
  return tfd__tensor_to_device(t, p->device, ready_p);
}

/* Give v a buffer that nothing else shows, with the same values. */
TFD_COLD static int separate(tfd_variable *v) {
  tfd_device *d = v->value->device;
  tfd__buffer *own = NULL;
  tfd__view views[2] = {v->value->view, v->value->view};
  tfd__call call = {.name = "copy",
                    .kernel = d->backend->kernels[TFD_KERNEL_copy],
                    .views = views,
                    .in_n = 1,
                    .out_n = 1,
                    .replica = -1};
  int rc;

  TFD_TRY(tfd__buffer_new(d, tfd__view_bytes(&views[0]), &own));
  views[1].data = own->data;
  rc = tfd__stream_submit(d, &call);
  if (rc != TFD_OK) {
    tfd__release(own);
    return rc;
  }
  if (!tfd__stream_is_inline(d)) tfd__buffer_made(own, tfd__stream_seq(d));
  tfd__variable_move(v, own);
  return TFD_OK;
}

static int bring_variable(const tfd__program *p, int i, tfd_variable *v,
                          int64_t *slot) {
  tfd__buffer *b = v->value->buffer;

  TFD_TRY(tfd__buffer_check(b));
  if (p->writes[i] && atomic_load(&b->object.refs) != 1) {
    TFD_TRY(separate(v));
  }
  *slot = (int64_t)(uintptr_t)v->value->view.data;
  return TFD_OK;
}

static int64_t *fill_slot(tfd__program *p, int64_t *slot, void *data,
                          size_t bytes) {
  if (p->device->backend->launcher != NULL && bytes > 0) {
    tfd__launches_see(p, (int)(slot - p->frame) - TFD_FRAME_SLOTS, data, bytes);
  }
  *slot = (int64_t)(uintptr_t)data;
  return slot + 1;
}

static void bring_kept(const tfd__program *p, const tfd_variable *v,
                       tfd__keeping *k, int64_t *slot) {
  int64_t version = tfd_variable_version(v);

  if (k->buffer == NULL && k->seen == version && !k->refused) {
    k->refused =
        tfd__buffer_new(p->device, k->kept.bytes, &k->buffer) != TFD_OK;
  }
  k->seen = version;
  slot[0] = version;
  slot[1] = k->buffer == NULL ? 0 : (int64_t)(uintptr_t)k->buffer->data;
}

static int bring(tfd_graph *g, tfd__program *p, tfd_tensor *const *inputs,
                 const tfd__given *given) {
  int64_t *slot = p->frame + TFD_FRAME_SLOTS;
  int i;

  /* One whose making failed was not known for it when the program was made. */
  for (i = 0; i < p->constants_n; i++) {
    TFD_TRY(tfd__buffer_check(p->constants[i]->buffer));
  }
  for (i = 0; i < p->inputs_n; i++) {
    TFD_TRY(bring_input(p, inputs[i], &p->ready[i]));
    slot = fill_slot(
        p, slot, p->ready[i]->view.data,
        p->ready[i]->view.dense ? tfd__view_bytes(&p->ready[i]->view) : 0);
  }
  for (i = 0; i < p->variables_n; i++) {
    TFD_TRY(bring_variable(p, i, g->variables[i], slot++));
  }
  for (i = 0; i < p->fresh_n; i++) {
    TFD_TRY(tfd__buffer_new(p->device, p->fresh[i], &p->made[i]));
    slot = fill_slot(p, slot, p->made[i]->data, p->fresh[i]);
  }
  if (g->draws_n > 0) {
    memcpy(slot, given->words, (size_t)g->draws_n * sizeof *slot);
  }
  if (g->numbers_n > 0) { /* their bits */
    memcpy(slot + g->draws_n, given->numbers,
           (size_t)g->numbers_n * sizeof *slot);
  }
  slot = p->frame + p->keepings_at;
  for (i = 0; i < p->keepings_n; i++, slot += 2) {
    bring_kept(p, g->variables[p->keepings[i]->variable], p->keepings[i], slot);
  }
  return TFD_OK;
}

/* --- what a call leaves --------------------------------------------------- */

static void mark_written(tfd_graph *g, const tfd__program *p, bool again) {
  bool late = !tfd__stream_is_inline(p->device);
  uint64_t seq = late ? tfd__stream_seq(p->device) : 0;
  int i;

  for (i = 0; i < p->variables_n; i++) {
    if (!p->writes[i]) continue;
    if (!again) g->variables[i]->version++;
    if (late) g->variables[i]->value->buffer->use_seq = seq;
  }
  if (!late) return;
  for (i = 0; i < p->fresh_n; i++) tfd__buffer_made(p->made[i], seq);
  tfd__buffer_made(p->arena, seq);
  for (i = 0; i < p->keepings_n; i++) {
    if (p->keepings[i]->buffer == NULL) continue;
    tfd__buffer_made(p->keepings[i]->buffer, seq);
  }
  tfd__launches_made(p, seq);
}

static int yield_result(const tfd__program *p, const tfd__yield *y,
                        tfd_tensor **t_p) {
  tfd__view view = y->view;
  tfd__buffer *b = NULL;
  char *base = NULL;

  switch (y->kind) {
  case TFD_PLACE_INPUT:
    b = p->ready[y->of]->buffer;
    base = p->ready[y->of]->view.data;
    break;
  case TFD_PLACE_CONSTANT:
    b = p->constants[y->of]->buffer;
    base = p->constants[y->of]->view.data;
    break;
  default:
    b = p->made[y->of];
    base = b->data;
    break;
  }
  view.data = base + y->offset;
  tfd__retain(b);
  return tfd__tensor_wrap(p->device, b, &view, t_p);
}

static int yield_results(const tfd__program *p, tfd_tensor **outputs) {
  int i;

  for (i = 0; i < p->yields_n; i++) {
    int rc = yield_result(p, &p->yields[i], &outputs[i]);

    if (rc == TFD_OK) continue;
    while (i > 0) {
      tfd__release(outputs[--i]);
      outputs[i] = NULL;
    }
    return rc;
  }
  return TFD_OK;
}

int tfd__program_begin(tfd_graph *g, tfd__program *p, tfd_tensor *const *inputs,
                       const tfd__given *given, tfd_tensor **outputs) {
  p->submitted = 0;
  TFD_TRY(bring(g, p, inputs, given));
  return yield_results(p, outputs);
}

int tfd__program_go(tfd_graph *g, tfd__program *p, int end) {
  tfd__call call = {.kernel = run_program,
                    .ints = p->frame,
                    .ints_n = p->keepings_at + 2 * p->keepings_n,
                    .replica = tfd__context()->replica};
  bool again = p->submitted > 0;

  if (end <= p->submitted && p->calls_n > 0) return TFD_OK;
  p->frame[TFD_FRAME_FIRST] = p->submitted;
  p->frame[TFD_FRAME_END] = p->submitted = end;
  TFD_TRY(tfd__stream_submit(p->device, &call));
  mark_written(g, p, again);
  return TFD_OK;
}

void tfd__program_end(tfd__program *p) {
  int i;

  for (i = 0; i < p->inputs_n; i++) {
    tfd__release(p->ready[i]);
    p->ready[i] = NULL;
  }
  for (i = 0; i < p->fresh_n; i++) {
    tfd__release(p->made[i]);
    p->made[i] = NULL;
  }
}

int tfd__program_call(tfd_graph *g, tfd__program *p, tfd_tensor *const *inputs,
                      const tfd__given *given, tfd_tensor **outputs) {
  int rc = tfd__program_begin(g, p, inputs, given, outputs);
  int i;

  if (rc == TFD_OK) {
    rc = tfd__program_go(g, p, p->calls_n);
    for (i = 0; rc != TFD_OK && i < p->yields_n; i++) {
      tfd__release(outputs[i]);
      outputs[i] = NULL;
    }
  }
  tfd__program_end(p);
  return rc;
}

/* -------------------------------------------------------------------------- */

static void free_lists(tfd__program *p) {
  tfd__free(p->layout);
  tfd__free(p->calls);
  tfd__free(p->flops);
  tfd__free(p->views);
  tfd__free(p->ints);
  tfd__free(p->reals);
  tfd__free(p->patches);
  tfd__free(p->redraws);
  tfd__free(p->renumbers);
  tfd__free(p->stretches);
  tfd__free(p->constants);
  tfd__free(p->fresh);
  tfd__free(p->fused);
  tfd__free(p->keepings);
  tfd__free(p->yields);
  tfd__free(p->writes);
  tfd__free(p->frame);
  tfd__free(p->made);
  tfd__free(p->ready);
}

void tfd__fused_free(const tfd__program *p, tfd__fused *own) {
  if (own->strip != NULL) p->device->backend->fuser->free(own->strip);
  tfd__free(own->blocks);
  tfd__free(own->name);
}

void tfd__program_free(tfd__program *p) {
  int i;

  if (p == NULL) return;
  if (p->arena != NULL &&
      tfd__buffer_state_of(p->arena) == TFD_BUFFER_PENDING) {
    tfd__buffer_finish(p->arena);
    /* Interrupted: a queue still points at it, so that it stays. */
    if (tfd__buffer_state_of(p->arena) == TFD_BUFFER_PENDING) return;
  }
  tfd__launches_free(p);
  for (i = 0; i < p->constants_n; i++) tfd__release(p->constants[i]);
  for (i = 0; i < p->fused_n; i++) tfd__fused_free(p, &p->fused[i]);
  for (i = 0; i < p->keepings_n; i++) {
    tfd__release(p->keepings[i]->buffer);
    tfd__free(p->keepings[i]);
  }
  tfd__release(p->arena);
  free_lists(p);
  tfd__free(p);
}
