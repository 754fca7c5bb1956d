/* Updates of all replicas in recorded functions: each is one step, which makes
** the call that would have been made, with the tensors and numbers of the
** recorded function's call. */
#include <stdio.h>

#include "distribute/distribute.h"

/* What a gradient is put together from: slices come as two tensors. */
typedef struct form {
  int rank; /* -1 = it is one tensor; else of the slices' dims */
  int64_t dims[TFD_MAX_RANK];
} form;

typedef struct recorded {
  tfd__joint joint;
  tfd__update u;           /* its lists are those below; without gradients */
  form *forms;             /* of the gradients */
  tfd_object **grads;      /* of a call */
  void *room;              /* for the lists of one call after the other */
  tfd__bucket_plan plan;   /* of sums that begin before all gradients are there;
                           ** empty = there are none */
  int *part_of;            /* of each of the joint's inputs */
  tfd_variable *targets[]; /* owned references */
} recorded;

static void recorded_destroy(void *self) {
  recorded *r = self;
  int i;

  for (i = 0; i < r->u.targets_n; i++) tfd__release(r->targets[i]);
  tfd__release(r->u.strategy);
  tfd__bucket_plan_free(&r->plan);
  tfd__free(r->part_of);
  tfd__free(r->forms);
  tfd__free(r->grads);
  tfd__free(r->room);
  tfd__free(r);
}

static const tfd__type recorded_type = {
    .name = "update of all replicas",
    .destroy = recorded_destroy,
};

/* --- calls ---------------------------------------------------------------- */

static void release_grads(const recorded *r) {
  int i;

  for (i = 0; i < r->u.grads_n; i++) {
    if (r->forms[i].rank >= 0) tfd__release(r->grads[i]);
    r->grads[i] = NULL;
  }
}

/* The gradients of a call, from its tensors; those that are not there yet are
** NULL. */
static int take_grads(const recorded *r, tfd_tensor *const *in) {
  int at = 0;
  int i;

  for (i = 0; i < r->u.grads_n; i++) {
    const form *f = &r->forms[i];

    if (f->rank < 0) {
      r->grads[i] = in[at] == NULL ? NULL : &in[at]->object;
      at++;
    } else if (in[at] == NULL) {
      at += 2;
    } else {
      tfd_slices *s = NULL;

      TFD_TRY(tfd_slices_new(in[at], in[at + 1], f->dims, f->rank, &s));
      r->grads[i] = &s->object;
      at += 2;
    }
  }
  return TFD_OK;
}

/* What keeps gradients from being there is what the others, who wait for them,
** are told: with its line, as of an error that ends a process. */
static void tell_others(tfd__group *g) {
  tfd__error why = {0};
  char text[1024];
  bool has_line = false;

  tfd__error_save(&why);
  has_line = why.where != NULL && why.where[0] != '\0';
  (void)snprintf(text, sizeof text, "%s%s%s: %s", has_line ? why.where : "",
                 has_line ? ": " : "", tfd_status_kind((int)why.code),
                 why.message == NULL ? "" : why.message);
  tfd__group_abort(g, text);
  (void)tfd__error_raise(&why);
  tfd__error_free(&why);
}

static void free_begun(recorded *r) {
  tfd__buckets_free(r->u.begun);
  r->u.begun = NULL;
}

static void drop_begun(tfd__joint *self) {
  recorded *r = (recorded *)self;

  if (r->u.begun != NULL) tell_others(r->u.strategy->group);
  free_begun(r);
}

static int begin_part(tfd__joint *self, int part, tfd_tensor *const *in) {
  recorded *r = (recorded *)self;
  int rc = TFD_OK;

  if (part == 0) {
    int n = r->u.grads_n / r->u.strategy->devices_n;
    uint32_t before =
        tfd__set_about(tfd__about_all(r->targets, n, r->u.targets_n / n));

    rc = tfd__buckets_new(r->u.strategy, r->u.what, r->grads, n, &r->plan,
                          &r->u.begun);
    (void)tfd__set_about(before);
  }
  if (rc == TFD_OK) rc = take_grads(r, in);
  if (rc == TFD_OK) rc = tfd__buckets_begin(r->u.begun, true);
  release_grads(r);
  return rc;
}

static int run_recorded(tfd__joint *self, tfd_tensor *const *in,
                        const double *reals, tfd_tensor **out) {
  recorded *r = (recorded *)self;
  tfd__update u = r->u;
  int rc;

  (void)out;
  u.targets = r->targets;
  u.grads = r->grads;
  u.reals = reals;
  rc = take_grads(r, in);
  if (rc == TFD_OK) rc = u.make(&u);
  release_grads(r);
  if (rc != TFD_OK) {
    drop_begun(self);
  } else {
    free_begun(r);
  }
  return rc;
}

