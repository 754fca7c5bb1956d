/* Reductions and gathers over several processes in recorded functions, and of
** one that NCCL or the like makes: each is one step, which asks for the same
** collective at every call, as a call that is not recorded does. So it does not
** matter which processes have traced and which have not: what is checked and
** told of others is the same. */
#include <string.h>

#include "base/crc32c.h"
#include "distribute/distribute.h"

typedef struct recorded {
  tfd__joint joint;
  tfd_strategy *strategy; /* owned reference */
  tfd__together t;        /* its lists are those below; without inputs */
  tfd__pack_plan plan;
  tfd_device *devices[TFD_MAX_REPLICAS];
  uint32_t about;
} recorded;

uint32_t tfd__set_about(uint32_t about) {
  tfd_context *context = tfd__context();
  uint32_t before = context->about;

  context->about = about;
  return before;
}

uint32_t tfd__about_all(tfd_variable *const *targets, int n, int step) {
  uint32_t about = 0;
  int k;

  for (k = 0; k < n; k++) {
    uint32_t number = targets[(ptrdiff_t)k * step]->number;

    about = tfd__crc32c(about, &number, sizeof number);
  }
  return about;
}

uint32_t tfd__about_shapes(uint32_t about, const tfd__piece *in, int n,
                           int step) {
  int k;

  for (k = 0; k < n; k++) {
    const tfd__view *v = in[(ptrdiff_t)k * step].view;

    about = tfd__crc32c(about, &v->rank, sizeof v->rank);
    about = tfd__crc32c(about, v->dims, (size_t)v->rank * sizeof v->dims[0]);
  }
  return about;
}

int tfd_context_set_about(tfd_variable *const *variables, int variables_n) {
  TFD_GIVEN_LIST(variables, variables_n);

  (void)tfd__set_about(tfd__about_all(variables, variables_n, 1));
  return TFD_OK;
}

static void recorded_destroy(void *self) {
  recorded *r = self;

  tfd__release(r->strategy);
  tfd__free(r);
}

static const tfd__type recorded_type = {
    .name = "reduction of all replicas",
    .destroy = recorded_destroy,
};

static int run_recorded(tfd__joint *self, tfd_tensor *const *in,
                        const double *reals, tfd_tensor **out) {
  const recorded *r = (const recorded *)self;
  tfd__together t = r->t;
  tfd_value *value = NULL;
  uint32_t before = tfd__set_about(r->about);
  int rc;
  int i;

  (void)reals;
  t.in = (tfd_object *const *)(const void *)in;
  rc = t.ask(r->strategy, &t, &value);
  (void)tfd__set_about(before);
  TFD_TRY(rc);
  for (i = 0; i < self->out_n; i++) {
    tfd__retain(value->components[i]);
    out[i] = (tfd_tensor *)value->components[i];
  }
  tfd__release(value);
  return TFD_OK;
}

/* --- recording ------------------------------------------------------------ */

static int check_input(const tfd__together *t, tfd_object *x, tfd_tensor **p) {
  int d;

  if (x != NULL && x->type == &tfd__slices_type) {
    return tfd__refuse_recorder("a reduction of IndexedSlices over workers");
  }
  TFD_TRY(tfd__operand(x, p));
  for (d = 0; !t->gathers && d < (*p)->view.rank; d++) {
    if ((*p)->view.dims[d] >= 0) continue;
    return tfd__refuse_recorder("a reduction over workers of a tensor whose "
                                "size only the call knows");
  }
  return TFD_OK;
}

/* Means of whole numbers are divided sums. */
static int result_dtype(const tfd__together *t, const tfd__view *in, int *d_p) {
  const tfd__op *op = tfd__op_at(TFD_OP_divide);
  tfd__view v;
  const tfd__view *two[2] = {&v, &v};
  tfd__infer s = {.op = op, .name = op->name, .in = two, .in_n = 2};

  *d_p = in->dtype;
  if (t->op != TFD_REDUCE_MEAN || tfd__is_float(in->dtype)) return TFD_OK;
  s.out = s.small;
  TFD_TRY(tfd__view_set(&v, (tfd_dtype)in->dtype, NULL, 0));
  TFD_TRY(op->infer(&s));
  *d_p = s.out[0].view.dtype;
  return TFD_OK;
}

