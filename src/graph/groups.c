/* Groups: elementwise nodes that become one pass over memory.
**
** A node joins the groups of the nodes that made its operands if all results
** have one shape, the group stays within what a fused program can hold, and no
** other node has to run between two of the group's. For that last point every
** path is followed, values and order:
** - kernels outside groups keep their order, so that what fails or has an
**   effect does so where the script did it;
** - a read of a variable comes after the write before it, and a write after
**   everything that shows what it overwrites. Assignments of elementwise
**   values can be part of a group, once for each variable.
** Nodes then run in the recorded order, but a group's all together, as late as
** something needs them.
**
** Where the device can (tfd__finisher), a product and the bias and activation
** that alone take what it gives are a group too; nothing else is part of it.
**
** Cost: for each operand one walk over what lies before, at most MOST_STEPS. */
#include <string.h>

#include "graph/graph.h"

enum { MOST_STEPS = 4096 };

typedef struct groups {
  tfd__body *b;
  const tfd__backend *backend;
  tfd__stream *stream;
  int *maker; /* value -> node, -1 = none */
  int *shows; /* value -> variable whose memory it is, -1 = none */
  int *users; /* value -> begin of its list in users_of */
  int *users_of;
  int *head;     /* node -> first of its group */
  int *next;     /* node -> next of its group, -1 = none */
  int *ops;      /* of a head: in its group; 0 = it cannot be in one */
  int *order;    /* node -> begin of its list in order_of */
  int *order_of; /* nodes that run before, whatever they give */
  int *seen;     /* head -> last walk that came by */
  bool *is_done; /* node -> does it have its place? */
  bool *yields;  /* value -> is it a result? */
  int walk;      /* number of the last one */
  int *stack;    /* of heads */
  int stack_n, stack_room;
} groups;

/* --- which nodes can be part of one --------------------------------------- */

/* bias_add is `add`, bias_add_relu is `add` and `relu`, add_n is adds from the
** left: with the bits of their own kernels for floats. */
static int ops_as(const tfd__body *b, const tfd__node *n) {
  const tfd__view *first = &b->values[b->operands[n->in]].view;

  switch (n->op->kernel) {
  case TFD_KERNEL_bias_add:
  case TFD_KERNEL_bias_add_relu:
    if (first->dtype != TFD_FLOAT32 || b->ints[n->ints] != 0) return 0;
    return n->op->kernel == TFD_KERNEL_bias_add ? 1 : 2;
  case TFD_KERNEL_add_n:
    if (first->dtype != TFD_FLOAT32 || n->in_n < 2) return 0;
    return n->in_n - 1;
  default:
    return 1;
  }
}

static bool is_own_kernel(const tfd__node *n) {
  return n->op->kernel != TFD_KERNEL_bias_add &&
         n->op->kernel != TFD_KERNEL_bias_add_relu &&
         n->op->kernel != TFD_KERNEL_add_n;
}

int tfd__fused_ops(const tfd__body *b, const tfd__node *n,
                   const tfd__fuser *fuser) {
  uint8_t dtypes[TFD_STRIP_INPUTS];
  int i;

  if (n->op == NULL || n->dead || n->targets_n > 1 || n->draw >= 0 ||
      n->numbers >= 0 || n->out_n != 1 || n->in_n < 1 ||
      n->in_n > TFD_STRIP_INPUTS || b->values[n->out].view.numel == 0 ||
      (n->op->flags & TFD_OP_STATEFUL) != 0) {
    return 0;
  }
  for (i = 0; i < n->in_n; i++) {
    int v = b->operands[n->in + i];

    if (v < 0) return 0;
    dtypes[i] = b->values[v].view.dtype;
  }
  /* Others are not computed in registers, nor so in place. */
  if (n->targets_n > 0 && b->values[n->out].view.dtype != TFD_FLOAT32) return 0;
  if (is_own_kernel(n) && (!tfd__strip_takes(n->op->kernel, n->in_n, dtypes) ||
                           !fuser->takes(n->op->kernel, n->in_n, dtypes))) {
    return 0;
  }
  return ops_as(b, n);
}

