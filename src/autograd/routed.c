#include "autograd/routed.h"

#include "backend/window.h"

static bool is_relu(const tfd__entry *e) {
  return e->op != NULL && (e->op->kernel == TFD_KERNEL_relu ||
                           e->op->kernel == TFD_KERNEL_bias_add_relu);
}

bool tfd__routed_may_begin(const tfd__entry *pool) {
  const tfd__entry *relu = pool->prev;

  return pool->op->kernel == TFD_KERNEL_max_pool && relu != NULL &&
         is_relu(relu) && relu->notes[relu->in_n].slot == pool->notes[0].slot &&
         !tfd__pool_attrs(pool->ints).channels_first;
}

void tfd__routed_begin(tfd__routed *r, const tfd__entry *pool, tfd__grad *g) {
  tfd__routed_forget(r);
  tfd__retain(g->routed);
  tfd__retain(g->dx[0]);
  r->from = g->routed;
  r->to = g->dx[0];
  r->relu = pool->notes[0].slot;
}

void tfd__routed_recall(tfd__routed *r, const tfd__entry *e,
                        tfd_object *const *grads, tfd__grad *g) {
  const tfd__note *out = &e->notes[e->in_n];

  if (e->out_n != 1 || out->slot == TFD_NO_SLOT || grads[out->slot] != r->to) {
    tfd__routed_forget(r);
    return;
  }
  g->routed = r->from;
  g->gated = out->slot == r->relu && is_relu(e);
}

void tfd__routed_forget(tfd__routed *r) {
  tfd__release(r->from);
  tfd__release(r->to);
  *r = (tfd__routed){0};
}
