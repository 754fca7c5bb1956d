/* What the hosts of a group of several processes tell each other beside NCCL:
** whose GPUs they are, where NCCL meets, what each begins. */
#include <stdio.h>
#include <string.h>

#include "comm/nccl/nccl.h"

/* --- meeting ----------------------------------------------------------------
 */

/* What each process says of itself. */
typedef struct place {
  ncclUniqueId id; /* process 0's counts */
  int32_t has_id;
  CUuuid gpus[TFD_MAX_LOCAL_RANKS];
} place;

static int make_place(const tfd__nccl_group *own, bool first, place *mine) {
  int i;

  memset(mine, 0, sizeof *mine);
  for (i = 0; i < own->local; i++) {
    const tfd__nccl_rank *r = &own->ranks[i];

    TFD_TRY(r->native->check(
        r->native->driver->cuDeviceGetUuid(&mine->gpus[i], r->native->device),
        r->device->short_name));
  }
  if (!first) return TFD_OK;
  tfd__lock(&tfd__nccl.lock);
  mine->has_id = tfd__nc.ncclGetUniqueId(&mine->id) == ncclSuccess;
  tfd__unlock(&tfd__nccl.lock);
  return TFD_OK;
}

/* The first two ranks that share a GPU, the higher one; -1 = none do. */
static int sharing(const place *all, int local, int size, int *with_p) {
  int r;
  int q;

  for (r = 1; r < size; r++) {
    for (q = 0; q < r; q++) {
      if (memcmp(&all[r / local].gpus[r % local],
                 &all[q / local].gpus[q % local], sizeof(CUuuid)) != 0) {
        continue;
      }
      *with_p = q;
      return r;
    }
  }
  return -1;
}

static int check_places(tfd__group *g, tfd__nccl_group *own, const place *all) {
  int other = 0;
  int rank = sharing(all, own->local, own->size, &other);

  if (rank >= 0) {
    g->unfit = true;
    return tfd__fail(TFD_UNAVAILABLE,
                     "group: provider \"nccl\" needs a GPU for each rank; "
                     "ranks %d and %d, of processes %d and %d, share one",
                     other, rank, other / own->local, rank / own->local);
  }
  if (!all[0].has_id) {
    return tfd__fail(TFD_UNAVAILABLE,
                     "connecting GPUs: NCCL gives process 0 no id");
  }
  own->id = all[0].id;
  return TFD_OK;
}

static int tell_places(tfd__group *g, tfd__nccl_group *own, bool first) {
  size_t processes = (size_t)(own->size / own->local);
  place *all = tfd__calloc(processes + 1, sizeof *all);
  tfd__exchange e = {.what = "connecting GPUs",
                     .mine = all + processes,
                     .bytes = sizeof *all,
                     .all = all};
  int rc = TFD_OK;

  if (all == NULL) return tfd__no_memory(processes * sizeof *all, "group");
  rc = make_place(own, first, all + processes);
  if (rc == TFD_OK) rc = tfd__staged_exchange(own->control, &e);
  if (rc == TFD_OK) rc = check_places(g, own, all);
  tfd__free(all);
  return rc;
}

int tfd__nccl_meet(tfd__group *g, tfd__nccl_group *own,
                   const tfd__group_config *config) {
  tfd__group_config beside = *config;
  tfd__group *control = NULL;
  int version = 0;
  int rc = TFD_OK;

  TFD_TRY(
      tfd__nccl_check(tfd__nc.ncclGetVersion(&version), NULL, "opening NCCL"));
  beside.provider = "staged";
  beside.wanted_for = (uint64_t)version;
  rc = tfd__group_new(&beside, &control);
  g->unfit = rc == TFD_UNAVAILABLE;
  TFD_TRY(rc);
  tfd__lock(&tfd__nccl.lock);
  own->control = control;
  tfd__unlock(&tfd__nccl.lock);
  return tell_places(g, own, config->network->process == 0);
}

/* --- collectives ------------------------------------------------------------
 */

