/* Sums that every replica gets, made by the strategy's group.
**
** The group takes dense tensors on the replicas' devices; others are brought
** there first. What is no element-wise reduction of one dtype goes its own way:
** slices are joined, means of whole numbers are divided sums. */
#include <string.h>

#include "distribute/distribute.h"

typedef struct job {
  tfd_strategy *strategy;
  tfd_reduce_op op;
  const char *what;
  tfd_object *const *in; /* leaf-major, n each */
  int leaves;
  int n;
  double timeout; /* of each collective, in seconds; 0 = the group's */
  uint32_t about; /* of each collective, for buckets may begin later */
  /* One block, a part of `in`'s length each: */
  tfd_object **out;   /* owned once set; NULL = not made yet */
  tfd_tensor **moved; /* owned: inputs that were brought to their place */
  tfd__piece *from;   /* what the group combines, and where to */
  tfd__piece *to;
  int *leaf;  /* of each value */
  int first;  /* values before it have their results */
  int values; /* of the group */
} job;

/* --- leaves --------------------------------------------------------------- */

/* Component i dense and on its replica's device, borrowed. */
static int put_in_place(job *j, int k, int i, tfd_tensor **t_p) {
  tfd_device *device = j->strategy->devices[i];
  tfd_object *x = j->in[k * j->n + i];
  tfd_tensor **moved = &j->moved[k * j->n + i];
  tfd_tensor *t = NULL;
  int rc;

  if (TFD_LIKELY(x != NULL && x->type == &tfd__tensor_type)) {
    t = (tfd_tensor *)x;
    if (TFD_LIKELY(t->buffer != NULL && t->view.dense && t->device == device)) {
      *t_p = t;
      return TFD_OK;
    }
  }
  if (x != NULL && x->type == &tfd__slices_type) {
    TFD_TRY(tfd_slices_to_dense((tfd_slices *)x, &t));
    rc = tfd__tensor_in_place(t, device, moved);
    tfd__release(t);
  } else {
    if (tfd__operand(x, &t) != TFD_OK) {
      return tfd__wrap("%s: replica %d", j->what,
                       tfd__replica_of(j->strategy, i));
    }
    rc = tfd__tensor_in_place(t, device, moved);
  }
  *t_p = *moved;
  return rc;
}

/* A value for the group. */
static int add_value(job *j, int k) {
  tfd_tensor *in[TFD_MAX_REPLICAS];
  ptrdiff_t at = (ptrdiff_t)j->values * j->n;
  int i;

  for (i = 0; i < j->n; i++) TFD_TRY(put_in_place(j, k, i, &in[i]));
  TFD_TRY(tfd__check_components(j->strategy, j->what, in, j->n));
  for (i = 0; i < j->n; i++) {
    j->from[at + i] = (tfd__piece){in[i]->buffer, &in[i]->view};
  }
  j->leaf[j->values++] = k;
  return TFD_OK;
}

/* Leaf k on the first replica's device, then on all. */
static int reduce_leaf(job *j, int k) {
  tfd_strategy *s = j->strategy;
  const tfd__together t = {.what = j->what,
                           .op = j->op,
                           .in = j->in + k * j->n,
                           .in_n = j->n,
                           .devices = s->devices,
                           .devices_n = j->n,
                           .timeout = j->timeout,
                           .ask = tfd__reduce_together};
  tfd_value *value = NULL;
  int i;

  TFD_TRY(tfd_strategy_adds_up(s)
              ? tfd__reduce_together(s, &t, &value)
              : tfd_strategy_reduce(s, t.op, t.what, t.in, t.in_n, t.devices,
                                    t.devices_n, t.timeout, &value));
  for (i = 0; i < j->n; i++) {
    tfd__retain(value->components[i]);
    j->out[k * j->n + i] = value->components[i];
  }
  tfd__release(value);
  return TFD_OK;
}

