/* A host whose recorder watches every op of its thread and lets it run: what
** inference says of sizes that are not known is held against the true ones, and
** what a kernel computes in parts of rows against the whole.
** Lua 5.4 as in build/tfdist; SHADOW_SEED chooses what is hidden and where rows
** are cut. Ends with two lines on stdout, and with status 3 when something was
** wrong. */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRIALS = 4, MOST_INPUTS = 16, SHOWN = 20 };

static bool seen[TFD_OP_N];
static long inferences;
static bool parted[TFD_KERNEL_N];
static long shared;
static int wrong;
static uint64_t state = 1;

static uint64_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static void complain(const tfd__pending *p, const tfd__view *in,
                     const char *what) {
  char text[TFD_SHAPE_TEXT];
  int i;

  if (wrong++ >= SHOWN) return;
  fprintf(stderr, "shadow: %s of", p->op->name);
  for (i = 0; i < p->in_n; i++) {
    fprintf(stderr, " %s",
            p->in[i] == NULL ? "-" : tfd__shape_text(&in[i], text));
  }
  fprintf(stderr, ": %s\n", what);
}

/* Where the rank or the number of results hangs on a size. */
static bool may_refuse(const tfd__pending *p, int code) {
  const char *name = p->op->name;

  if (strcmp(name, "unstack") == 0) return code == TFD_VALUE_ERROR;
  return code == TFD_NOT_IMPLEMENTED &&
         (strcmp(name, "squeeze") == 0 || strcmp(name, "gather_nd") == 0);
}

static const char *compare(const tfd__pending *p, const tfd__infer *s) {
  int i;

  if (s->out_n != p->out_n) return "another number of results";
  for (i = 0; i < s->out_n; i++) {
    const tfd__view *have = &s->out[i].view;
    const tfd__view *want = &p->out[i]->view;

    if (have->dtype != want->dtype) return "another dtype";
    if (!tfd__shapes_agree(have, want)) return "another shape";
  }
  return NULL;
}

/* Hide each size with a chance of `share` in 8. */
static void hide(const tfd__pending *p, unsigned share) {
  tfd__view views[MOST_INPUTS];
  const tfd__view *in[MOST_INPUTS];
  tfd__infer s = {.op = p->op,
                  .name = p->op->name,
                  .in = in,
                  .in_n = p->in_n,
                  .ints = p->ints,
                  .reals = p->reals,
                  .out_n = 1,
                  .partial = true};
  int rc;
  int i;
  int d;

  for (i = 0; i < p->in_n; i++) {
    in[i] = p->in[i] == NULL ? NULL : &views[i];
    if (in[i] == NULL) continue;
    views[i] = p->in[i]->view;
    for (d = 0; d < views[i].rank; d++) {
      if (draw() % 8 >= share) continue;
      views[i].dims[d] = -1;
      views[i].numel = -1;
    }
  }
  s.out = s.small;
  inferences++;
  rc = p->op->infer(&s);
  if (rc == TFD_OK) {
    const char *what = compare(p, &s);

    if (what != NULL) complain(p, views, what);
  } else if (!may_refuse(p, rc)) {
    complain(p, views, tfd_error_message());
  }
  tfd__free(s.large);
}

/* --- parts of rows -------------------------------------------------------- */

/* Does the op run a kernel for these inputs, and on its device? */
static bool runs_kernel(const tfd__pending *p) {
  const tfd__view *in[MOST_INPUTS];
  tfd__infer s = {.op = p->op,
                  .name = p->op->name,
                  .in = in,
                  .in_n = p->in_n,
                  .ints = p->ints,
                  .reals = p->reals,
                  .out_n = 1};
  bool runs = p->op->kernel != TFD_KERNEL_none && p->targets_n == 0;
  int i;

  for (i = 0; i < p->in_n; i++) {
    in[i] = p->in[i] == NULL ? NULL : &p->in[i]->view;
    if (p->in[i] != NULL && p->in[i]->device != p->device) runs = false;
  }
  s.out = s.small;
  if (p->op->infer(&s) != TFD_OK || s.alias) runs = false;
  tfd__free(s.large);
  return runs && p->out_n <= PARTS_OUTPUTS;
}

