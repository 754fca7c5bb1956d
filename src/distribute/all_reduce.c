/* Sums that every replica gets, made by all devices together.
**
** Device d adds up stretch d of every value, reading all replicas' tensors and
** writing all replicas' results. Two fences keep that in stream order: before,
** every device waits for what the others have queued; after, for the others'
** stretches. So a tensor may be released, and its memory used again, as soon
** as the call returns.
** Few elements are the first device's alone: it waits for the others, and they
** for it. Its queue is the one that the host runs when it waits.
** Cost: one pass over n inputs and n outputs shared by n devices, and 2(n-1)
** waits for each device (few elements: n-1 for the first, one for each other),
** whatever the number of values. */
#include "distribute/distribute.h"

/* Below this many elements one device does a value alone, or all values that
** have fewer together. */
#define SHARED_ELEMENTS 8192
/* Stretches end at multiples of this: devices share no cache line. */
#define STRETCH 64

typedef struct job {
  tfd_strategy *strategy;
  tfd_reduce_op op;
  const char *what;
  tfd_object *const *in; /* leaf-major, n each */
  tfd_object **out;      /* owned once set; NULL = not made yet */
  int leaves;
  int n;
  bool alone; /* the first device does it all */
} job;

static bool adds_up(int dtype, tfd_reduce_op op) {
  if (op > TFD_REDUCE_MEAN) return false;
  if (tfd__is_float(dtype)) return true;
  return op == TFD_REDUCE_SUM && (dtype == TFD_INT32 || dtype == TFD_INT64);
}

/* A device can work on the memory of all. */
static bool one_memory(const tfd_strategy *s) {
  int i;

  for (i = 0; i < s->devices_n; i++) {
    const tfd__backend *b = s->devices[i]->backend;

    if (b != s->devices[0]->backend || !b->host_visible ||
        b->kernels[TFD_KERNEL_sum_parts] == NULL) {
      return false;
    }
  }
  return s->devices_n > 1;
}

/* The tensors of leaf k, if the devices can add them up where they lie.
** Errors: InvalidArgument when they differ. */
static int leaf_tensors(const job *j, int k, tfd_tensor **in, bool *fits_p) {
  int i;

  *fits_p = false;
  for (i = 0; i < j->n; i++) {
    tfd_object *x = j->in[k * j->n + i];

    if (x == NULL || x->type != &tfd__tensor_type) return TFD_OK;
    in[i] = (tfd_tensor *)x;
    if (in[i]->buffer == NULL || !in[i]->view.dense ||
        in[i]->device != j->strategy->devices[i]) {
      return TFD_OK;
    }
    TFD_TRY(tfd__buffer_check(in[i]->buffer));
  }
  TFD_TRY(tfd__check_components(j->what, in, j->n));
  *fits_p = adds_up(in[0]->view.dtype, j->op);
  return TFD_OK;
}

/* Leaf k in the general way. */
static int reduce_leaf(job *j, int k) {
  tfd_value *value = NULL;
  int i;

  TFD_TRY(tfd_strategy_reduce(j->strategy, j->op, j->what, j->in + k * j->n,
                              j->n, j->strategy->devices, j->n, &value));
  for (i = 0; i < j->n; i++) {
    tfd__retain(value->components[i]);
    j->out[k * j->n + i] = value->components[i];
  }
  tfd__release(value);
  return TFD_OK;
}

static int make_outputs(job *j, int k, tfd_tensor *const *in) {
  const tfd__view *v = &in[0]->view;
  int i;

  for (i = 0; i < j->n; i++) {
    tfd_tensor *t = NULL;

    TFD_TRY(tfd__tensor_new(j->strategy->devices[i], v->dtype, v->dims,
                            v->rank, &t));
    j->out[k * j->n + i] = &t->object;
  }
  return TFD_OK;
}

static int fence(const tfd_strategy *s) {
  int i;
  int k;

  for (i = 0; i < s->devices_n; i++) {
    for (k = 0; k < s->devices_n; k++) {
      if (i == k) continue;
      TFD_TRY(tfd__stream_after(s->devices[i], s->devices[k]));
    }
  }
  return TFD_OK;
}

/* The first device goes on after all others. */
static int gather_first(const tfd_strategy *s) {
  int i;

  for (i = 1; i < s->devices_n; i++) {
    TFD_TRY(tfd__stream_after(s->devices[0], s->devices[i]));
  }
  return TFD_OK;
}

/* All others go on after the first device. */
static int follow_first(const tfd_strategy *s) {
  int i;

  for (i = 1; i < s->devices_n; i++) {
    TFD_TRY(tfd__stream_after(s->devices[i], s->devices[0]));
  }
  return TFD_OK;
}