/* Would the device run the node by itself? Where it would not, neither can it
** as part of a group. */
static bool can_run(const groups *s, const tfd__node *n) {
  const tfd__backend *d = s->backend;
  tfd__view views[TFD_STRIP_INPUTS + 1];
  tfd__call call = {.name = n->op->name,
                    .kernel = d->kernels[n->op->kernel],
                    .views = views,
                    .ints = s->b->ints + n->ints,
                    .reals = s->b->reals + n->reals,
                    .in_n = n->in_n,
                    .out_n = 1,
                    .ints_n = n->op->ints_n,
                    .reals_n = n->op->reals_n};
  int i;

  if (call.kernel == NULL || d->can_run == NULL) return call.kernel != NULL;
  for (i = 0; i < n->in_n; i++) {
    views[i] = s->b->values[s->b->operands[n->in + i]].view;
  }
  views[n->in_n] = s->b->values[n->out].view;
  return d->can_run(n->op->kernel, &call);
}

/* --- what comes before what ----------------------------------------------- */

static int operands_n(const tfd__body *b) {
  const tfd__node *last = b->nodes + b->nodes_n - 1;

  return b->nodes_n == 0 ? 0 : last->in + last->in_n;
}

/* Nodes that use each value, in their order. */
static void find_users(groups *s) {
  const tfd__body *b = s->b;
  int *begin = s->users + 1; /* moves to its end while the list is filled */
  int round;
  int k;
  int i;

  for (round = 0; round < 2; round++) {
    for (k = 0; k < b->nodes_n; k++) {
      const tfd__node *n = &b->nodes[k];

      for (i = 0; i < n->in_n && !n->dead; i++) {
        int v = b->operands[n->in + i];

        if (v < 0) continue;
        if (round == 0) begin[v + 1]++;
        if (round == 1) s->users_of[begin[v]++] = k;
      }
    }
    for (i = 0; round == 0 && i < b->values_n; i++) begin[i + 1] += begin[i];
  }
}

/* For one variable. */
typedef struct met {
  int write;  /* the last node that wrote it, -1 = none */
  int reader; /* operand that shows what that left, -1 = none */
} met;

/* What node k comes after: of each variable that it reads the last write, of
** each that it writes all that read what it replaces, too. */
static void order_node(groups *s, int k, met *of, int *links, int *n_p) {
  const tfd__body *b = s->b;
  const tfd__node *n = &b->nodes[k];
  int i;

  for (i = 0; i < n->in_n; i++) {
    int at = n->in + i;
    met *m = b->operands[at] < 0 || s->shows[b->operands[at]] < 0
                 ? NULL
                 : &of[s->shows[b->operands[at]]];

    if (m == NULL) continue;
    s->order_of[(*n_p)++] = m->write;
    links[2 * at] = m->reader;
    links[2 * at + 1] = k;
    m->reader = at;
  }
  for (i = 0; i < n->targets_n; i++) {
    met *m = &of[b->targets[n->targets + i]];

    s->order_of[(*n_p)++] = m->write;
    for (; m->reader >= 0; m->reader = links[2 * m->reader]) {
      int reader = links[2 * m->reader + 1];

      s->order_of[(*n_p)++] = reader == k ? -1 : reader;
    }
    m->write = k;
  }
}

static void find_order(groups *s, met *of, int *links) {
  const tfd__body *b = s->b;
  int kernel = -1;
  int n_of = 0;
  int k;
  int i;

  for (k = 0; k < b->nodes_n; k++) {
    const tfd__node *n = &b->nodes[k];
    bool view = tfd__node_is_view(n);

    s->order[k] = n_of;
    if (n->dead) continue;
    order_node(s, k, of, links, &n_of);
    for (i = 0; i < n->out_n; i++) {
      s->maker[n->out + i] = k;
      if (view) s->shows[n->out + i] = s->shows[b->operands[n->in]];
      if (i < n->targets_n) s->shows[n->out + i] = b->targets[n->targets + i];
    }
    if (view || (s->ops[k] > 0 && n->targets_n == 0)) continue;
    s->order_of[n_of++] = kernel;
    kernel = k;
  }
  s->order[b->nodes_n] = n_of;
}

/* --- paths ---------------------------------------------------------------- */