/* Slices stay slices, whole numbers have means that are none; a strategy may
** have a rule of its own. */
static bool goes_its_own_way(const job *j, int k) {
  tfd_object *x = j->in[k * j->n];
  tfd_tensor *t = NULL;

  if (j->strategy->group->size == 1) return true;
  if (!tfd_strategy_adds_up(j->strategy)) return true;
  if (tfd__context()->recorder != NULL) return true; /* which sees ops */
  if (tfd__all_slices(j->in + k * j->n, j->n)) return true;
  if (j->op != TFD_REDUCE_MEAN || x == NULL || x->type == &tfd__slices_type) {
    return false;
  }
  return tfd__operand(x, &t) != TFD_OK || !tfd__is_float(t->view.dtype);
}

/* --- results -------------------------------------------------------------- */

/* The result of value v for replica i: t, which becomes the job's. */
static void set_result(job *j, int v, int i, tfd_tensor *t) {
  j->out[j->leaf[v] * j->n + i] = &t->object;
  j->to[(ptrdiff_t)v * j->n + i] = (tfd__piece){t->buffer, &t->view};
}

static int make_result(job *j, int v, int i) {
  const tfd__view *like = j->from[(ptrdiff_t)v * j->n + i].view;
  tfd_tensor *t = NULL;

  TFD_TRY(tfd__tensor_new(j->strategy->devices[i], like->dtype, like->dims,
                          like->rank, &t));
  set_result(j, v, i, t);
  return TFD_OK;
}

/* Replica i's results of value `first`'s dtype, which is packed before all
** others of it: one behind the other in one buffer, so that nothing is copied
** out of packs. */
static int make_packed(job *j, const tfd__pack_plan *plan, int first, int i) {
  int step = plan->backwards ? -1 : 1;
  int dtype = j->from[(ptrdiff_t)first * j->n + i].view->dtype;
  tfd__buffer *buffer = NULL;
  size_t bytes = 0;
  char *at = NULL;
  int rc = TFD_OK;
  int v;

  for (v = first; v >= j->first && v < j->values; v += step) {
    const tfd__view *like = j->from[(ptrdiff_t)v * j->n + i].view;

    if (like->dtype == dtype) bytes += tfd__view_bytes(like);
  }
  TFD_TRY(tfd__group_buffer(j->strategy->group, i, bytes, &buffer));
  at = buffer->data;
  for (v = first; rc == TFD_OK && v >= j->first && v < j->values; v += step) {
    const tfd__view *like = j->from[(ptrdiff_t)v * j->n + i].view;
    tfd_tensor *t = NULL;
    tfd__view view;

    if (like->dtype != dtype) continue;
    rc = tfd__view_set(&view, dtype, like->dims, like->rank);
    if (rc != TFD_OK) break;
    view.data = at;
    at += tfd__view_bytes(&view);
    tfd__retain(buffer);
    rc = tfd__tensor_wrap(j->strategy->devices[i], buffer, &view, &t);
    if (rc == TFD_OK) set_result(j, v, i, t);
  }
  tfd__release(buffer);
  return rc;
}

static int make_results(job *j, const tfd__pack_plan *plan) {
  bool packed = plan != NULL;
  int turn;
  int i;

  for (i = 0; i < j->n; i++) {
    packed = packed && j->strategy->devices[i]->backend->host_visible;
  }

  for (turn = j->first; turn < j->values; turn++) {
    int v = plan != NULL && plan->backwards ? j->values - 1 - turn : turn;

    for (i = 0; i < j->n; i++) {
      if (j->to[(ptrdiff_t)v * j->n + i].buffer != NULL) continue;
      TFD_TRY(packed ? make_packed(j, plan, v, i) : make_result(j, v, i));
    }
  }
  return TFD_OK;
}

/* --- all leaves ----------------------------------------------------------- */