static int new_step(tfd_strategy *s, const tfd__together *t, recorded **r_p) {
  recorded *r = tfd__calloc(1, sizeof *r);
  int i;

  if (r == NULL) return tfd__no_memory(sizeof *r, t->what);
  tfd__object_init(&r->joint.object, &recorded_type);
  r->t = *t;
  r->t.in = NULL;
  r->t.what = tfd__span_name(t->what);
  r->joint.name = r->t.what;
  r->about = tfd__context()->about;
  r->joint.run = run_recorded;
  r->joint.out_n = t->devices == NULL ? t->in_n : t->devices_n;
  tfd__retain(s);
  r->strategy = s;
  for (i = 0; i < t->devices_n; i++) r->devices[i] = t->devices[i];
  if (t->devices != NULL) r->t.devices = r->devices;
  if (t->plan != NULL) {
    r->plan = *t->plan;
    r->t.plan = &r->plan;
  }
  *r_p = r;
  return TFD_OK;
}

static void release_all(tfd_tensor **list, int n) {
  while (n > 0) tfd__release(list[--n]);
}

/* Symbols for what the step gives. */
static int make_outputs(const tfd_strategy *s, const recorded *r,
                        tfd_tensor *const *in, tfd_tensor **out) {
  const tfd_context *c = tfd__context();
  int i;

  for (i = 0; i < r->joint.out_n; i++) {
    bool everywhere = r->t.devices == NULL;
    const tfd__view *like = &in[everywhere ? i : 0]->view;
    tfd_device *device =
        everywhere ? s->devices[i % s->devices_n] : r->devices[i];
    int64_t dims[TFD_MAX_RANK];
    int dtype = 0;
    int rc = result_dtype(&r->t, like, &dtype);

    memcpy(dims, like->dims, sizeof dims);
    if (r->t.gathers) dims[r->t.axis] = -1;
    if (rc == TFD_OK) {
      rc = tfd__tensor_symbolic(&c->recorder->tracer, device, dtype, dims,
                                like->rank, c->file, c->line, &out[i]);
    }
    if (rc == TFD_OK) continue;
    release_all(out, i);
    return rc;
  }
  return TFD_OK;
}

static int record(tfd_strategy *s, const tfd__together *t, tfd_tensor **in,
                  tfd_tensor **out, tfd_value **result_p) {
  tfd__recorder *recorder = tfd__context()->recorder;
  recorded *r = NULL;
  int outs = 0;
  int rc;
  int i;

  for (i = 0; i < t->in_n; i++) TFD_TRY(check_input(t, t->in[i], &in[i]));
  TFD_TRY(new_step(s, t, &r));
  outs = r->joint.out_n;
  rc = make_outputs(s, r, in, out);
  if (rc != TFD_OK) {
    tfd__release(r);
    return rc;
  }
  rc = recorder->join(recorder, &r->joint, in, t->in_n, NULL, 0, NULL, out);
  if (rc != TFD_OK) tfd__release(r);
  if (rc == TFD_OK) {
    rc = tfd_value_new(s, TFD_VALUE_MIRRORED,
                       (tfd_object *const *)(const void *)out, outs, result_p);
  }
  release_all(out, outs);
  return rc;
}

int tfd__record_together(tfd_strategy *s, const tfd__together *t,
                         tfd_value **result_p) {
  size_t n = (size_t)(t->in_n > TFD_MAX_REPLICAS ? t->in_n : TFD_MAX_REPLICAS);
  tfd_tensor **lists = tfd__calloc(2 * n, sizeof *lists);
  int rc;

  if (lists == NULL) return tfd__no_memory(n * 16, t->what);
  rc = record(s, t, lists, lists + n, result_p);
  tfd__free(lists);
  return rc;
}