/* Run the op whole and in parts, out of the recorder's sight. */
static void hold(const tfd__pending *p, tfd_tensor *const *in) {
  tfd_tensor *whole[PARTS_OUTPUTS] = {NULL};
  tfd__rows_kind kind = TFD_ROWS_NONE;
  tfd__view views[MOST_INPUTS];
  int op = (int)(p->op - tfd__op_at(0));
  int n = 0;
  int i;

  if (tfd__run(op, in, p->in_n, p->ints, p->reals, whole, PARTS_OUTPUTS, &n) !=
      TFD_OK) {
    return; /* by the values */
  }
  for (i = 0; i < p->in_n; i++) {
    if (in[i] != NULL) views[i] = in[i]->view;
  }
  for (i = 0; i < TRIALS; i++) {
    const char *what = parts_check(p->op, p->device, in, p->in_n, whole, n,
                                   p->ints, p->reals, draw, &kind);

    if (kind == TFD_ROWS_NONE) break;
    shared++;
    parted[p->op->kernel] = true;
    if (what != NULL) complain(p, views, what);
  }
  while (n > 0) tfd__release(whole[--n]);
}

static void share(const tfd__pending *p) {
  tfd__recorder *self = NULL;
  tfd__recorder *none = NULL;
  tfd_tensor *in[MOST_INPUTS] = {NULL};
  bool ready = true;
  int i;

  if (!runs_kernel(p)) return;
  tfd__context_record(NULL, &self);
  for (i = 0; i < p->in_n && ready; i++) {
    if (p->in[i] == NULL) continue;
    if ((p->op->flags & TFD_OP_STRIDED) != 0) {
      tfd__retain(p->in[i]);
      in[i] = p->in[i];
    } else {
      ready = tfd__tensor_dense(p->in[i], &in[i]) == TFD_OK;
    }
  }
  if (ready) hold(p, in);
  while (i > 0) tfd__release(in[--i]);
  tfd__context_record(self, &none);
  tfd__release(self);
}

/* -------------------------------------------------------------------------- */

static int see(tfd__recorder *self, const tfd__pending *p, bool *taken_p) {
  int i;

  (void)self;
  *taken_p = false;
  seen[p->op - tfd__op_at(0)] = true;
  if (p->in_n > MOST_INPUTS || p->in_n == 0) return TFD_OK;
  for (i = 0; i < TRIALS; i++) hide(p, 1u + (unsigned)(draw() % 6));
  hide(p, 8);
  share(p);
  return TFD_OK;
}

static void keep(void *self) {
  (void)self;
}

static const tfd__type shadow_type = {
    .name = "shadow", .kind = TFD_HANDLE_CONTEXT, .destroy = keep};

static tfd__recorder shadow = {.tracer = {.name = "shadow"}, .see = see};

__attribute__((constructor)) static void begin(void) {
  const char *seed = getenv("SHADOW_SEED");
  tfd__recorder *before = NULL;

  parted[TFD_KERNEL_strip] = true; /* of no op: spec/c/strip_programs */
  if (seed != NULL) state = strtoull(seed, NULL, 10) * 2654435761u + 1;
  tfd__object_init(&shadow.tracer.object, &shadow_type);
  tfd__context_record(&shadow, &before);
}

__attribute__((destructor)) static void end(void) {
  int i;

  printf("shadow: %ld calls in parts, none of:", shared);
#define ROWS(kernel, inputs, when, kind) \
  if (!parted[TFD_KERNEL_##kernel]) printf(" " #kernel);
#include "backend/kernels/rows.def"
#undef ROWS
  printf("\nshadow: %ld inferences, %d wrong, unseen:", inferences, wrong);
  for (i = 0; i < TFD_OP_N; i++) {
    if (!seen[i]) printf(" %s", tfd__op_at(i)->name);
  }
  printf("\n");
  fflush(stdout);
  if (wrong > 0) _exit(3);
}