/* Of the values that have no results yet. */
static tfd__collective collective_of(const job *j) {
  const tfd_context *context = tfd__context();
  ptrdiff_t at = (ptrdiff_t)j->first * j->n;
  uint32_t about =
      tfd__about_shapes(j->about, j->from + at, j->values - j->first, j->n);

  return (tfd__collective){.kind = TFD_COLLECTIVE_ALL_REDUCE,
                           .op = j->op,
                           .values = j->values - j->first,
                           .what = j->what,
                           .in = j->from + at,
                           .out = j->to + at,
                           .line = context->line,
                           .file = context->file,
                           .about = about,
                           .call = tfd__group_call(j->strategy->group)};
}

static int combine(job *j, const tfd__pack_plan *plan) {
  tfd__deadline until = j->timeout > 0 ? tfd__deadline_in(j->timeout) : 0;
  tfd__collective c = collective_of(j);
  const tfd__pack_plan far = {.bytes = j->strategy->pack_bytes,
                              .backwards = true};

  if (j->values == 0) return TFD_OK;
  if (plan == NULL && j->values > 1 &&
      !tfd__group_is_alone(j->strategy->group)) {
    plan = &far; /* other processes are paid by the message */
  }
  TFD_TRY(make_results(j, plan));
  if (plan == NULL) return tfd__group_run(j->strategy->group, &c, until);
  return tfd__group_all_reduce_packed(j->strategy->group, &c, plan, until);
}

static int run(job *j, const tfd__pack_plan *plan) {
  int k;

  for (k = 0; k < j->leaves; k++) {
    TFD_TRY(goes_its_own_way(j, k) ? reduce_leaf(j, k) : add_value(j, k));
  }
  return combine(j, plan);
}

static int make_room(job *j, int components) {
  size_t each = 2 * sizeof(void *) + 2 * sizeof(tfd__piece) + sizeof(int);
  size_t n = (size_t)components;

  j->from = tfd__calloc(n, each);
  if (j->from == NULL) return tfd__no_memory(n * each, j->what);
  j->to = j->from + n;
  j->out = (tfd_object **)(j->to + n);
  j->moved = (tfd_tensor **)(j->out + n);
  j->leaf = (int *)(j->moved + n);
  return TFD_OK;
}

static void release(job *j) {
  int i;

  for (i = 0; j->from != NULL && i < j->leaves * j->n; i++) {
    tfd__release(j->out[i]);
    tfd__release(j->moved[i]);
  }
  tfd__free(j->from);
}

static int ask_again(tfd_strategy *s, const tfd__together *t,
                     tfd_value **result_p);

/* Does a recorder see one step? Where other processes take part, and where the
** group has a way of its own between devices that ops would not take. */
static bool is_one_step(const tfd_strategy *s) {
  const tfd__group *g = s->group;

  if (tfd__context()->recorder == NULL) return false;
  if (!tfd__group_is_alone(g)) return true;
  return g->size > 1 && tfd_strategy_adds_up(s) &&
         !tfd__group_can_fuse(g, TFD_KERNEL_sum_parts);
}

static bool has_known_sizes(const tfd_tensor *t) {
  int d;

  for (d = 0; d < t->view.rank; d++) {
    if (t->view.dims[d] < 0) return false;
  }
  return true;
}

/* Of one process: is leaf k what the group takes, once its values are there?
** Ops reduce what has values now, for the caller may look at the result. */
static bool is_for_group(const job *j, int k, tfd_tensor **in) {
  bool comes_later = false;
  int i;

  for (i = 0; i < j->n; i++) {
    if (tfd__operand(j->in[k * j->n + i], &in[i]) != TFD_OK ||
        !has_known_sizes(in[i]) ||
        (j->op == TFD_REDUCE_MEAN && !tfd__is_float(in[i]->view.dtype))) {
      return false;
    }
    comes_later =
        comes_later || in[i]->buffer == NULL || in[i]->variable != NULL;
  }
  return comes_later;
}

