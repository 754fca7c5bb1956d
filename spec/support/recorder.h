#ifndef TFD_SPEC_RECORDER_H
#define TFD_SPEC_RECORDER_H
/* The smallest recorder that can replay what it saw: a list of ops in the order
** of the calls. It takes every op over. Replays run the same dispatch. */
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

enum { NODE_VALUES = 16, RECORDED = 512, REPLAYED = 2048 };

typedef struct node {
  const tfd__op *op;
  tfd_device *device;
  tfd_tensor *constants[NODE_VALUES];   /* owned references, or NULL */
  tfd_variable *variables[NODE_VALUES]; /* that are read, or NULL */
  uint64_t in[NODE_VALUES]; /* ids of symbolic inputs; 0 = neither */
  uint64_t out[NODE_VALUES];
  int in_n;
  int out_n;
  tfd_variable *targets[NODE_VALUES];
  int targets_n;
  int line;
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS];
} node;

typedef struct recorder {
  tfd__recorder base;
  bool refuses; /* takes nothing over */
  int n;
  node nodes[RECORDED];
} recorder;

static int recorders_alive = 0;

static void recorder_destroy(void *self) {
  recorders_alive--;
  free(self);
}

static const tfd__type recorder_type = {
    .name = "recorder",
    .kind = TFD_HANDLE_CONTEXT,
    .destroy = recorder_destroy,
};

static int recorder_see(tfd__recorder *self, const tfd__pending *p,
                        bool *taken_p) {
  recorder *r = (recorder *)self;
  node *n = &r->nodes[r->n];
  int i;

  if (r->refuses) return TFD_OK;
  if (r->n == RECORDED || p->in_n > NODE_VALUES || p->out_n > NODE_VALUES) {
    return tfd__fail(TFD_RESOURCE_EXHAUSTED, "recorder: too much");
  }
  memset(n, 0, sizeof *n);
  n->op = p->op;
  n->device = p->device;
  n->in_n = p->in_n;
  n->out_n = p->out_n;
  n->targets_n = p->targets_n;
  n->line = p->line;
  for (i = 0; i < p->in_n; i++) {
    tfd_tensor *t = p->in[i];

    if (t == NULL) continue;
    if (tfd__is_symbolic(t)) {
      n->in[i] = t->id;
    } else if (t->variable != NULL) {
      n->variables[i] = t->variable;
    } else {
      tfd__retain(t);
      n->constants[i] = t;
    }
  }
  for (i = 0; i < p->out_n; i++) n->out[i] = p->out[i]->id;
  for (i = 0; i < p->targets_n; i++) n->targets[i] = p->targets[i];
  if (p->op->ints_n > 0) {
    memcpy(n->ints, p->ints, (size_t)p->op->ints_n * sizeof *p->ints);
  }
  if (p->op->reals_n > 0) {
    memcpy(n->reals, p->reals, (size_t)p->op->reals_n * sizeof *p->reals);
  }
  r->n++;
  *taken_p = true;
  return TFD_OK;
}

TFD_UNUSED static recorder *recorder_new(const char *name) {
  recorder *r = calloc(1, sizeof *r);

  tfd__object_init(&r->base.tracer.object, &recorder_type);
  r->base.tracer.name = name;
  r->base.see = recorder_see;
  recorders_alive++;
  return r;
}

TFD_UNUSED static void record_on(recorder *r) {
  tfd__recorder *before = NULL;

  tfd__context_record(&r->base, &before);
  tfd__release(before);
}

TFD_UNUSED static void record_off(void) {
  tfd__recorder *before = NULL;

  tfd__context_record(NULL, &before);
  tfd__release(before);
}

TFD_UNUSED static void recorder_drop(recorder *r) {
  int i;
  int k;

  for (k = 0; k < r->n; k++) {
    for (i = 0; i < r->nodes[k].in_n; i++) {
      tfd__release(r->nodes[k].constants[i]);
      r->nodes[k].constants[i] = NULL;
    }
  }
  r->n = 0;
  tfd__release(r);
}

/* A symbolic tensor that a replay is fed. */
TFD_UNUSED static tfd_tensor *recorder_input(recorder *r, int dtype,
                                             const int64_t *dims, int rank) {
  tfd_device *device = NULL;
  tfd_tensor *t = NULL;

  if (tfd_device_current(&device) != TFD_OK) abort();
  if (tfd__tensor_symbolic(&r->base.tracer, device, dtype, dims, rank, "spec",
                           7, &t) != TFD_OK) {
    abort();
  }
  return t;
}

typedef struct replayed {
  int n;
  uint64_t ids[REPLAYED];
  tfd_tensor *values[REPLAYED]; /* owned references */
} replayed;

/* Owns: takes the reference over. */
TFD_UNUSED static void replay_put(replayed *m, uint64_t id, tfd_tensor *t) {
  if (m->n == REPLAYED) abort();
  m->ids[m->n] = id;
  m->values[m->n++] = t;
}

TFD_UNUSED static tfd_tensor *replay_get(const replayed *m, uint64_t id) {
  int i;

  for (i = m->n - 1; i >= 0; i--) {
    if (m->ids[i] == id) return m->values[i];
  }
  return NULL;
}

TFD_UNUSED static void replay_clear(replayed *m) {
  while (m->n > 0) tfd__release(m->values[--m->n]);
}

static int replay_node(const node *n, replayed *m) {
  tfd_tensor *in[NODE_VALUES];
  tfd_tensor *out[NODE_VALUES];
  int out_n = 0;
  int i;

  for (i = 0; i < n->in_n; i++) {
    in[i] = n->constants[i];
    if (n->variables[i] != NULL) in[i] = n->variables[i]->value;
    if (n->in[i] != 0) in[i] = replay_get(m, n->in[i]);
  }
  if (n->targets_n > 0) {
    return tfd__run_update((int)(n->op - tfd__op_at(0)), n->targets,
                           n->targets_n, in, n->in_n, n->ints, n->reals);
  }
  TFD_TRY(tfd__run((int)(n->op - tfd__op_at(0)), in, n->in_n, n->ints, n->reals,
                   out, NODE_VALUES, &out_n));
  for (i = 0; i < out_n; i++) replay_put(m, n->out[i], out[i]);
  return TFD_OK;
}

/* Run what was recorded; `m` holds the fed inputs and gets all results. */
TFD_UNUSED static int replay(const recorder *r, replayed *m) {
  int k;

  for (k = 0; k < r->n; k++) {
    int rc;

    TFD_TRY(tfd_device_push(r->nodes[k].device));
    rc = replay_node(&r->nodes[k], m);
    (void)tfd_device_pop();
    TFD_TRY(rc);
  }
  return TFD_OK;
}

#endif
