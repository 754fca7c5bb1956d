/* Calls of a program: pointers in, one piece of work, results out.
**
** Cost of a call: for each input and variable a look and a pointer, for each
** result a pooled buffer and a header; nothing else is allocated. The frame,
** the program's address and all pointers and words, travels as the attributes
** of one call, so that queued calls do not meet.
**
** A program runs in the order of its device's stream; so its arena, its views
** and its attributes belong to the call that runs. */
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

/* --- on the stream -------------------------------------------------------- */

static void fill_in(tfd__program *p, const int64_t *slots) {
  const int64_t *words = slots + p->inputs_n + p->variables_n + p->fresh_n;
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
    const tfd__renumber *r = &p->renumbers[i];

    memcpy(p->reals + r->to, words + p->words_n + r->from,
           (size_t)r->n * sizeof *p->reals);
  }
}

static int blame(const tfd__call *call, int rc) {
  char where[256] = "";

  if (call->file != NULL && call->line > 0) {
    (void)snprintf(where, sizeof where, "%s:%d", call->file, call->line);
  }
  (void)tfd__error_set_place(call->replica, where);
  (void)tfd__error_set_note(call->note);
  (void)tfd__blame(call->name, NULL, -1);
  return rc;
}

/* A name may be the program's own, which the timeline outlives. */
TFD_COLD static void note_call(const tfd__call *call, int64_t begin) {
  tfd__span_end(TFD_SPAN_OP, tfd__span_name(call->name), begin, call->replica);
}

static int run_calls(tfd__program *p, const tfd__call *outer) {
  int i;

  for (i = 0; i < p->calls_n; i++) {
    tfd__call *call = &p->calls[i];
    int64_t begin = tfd__span_begin();
    int rc;

    call->stream = outer->stream;
    rc = call->kernel(call);
    tfd__scratch_reset();
    if (!TFD_LIKELY(begin == 0)) note_call(call, begin);
    if (!TFD_LIKELY(rc == TFD_OK)) return blame(call, rc);
  }
  return TFD_OK;
}

static int run_program(const tfd__call *outer) {
  tfd__program *p = (tfd__program *)(uintptr_t)outer->ints[0];
  int64_t begin = tfd__span_begin();
  int rc;

  fill_in(p, outer->ints + 1);
  rc = run_calls(p, outer);
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
  tfd__variable_replace(v, own);
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

static int bring(tfd_graph *g, tfd__program *p, tfd_tensor *const *inputs,
                 const tfd__given *given) {
  int64_t *slot = p->frame + 1;
  int i;

  for (i = 0; i < p->inputs_n; i++) {
    TFD_TRY(bring_input(p, inputs[i], &p->ready[i]));
    *slot++ = (int64_t)(uintptr_t)p->ready[i]->view.data;
  }
  for (i = 0; i < p->variables_n; i++) {
    TFD_TRY(bring_variable(p, i, g->variables[i], slot++));
  }
  for (i = 0; i < p->fresh_n; i++) {
    TFD_TRY(tfd__buffer_new(p->device, p->fresh[i], &p->made[i]));
    *slot++ = (int64_t)(uintptr_t)p->made[i]->data;
  }
  if (g->draws_n > 0) {
    memcpy(slot, given->words, (size_t)g->draws_n * sizeof *slot);
  }
  if (g->numbers_n > 0) { /* their bits */
    memcpy(slot + g->draws_n, given->numbers,
           (size_t)g->numbers_n * sizeof *slot);
  }
  return TFD_OK;
}

/* --- what a call leaves --------------------------------------------------- */

static void mark_written(tfd_graph *g, const tfd__program *p) {
  bool late = !tfd__stream_is_inline(p->device);
  uint64_t seq = late ? tfd__stream_seq(p->device) : 0;
  int i;

  for (i = 0; i < p->variables_n; i++) {
    if (!p->writes[i]) continue;
    g->variables[i]->version++;
    if (late) g->variables[i]->value->buffer->use_seq = seq;
  }
  if (!late) return;
  for (i = 0; i < p->fresh_n; i++) tfd__buffer_made(p->made[i], seq);
  tfd__buffer_made(p->arena, seq);
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

static void clean_up(tfd__program *p) {
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
  tfd__call call = {.kernel = run_program,
                    .ints = p->frame,
                    .ints_n = (int16_t)(1 + p->inputs_n + p->variables_n +
                                        p->fresh_n + g->draws_n + g->numbers_n),
                    .replica = tfd__context()->replica};
  int rc = bring(g, p, inputs, given);

  if (rc == TFD_OK) rc = tfd__stream_submit(p->device, &call);
  if (rc == TFD_OK) {
    mark_written(g, p);
    rc = yield_results(p, outputs);
  }
  clean_up(p);
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
  tfd__free(p->yields);
  tfd__free(p->writes);
  tfd__free(p->frame);
  tfd__free(p->made);
  tfd__free(p->ready);
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
  for (i = 0; i < p->constants_n; i++) tfd__release(p->constants[i]);
  for (i = 0; i < p->fused_n; i++) {
    tfd__strip_free(p->fused[i].strip);
    tfd__free(p->fused[i].name);
  }
  tfd__release(p->arena);
  free_lists(p);
  tfd__free(p);
}
