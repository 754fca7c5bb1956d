/* Groups of several processes whose devices' memory no network reaches: what
** the ranks give passes through memory of the host, and so does what they get.
** A group of host devices, the hosts' group, does the rest: with its transport
** come its checks, deadlines, heartbeats and failures.
** Cost: a copy of every rank's elements to the host, which is waited for, the
** hosts' collective, and a copy back behind which the devices go on.
**
** A provider of its own for such devices keeps one of these for what it does
** not do itself, and for what processes must tell each other. Whether all have
** that provider is agreed on when the hosts' group is opened. */
#include <string.h>

#include "comm/private.h"

typedef struct staged {
  tfd__group *hosts; /* owned */
} staged;

static tfd__group *hosts_of(const tfd__group *g) {
  return ((const staged *)g->own)->hosts;
}

/* --- who can -------------------------------------------------------------- */

static int can(const tfd__group_config *c) {
  int i;

  if (c->network == NULL || c->devices == NULL ||
      c->size != c->network->processes * c->local) {
    return tfd__fail(TFD_UNAVAILABLE, "group: provider \"staged\" serves "
                                      "devices of several processes");
  }
  for (i = 0; i < c->local; i++) {
    if (!c->devices[i]->backend->host_visible) return TFD_OK;
  }
  return tfd__fail(TFD_UNAVAILABLE, "group: provider \"staged\" is for devices "
                                    "whose memory the host does not reach");
}

/* --- what processes tell each other --------------------------------------- */

static int make_row(const tfd__group *hosts, int i, const void *mine,
                    size_t bytes, tfd__run_of *in, tfd__run_of *out) {
  int64_t n = (int64_t)bytes;
  int processes = hosts->size / hosts->local;

  TFD_TRY(tfd__run_new(hosts->devices[i], TFD_UINT8, i == 0 ? n : 0, in));
  TFD_TRY(tfd__run_new(hosts->devices[i], TFD_UINT8, n * processes, out));
  return i == 0 ? tfd__host_write(in->buffer, 0, mine, bytes) : TFD_OK;
}

static int exchange(tfd__group *hosts, const tfd__exchange *e) {
  tfd__run_of runs[2 * TFD_MAX_LOCAL_RANKS] = {{0}};
  tfd__piece pieces[2 * TFD_MAX_LOCAL_RANKS];
  int local = hosts->local;
  int64_t *counts = tfd__calloc((size_t)hosts->size, sizeof *counts);
  tfd__collective c = {.kind = TFD_COLLECTIVE_ALL_GATHER,
                       .values = 1,
                       .what = e->what,
                       .in = pieces,
                       .out = pieces + local,
                       .counts = counts,
                       .line = e->line,
                       .file = e->file};
  int rc = TFD_OK;
  int i;

  if (counts == NULL) return tfd__no_memory((size_t)hosts->size * 8, e->what);
  for (i = 0; i < hosts->size; i += local) counts[i] = (int64_t)e->bytes;
  for (i = 0; rc == TFD_OK && i < local; i++) {
    rc = make_row(hosts, i, e->mine, e->bytes, &runs[i], &runs[local + i]);
  }
  for (i = 0; i < 2 * local; i++) {
    pieces[i] = (tfd__piece){runs[i].buffer, &runs[i].view};
  }
  if (rc == TFD_OK) rc = tfd__group_run(hosts, &c, e->until);
  if (rc == TFD_OK) {
    rc = tfd__host_read(runs[local].buffer, 0, e->all,
                        e->bytes * (size_t)(hosts->size / local));
  }
  for (i = 0; i < 2 * local; i++) tfd__release(runs[i].buffer);
  tfd__free(counts);
  return rc;
}

int tfd__group_fail_with(tfd__group *g, const tfd__group *other,
                         const char *what, int rc) {
  if (rc == TFD_OK || !atomic_load(&other->failed)) return rc;
  if (rc != TFD_ABORTED) return tfd__group_fail(g);
  (void)tfd__error_raise(&other->cause); /* it stays as it is */
  (void)tfd__group_fail(g);
  return tfd__group_check(g, what);
}

