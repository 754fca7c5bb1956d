/* From a group of nodes to one call of a fused program. */
#include <stdio.h>
#include <string.h>

#include "graph/lower.h"

typedef struct fusing {
  tfd__lowering *l;
  int first; /* node */
  int n;
  tfd__strip_op ops[TFD_STRIP_OPS];
  int16_t maker[TFD_STRIP_OPS]; /* of each node: the op that is its result */
  int ops_n;
  int values[TFD_STRIP_INPUTS]; /* that the inputs are */
  tfd__strip_input inputs[TFD_STRIP_INPUTS];
  int inputs_n;
  int16_t outputs[TFD_STRIP_OUTPUTS]; /* ops */
  int left[TFD_STRIP_OUTPUTS];        /* nodes that make them */
  int outputs_n;
} fusing;

/* --- ops ------------------------------------------------------------------ */

/* The number that value v is in all calls, where it costs nothing to look. */
static void look_up(const fusing *f, int v, tfd__strip_input *in) {
  const tfd__graph_value *value = &f->l->b.values[v];

  in->known =
      in->scalar && value->origin == TFD_FROM_CONSTANT &&
      tfd__is_float(in->dtype) && /* a double holds them */
      f->l->p->device->backend->host_visible &&
      tfd_tensor_item(f->l->g->constants[value->of], 0, &in->value) == TFD_OK;
}

/* Value v as an operand: what an op of the group makes, or an input. */
static tfd__strip_arg operand(fusing *f, int v) {
  const tfd__body *b = &f->l->b;
  const tfd__view *view = &b->values[v].view;
  int i;

  for (i = 0; i < f->n; i++) {
    if (b->nodes[f->first + i].out == v && f->maker[i] >= 0) {
      return (tfd__strip_arg){.from = TFD_STRIP_RESULT, .index = f->maker[i]};
    }
  }
  for (i = 0; i < f->inputs_n && f->values[i] != v; i++) continue;
  if (i == f->inputs_n) {
    f->values[i] = v;
    f->inputs[i] = (tfd__strip_input){.dtype = (uint8_t)view->dtype,
                                      .scalar = view->numel == 1};
    look_up(f, v, &f->inputs[i]);
    f->inputs_n++;
  }
  return (tfd__strip_arg){.from = TFD_STRIP_INPUT, .index = (int16_t)i};
}

static tfd__strip_op *add_op(fusing *f, const tfd__node *n, int kernel) {
  tfd__strip_op *o = &f->ops[f->ops_n++];

  memset(o, 0, sizeof *o);
  o->kernel = (tfd__kernel_id)kernel;
  o->dtype = (uint8_t)f->l->b.values[n->out].view.dtype;
  return o;
}

static tfd__strip_arg last_op(const fusing *f) {
  return (tfd__strip_arg){.from = TFD_STRIP_RESULT,
                          .index = (int16_t)(f->ops_n - 1)};
}

static void add_own(fusing *f, const tfd__node *n) {
  const tfd__body *b = &f->l->b;
  tfd__strip_op *o = add_op(f, n, n->op->kernel);
  int i;

  o->args_n = (uint8_t)n->in_n;
  for (i = 0; i < n->in_n; i++) {
    o->args[i] = operand(f, b->operands[n->in + i]);
  }
  o->ints = b->ints + n->ints;
  o->reals = b->reals + n->reals;
  o->ints_n = (int16_t)n->op->ints_n;
  o->reals_n = (int16_t)n->op->reals_n;
}

/* Operands from the left. */
static void add_sum(fusing *f, const tfd__node *n) {
  const int *v = f->l->b.operands + n->in;
  int i;

  for (i = 1; i < n->in_n; i++) {
    tfd__strip_arg left = i == 1 ? operand(f, v[0]) : last_op(f);
    tfd__strip_arg right = operand(f, v[i]);
    tfd__strip_op *o = add_op(f, n, TFD_KERNEL_add);

    o->args_n = 2;
    o->args[0] = left;
    o->args[1] = right;
  }
}

static void add_node(fusing *f, int i) {
  const tfd__node *n = &f->l->b.nodes[f->first + i];

  switch (n->op->kernel) {
  case TFD_KERNEL_add_n:
  case TFD_KERNEL_bias_add:
    add_sum(f, n);
    break;
  case TFD_KERNEL_bias_add_relu: {
    tfd__strip_arg sum;
    tfd__strip_op *o = NULL;

    add_sum(f, n);
    sum = last_op(f);
    o = add_op(f, n, TFD_KERNEL_relu);
    o->args_n = 1;
    o->args[0] = sum;
    break;
  }
  default:
    add_own(f, n);
    break;
  }
  f->maker[i] = (int16_t)(f->ops_n - 1);
}

static void find_outputs(fusing *f) {
  const tfd__lowering *l = f->l;
  int i;

  for (i = 0; i < f->n; i++) {
    int v = l->b.nodes[f->first + i].out;

    if (l->b.nodes[f->first + i].targets_n == 0 &&
        l->last[v] < f->first + f->n) {
      continue;
    }
    f->left[f->outputs_n] = f->first + i;
    f->outputs[f->outputs_n++] = f->maker[i];
  }
}

/* --- the call ------------------------------------------------------------- */

char *tfd__group_name(const tfd__node *nodes, int n) {
  char text[512] = "fused(";
  size_t at = strlen(text);
  int i;

  if (n == 1) return tfd__strdup(nodes->op->name);
  for (i = 0; i < n && at < sizeof text - 64; i++) {
    at += (size_t)snprintf(text + at, 64, "%s%s", i > 0 ? ", " : "",
                           nodes[i].op->name);
  }
  (void)snprintf(text + at, sizeof text - at, "%s)", i < n ? ", ..." : "");
  return tfd__strdup(text);
}

