/* The table of rules, and the rules of src/ops/defs/core.def. */
#include "autograd/tape.h"

/* Stands in the table for ops that no gradient flows through. */
int tfd__grad_none(tfd__grad *g) {
  return g->status;
}

static const tfd__grad_fn rules[TFD_OP_N] = {
#define OP(name, schema, infer, kernel, grad, flags) \
  [TFD_OP_##name] = tfd__grad_##grad,
#include "ops/defs/all.def"
#undef OP
};

tfd__grad_fn tfd__grad_rule(int op) {
  return rules[op] == tfd__grad_none ? NULL : rules[op];
}

/* Also the rule of copies between devices. */
int tfd__grad_identity(tfd__grad *g) {
  tfd__grad_set(g, 0, g->dy[0]);
  return g->status;
}

int tfd__grad_reshape(tfd__grad *g) {
  tfd__grad_set(g, 0, tfd__e_reshape_like(g, g->dy[0], g->in[0]));
  return g->status;
}

int tfd__grad_broadcast_to(tfd__grad *g) {
  tfd__grad_set(g, 0, tfd__e_unbroadcast(g, g->dy[0], g->in[0]));
  return g->status;
}
