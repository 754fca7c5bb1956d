/* The provider: what the ranks of a process give to NCCL and get from it.
**
** A collective is begun in three steps: each device takes a piece of work that
** does nothing, so that a failure it knows of keeps all devices from what
** follows, and NCCL's streams wait for it; NCCL gets the calls of all ranks as
** one group; the devices wait for NCCL's streams, and take a piece of work
** behind which the results are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "comm/nccl/nccl.h"

/* --- who can ---------------------------------------------------------------
 */

static const tfd__cuda_native *native_of(tfd_device *device) {
  const tfd__cuda_native *native = NULL;

  if (strcmp(device->backend->name, "cuda") != 0 ||
      device->backend->native == NULL) {
    return NULL;
  }
  native = device->backend->native(device->stream);
  return native->bytes == sizeof *native ? native : NULL;
}

static int check_device(const tfd__group_config *c, int i) {
  const tfd__cuda_native *native = native_of(c->devices[i]);
  int k;

  if (native == NULL) {
    return tfd__fail(TFD_UNAVAILABLE,
                     "group: provider \"nccl\" is for GPUs; %s is none",
                     c->devices[i]->short_name);
  }
  for (k = 0; k < i; k++) {
    if (native_of(c->devices[k])->device != native->device) continue;
    return tfd__fail(TFD_UNAVAILABLE,
                     "group: provider \"nccl\" needs a GPU for each rank; %s "
                     "and %s share one",
                     c->devices[k]->short_name, c->devices[i]->short_name);
  }
  return TFD_OK;
}

static int can(const tfd__group_config *c) {
  int processes = c->network == NULL ? 1 : c->network->processes;
  int i;

  if (c->devices == NULL || c->size != processes * c->local) {
    return tfd__fail(TFD_UNAVAILABLE,
                     "group: provider \"nccl\" serves GPUs, in each process "
                     "as many");
  }
  for (i = 0; i < c->local; i++) TFD_TRY(check_device(c, i));
  return TFD_OK;
}

/* --- groups ----------------------------------------------------------------
 */

static int timeout_of(const tfd__group *g, const tfd__group_config *config,
                      double *timeout_p) {
  char text[TFD_ENV_TEXT];
  char *end = NULL;

  *timeout_p = g->timeout;
  if (config->timeout > 0 || !tfd__env_text("TFDIST_OP_TIMEOUT", text)) {
    return TFD_OK;
  }
  *timeout_p = strtod(text, &end);
  if (end != text && *end == '\0' && *timeout_p > 0 && isfinite(*timeout_p)) {
    return TFD_OK;
  }
  return tfd__fail(TFD_VALUE_ERROR,
                   "TFDIST_OP_TIMEOUT: expected a number of seconds above 0, "
                   "got \"%s\"",
                   text);
}

/* The rest is the thread's: finalisers call this, and wait for nobody. */
static void let_go(tfd__nccl_group *own) {
  tfd__group *control = NULL;

  tfd__lock(&tfd__nccl.lock);
  own->closing = true;
  control = own->control;
  own->control = NULL;
  tfd__nccl_watch_wake();
  tfd__unlock(&tfd__nccl.lock);
  tfd__release(control);
}

/* GPUs of several processes are connected at once, while all are here. */
static int join(tfd__group *g, tfd__nccl_group *own,
                const tfd__group_config *config) {
  int rc = tfd__nccl_meet(g, own, config);

  if (rc != TFD_OK) return rc;
  tfd__lock(&tfd__nccl.lock);
  rc = tfd__nccl_connect(own);
  tfd__unlock(&tfd__nccl.lock);
  return rc;
}

static int open_group(tfd__group *g, const tfd__group_config *config) {
  size_t bytes =
      sizeof(tfd__nccl_group) + (size_t)g->local * sizeof(tfd__nccl_rank);
  tfd__nccl_group *own = NULL;
  double timeout = 0;
  int rc;
  int i;

  TFD_TRY(timeout_of(g, config, &timeout));
  own = tfd__calloc(1, bytes);
  if (own == NULL) return tfd__no_memory(bytes, "group");
  own->local = g->local;
  own->base = g->base;
  own->size = g->size;
  own->timeout = timeout;
  for (i = 0; i < g->local; i++) {
    own->ranks[i].device = g->devices[i];
    own->ranks[i].native = native_of(g->devices[i]);
  }
  rc = tfd__nccl_watch_add(own);
  if (rc != TFD_OK) {
    tfd__nccl_group_free(own);
    return rc;
  }
  if (config->network != NULL) rc = join(g, own, config);
  if (rc != TFD_OK) {
    tfd__error kept = {0};

    tfd__error_save(&kept);
    let_go(own);
    (void)tfd__error_raise(&kept);
    tfd__error_free(&kept);
    return rc;
  }
  g->own = own;
  return TFD_OK;
}