static int push(groups *s, int head) {
  TFD_TRY(TFD_GROW(s->stack, 1));
  s->stack[s->stack_n++] = head;
  return TFD_OK;
}

/* The i-th of those that must run before node k, -1 = there is none, -2 = there
** are no more. */
static int before(const groups *s, int k, int i) {
  const tfd__node *n = &s->b->nodes[k];

  if (i < n->in_n) {
    int v = s->b->operands[n->in + i];

    return v < 0 ? -1 : s->maker[v];
  }
  i += s->order[k] - n->in_n;
  return i < s->order[k + 1] ? s->order_of[i] : -2;
}

/* Put on the stack what comes right before the group and was not seen. */
static int push_before(groups *s, int head) {
  int k;

  for (k = head; k >= 0; k = s->next[k]) {
    int i;
    int other;

    for (i = 0; (other = before(s, k, i)) != -2; i++) {
      if (other < 0 || s->seen[s->head[other]] == s->walk) continue;
      s->seen[s->head[other]] = s->walk;
      TFD_TRY(push(s, s->head[other]));
    }
  }
  return TFD_OK;
}

/* Does a path lead from one group over something else to another? */
static int find_path(groups *s, int from, int to, bool *found_p) {
  int steps;

  s->walk++;
  s->stack_n = 0;
  s->seen[from] = s->walk; /* what leads right to `to` is no path */
  s->seen[to] = s->walk;
  TFD_TRY(push_before(s, to));
  s->seen[from] = 0;
  for (steps = 0; s->stack_n > 0 && steps < MOST_STEPS; steps++) {
    TFD_TRY(push_before(s, s->stack[--s->stack_n]));
    if (s->seen[from] == s->walk) break;
  }
  *found_p = s->stack_n > 0 || s->seen[from] == s->walk;
  return TFD_OK;
}

/* --- joining -------------------------------------------------------------- */

/* Is a value that node k makes needed outside of two groups? */
static bool leaves(const groups *s, int k, int a, int b) {
  int v = s->b->nodes[k].out;
  int i;

  for (i = s->users[v]; i < s->users[v + 1]; i++) {
    int head = s->head[s->users_of[i]];

    if (head != a && head != b) return true;
  }
  return s->b->nodes[k].targets_n > 0 || s->yields[v];
}

/* Do two groups write one variable? */
static bool write_the_same(const groups *s, int a, int b) {
  const tfd__body *body = s->b;
  int k;
  int j;

  for (k = a; k >= 0; k = s->next[k]) {
    const tfd__node *n = &body->nodes[k];

    for (j = b; n->targets_n > 0 && j >= 0; j = s->next[j]) {
      const tfd__node *m = &body->nodes[j];

      if (m->targets_n > 0 &&
          body->targets[m->targets] == body->targets[n->targets]) {
        return true;
      }
    }
  }
  return false;
}

/* Would both together be a fused program? */
static bool fit(const groups *s, int a, int b) {
  int inputs[TFD_STRIP_INPUTS];
  int inputs_n = 0;
  int outputs_n = 0;
  int part;
  int k;
  int i;

  for (part = 0; part < 2; part++) {
    for (k = part == 0 ? a : b; k >= 0; k = s->next[k]) {
      const tfd__node *n = &s->b->nodes[k];

      outputs_n += leaves(s, k, a, b) ? 1 : 0;
      for (i = 0; i < n->in_n; i++) {
        int v = s->b->operands[n->in + i];
        int maker = s->maker[v];
        int j = 0;

        if (maker >= 0 && (s->head[maker] == a || s->head[maker] == b)) {
          continue;
        }
        while (j < inputs_n && inputs[j] != v) j++;
        if (j == TFD_STRIP_INPUTS) return false;
        if (j == inputs_n) inputs[inputs_n++] = v;
      }
    }
  }
  return outputs_n <= TFD_STRIP_OUTPUTS &&
         s->ops[a] + s->ops[b] <= TFD_STRIP_OPS;
}

/* One list in the order of the nodes. */
static void join(groups *s, int a, int b) {
  int head = a < b ? a : b;
  int *link = &head;

  s->ops[head] = s->ops[a] + s->ops[b];
  while (a >= 0 || b >= 0) {
    int *least = b < 0 || (a >= 0 && a < b) ? &a : &b;

    *link = *least;
    s->head[*least] = head;
    link = &s->next[*least];
    *least = *link;
  }
}