/* --- recording ------------------------------------------------------------ */

static int new_step(const tfd__update *u, const char *name, recorded **r_p) {
  size_t n = (size_t)u->grads_n;
  size_t bytes = sizeof(recorded) + (size_t)u->targets_n * sizeof(void *);
  recorded *r = tfd__calloc(1, bytes);
  int i;

  if (r == NULL) return tfd__no_memory(bytes, name);
  tfd__object_init(&r->joint.object, &recorded_type);
  r->joint.name = name;
  r->joint.reals_n = u->reals_n;
  r->joint.run = run_recorded;
  r->u = *u;
  r->u.targets_n = 0;
  r->u.room_p = &r->room;
  tfd__retain(u->strategy);
  for (i = 0; i < u->targets_n; i++) {
    tfd__retain(u->targets[i]);
    r->targets[r->u.targets_n++] = u->targets[i];
  }
  r->forms = tfd__calloc(n, sizeof *r->forms);
  r->grads = tfd__calloc(n, sizeof(void *));
  *r_p = r;
  if (r->forms != NULL && r->grads != NULL) return TFD_OK;
  tfd__release(r);
  return tfd__no_memory(n * sizeof(form), name);
}

/* The tensors of the gradients, of which there are at most twice as many. */
static int take_forms(recorded *r, tfd_object *const *grads, tfd_tensor **in,
                      int *in_n) {
  int i;
  int d;

  for (i = 0; i < r->u.grads_n; i++) {
    form *f = &r->forms[i];

    f->rank = -1;
    if (grads[i] != NULL && grads[i]->type == &tfd__slices_type) {
      const tfd_slices *s = (const tfd_slices *)grads[i];

      f->rank = s->rank;
      for (d = 0; d < s->rank; d++) f->dims[d] = s->dims[d];
      in[(*in_n)++] = s->values;
      in[(*in_n)++] = s->indices;
    } else {
      TFD_TRY(tfd__operand(grads[i], &in[*in_n]));
      (*in_n)++;
    }
  }
  return TFD_OK;
}

/* Which inputs belong to which bucket. */
static int find_parts(recorded *r, tfd_object *const *grads, int in_n) {
  const tfd__bucket_plan *plan = &r->plan;
  int n = r->u.strategy->devices_n;
  int part = 0;
  int at = 0;
  int k;
  int i;

  if (r->u.what == NULL || !r->u.strategy->overlaps) return TFD_OK;
  TFD_TRY(
      tfd__bucket_plan_new(r->u.strategy, grads, r->u.grads_n / n, &r->plan));
  if (plan->n == 0) return TFD_OK;
  r->part_of = tfd__alloc((size_t)in_n * sizeof *r->part_of);
  if (r->part_of == NULL) return tfd__no_memory((size_t)in_n, r->u.what);
  for (i = 0; i < in_n; i++) r->part_of[i] = plan->n;
  for (k = 0; k < plan->ends[plan->n - 1]; k++) {
    int first = plan->order[k] * n;

    part += k == plan->ends[part];
    for (at = i = 0; i < first; i++) at += r->forms[i].rank < 0 ? 1 : 2;
    for (; i < first + n; i++) {
      r->part_of[at++] = part;
      if (r->forms[i].rank >= 0) r->part_of[at++] = part;
    }
  }
  r->joint.parts_n = plan->n;
  r->joint.part_of = r->part_of;
  r->joint.begin = begin_part;
  r->joint.drop = drop_begun;
  return TFD_OK;
}

static int record(const tfd__update *u, const char *name, tfd_tensor **in) {
  tfd__recorder *recorder = tfd__context()->recorder;
  recorded *r = NULL;
  int in_n = 0;
  int rc;

  TFD_TRY(new_step(u, name, &r));
  rc = take_forms(r, u->grads, in, &in_n);
  if (rc == TFD_OK) rc = find_parts(r, u->grads, in_n);
  if (rc == TFD_OK) {
    rc = recorder->join(recorder, &r->joint, in, in_n, u->targets, u->targets_n,
                        u->reals, NULL);
  }
  if (rc != TFD_OK) tfd__release(r);
  return rc;
}

int tfd__record_update(const tfd__update *u) {
  const char *name = tfd__op_at(u->op)->name;
  size_t n = 2 * (size_t)u->grads_n;
  tfd_tensor **in = tfd__calloc(n, sizeof *in);
  int rc;

  if (in == NULL) return tfd__no_memory(n * sizeof *in, name);
  rc = record(u, name, in);
  tfd__free(in);
  return rc;
}