/* The thread sees the collectives end that are under way. */
static void abort_group(tfd__group *g) {
  tfd__nccl_group *own = g->own;

  if (own == NULL || own->control == NULL) return;
  (void)tfd__error_raise(&g->cause);
  (void)tfd__group_fail(own->control);
}

static void close_group(tfd__group *g) {
  tfd__nccl_group *own = g->own;

  g->own = NULL;
  let_go(own);
}

/* --- NCCL's names ----------------------------------------------------------
 */

/* False for what NCCL does not know. */
static bool type_of(int dtype, ncclDataType_t *type_p) {
  switch (dtype) {
  case TFD_FLOAT32:
    *type_p = ncclFloat32;
    return true;
  case TFD_FLOAT64:
    *type_p = ncclFloat64;
    return true;
  case TFD_FLOAT16:
    *type_p = ncclFloat16;
    return true;
  case TFD_BFLOAT16:
    *type_p = ncclBfloat16;
    return true;
  case TFD_INT8:
    *type_p = ncclInt8;
    return true;
  case TFD_UINT8:
    *type_p = ncclUint8;
    return true;
  case TFD_INT32:
    *type_p = ncclInt32;
    return true;
  case TFD_INT64:
    *type_p = ncclInt64;
    return true;
  default:
    return false;
  }
}

static ncclRedOp_t op_of(tfd_reduce_op op) {
  switch (op) {
  case TFD_REDUCE_MEAN:
    return ncclAvg;
  case TFD_REDUCE_MIN:
    return ncclMin;
  case TFD_REDUCE_MAX:
    return ncclMax;
  case TFD_REDUCE_PROD:
    return ncclProd;
  default:
    return ncclSum;
  }
}

static bool reduces(tfd__collective_kind kind) {
  return kind == TFD_COLLECTIVE_ALL_REDUCE || kind == TFD_COLLECTIVE_REDUCE ||
         kind == TFD_COLLECTIVE_REDUCE_SCATTER;
}

/* What only moves goes as bytes; pieces between the root and each rank go as
** without NCCL. */
static bool can_do(const tfd__group *g, const tfd__collective *c) {
  ncclDataType_t type;
  int k;

  if (c->kind == TFD_COLLECTIVE_BARRIER || tfd__moves_pieces(c->kind)) {
    return false;
  }
  for (k = 0; reduces(c->kind) && k < c->values; k++) {
    if (!type_of(tfd__given(g, c, k, 0)->view->dtype, &type)) return false;
  }
  return true;
}

/* --- one value of one rank ---------------------------------------------------
 */

typedef struct task {
  const tfd__group *group;
  const tfd__collective *c;
  const tfd__nccl_rank *rank;
  int k; /* value */
  int i; /* local rank */
} task;

static void *at(const tfd__piece *p) {
  return p->buffer == NULL ? NULL : p->view->data;
}

static size_t count_of(const tfd__piece *p) {
  return (size_t)p->view->numel;
}

static ncclResult_t issue_reduction(const task *t) {
  const tfd__piece *in = tfd__given(t->group, t->c, t->k, t->i);
  const tfd__piece *out = tfd__gotten(t->group, t->c, t->k, t->i);
  const tfd__nccl_rank *r = t->rank;
  ncclRedOp_t op = op_of(t->c->op);
  ncclDataType_t type = ncclFloat32;

  (void)type_of(in->view->dtype, &type);
  if (in->view->numel == 0) return ncclSuccess;
  switch (t->c->kind) {
  case TFD_COLLECTIVE_REDUCE:
    return tfd__nc.ncclReduce(at(in), at(out), count_of(in), type, op,
                              t->c->root, r->comm, r->stream);
  case TFD_COLLECTIVE_REDUCE_SCATTER:
    return tfd__nc.ncclReduceScatter(at(in), at(out), count_of(out), type, op,
                                     r->comm, r->stream);
  default:
    return tfd__nc.ncclAllReduce(at(in), at(out), count_of(in), type, op,
                                 r->comm, r->stream);
  }
}