/* Group a makes something that b takes: so no path leads back from b. */
static int try_join(groups *s, int a, int b) {
  bool path = false;

  if (a == b || !fit(s, a, b) || write_the_same(s, a, b)) return TFD_OK;
  TFD_TRY(find_path(s, a, b, &path));
  if (!path) join(s, a, b);
  return TFD_OK;
}

/* Is the node's value better made where it is used than where its operand is?
** Yes if the operand has to stay in memory anyway while kernels run that are in
** no group: gradients take such values long after the rest. */
static bool can_wait(const groups *s, int k) {
  const tfd__body *b = s->b;
  const tfd__node *n = &b->nodes[k];
  int from = -1;
  int last = -1;
  int i;

  if (s->ops[k] != 1 || n->targets_n > 0 || s->yields[n->out]) return false;
  for (i = 0; i < n->in_n; i++) {
    int v = b->operands[n->in + i];

    if (b->values[v].view.numel == 1 && s->maker[v] < 0) continue;
    if (from >= 0 || s->shows[v] >= 0 ||
        b->values[v].view.dtype != b->values[n->out].view.dtype ||
        !tfd__same_shape(&b->values[v].view, &b->values[n->out].view)) {
      return false;
    }
    from = v;
  }
  if (from < 0 || s->users[n->out] == s->users[n->out + 1]) return false;
  for (i = s->users[from]; i < s->users[from + 1]; i++) {
    if (s->users_of[i] != k) last = s->users_of[i];
  }
  if (last > s->users_of[s->users[n->out]]) {
    last = s->users_of[s->users[n->out]];
  }
  for (i = s->maker[from] + 1; i < last; i++) {
    if (!b->nodes[i].dead && s->ops[i] == 0 && !tfd__node_is_view(&b->nodes[i]))
      return true;
  }
  return false;
}

static int join_makers(groups *s, int k) {
  const tfd__body *b = s->b;
  const tfd__node *n = &b->nodes[k];
  int i;

  if (can_wait(s, k)) return TFD_OK;

  /* Twice: what joins may have been between the node and another. */
  for (i = 0; i < 2 * n->in_n; i++) {
    int v = b->operands[n->in + i % n->in_n];
    int maker = s->maker[v];

    if (maker < 0 || s->ops[s->head[maker]] == 0 ||
        !tfd__same_shape(&b->values[v].view, &b->values[n->out].view)) {
      continue;
    }
    TFD_TRY(try_join(s, s->head[maker], s->head[k]));
  }
  return TFD_OK;
}

/* --- products ------------------------------------------------------------- */

/* The node that alone uses the value that node k makes, -1 = there is none. */
static int only_user(const groups *s, int k) {
  int v = s->b->nodes[k].out;

  if (s->users[v + 1] - s->users[v] != 1 || s->yields[v]) return -1;
  return s->users_of[s->users[v]];
}

/* Does the node show the rows of what it takes in another shape? */
static bool keeps_rows(const groups *s, const tfd__node *n) {
  const tfd__view *from = &s->b->values[s->b->operands[n->in]].view;
  const tfd__view *to = &s->b->values[n->out].view;

  return n->op == tfd__op_at(TFD_OP_reshape) && to->rank > 0 && to->dense &&
         from->dims[from->rank - 1] == to->dims[to->rank - 1];
}

int tfd__added_bias(const tfd__body *b, const tfd__node *n, int v) {
  const int *in = b->operands + n->in;
  const tfd__view *x = &b->values[v].view;
  const tfd__view *bias = NULL;
  int other = -1;

  if (n->op == NULL || n->targets_n > 0) return -1;
  switch (n->op->kernel) {
  case TFD_KERNEL_bias_add:
  case TFD_KERNEL_bias_add_relu:
    if (b->ints[n->ints] != 0) return -1;
    break;
  case TFD_KERNEL_add:
    break;
  default:
    return -1;
  }
  other = in[0] == v ? in[1] : in[0];
  bias = &b->values[other].view;
  return bias->rank == 1 && bias->dtype == x->dtype &&
                 bias->dims[0] == x->dims[x->rank - 1]
             ? other
             : -1;
}