/* The leaves for the group are one step of a recorder's, behind all others: the
** order of calls that are not recorded. */
static int record_dense(job *j, const tfd__together *like, tfd_object **dense) {
  bool alone = tfd__group_is_alone(j->strategy->group);
  tfd_tensor *in[TFD_MAX_REPLICAS];
  tfd__together t = *like;
  tfd_value *value = NULL;
  int v;
  int i;

  for (v = 0; v < j->leaves; v++) {
    tfd_object *const *leaf = j->in + v * j->n;

    if (alone ? !is_for_group(j, v, in) : tfd__all_slices(leaf, j->n)) {
      TFD_TRY(reduce_leaf(j, v));
      continue;
    }
    if (alone) TFD_TRY(tfd__check_components(j->strategy, j->what, in, j->n));
    memcpy(dense + j->values * j->n, leaf, (size_t)j->n * sizeof *leaf);
    j->leaf[j->values++] = v;
  }
  if (j->values == 0) return TFD_OK;
  t.in = dense;
  t.in_n = j->values * j->n;
  TFD_TRY(tfd__record_together(j->strategy, &t, &value));
  for (v = 0; v < j->values; v++) {
    for (i = 0; i < j->n; i++) {
      tfd_object *x = value->components[v * j->n + i];

      tfd__retain(x);
      j->out[j->leaf[v] * j->n + i] = x;
    }
  }
  tfd__release(value);
  return TFD_OK;
}

static int record(job *j, const tfd__pack_plan *plan) {
  size_t bytes = (size_t)(j->leaves * j->n) * sizeof(tfd_object *);
  tfd__together t = {.what = j->what,
                     .op = j->op,
                     .plan = plan,
                     .timeout = j->timeout,
                     .ask = ask_again};
  tfd_object **dense = tfd__alloc(bytes);
  int rc;

  if (dense == NULL) return tfd__no_memory(bytes, j->what);
  rc = record_dense(j, &t, dense);
  tfd__free(dense);
  return rc;
}

static int all_reduce(tfd_strategy *strategy, tfd_reduce_op op,
                      const char *what, tfd_object *const *components,
                      int components_n, const tfd__pack_plan *plan,
                      double timeout, tfd_value **result_p) {
  int n = strategy->devices_n;
  job j = {.strategy = strategy,
           .op = op,
           .what = what,
           .in = components,
           .timeout = timeout,
           .about = tfd__context()->about};
  int rc;

  if (n == 0 || components_n < n || components_n % n != 0) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: %d components for %d replicas; expected as many for "
                     "each",
                     what, components_n, strategy->group->local);
  }
  j.n = n;
  j.leaves = components_n / n;
  TFD_TRY(make_room(&j, components_n));
  rc = is_one_step(strategy) ? record(&j, plan) : run(&j, plan);
  if (rc == TFD_OK) {
    rc = tfd_value_new(strategy, TFD_VALUE_MIRRORED, j.out, components_n,
                       result_p);
  }
  release(&j);
  return rc;
}

static int ask_again(tfd_strategy *s, const tfd__together *t,
                     tfd_value **result_p) {
  return all_reduce(s, t->op, t->what, t->in, t->in_n, t->plan, t->timeout,
                    result_p);
}

/* --- in buckets ----------------------------------------------------------- */

struct tfd__buckets {
  job j;
  const tfd__bucket_plan *plan;
  bool attended; /* some are */
  int begun;
  tfd__packed *list[]; /* owned; of those begun */
};

int tfd__buckets_new(tfd_strategy *s, const char *what, tfd_object *const *in,
                     int leaves, const tfd__bucket_plan *plan,
                     tfd__buckets **buckets_p) {
  size_t bytes = sizeof(tfd__buckets) + (size_t)plan->n * sizeof(tfd__packed *);
  tfd__buckets *b = tfd__calloc(1, bytes);
  int rc;

  if (b == NULL) return tfd__no_memory(bytes, what);
  b->plan = plan;
  b->j = (job){.strategy = s,
               .op = TFD_REDUCE_SUM,
               .what = what,
               .in = in,
               .leaves = leaves,
               .n = s->devices_n,
               .about = tfd__context()->about};
  rc = make_room(&b->j, leaves * s->devices_n);
  if (rc != TFD_OK) {
    tfd__free(b);
    return rc;
  }
  *buckets_p = b;
  return TFD_OK;
}