static ncclResult_t issue_broadcast(const task *t) {
  const tfd__piece *in = tfd__given(t->group, t->c, t->k, t->i);
  const tfd__piece *out = tfd__gotten(t->group, t->c, t->k, t->i);
  const tfd__nccl_rank *r = t->rank;
  bool is_root = t->group->base + t->i == t->c->root;
  const tfd__piece *given = is_root ? in : out;

  if (given->view->numel == 0) return ncclSuccess;
  return tfd__nc.ncclBroadcast(at(given), at(out), tfd__view_bytes(given->view),
                               ncclUint8, t->c->root, r->comm, r->stream);
}

static bool gives_alike(const task *t) {
  int64_t first = tfd__gather_count(t->group, t->c, t->k, 0);
  int q;

  for (q = 1; q < t->group->size; q++) {
    if (tfd__gather_count(t->group, t->c, t->k, q) != first) return false;
  }
  return true;
}

/* Parts of different lengths are broadcast one after the other. */
static ncclResult_t issue_gather(const task *t) {
  const tfd__piece *in = tfd__given(t->group, t->c, t->k, t->i);
  const tfd__piece *out = tfd__gotten(t->group, t->c, t->k, t->i);
  const tfd__nccl_rank *r = t->rank;
  size_t size = tfd__dtype_size(out->view->dtype);
  ncclResult_t result = ncclSuccess;
  char *to = at(out);
  int q;

  if (out->view->numel == 0) return ncclSuccess;
  if (gives_alike(t)) {
    return tfd__nc.ncclAllGather(at(in), to, tfd__view_bytes(in->view),
                                 ncclUint8, r->comm, r->stream);
  }
  for (q = 0; q < t->group->size; q++) {
    size_t bytes = (size_t)tfd__gather_count(t->group, t->c, t->k, q) * size;
    const void *from = q == t->group->base + t->i ? at(in) : to;

    if (bytes == 0) continue;
    result = tfd__nc.ncclBroadcast(from, to, bytes, ncclUint8, q, r->comm,
                                   r->stream);
    if (result != ncclSuccess && result != ncclInProgress) return result;
    to += bytes;
  }
  return ncclSuccess;
}

static ncclResult_t issue(const task *t) {
  switch (t->c->kind) {
  case TFD_COLLECTIVE_BROADCAST:
    return issue_broadcast(t);
  case TFD_COLLECTIVE_ALL_GATHER:
    return issue_gather(t);
  default:
    return issue_reduction(t);
  }
}

/* --- begin ------------------------------------------------------------------
 */

static _Thread_local int ran;

static int count_it(const tfd__call *call) {
  (void)call;
  ran++;
  return TFD_OK;
}

/* A piece of work that does nothing for each device. True when no device has
** dropped it. */
static int pass(tfd__group *g, const tfd__collective *c, bool *all_p) {
  int i;

  ran = 0;
  for (i = 0; i < g->local; i++) {
    tfd__call call = {.name = c->what,
                      .kernel = count_it,
                      .replica = -1,
                      .line = c->line,
                      .file = c->file};

    TFD_TRY(tfd__stream_submit(g->devices[i], &call));
  }
  *all_p = ran == g->local;
  return TFD_OK;
}

#define CUDA(r, call, what) \
  TFD_TRY((r)->native->check((r)->native->driver->call, what))

static int follow_devices(tfd__nccl_group *own, const char *what) {
  int i;

  for (i = 0; i < own->local; i++) {
    tfd__nccl_rank *r = &own->ranks[i];

    TFD_TRY(r->native->mark(r->device->stream, r->ready, own, &r->marked));
    TFD_TRY(r->native->use(r->native->ordinal));
    CUDA(r, cuStreamWaitEvent(r->stream, r->ready, 0), what);
  }
  return TFD_OK;
}

static int issue_all(const tfd__group *g, tfd__nccl_group *own,
                     const tfd__collective *c) {
  ncclResult_t result = ncclSuccess;
  int rc = TFD_OK;
  int i;
  int k;

  TFD_TRY(tfd__nccl_check(tfd__nc.ncclGroupStart(), NULL, c->what));
  for (i = 0; rc == TFD_OK && i < own->local; i++) {
    const tfd__nccl_rank *r = &own->ranks[i];

    rc = r->native->use(r->native->ordinal);
    for (k = 0; rc == TFD_OK && k < c->values; k++) {
      task t = {.group = g, .c = c, .rank = r, .k = k, .i = i};

      rc = tfd__nccl_check(issue(&t), r->comm, c->what);
    }
  }
  result = tfd__nc.ncclGroupEnd();
  if (rc == TFD_OK) rc = tfd__nccl_check(result, NULL, c->what);
  if (rc != TFD_OK) return rc;
  return tfd__nccl_settle(
      own, c->until != 0 ? c->until : tfd__deadline_in(own->timeout),
      tfd__collective_name(c->kind));
}