static bool is_activation(const tfd__node *n) {
  return n->op != NULL && n->targets_n == 0 &&
         (n->op->kernel == TFD_KERNEL_relu ||
          n->op->kernel == TFD_KERNEL_gelu_tanh);
}

/* Would the device run the product with this bias (-1 = none) and activation as
** one? */
static bool can_finish(const groups *s, const tfd__node *n, int bias,
                       int activation) {
  const tfd__body *b = s->b;
  const int64_t *own = b->ints + n->ints;
  int64_t ints[] = {own[0], own[1], own[2], own[3], activation};
  tfd__view views[4] = {b->values[b->operands[n->in]].view,
                        b->values[b->operands[n->in + 1]].view,
                        {0},
                        b->values[n->out].view};
  tfd__call call = {.name = n->op->name,
                    .views = views,
                    .ints = ints,
                    .in_n = 3,
                    .out_n = 1,
                    .ints_n = 5,
                    .stream = s->stream};

  if (bias >= 0) views[2] = b->values[bias].view;
  return s->backend->finisher->can_run(&call);
}

/* The product's group takes node k, which uses what is made there. */
static int take(groups *s, int product, int k, bool *taken_p) {
  bool path = false;

  TFD_TRY(find_path(s, product, k, &path));
  if (!path) join(s, product, k);
  s->ops[product] = 0; /* no elementwise group */
  *taken_p = !path;
  return TFD_OK;
}

/* Of node k, if it is a product: its rows may be shown in another shape before
** the bias, which comes before the activation. */
static int finish_product(groups *s, int k) {
  const tfd__node *nodes = s->b->nodes;
  const tfd__node *n = &nodes[k];
  int ends[3] = {-1, -1, -1};
  int kernel = TFD_KERNEL_none; /* of the activation */
  bool taken = true;
  int bias = -1;
  int v = n->out;
  int at = -1;
  int i;

  if (n->op == NULL || n->dead || n->targets_n > 0 ||
      n->op->kernel != TFD_KERNEL_matmul) {
    return TFD_OK;
  }
  at = only_user(s, k);
  if (at >= 0 && keeps_rows(s, &nodes[at])) {
    ends[0] = at;
    v = nodes[at].out;
    at = only_user(s, at);
  }
  if (at >= 0) bias = tfd__added_bias(s->b, &nodes[at], v);
  if (bias >= 0) {
    ends[1] = at;
    if (nodes[at].op->kernel == TFD_KERNEL_bias_add_relu) {
      kernel = TFD_KERNEL_relu;
    }
    at = kernel == TFD_KERNEL_none ? only_user(s, at) : -1;
  }
  if (at >= 0 && is_activation(&nodes[at]) &&
      can_finish(s, n, bias, nodes[at].op->kernel)) {
    ends[2] = at;
  } else if (bias < 0 || !can_finish(s, n, bias, kernel)) {
    return TFD_OK;
  }
  for (i = 0; i < 3 && taken; i++) {
    if (ends[i] >= 0) TFD_TRY(take(s, k, ends[i], &taken));
  }
  return TFD_OK;
}

/* --- the order ------------------------------------------------------------ */

/* A head that must run before this one and did not, -1 = none. */
static int waits_for(const groups *s, int head) {
  int k;

  for (k = head; k >= 0; k = s->next[k]) {
    int i;
    int other;

    for (i = 0; (other = before(s, k, i)) != -2; i++) {
      if (other >= 0 && s->head[other] != head && !s->is_done[s->head[other]]) {
        return s->head[other];
      }
    }
  }
  return -1;
}

/* The group of node k behind all that it needs. */
static int arrange(groups *s, int k, tfd__node *nodes, int *numbers, int *n_p) {
  s->stack_n = 0;
  TFD_TRY(push(s, s->head[k]));
  while (s->stack_n > 0) {
    int head = s->stack[s->stack_n - 1];
    int first = s->is_done[head] ? -1 : waits_for(s, head);

    if (first >= 0) {
      TFD_TRY(push(s, first));
      continue;
    }
    s->stack_n--;
    for (k = s->is_done[head] ? -1 : head; k >= 0; k = s->next[k]) {
      numbers[*n_p] = s->ops[head] == 0 && s->next[head] < 0 ? -1 : head;
      nodes[(*n_p)++] = s->b->nodes[k];
    }
    s->is_done[head] = true;
  }
  return TFD_OK;
}

