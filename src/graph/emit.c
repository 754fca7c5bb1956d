/* Calls of a program on places, whose memory is not planned yet. */
#include <string.h>

#include "graph/lower.h"

static int new_stretch(tfd__lowering *l, size_t bytes, int until,
                       int *number_p) {
  tfd__program *p = l->p;

  TFD_TRY(TFD_GROW(p->stretches, 1));
  TFD_TRY(TFD_GROW(l->until, 1));
  *number_p = p->stretches_n;
  p->stretches[p->stretches_n++] =
      (tfd__stretch){.bytes = bytes, .first = p->calls_n, .last = p->calls_n};
  l->until[l->until_n++] = until;
  return TFD_OK;
}

int tfd__emit_place(tfd__lowering *l, const tfd__view *like, int until,
                    tfd__place *place) {
  memset(place, 0, sizeof *place);
  TFD_TRY(tfd__view_set(&place->view, like->dtype, like->dims, like->rank));
  place->view.data = NULL;
  place->kind = TFD_PLACE_ARENA;
  return new_stretch(l, tfd__view_bytes(&place->view), until, &place->of);
}

void tfd__emit_target(tfd__lowering *l, const tfd__node *n, int target,
                      const tfd__view *view, tfd__place *place) {
  memset(place, 0, sizeof *place);
  place->view = *view;
  place->view.data = NULL;
  place->kind = TFD_PLACE_VARIABLE;
  place->of = l->b.targets[n->targets + target];
  l->p->writes[place->of] = true;
}

static int add_view(tfd__lowering *l, const tfd__place *place) {
  tfd__program *p = l->p;

  TFD_TRY(TFD_GROW(p->views, 1));
  TFD_TRY(TFD_GROW(l->seen, 1));
  if (place == NULL) { /* an absent optional input */
    memset(&p->views[p->views_n], 0, sizeof *p->views);
    memset(&l->seen[l->seen_n], 0, sizeof *l->seen);
    l->seen[l->seen_n].kind = TFD_PLACE_CONSTANT;
    l->seen[l->seen_n].of = -1;
  } else {
    p->views[p->views_n] = place->view;
    l->seen[l->seen_n] = *place;
    if (place->kind == TFD_PLACE_ARENA) {
      p->stretches[place->of].last = p->calls_n;
    }
  }
  p->views_n++;
  l->seen_n++;
  return TFD_OK;
}

int tfd__emit_view(tfd__lowering *l, const tfd__place *place) {
  l->p->calls_n--; /* it lives until that call */
  TFD_TRY(add_view(l, place));
  l->p->calls_n++;
  return TFD_OK;
}

/* Pointers become indices until the lists have their final places. */
int tfd__emit_attributes(tfd__lowering *l, const tfd__node *n) {
  tfd__program *p = l->p;
  const tfd__op *op = n->op;
  tfd__call *call = &p->calls[p->calls_n - 1];

  TFD_TRY(TFD_GROW(p->ints, op->ints_n));
  TFD_TRY(TFD_GROW(p->reals, op->reals_n));
  TFD_TRY(TFD_GROW(p->redraws, 1));
  TFD_TRY(TFD_GROW(p->renumbers, 1));
  if (op->ints_n > 0) {
    memcpy(p->ints + p->ints_n, l->b.ints + n->ints,
           (size_t)op->ints_n * sizeof *p->ints);
  }
  if (op->reals_n > 0) {
    memcpy(p->reals + p->reals_n, l->b.reals + n->reals,
           (size_t)op->reals_n * sizeof *p->reals);
  }
  if (n->draw >= 0) {
    p->redraws[p->redraws_n++] =
        (tfd__redraw){.from = n->draw, .to = p->ints_n + n->draw_slot};
  }
  if (n->numbers >= 0) {
    p->renumbers[p->renumbers_n++] =
        (tfd__renumber){.from = n->numbers, .to = p->reals_n, .n = op->reals_n};
  }
  call->ints_n = op->ints_n;
  call->reals_n = op->reals_n;
  p->ints_n += op->ints_n;
  p->reals_n += op->reals_n;
  return TFD_OK;
}

int tfd__emit_call(tfd__lowering *l, int node, tfd__kernel_id kernel,
                   const char *name, const tfd__place *const *in, int in_n,
                   const tfd__place *const *out, int out_n) {
  tfd__program *p = l->p;
  const tfd__node *n = &l->b.nodes[node];
  tfd__call call = {.name = name,
                    .kernel = p->device->backend->kernels[kernel],
                    .in_n = in_n,
                    .out_n = out_n,
                    .replica = n->replica,
                    .line = n->line,
                    .file = n->file,
                    .note = n->note};
  int i;

  TFD_TRY(TFD_GROW(p->calls, 1));
  TFD_TRY(TFD_GROW(p->flops, 1));
  TFD_TRY(TFD_GROW(l->kernels, 1));
  for (i = 0; i < in_n; i++) TFD_TRY(add_view(l, in[i]));
  for (i = 0; i < out_n; i++) {
    TFD_TRY(add_view(l, out[i]));
    call.shows |= out[i]->kind == TFD_PLACE_VARIABLE;
  }
  p->calls[p->calls_n++] = call;
  p->flops[p->flops_n++] = 0;
  l->kernels[l->kernels_n++] = kernel;
  return TFD_OK;
}

int tfd__emit_int(tfd__lowering *l, int64_t number) {
  tfd__program *p = l->p;

  TFD_TRY(TFD_GROW(p->ints, 1));
  p->ints[p->ints_n++] = number;
  p->calls[p->calls_n - 1].ints_n++;
  return TFD_OK;
}

int tfd__emit_address(tfd__lowering *l, const void *address) {
  return tfd__emit_int(l, (int64_t)(uintptr_t)address);
}

int tfd__emit_own(tfd__lowering *l, tfd__fused own) {
  tfd__program *p = l->p;

  if (own.name == NULL || TFD_GROW(p->fused, 1) != TFD_OK) {
    tfd__fused_free(p, &own);
    return tfd__no_memory(sizeof *p->fused, "graph");
  }
  p->fused[p->fused_n++] = own;
  return TFD_OK;
}

int tfd__emit_kept(tfd__lowering *l, int variable, size_t bytes) {
  tfd__program *p = l->p;
  tfd__keeping *k = NULL;

  TFD_TRY(TFD_GROW(p->keepings, 1));
  k = tfd__alloc(sizeof *k);
  if (k == NULL) return tfd__no_memory(sizeof *k, "graph");
  *k = (tfd__keeping){.kept = {.bytes = bytes, .version = -1},
                      .variable = variable,
                      .seen = -1};
  p->keepings[p->keepings_n++] = k;
  p->calls[p->calls_n - 1].kernel = p->device->backend->keeper->matmul;
  return tfd__emit_address(l, &k->kept);
}

int tfd__emit_copy(tfd__lowering *l, int node, int until, tfd__place *place) {
  tfd__place from = *place;
  tfd__place to;
  const tfd__place *in[1] = {&from};
  const tfd__place *out[1] = {&to};

  TFD_TRY(tfd__emit_place(l, &from.view, until, &to));
  TFD_TRY(tfd__emit_call(l, node, TFD_KERNEL_copy, "copy", in, 1, out, 1));
  *place = to;
  return TFD_OK;
}