int tfd__staged_check(tfd__group *g, const char *what) {
  int rc = tfd__group_check(hosts_of(g), what);

  TFD_TRY(tfd__group_fail_with(g, hosts_of(g), what, rc));
  return tfd__group_check(g, what);
}

int tfd__staged_exchange(tfd__group *g, const tfd__exchange *e) {
  TFD_TRY(tfd__group_check(g, e->what));
  return tfd__group_fail_with(g, hosts_of(g), e->what,
                              exchange(hosts_of(g), e));
}

/* --- life ----------------------------------------------------------------- */

/* A rank of the host for each of the group's. */
static int open_hosts(const tfd__group_config *config, tfd__group **hosts_p) {
  tfd_device *list[TFD_MAX_LOCAL_RANKS];
  tfd__group_config own = *config;
  int i;

  TFD_TRY(tfd_device_at("CPU", 0, &list[0]));
  for (i = 1; i < config->local; i++) list[i] = list[0];
  own.devices = list;
  if (own.provider != NULL && strcmp(own.provider, "staged") == 0) {
    own.provider = NULL;
  }
  return tfd__group_new(&own, hosts_p);
}

/* Do all processes open this group for one and the same provider? */
static int agree(tfd__group *hosts, uint64_t mine, bool *alike_p) {
  int processes = hosts->size / hosts->local;
  uint64_t all[TFD_MAX_LOCAL_RANKS];
  tfd__exchange e = {.what = "opening a group",
                     .mine = &mine,
                     .bytes = sizeof mine,
                     .all = all};
  int p;

  TFD_TRY(exchange(hosts, &e));
  *alike_p = true;
  for (p = 0; p < processes; p++) *alike_p = *alike_p && all[p] == mine;
  return TFD_OK;
}

/* Where only some come for another provider, these give it up and all meet
** once more. */
static int meet(tfd__group *g, const tfd__group_config *config,
                tfd__group **hosts_p) {
  bool alike = false;
  int rc = open_hosts(config, hosts_p);

  if (rc == TFD_OK) rc = agree(*hosts_p, config->wanted_for, &alike);
  if (rc == TFD_OK && !alike && config->wanted_for != 0) {
    g->unfit = true;
    rc = tfd__fail(TFD_UNAVAILABLE,
                   "group: not all processes have the same library for their "
                   "devices' collectives");
  }
  if (rc == TFD_OK && !alike) {
    tfd__release(*hosts_p);
    *hosts_p = NULL;
    rc = open_hosts(config, hosts_p);
    if (rc == TFD_OK) rc = agree(*hosts_p, 0, &alike);
    if (rc == TFD_OK && !alike) {
      rc = tfd__fail(TFD_FAILED_PRECONDITION,
                     "group: the processes ask for different providers");
    }
  }
  return rc;
}

static int open_group(tfd__group *g, const tfd__group_config *config) {
  staged *own = tfd__calloc(1, sizeof *own);
  tfd__group *hosts = NULL;
  int rc;

  if (own == NULL) return tfd__no_memory(sizeof *own, "group");
  rc = meet(g, config, &hosts);
  if (rc != TFD_OK) {
    tfd__error kept = {0};

    tfd__error_save(&kept);
    tfd__release(hosts);
    (void)tfd__error_raise(&kept);
    tfd__error_free(&kept);
    tfd__free(own);
    return rc;
  }
  own->hosts = hosts;
  g->own = own;
  return TFD_OK;
}

static void close_group(tfd__group *g) {
  staged *own = g->own;

  g->own = NULL;
  tfd__release(own->hosts);
  tfd__free(own);
}

/* The thread's error stays what it was: it is the cause. */
static void abort_group(tfd__group *g) {
  if (g->own == NULL) return; /* it was never open */
  (void)tfd__error_raise(&g->cause);
  (void)tfd__group_fail(hosts_of(g));
}