static int arrange_all(groups *s, int *numbers) {
  tfd__body *b = s->b;
  size_t bytes = ((size_t)b->nodes_n + 1) * sizeof *b->nodes;
  tfd__node *nodes = tfd__alloc(bytes);
  int n = 0;
  int rc = TFD_OK;
  int k;

  if (nodes == NULL) return tfd__no_memory(bytes, "graph");
  for (k = 0; rc == TFD_OK && k < b->nodes_n; k++) {
    if (b->nodes[k].dead || s->next[k] >= 0) continue;
    rc = arrange(s, k, nodes, numbers, &n);
  }
  if (rc == TFD_OK) {
    tfd__free(b->nodes);
    b->nodes = nodes;
    b->nodes_n = n;
  } else {
    tfd__free(nodes);
  }
  return rc;
}

/* -------------------------------------------------------------------------- */

static int run(groups *s, met *of, int variables_n, int *links, int *numbers) {
  tfd__body *b = s->b;
  int i;
  int k;

  for (i = 0; i < b->values_n; i++) {
    s->maker[i] = -1;
    s->shows[i] =
        b->values[i].origin == TFD_FROM_VARIABLE ? b->values[i].of : -1;
  }
  for (i = 0; i < b->results_n; i++) s->yields[b->results[i]] = true;
  for (i = 0; i < variables_n; i++) of[i] = (met){-1, -1};
  for (k = 0; k < b->nodes_n; k++) {
    const tfd__node *n = &b->nodes[k];

    s->head[k] = k;
    s->next[k] = -1;
    s->ops[k] = tfd__fused_ops(b, n, s->backend->fuser);
    if (s->ops[k] > 0 && !can_run(s, n)) s->ops[k] = 0;
  }
  find_users(s);
  find_order(s, of, links);
  for (k = 0; s->backend->finisher != NULL && k < b->nodes_n; k++) {
    TFD_TRY(finish_product(s, k));
  }
  for (k = 0; k < b->nodes_n; k++) {
    if (s->ops[s->head[k]] > 0) TFD_TRY(join_makers(s, k));
  }
  return arrange_all(s, numbers);
}

int tfd__pass_groups(tfd__body *b, int variables_n, const tfd__backend *backend,
                     tfd__stream *stream, int *numbers) {
  groups s = {.b = b, .backend = backend, .stream = stream};
  size_t values = (size_t)b->values_n;
  size_t nodes = (size_t)b->nodes_n;
  size_t operands = (size_t)operands_n(b);
  size_t orders = 2 * operands + (size_t)b->targets_n + nodes;
  size_t n = 3 * values + 2 + 3 * operands + orders + 5 * nodes + 1 +
             2 * (size_t)variables_n;
  size_t bytes = n * sizeof(int) + nodes + values + 1;
  int *links = NULL;
  met *of = NULL;
  int rc;

  if (backend->fuser == NULL || backend->kernels[TFD_KERNEL_strip] == NULL) {
    for (n = 0; n < nodes; n++) numbers[n] = -1;
    return TFD_OK;
  }
  s.maker = tfd__calloc(1, bytes);
  if (s.maker == NULL) return tfd__no_memory(bytes, "graph");
  s.shows = s.maker + values;
  s.users = s.shows + values; /* with room for two more */
  s.users_of = s.users + values + 2;
  s.order_of = s.users_of + operands;
  s.order = s.order_of + orders; /* with room for one more */
  s.head = s.order + nodes + 1;
  s.next = s.head + nodes;
  s.ops = s.next + nodes;
  s.seen = s.ops + nodes;
  links = s.seen + nodes;
  of = (met *)(void *)(links + 2 * operands);
  s.is_done = (bool *)(of + variables_n);
  s.yields = s.is_done + nodes;
  rc = run(&s, of, variables_n, links, numbers);
  tfd__free(s.maker);
  tfd__free(s.stack);
  return rc;
}
