/* Nodes of a graph as calls of their own kernels.
**
** Inference runs once more, for sizes and views as they are; so each kernel
** gets what the dispatcher would give it. Views cost nothing. A read of a
** variable is its memory where its value is used up before the next write,
** else a copy. */
#include <string.h>

#include "graph/lower.h"

typedef struct node_work {
  int node;
  const tfd__node *n;
  tfd__infer infer;
  tfd__place *in; /* copies: they may be made dense */
  const tfd__view **in_views;
  const tfd__place **in_list; /* NULL = absent */
  tfd__place *out;
  const tfd__place **out_list;
} node_work;

static int infer(tfd__lowering *l, node_work *w) {
  const tfd__node *n = w->n;
  tfd__infer *s = &w->infer;
  int i;

  for (i = 0; i < n->in_n; i++) {
    int v = l->b.operands[n->in + i];

    w->in_list[i] = NULL;
    w->in_views[i] = NULL;
    if (v < 0) continue;
    w->in[i] = l->places[v];
    w->in_list[i] = &w->in[i];
    w->in_views[i] = &w->in[i].view;
  }
  memset(s, 0, offsetof(tfd__infer, small));
  s->op = n->op;
  s->name = n->op->name;
  s->in = w->in_views;
  s->in_n = n->in_n;
  s->ints = l->b.ints + n->ints;
  s->reals = l->b.reals + n->reals;
  s->out_n = 1;
  s->out = s->small;
  s->large = NULL;
  TFD_TRY(n->op->infer(s));
  if (s->out_n == n->out_n) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %d outputs for these sizes, %d at the trace",
                   n->op->name, s->out_n, n->out_n);
}

/* The last use of what the node gives. */
static int last_of(const tfd__lowering *l, const tfd__node *n) {
  int last = -1;
  int i;

  for (i = 0; i < n->out_n; i++) {
    if (l->last[n->out + i] > last) last = l->last[n->out + i];
  }
  return last;
}

static int lower_view(tfd__lowering *l, node_work *w) {
  tfd__place base = w->in[0];
  int i;

  if (base.kind == TFD_PLACE_VARIABLE && tfd__node_reads(&l->b, w->n) >= 0 &&
      l->last[w->n->out] >= l->next_write[w->node]) {
    TFD_TRY(tfd__emit_copy(l, w->node, last_of(l, w->n), &base));
  } else if (w->infer.dense_first && !base.view.dense) {
    TFD_TRY(tfd__emit_copy(l, w->node, last_of(l, w->n), &base));
  }
  for (i = 0; i < w->n->out_n; i++) {
    const tfd__out_spec *spec = &w->infer.out[i];
    int64_t bytes = spec->offset * (int64_t)tfd__dtype_size(spec->view.dtype);
    tfd__place *place = &l->places[w->n->out + i];

    *place = base;
    place->view = spec->view;
    place->view.data =
        (void *)(uintptr_t)((int64_t)tfd__place_offset(&base) + bytes);
  }
  return TFD_OK;
}

static int lower_outputs(tfd__lowering *l, node_work *w) {
  const tfd__node *n = w->n;
  int i;

  for (i = 0; i < n->out_n; i++) {
    const tfd__view *view = &w->infer.out[i].view;

    if (i < n->targets_n) {
      tfd__emit_target(l, n, i, view, &w->out[i]);
    } else {
      TFD_TRY(tfd__emit_place(l, view, l->last[n->out + i], &w->out[i]));
    }
    w->out_list[i] = &w->out[i];
    l->places[n->out + i] = w->out[i];
  }
  return TFD_OK;
}