/* What one device refuses has come to all others with the results. */
static int heed_others(const tfd__nccl_group *own, int i) {
  const tfd__nccl_rank *r = &own->ranks[i];
  int k;

  for (k = 0; k < own->local; k++) {
    const tfd__nccl_rank *other = &own->ranks[k];

    if (k == i) continue;
    TFD_TRY(r->native->heed(r->device->stream, other->device->stream,
                            &other->marked));
  }
  return TFD_OK;
}

/* The devices go on behind NCCL. */
static int lead_devices(tfd__nccl_group *own, const tfd__nccl_mark *mark,
                        const char *what) {
  int i;

  for (i = 0; i < own->local; i++) {
    tfd__nccl_rank *r = &own->ranks[i];

    TFD_TRY(r->native->use(r->native->ordinal));
    CUDA(r, cuEventRecord(mark->over[i], r->stream), what);
    TFD_TRY(r->native->wait(r->device->stream, mark->over[i], own));
    TFD_TRY(heed_others(own, i));
  }
  return TFD_OK;
}

static void mark_written(const tfd__group *g, const tfd__collective *c) {
  int k;
  int i;

  for (k = 0; k < c->values; k++) {
    for (i = 0; i < g->local; i++) {
      tfd__buffer *out = tfd__gotten(g, c, k, i)->buffer;
      uint64_t seq = tfd__stream_seq(g->devices[i]);

      if (out == NULL) continue;
      if (out == tfd__given(g, c, k, i)->buffer) {
        out->use_seq = seq;
      } else {
        tfd__buffer_made(out, seq);
      }
    }
  }
}

/* Watch it. Where many are watched already the last of them becomes its own,
** which ends behind what that one stood for. The devices take nothing else
** meanwhile. */
static tfd__nccl_mark *new_mark(tfd__nccl_group *own,
                                const tfd__collective *c) {
  bool full = own->marks_n == TFD_NCCL_MARKS;
  int at = own->marks_first + own->marks_n - full;
  tfd__nccl_mark *m = &own->marks[at % TFD_NCCL_MARKS];
  int i;

  m->recorded = false;
  (void)snprintf(m->name, sizeof m->name, "%s", c->what);
  m->until = c->until;
  if (full) return m;
  for (i = 0; i < own->local; i++) {
    m->seq[i] = tfd__stream_seq(own->ranks[i].device) + 1;
  }
  if (own->marks_n++ > 0) return m;
  own->until = tfd__deadline_in(own->timeout);
  tfd__nccl_watch_wake();
  return m;
}

/* Some device failed before: no results anywhere. */
static int skip(tfd__group *g, const tfd__collective *c) {
  const tfd__collective together = {.kind = TFD_COLLECTIVE_BARRIER,
                                    .what = c->what};
  bool all = false;

  TFD_TRY(tfd__shared_run(g, &together));
  TFD_TRY(pass(g, c, &all));
  mark_written(g, c);
  return TFD_OK;
}

/* Under the lock. */
static int enqueue(const tfd__group *g, tfd__nccl_group *own,
                   const tfd__collective *c, tfd__nccl_mark **mark_p) {
  TFD_TRY(tfd__nccl_drop_passed(own));
  TFD_TRY(issue_all(g, own, c));
  *mark_p = new_mark(own, c);
  return TFD_OK;
}

static int lead(tfd__group *g, const tfd__collective *c,
                const tfd__nccl_mark *mark) {
  bool all = false;

  TFD_TRY(lead_devices(g->own, mark, c->what));
  TFD_TRY(pass(g, c, &all));
  mark_written(g, c);
  return TFD_OK;
}

/* Failures of devices that were not told of yet; the others wait for this. */
static int fail_of_devices(tfd__group *g, const tfd__collective *c) {
  int i;

  (void)tfd__fail(TFD_INTERNAL, "%s: a device has failed", c->what);
  for (i = 0; i < g->local; i++) {
    if (tfd__stream_wait(g->devices[i], UINT64_MAX, TFD_FOREVER) != TFD_OK) {
      break;
    }
  }
  return tfd__group_fail(g);
}