int tfd__buckets_begin(tfd__buckets *b, bool attended) {
  const tfd__pack_plan one = {0};
  const tfd__bucket_plan *plan = b->plan;
  int at = b->begun == 0 ? 0 : plan->ends[b->begun - 1];
  job *j = &b->j;
  tfd__collective c;

  for (; at < plan->ends[b->begun]; at++) {
    TFD_TRY(add_value(j, plan->order[at]));
  }
  TFD_TRY(make_results(j, &one));
  c = collective_of(j);
  TFD_TRY(
      tfd__packed_begin(j->strategy->group, &c, attended, &b->list[b->begun]));
  j->first = j->values;
  b->attended = b->attended || attended;
  b->begun++;
  return TFD_OK;
}

/* While others move the sums on. What fails is said where these are waited
** for. */
static void let_compute(const tfd_strategy *s) {
  tfd__deadline until = tfd__deadline_in(s->group->timeout);
  int i;

  for (i = 0; i < s->devices_n; i++) {
    tfd_device *d = s->devices[i];

    (void)tfd__wait_done(d, tfd__stream_seq(d), until);
  }
}

int tfd__buckets_finish(tfd__buckets *b) {
  job *j = &b->j;
  int i;

  while (b->begun < b->plan->n) TFD_TRY(tfd__buckets_begin(b, false));
  for (i = 0; i < j->leaves; i++) {
    if (tfd__all_slices(j->in + i * j->n, j->n)) TFD_TRY(reduce_leaf(j, i));
  }
  if (b->attended) let_compute(j->strategy);
  tfd__group_recall(j->strategy->group);
  for (i = 0; i < b->begun; i++) TFD_TRY(tfd__packed_wait(b->list[i], 0));
  return TFD_OK;
}

tfd_object *const *tfd__buckets_sums(const tfd__buckets *b, int leaf) {
  return b->j.out + leaf * b->j.n;
}

void tfd__buckets_free(tfd__buckets *b) {
  int i;

  if (b == NULL) return;
  tfd__group_recall(b->j.strategy->group);
  for (i = 0; i < b->begun; i++) tfd__packed_end(b->list[i]);
  release(&b->j);
  tfd__free(b);
}

/* --- the public entries --------------------------------------------------- */

int tfd_strategy_all_reduce(tfd_strategy *strategy, tfd_reduce_op op,
                            const char *what, tfd_object *const *components,
                            int components_n, tfd_value **result_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_ENUM(op, TFD_REDUCE_SUM, TFD_REDUCE_PROD);
  TFD_GIVEN_POINTER(what);
  TFD_GIVEN_HANDLES(components, components_n, KINDS);
  TFD_GIVEN_POINTER(result_p);
  return all_reduce(strategy, op, what, components, components_n, NULL, 0,
                    result_p);
}

int tfd_strategy_all_reduce_packed(tfd_strategy *strategy, tfd_reduce_op op,
                                   const char *what,
                                   tfd_object *const *components,
                                   int components_n, int packs,
                                   int64_t pack_bytes, double timeout_seconds,
                                   tfd_value **result_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_ENUM(op, TFD_REDUCE_SUM, TFD_REDUCE_PROD);
  TFD_GIVEN_POINTER(what);
  TFD_GIVEN_HANDLES(components, components_n, KINDS);
  TFD_GIVEN_POINTER(result_p);

  tfd__pack_plan plan = {.packs = packs > 0 ? packs : 0,
                         .bytes = pack_bytes,
                         .backwards = packs < 0};

  return all_reduce(strategy, op, what, components, components_n,
                    packs == 0 ? NULL : &plan, timeout_seconds, result_p);
}