/* Device d's stretch of leaf k. */
static int submit_stretch(job *j, int k, int d) {
  const tfd_context *c = tfd__context();
  tfd_device *device = j->strategy->devices[d];
  tfd__view views[2 * TFD_MAX_REPLICAS];
  int64_t numel = ((tfd_tensor *)j->in[k * j->n])->view.numel;
  int64_t each = (numel + j->n - 1) / j->n;
  int64_t ints[3] = {j->op == TFD_REDUCE_MEAN, 0, numel};
  tfd__call call = {
      .name = j->what,
      .kernel = device->backend->kernels[TFD_KERNEL_sum_parts],
      .views = views,
      .ints = ints,
      .ints_n = 3,
      .in_n = (int16_t)j->n,
      .out_n = (int16_t)j->n,
      .replica = -1,
      .line = c->line,
      .file = c->file,
  };
  int i;

  each = (each + STRETCH - 1) / STRETCH * STRETCH;
  if (j->alone) {
    if (d > 0) return TFD_OK;
  } else if (numel >= SHARED_ELEMENTS) {
    ints[1] = each * d < numel ? each * d : numel;
    ints[2] = each * (d + 1) < numel ? each * (d + 1) : numel;
  } else if (d != k % j->n) {
    return TFD_OK;
  }
  if (ints[1] == ints[2]) return TFD_OK;
  for (i = 0; i < j->n; i++) {
    views[i] = ((tfd_tensor *)j->in[k * j->n + i])->view;
    views[j->n + i] = ((tfd_tensor *)j->out[k * j->n + i])->view;
  }
  return tfd__stream_submit(device, &call);
}

/* Results are there once their device has passed the last fence. */
static void mark_written(job *j, int k) {
  int i;

  for (i = 0; i < j->n; i++) {
    tfd_tensor *t = (tfd_tensor *)j->out[k * j->n + i];

    tfd__buffer_made(t->buffer, tfd__stream_seq(t->device));
  }
}

/* The sums of the marked leaves, all outputs made. */
static int submit_all(job *j, const bool *shared) {
  int k;
  int d;

  TFD_TRY(j->alone ? gather_first(j->strategy) : fence(j->strategy));
  for (d = 0; d < j->n; d++) {
    for (k = 0; k < j->leaves; k++) {
      if (shared[k]) TFD_TRY(submit_stretch(j, k, d));
    }
  }
  return j->alone ? follow_first(j->strategy) : fence(j->strategy);
}

static int run(job *j, bool *shared) {
  tfd_tensor *in[TFD_MAX_REPLICAS];
  bool possible = one_memory(j->strategy);
  int64_t elements = 0;
  int shared_n = 0;
  int k;

  for (k = 0; k < j->leaves; k++) {
    bool fits = false;

    if (possible) TFD_TRY(leaf_tensors(j, k, in, &fits));
    shared[k] = fits;
    shared_n += fits;
    if (fits && elements < SHARED_ELEMENTS) elements += in[0]->view.numel;
    TFD_TRY(fits ? make_outputs(j, k, in) : reduce_leaf(j, k));
  }
  if (shared_n == 0) return TFD_OK;
  j->alone = elements < SHARED_ELEMENTS;
  TFD_TRY(submit_all(j, shared));
  for (k = 0; k < j->leaves; k++) {
    if (shared[k]) mark_written(j, k);
  }
  return TFD_OK;
}

int tfd_strategy_all_reduce(tfd_strategy *strategy, tfd_reduce_op op,
                            const char *what, tfd_object *const *components,
                            int components_n, tfd_value **result_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_ENUM(op, TFD_REDUCE_SUM, TFD_REDUCE_PROD);
  TFD_GIVEN_POINTER(what);
  TFD_GIVEN_HANDLES(components, components_n, KINDS);
  TFD_GIVEN_POINTER(result_p);

  int n = strategy->devices_n;
  job j = {.strategy = strategy, .op = op, .what = what, .in = components};
  size_t bytes = (size_t)components_n * sizeof *j.out;
  bool *shared = NULL;
  int rc;
  int i;

  if (n == 0 || components_n < n || components_n % n != 0) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: %d components for %d replicas; expected as many for "
                     "each",
                     what, components_n, strategy->group->local);
  }
  j.n = n;
  j.leaves = components_n / n;
  j.out = tfd__calloc((size_t)components_n, sizeof *j.out);
  shared = tfd__calloc((size_t)j.leaves, sizeof *shared);
  rc = j.out == NULL || shared == NULL ? tfd__no_memory(bytes, what)
                                       : run(&j, shared);
  if (rc == TFD_OK) {
    rc = tfd_value_new(strategy, TFD_VALUE_MIRRORED, j.out, components_n,
                       result_p);
  }
  for (i = 0; j.out != NULL && i < components_n; i++) tfd__release(j.out[i]);
  tfd__free(j.out);
  tfd__free(shared);
  return rc;
}