/* Does the device have a kernel for these dtypes and attributes? */
static int check_kernel(tfd__lowering *l, const node_work *w) {
  const tfd__backend *b = l->p->device->backend;
  const tfd__node *n = w->n;
  int views_n = n->in_n + n->out_n;
  tfd__call call = {.name = n->op->name,
                    .kernel = b->kernels[n->op->kernel],
                    .ints = l->b.ints + n->ints,
                    .reals = l->b.reals + n->reals,
                    .in_n = n->in_n,
                    .out_n = n->out_n,
                    .ints_n = n->op->ints_n,
                    .reals_n = n->op->reals_n,
                    .stream = l->p->device->stream};
  tfd__view *views = NULL;
  int i;

  l->impossible = l->impossible || call.kernel == NULL;
  if (call.kernel == NULL || b->can_run == NULL) return TFD_OK;
  views = tfd__calloc((size_t)views_n, sizeof *views);
  if (views == NULL) return tfd__no_memory((size_t)views_n, "graph");
  for (i = 0; i < n->in_n; i++) {
    if (w->in_list[i] != NULL) views[i] = w->in[i].view;
  }
  for (i = 0; i < n->out_n; i++) views[n->in_n + i] = w->infer.out[i].view;
  call.views = views;
  l->impossible = !b->can_run(n->op->kernel, &call);
  tfd__free(views);
  return TFD_OK;
}

/* Each weight meets each place of the output of a convolution. */
static double of_filters(const tfd__view *out, const tfd__view *filters) {
  return 2.0 * (double)out->numel * (double)filters->numel /
         (double)filters->dims[filters->rank - 1];
}

/* Of products exactly; of other kernels one for each element of the largest
** operand or result. */
static double flops_of(const tfd__lowering *l, const node_work *w) {
  const tfd__node *n = w->n;
  const tfd__view *out = &w->infer.out[0].view;
  const tfd__view *a = n->in_n > 0 ? w->in_views[0] : NULL;
  const tfd__view *b = n->in_n > 1 ? w->in_views[1] : NULL;
  int64_t most = out->numel;
  bool turned;
  int i;

  switch (n->op->kernel) {
  case TFD_KERNEL_matmul: /* transpose_a, adjoint_a */
    turned = l->b.ints[n->ints] != 0 || l->b.ints[n->ints + 2] != 0;
    return 2.0 * (double)out->numel *
           (double)a->dims[a->rank - (turned ? 2 : 1)];
  case TFD_KERNEL_conv:
    return of_filters(out, b);
  case TFD_KERNEL_conv_backprop_input:
    return of_filters(b, a);
  case TFD_KERNEL_conv_backprop_filter:
    return of_filters(b, out);
  default:
    break;
  }
  for (i = 0; i < n->in_n; i++) {
    if (w->in_views[i] != NULL && w->in_views[i]->numel > most) {
      most = w->in_views[i]->numel;
    }
  }
  return (double)most;
}

static bool is_written(const tfd__body *b, int variable) {
  int i;

  for (i = 0; i < b->targets_n; i++) {
    if (b->targets[i] == variable) return true;
  }
  return false;
}

/* A product with a weight that only other programs write may keep it in the
** layout that it wants. */
static int keep_weight(tfd__lowering *l, const node_work *w) {
  const tfd__program *p = l->p;
  const tfd__keeper *keeper = p->device->backend->keeper;
  tfd__call call = p->calls[p->calls_n - 1];
  size_t bytes;

  if (keeper == NULL || !l->fuses || w->n->op->kernel != TFD_KERNEL_matmul ||
      w->in[1].kind != TFD_PLACE_VARIABLE || is_written(&l->b, w->in[1].of)) {
    return TFD_OK;
  }
  call.views = p->views + p->views_n - 3;
  call.ints = l->b.ints + w->n->ints;
  bytes = keeper->bytes(&call);
  return bytes > 0 ? tfd__emit_kept(l, w->in[1].of, bytes) : TFD_OK;
}

static int lower_kernel(tfd__lowering *l, node_work *w) {
  const tfd__node *n = w->n;
  bool dense = (n->op->flags & TFD_OP_STRIDED) == 0;
  int i;

  TFD_TRY(check_kernel(l, w));
  if (l->impossible) return TFD_OK;
  for (i = 0; dense && i < n->in_n; i++) {
    if (w->in_list[i] != NULL && !w->in[i].view.dense) {
      TFD_TRY(tfd__emit_copy(l, w->node, w->node, &w->in[i]));
    }
  }
  TFD_TRY(lower_outputs(l, w));
  TFD_TRY(tfd__emit_call(l, w->node, n->op->kernel, n->op->name, w->in_list,
                         n->in_n, w->out_list, n->out_n));
  l->p->flops[l->p->calls_n - 1] = flops_of(l, w);
  TFD_TRY(tfd__emit_attributes(l, n));
  return keep_weight(l, w);
}