/* Other processes would take what comes of a refused value for results: they
** get to know before any begins. Costs waiting for the last launch that may
** refuse one, though not for what was queued behind it; nothing where none
** may. */
static int wait_for_refusals(tfd__group *g, const tfd__nccl_group *own) {
  int i;

  for (i = 0; i < g->local; i++) {
    const tfd__nccl_rank *r = &own->ranks[i];
    uint64_t seq = r->native->may_refuse(r->device->stream, own);

    if (seq > 0 && tfd__stream_wait(r->device, seq, TFD_FOREVER) != TFD_OK) {
      return tfd__group_fail(g);
    }
  }
  return TFD_OK;
}

static void let_go_of_devices(const tfd__nccl_group *own) {
  int i;

  for (i = 0; i < own->local; i++) {
    own->ranks[i].native->let_go(own->ranks[i].device->stream);
  }
}

static void take_devices(const tfd__nccl_group *own) {
  int last = -1;
  int n;

  for (n = 0; n < own->local; n++) {
    const tfd__nccl_rank *next = NULL;
    int i;

    for (i = 0; i < own->local; i++) {
      const tfd__nccl_rank *r = &own->ranks[i];

      if (r->native->ordinal <= last) continue;
      if (next == NULL || r->native->ordinal < next->native->ordinal) next = r;
    }
    next->native->take(next->device->stream);
    last = next->native->ordinal;
  }
}

static int make_room(const tfd__nccl_group *own) {
  int i;

  for (i = 0; i < own->local; i++) {
    const tfd__nccl_rank *r = &own->ranks[i];

    TFD_TRY(r->native->make_room(r->device->stream, own->local - 1));
  }
  return TFD_OK;
}

static int prepare(tfd__nccl_group *own, const char *what) {
  TFD_TRY(make_room(own));
  return follow_devices(own, what);
}

/* Have communicators, the devices' streams, behind what they have NCCL's, and
** then the lock: N1. */
static int enter(tfd__nccl_group *own, const char *what) {
  for (;;) {
    int rc;

    tfd__lock(&tfd__nccl.lock);
    rc = tfd__nccl_connect(own);
    tfd__unlock(&tfd__nccl.lock);
    if (rc != TFD_OK) return rc;
    take_devices(own);
    rc = prepare(own, what);
    if (rc != TFD_OK) {
      let_go_of_devices(own);
      return rc;
    }
    tfd__lock(&tfd__nccl.lock);
    if (own->there) return TFD_OK;
    tfd__unlock(&tfd__nccl.lock); /* they were ended meanwhile */
    let_go_of_devices(own);
  }
}

/* All of it, with NCCL's communicators there. */
static int put_in(tfd__group *g, const tfd__collective *c) {
  tfd__nccl_group *own = g->own;
  tfd__nccl_mark *mark = NULL;
  int rc = enter(own, tfd__collective_name(c->kind));

  if (rc != TFD_OK) return rc;
  rc = enqueue(g, own, c, &mark);
  if (rc == TFD_OK) {
    tfd__unlock(&tfd__nccl.lock);
    rc = lead(g, c, mark);
    tfd__lock(&tfd__nccl.lock);
    mark->recorded = true;
  }
  if (rc != TFD_OK && own->there) rc = tfd__nccl_break(own);
  tfd__unlock(&tfd__nccl.lock);
  let_go_of_devices(own);
  return rc;
}

static int begin(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  tfd__nccl_group *own = g->own;
  bool is_far = own->control != NULL;
  bool all = false;
  int rc = TFD_OK;

  (void)t;
  if (is_far && !can_do(g, c)) return tfd__nccl_pass_on(g, c);
  if (!can_do(g, c)) return tfd__shared_run(g, c);
  if (is_far) TFD_TRY(wait_for_refusals(g, own));
  TFD_TRY(pass(g, c, &all));
  if (!all) return is_far ? fail_of_devices(g, c) : skip(g, c);
  if (is_far) TFD_TRY(tfd__nccl_agree(g, c));
  rc = put_in(g, c);
  return rc == TFD_OK || !is_far ? rc : tfd__group_fail(g);
}

const tfd__provider tfd__nccl_provider = {
    .abi = TFD_PROVIDER_ABI,
    .name = "nccl",
    .score = 120,
    .ordered = true,
    .can = can,
    .open = open_group,
    .close = close_group,
    .begin = TFD_BEGIN_ALL(begin),
    .abort = abort_group,
};
