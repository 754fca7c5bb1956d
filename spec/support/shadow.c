/* A host whose recorder watches every op of its thread and lets it run: what
** inference says of sizes that are not known is held against the true ones.
** Lua 5.4 as in build/tfdist; SHADOW_SEED chooses what is hidden. Ends with a
** line on stdout, and with status 3 when something was wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops/ops.h"

enum { TRIALS = 4, MOST_INPUTS = 16, SHOWN = 20 };

static bool seen[TFD_OP_N];
static long inferences;
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
    fprintf(stderr, " %s", p->in[i] == NULL ? "-" :
                           tfd__shape_text(&in[i], text));
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

static int see(tfd__recorder *self, const tfd__pending *p, bool *taken_p) {
  int i;

  (void)self;
  *taken_p = false;
  seen[p->op - tfd__op_at(0)] = true;
  if (p->in_n > MOST_INPUTS || p->in_n == 0) return TFD_OK;
  for (i = 0; i < TRIALS; i++) hide(p, 1u + (unsigned)(draw() % 6));
  hide(p, 8);
  return TFD_OK;
}

static void keep(void *self) { (void)self; }

static const tfd__type shadow_type = {
    .name = "shadow", .kind = TFD_HANDLE_CONTEXT, .destroy = keep};

static tfd__recorder shadow = {.tracer = {.name = "shadow"}, .see = see};

__attribute__((constructor)) static void begin(void) {
  const char *seed = getenv("SHADOW_SEED");
  tfd__recorder *before = NULL;

  if (seed != NULL) state = strtoull(seed, NULL, 10) * 2654435761u + 1;
  tfd__object_init(&shadow.tracer.object, &shadow_type);
  tfd__context_record(&shadow, &before);
}

__attribute__((destructor)) static void end(void) {
  int i;

  printf("shadow: %ld inferences, %d wrong, unseen:", inferences, wrong);
  for (i = 0; i < TFD_OP_N; i++) {
    if (!seen[i]) printf(" %s", tfd__op_at(i)->name);
  }
  printf("\n");
  fflush(stdout);
  if (wrong > 0) _exit(3);
}
