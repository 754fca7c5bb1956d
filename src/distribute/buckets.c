/* Which gradients go to other processes together, and whether their sums go on
** while the rest is computed. */
#include "base/environment.h"
#include "distribute/distribute.h"

/* Of a bucket, unless the strategy was told: long against the price of a
** message, short against what a network carries in a step. */
#define BUCKET_BYTES ((int64_t)4 << 20)

/* A gradient of all replicas. */
typedef struct leaf {
  int dtype; /* -1 = slices, which go by themselves */
  int64_t bytes;
} leaf;

static int look_at(tfd_object *const *components, int n, leaf *l) {
  tfd_object *x = components[0];
  tfd_tensor *t = NULL;
  int64_t numel = 1;
  int d;

  if (tfd__all_slices(components, n)) {
    l->dtype = -1;
    return TFD_OK;
  }
  if (x != NULL && x->type == &tfd__slices_type) {
    const tfd_slices *s = (const tfd_slices *)x;

    for (d = 0; d < s->rank; d++) numel *= s->dims[d];
    t = s->values;
  } else {
    TFD_TRY(tfd__operand(x, &t));
    numel = t->view.numel;
  }
  l->dtype = t->view.dtype;
  l->bytes = numel * (int64_t)tfd__dtype_size(l->dtype);
  return TFD_OK;
}

/* Gradients of one dtype, the last ones first. */
static void take_dtype(const leaf *leaves, int n, int dtype, int64_t most,
                       tfd__bucket_plan *plan, int *at) {
  int64_t bytes = 0;
  int k;

  for (k = n - 1; k >= 0; k--) {
    if (leaves[k].dtype != dtype) continue;
    plan->order[(*at)++] = k;
    bytes += leaves[k].bytes;
    if (bytes <= most) continue;
    plan->ends[plan->n++] = *at;
    bytes = 0;
  }
  if (bytes > 0) plan->ends[plan->n++] = *at;
}

static bool is_first_of_dtype(const leaf *leaves, int k) {
  int i = 0;

  while (i < k && leaves[i].dtype != leaves[k].dtype) i++;
  return i == k;
}

/* Does anybody wait for single sums? */
static bool has_buckets(const tfd_strategy *s) {
  return !tfd__group_is_alone(s->group) && s->group->provider != NULL &&
         !s->group->provider->ordered && s->devices_n == s->group->local &&
         tfd_strategy_adds_up(s);
}

static int make_plan(const tfd_strategy *s, tfd_object *const *grads, int n,
                     leaf *leaves, tfd__bucket_plan *plan) {
  int64_t most = s->pack_bytes > 0 ? s->pack_bytes : BUCKET_BYTES;
  int at = 0;
  int k;

  for (k = 0; k < n; k++) {
    TFD_TRY(
        look_at(grads + (ptrdiff_t)k * s->devices_n, s->devices_n, &leaves[k]));
  }
  for (k = 0; k < n; k++) {
    if (leaves[k].dtype < 0 || !is_first_of_dtype(leaves, k)) continue;
    take_dtype(leaves, n, leaves[k].dtype, most, plan, &at);
  }
  if (plan->n == 1) plan->n = 0;
  return TFD_OK;
}

int tfd__bucket_plan_new(const tfd_strategy *s, tfd_object *const *grads, int n,
                         tfd__bucket_plan *plan) {
  size_t bytes = (size_t)n * (sizeof(leaf) + 2 * sizeof *plan->order);
  leaf *leaves = NULL;

  *plan = (tfd__bucket_plan){0};
  if (!has_buckets(s)) return TFD_OK;
  leaves = tfd__calloc(1, bytes);
  if (leaves == NULL) return tfd__no_memory(bytes, "apply_gradients");
  plan->block = leaves;
  plan->order = (int *)(leaves + n);
  plan->ends = plan->order + n;
  return make_plan(s, grads, n, leaves, plan);
}

void tfd__bucket_plan_free(tfd__bucket_plan *plan) {
  tfd__free(plan->block);
  *plan = (tfd__bucket_plan){0};
}

/* --- overlap -------------------------------------------------------------- */

/* Threads that the kernels of this process's devices use. */
static int threads_of(const tfd_strategy *s) {
  int threads = 0;
  int i;

  for (i = 0; i < s->devices_n; i++) {
    if (!s->devices[i]->backend->asynchronous)
      threads += s->devices[i]->threads;
  }
  return threads;
}

/* Processes of one machine add up by its cores: there must be one more for
** each. What comes from other machines is waited for most of the time. */
static bool has_cores(const tfd_strategy *s) {
  const tfd__group *g = s->group;
  int processes = g->size / g->local;

  if (!g->near) return tfd__cores() > 1;
  return tfd__cores() >= processes * (threads_of(s) + 1);
}

int tfd__find_overlap(tfd_strategy *s) {
  static const char *const words[] = {"0", "1"};
  int word = -1;

  TFD_TRY(tfd__env_word("TFDIST_OVERLAP", words, 2, "0 or 1", &word));
  s->overlaps = word < 0 ? has_cores(s) : word == 1;
  return TFD_OK;
}