/* --- a collective --------------------------------------------------------- */

/* The pieces' counterparts in memory of the host. */
typedef struct stage {
  tfd__run_of *runs; /* n for `in`, then n for `out` */
  tfd__piece *pieces;
  int n;
} stage;

static void stage_free(stage *s) {
  int i;

  for (i = 0; s->runs != NULL && i < 2 * s->n; i++) {
    tfd__release(s->runs[i].buffer);
  }
  tfd__free(s->runs);
  tfd__free(s->pieces);
}

static int stage_new(const tfd__group *g, const tfd__collective *c, stage *s) {
  size_t n = 2 * (size_t)(c->values * g->local) + 1;

  s->n = c->values * g->local;
  s->runs = tfd__calloc(n, sizeof *s->runs);
  s->pieces = tfd__calloc(n, sizeof *s->pieces);
  return s->runs != NULL && s->pieces != NULL
             ? TFD_OK
             : tfd__no_memory(n * sizeof *s->runs, c->what);
}

/* What is nobody's to give or to get is left out, whatever is said of it. */
static bool is_part(const tfd__group *g, const tfd__collective *c, bool given,
                    int i) {
  bool is_roots = given ? tfd__root_gives(c->kind) : tfd__root_gets(c->kind);

  return !is_roots || g->base + i == c->root;
}

static int make_host(tfd__group *g, const tfd__collective *c, stage *s, int at,
                     bool given) {
  int i = at % g->local;
  const tfd__piece *p = given ? &c->in[at] : &c->out[at];
  tfd__run_of *run = &s->runs[given ? at : s->n + at];

  if (!is_part(g, c, given, i)) return TFD_OK;
  TFD_TRY(tfd__run_new(hosts_of(g)->devices[i], p->view->dtype, p->view->numel,
                       run));
  s->pieces[given ? at : s->n + at] = (tfd__piece){run->buffer, &run->view};
  if (given) {
    tfd__run_of from = tfd__part_of(p, 0, p->view->numel);

    /* The other processes wait for it. */
    if (tfd__run_copy(run, &from) != TFD_OK) {
      return tfd__group_fail(g);
    }
  }
  return TFD_OK;
}

static int bring_back(const tfd__group *g, const tfd__collective *c,
                      const stage *s) {
  int at;

  for (at = 0; at < s->n; at++) {
    tfd__run_of to;

    if (!is_part(g, c, false, at % g->local)) continue;
    to = tfd__part_of(&c->out[at], 0, c->out[at].view->numel);
    TFD_TRY(tfd__run_copy(&to, &s->runs[s->n + at]));
  }
  return TFD_OK;
}

static int begin(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  tfd__collective own = *c;
  stage s = {0};
  int rc = TFD_OK;
  int at;

  (void)t;
  if (c->kind == TFD_COLLECTIVE_BARRIER) own.values = 0;
  TFD_TRY_OR(rc = stage_new(g, &own, &s), release);
  for (at = 0; at < s.n; at++) {
    TFD_TRY_OR(rc = make_host(g, c, &s, at, true), release);
    TFD_TRY_OR(rc = make_host(g, c, &s, at, false), release);
  }
  own.in = s.pieces;
  own.out = s.pieces + s.n;
  TFD_TRY_OR(rc = tfd__group_run(hosts_of(g), &own, c->until), release);
  rc = bring_back(g, c, &s);

release:
  stage_free(&s);
  return tfd__group_fail_with(g, hosts_of(g), tfd__collective_name(c->kind),
                              rc);
}

const tfd__provider tfd__staged_provider = {
    .abi = TFD_PROVIDER_ABI,
    .name = "staged",
    .score = 5,
    .ordered = true,
    .can = can,
    .open = open_group,
    .close = close_group,
    .begin = TFD_BEGIN_ALL(begin),
    .abort = abort_group,
};