typedef struct signature {
  uint64_t what; /* tfd__collective_what */
  uint64_t count;
  uint64_t sizes; /* of all values, as one number */
  int32_t values;
  int32_t line;
  char file[32];
} signature;

static uint64_t mix(uint64_t h, int64_t x) {
  return (h ^ (uint64_t)x) * UINT64_C(0x100000001b3);
}

/* Elements of value k that all processes must give alike. */
static int64_t common_count(const tfd__group *g, const tfd__collective *c,
                            int k) {
  int64_t sum = 0;
  int r;

  if (!tfd__is_ragged(c->kind)) return tfd__leader(g, c, k)->view->numel;
  for (r = 0; r < g->size; r++) sum = sum * 31 + tfd__gather_count(g, c, k, r);
  return sum;
}

static void sign(const tfd__group *g, const tfd__collective *c, signature *s) {
  const tfd__view *v = tfd__leading_view(g, c);
  int k;

  memset(s, 0, sizeof *s);
  s->what = tfd__collective_what(c, v == NULL ? 0 : v->dtype);
  s->count = v == NULL ? 0 : (uint64_t)v->numel;
  s->values = c->values;
  for (k = 0; k < c->values; k++) {
    s->sizes = mix(mix(s->sizes, common_count(g, c, k)),
                   tfd__leader(g, c, k)->view->dtype);
  }
  s->line = c->line;
  tfd__file_end(c->file, s->file, sizeof s->file);
}

static bool same(const signature *a, const signature *b) {
  return a->what == b->what && a->sizes == b->sizes && a->values == b->values;
}

static void say(const signature *s, char *text, size_t bytes) {
  char words[160];
  char file[sizeof s->file + 1];

  tfd__collective_text(s->what, s->count, s->values, words, sizeof words);
  (void)snprintf(file, sizeof file, "%.*s", (int)sizeof s->file, s->file);
  if (s->line > 0) {
    (void)snprintf(text, bytes, "%s at %s:%d", words, file, (int)s->line);
  } else {
    (void)snprintf(text, bytes, "%s", words);
  }
}

static int tell_apart(const signature *all, int p, int here) {
  char first[256];
  char other[256];
  const tfd__side sides[2] = {{0, all[0].what, first}, {p, all[p].what, other}};
  char why[512];
  const char *hint = NULL;

  say(&all[0], first, sizeof first);
  say(&all[p], other, sizeof other);
  hint = tfd__apart_text(&sides[0], &sides[1], here, why, sizeof why);
  (void)tfd__fail(TFD_RUNTIME_ERROR,
                  "the processes run apart: process 0 calls %s, process %d "
                  "calls %s%s",
                  first, p, other, why);
  if (hint != NULL) (void)tfd__hint("%s", hint);
  return tfd__exit_with(TFD_EXIT_DESYNC);
}

int tfd__nccl_agree(tfd__group *g, const tfd__collective *c) {
  tfd__nccl_group *own = g->own;
  int processes = g->size / g->local;
  signature mine;
  signature all[TFD_MAX_LOCAL_RANKS];
  tfd__exchange e = {.what = "NCCL",
                     .mine = &mine,
                     .bytes = sizeof mine,
                     .all = all,
                     .line = c->line,
                     .file = c->file,
                     .until = c->until};
  int rc = TFD_OK;
  int p;

  sign(g, c, &mine);
  rc = tfd__staged_exchange(own->control, &e);
  for (p = 1; rc == TFD_OK && p < processes; p++) {
    if (!same(&all[0], &all[p])) rc = tell_apart(all, p, g->base / g->local);
  }
  if (rc == TFD_ABORTED) {
    return tfd__group_fail_with(g, own->control, tfd__collective_name(c->kind),
                                rc);
  }
  return rc == TFD_OK ? TFD_OK : tfd__group_fail(g);
}

int tfd__nccl_pass_on(tfd__group *g, const tfd__collective *c) {
  tfd__nccl_group *own = g->own;

  return tfd__group_fail_with(g, own->control, tfd__collective_name(c->kind),
                              tfd__group_run(own->control, c, c->until));
}