/* An input that nobody needs any more, whose place output i may take; -1 =
** there is none. */
static int to_replace(const fusing *f, const tfd__strip *strip, int i) {
  const tfd__lowering *l = f->l;
  const tfd__fuser *fuser = l->p->device->backend->fuser;
  int v = l->b.nodes[f->left[i]].out;
  int k;
  int j;

  for (k = 0; k < f->inputs_n; k++) {
    const tfd__place *p = &l->places[f->values[k]];

    if (p->kind != TFD_PLACE_ARENA || f->inputs[k].scalar || !p->view.dense ||
        l->until[p->of] >= f->first + f->n ||
        !tfd__same_shape(&p->view, &l->b.values[v].view) ||
        l->p->stretches[p->of].bytes != tfd__view_bytes(&p->view) ||
        !fuser->in_place(strip, i, k)) {
      continue;
    }
    for (j = 0; j < f->inputs_n; j++) {
      if (j != k && tfd__same_place(&l->places[f->values[j]], p)) break;
    }
    if (j == f->inputs_n) return k;
  }
  return -1;
}

static int place_output(fusing *f, const tfd__strip *strip, int i) {
  tfd__lowering *l = f->l;
  const tfd__node *n = &l->b.nodes[f->left[i]];
  const tfd__view *view = &l->b.values[n->out].view;
  tfd__place *place = &l->places[n->out];
  int k = n->targets_n > 0 ? -1 : to_replace(f, strip, i);

  if (k >= 0) {
    *place = l->places[f->values[k]];
    l->until[place->of] = l->last[n->out];
    return TFD_OK;
  }
  if (n->targets_n == 0) {
    return tfd__emit_place(l, view, l->last[n->out], place);
  }
  tfd__emit_target(l, n, 0, view, place);
  return TFD_OK;
}

/* Is what the group overwrites read no more by then? */
static bool may_write(const fusing *f, const tfd__strip *strip) {
  const tfd__lowering *l = f->l;
  const tfd__fuser *fuser = l->p->device->backend->fuser;
  int i;
  int k;

  for (i = 0; i < f->outputs_n; i++) {
    const tfd__node *n = &l->b.nodes[f->left[i]];
    const tfd__view *view = &l->b.values[n->out].view;

    for (k = 0; k < f->inputs_n && n->targets_n > 0; k++) {
      const tfd__place *p = &l->places[f->values[k]];

      if (p->kind == TFD_PLACE_VARIABLE && p->of == l->b.targets[n->targets] &&
          (!tfd__same_shape(&p->view, view) || !p->view.dense ||
           f->inputs[k].scalar || !fuser->in_place(strip, i, k))) {
        return false;
      }
    }
  }
  return true;
}

static int emit(fusing *f, tfd__strip *strip) {
  tfd__lowering *l = f->l;
  tfd__place at[TFD_STRIP_INPUTS];
  const tfd__place *in[TFD_STRIP_INPUTS];
  const tfd__place *out[TFD_STRIP_OUTPUTS];
  const char *name = NULL;
  int i;

  TFD_TRY(tfd__emit_own(
      l, (tfd__fused){.strip = strip,
                      .name = tfd__group_name(&l->b.nodes[f->first], f->n)}));
  name = l->p->fused[l->p->fused_n - 1].name;
  for (i = 0; i < f->inputs_n; i++) {
    at[i] = l->places[f->values[i]];
    in[i] = &at[i];
  }
  for (i = 0; i < f->outputs_n; i++) {
    TFD_TRY(place_output(f, strip, i));
    out[i] = &l->places[l->b.nodes[f->left[i]].out];
  }
  TFD_TRY(tfd__emit_call(l, f->first + f->n - 1, TFD_KERNEL_strip, name, in,
                         f->inputs_n, out, f->outputs_n));
  l->p->flops[l->p->calls_n - 1] =
      (double)f->ops_n *
      (double)l->b.values[l->b.nodes[f->first].out].view.numel;
  return tfd__emit_address(l, strip);
}

/* A node alone has a kernel of its own, which needs a place of its own. Where
** the result is small that costs less than the memory that a strip saves. */
static bool is_small(const tfd__lowering *l, int node) {
  enum { SMALL = 8192 }; /* bytes */

  return tfd__view_bytes(&l->b.values[l->b.nodes[node].out].view) < SMALL;
}

int tfd__lower_group(tfd__lowering *l, int first, int n, bool *done_p) {
  fusing f = {.l = l, .first = first, .n = n};
  const tfd_device *device = l->p->device;
  tfd__strip *strip = NULL;
  tfd__strip_text text = {
      .inputs = f.inputs, .ops = f.ops, .outputs = f.outputs};
  int refused = -1;
  int i;
  int rc;

  *done_p = false;
  if (n == 1 && is_small(l, first)) return TFD_OK;
  for (i = 0; i < n; i++) f.maker[i] = -1;
  for (i = 0; i < n; i++) add_node(&f, i);
  find_outputs(&f);
  text.inputs_n = f.inputs_n;
  text.ops_n = f.ops_n;
  text.outputs_n = f.outputs_n;
  rc =
      device->backend->fuser->compile(device->ordinal, &text, &strip, &refused);
  if (rc == TFD_NOT_IMPLEMENTED && refused >= 0) return TFD_OK;
  TFD_TRY(rc);
  if (!may_write(&f, strip) || (n == 1 && to_replace(&f, strip, 0) < 0)) {
    device->backend->fuser->free(strip);
    return TFD_OK;
  }
  *done_p = true;
  return emit(&f, strip);
}