/* A product and the n - 1 nodes behind it, a group, as one call. */
static int lower_finished(tfd__lowering *l, node_work *w, int n) {
  tfd__program *p = l->p;
  const tfd__node *end = w->n + n - 1;
  const tfd__place *in[3] = {w->in_list[0], w->in_list[1], NULL};
  const tfd__place *out[1] = {&w->out[0]};
  tfd__place *place = &l->places[end->out];
  int activation = TFD_KERNEL_none;
  tfd__place bias;
  int i;

  for (i = 1; i < n; i++) {
    const tfd__node *e = &w->n[i];
    int v = tfd__added_bias(&l->b, e, e[-1].out);

    if (v >= 0) {
      bias = l->places[v];
      in[2] = &bias;
      if (!bias.view.dense) {
        TFD_TRY(tfd__emit_copy(l, w->node, w->node, &bias));
      }
    }
    if (e->op->kernel == TFD_KERNEL_bias_add_relu) {
      activation = TFD_KERNEL_relu;
    } else if (v < 0) {
      activation = e->op->kernel; /* none of a view */
    }
  }
  TFD_TRY(tfd__emit_place(l, &l->b.values[end->out].view, l->last[end->out],
                          place));
  w->out[0] = *place;
  w->out[0].view = w->infer.out[0].view;
  w->out[0].view.data = NULL;
  TFD_TRY(tfd__emit_own(l, (tfd__fused){.name = tfd__group_name(w->n, n)}));
  TFD_TRY(tfd__emit_call(l, w->node, TFD_KERNEL_none,
                         p->fused[p->fused_n - 1].name, in, 3, out, 1));
  p->calls[p->calls_n - 1].kernel = p->device->backend->finisher->matmul;
  p->flops[p->calls_n - 1] = flops_of(l, w);
  TFD_TRY(tfd__emit_attributes(l, w->n));
  return tfd__emit_int(l, activation);
}

/* Node k, and the n - 1 that finish it. */
static int lower_node(tfd__lowering *l, int k, int n) {
  const tfd__node *first = &l->b.nodes[k];
  size_t ins = (size_t)first->in_n;
  size_t outs = (size_t)first->out_n;
  node_work w = {.node = k, .n = first};
  char *block = tfd__alloc((ins + outs) * (sizeof(tfd__place) + 16) + 16);
  int rc;

  if (block == NULL) return tfd__no_memory((ins + outs) * 200, "graph");
  w.in = (tfd__place *)(void *)block;
  w.out = w.in + ins;
  w.in_views = (const tfd__view **)(void *)(w.out + outs);
  w.in_list = (const tfd__place **)(void *)(w.in_views + ins);
  w.out_list = w.in_list + ins;
  rc = infer(l, &w);
  if (rc == TFD_OK) {
    rc = n > 1           ? lower_finished(l, &w, n)
         : w.infer.alias ? lower_view(l, &w)
                         : lower_kernel(l, &w);
  }
  tfd__free(w.infer.large);
  tfd__free(block);
  return rc;
}

int tfd__lower_from(tfd__lowering *l, int k, int *n_p) {
  const tfd__node *first = &l->b.nodes[k];
  bool done = false;
  int n = 1;
  int i;

  if (l->groups[k] >= 0) {
    while (k + n < l->b.nodes_n && l->groups[k + n] == l->groups[k]) n++;
    if (first->op->kernel != TFD_KERNEL_matmul) {
      TFD_TRY(tfd__lower_group(l, k, n, &done));
    } else if (!tfd__node_is_view(&first[n - 1])) { /* its end could be taken */
      TFD_TRY(lower_node(l, k, n));
      done = true;
    }
  }
  for (i = 0; i < n && !done && !l->impossible; i++) {
    TFD_TRY(lower_node(l, k + i, 1));
  }
  *n_p = n;
  return TFD_OK;
}
