/* Sums of processes on several hosts: inside each host through memory that its
** processes share, between hosts over TCP, and inside again.
**
** The processes of a host, as their addresses tell it, add up what they have in
** shared memory, where the first of them gets it; the first ones of all hosts
** add that up over TCP; each gives its host the result. So every host sends and
** gets what one process does, however many it has.
** Order of additions: the ranks of a process, the processes of a host, then
** hosts in the order of their first processes. That is another one than that of
** the ranks as soon as the last host has several workers. Every rank gets the
** same bits, each time.
** A sum goes this way where the costs of comm/ways.h say that it is cheaper.
** What is no sum of whole or single floats, and all other collectives, go over
** TCP between all processes.
**
** The three ways are groups of their own over the connections of this one: they
** have not met, have this one's numbers of collectives, and fail with it. One
** collective is with them at a time, in the order in which they were begun
** here, so that all processes send the same frames in the same order. */
#include "comm/shm/shm.h"
#include "comm/tcp/tcp.h"
#include "comm/tcp/turns.h"
#include "comm/ways.h"

typedef enum way {
  WAY_FLAT = 0, /* all processes, over TCP */
  WAY_INSIDE,   /* those of this host, first ranks alone */
  WAY_BETWEEN,  /* the first ones of all hosts, likewise */
  WAYS
} way;

typedef struct hosts_group {
  tfd__mesh *mesh;
  _Atomic(tfd__group *) ways[WAYS]; /* NULL = there is no other process */
  int hosts;
  int processes;
  int leader; /* first process of this host */
} hosts_group;

typedef enum stage {
  STAGE_INSIDE = 0,
  STAGE_BETWEEN,
  STAGE_SHARE,
  STAGE_FINISH,
  STAGE_FLAT, /* of what does not go by hosts */
  STAGE_DONE
} stage;

typedef struct work {
  tfd__turn turn; /* first: what has the turn is the work */
  tfd__kept kept;
  uint64_t number;
  stage stage;
  bool is_mean;
  uint64_t what;       /* tfd__collective_what, for all stages */
  tfd__ticket *ticket; /* of the way that has it */
  tfd__run_of *sums;   /* of this process's ranks; owned where `owned` says */
  tfd__piece *given;   /* the same as pieces */
  tfd__piece *results; /* where they go: the first rank's */
  bool *owned;
} work;

static hosts_group *own_of(const tfd__group *g) {
  return g->own;
}

/* --- who is where --------------------------------------------------------- */

static int leader_of(const tfd__network *n, int process) {
  int p = 0;

  while (p < process &&
         !tfd__same_host(n->addresses[p], n->addresses[process])) {
    p++;
  }
  return p;
}

/* Processes of one host, or the first ones of all (host < 0). */
static void draw(const tfd__group *g, const tfd__network *n, int host,
                 tfd__circle *c) {
  int p;

  *c = (tfd__circle){.mesh = own_of(g)->mesh, .process = -1};
  for (p = 0; p < n->processes; p++) {
    int leader = leader_of(n, p);

    if (host < 0 ? leader != p : leader != host) continue;
    if (p == n->process) c->process = c->processes;
    c->numbers[c->processes++] = p;
  }
}

/* --- life ----------------------------------------------------------------- */

static int can(const tfd__group_config *c) {
  return tfd__mesh_can(c, "hierarchical");
}

/* Some host has several processes, and there are several hosts. */
static bool pays(const tfd__group_config *c) {
  const tfd__network *n = c->network;
  int hosts = 0;
  int p;

  for (p = 0; p < n->processes; p++) hosts += leader_of(n, p) == p;
  return hosts > 1 && hosts < n->processes;
}

/* One way over the processes of a circle. */
static int open_way(tfd__group *g, const tfd__group_config *config, way w,
                    const char *provider, const tfd__circle *circle) {
  const char *addresses[TFD_MAX_LOCAL_RANKS];
  tfd__network n = *config->network;
  tfd__group_config c = *config;
  tfd__group *inner = NULL;
  int p;

  for (p = 0; p < circle->processes; p++) {
    addresses[p] = config->network->addresses[circle->numbers[p]];
  }
  n.process = circle->process;
  n.processes = circle->processes;
  n.addresses = addresses;
  n.within = circle;
  c.provider = provider;
  if (w != WAY_FLAT) c.local = 1;
  c.base = n.process * c.local;
  c.size = n.processes * c.local;
  c.network = &n;
  TFD_TRY(tfd__group_inner(&c, &inner));
  atomic_store(&own_of(g)->ways[w], inner);
  return tfd__group_check(g, "group"); /* who fails it later sees the way */
}

/* The least of what all processes say, over the way of all. */
static int least_of_all(tfd__group *g, int32_t mine, int32_t *least_p) {
  tfd__run_of runs[TFD_MAX_LOCAL_RANKS] = {{0}};
  tfd__piece pieces[TFD_MAX_LOCAL_RANKS];
  tfd__collective c = {.kind = TFD_COLLECTIVE_ALL_REDUCE,
                       .op = TFD_REDUCE_MIN,
                       .values = 1,
                       .what = "group",
                       .in = pieces,
                       .out = pieces};
  int rc = TFD_OK;
  int i;

  for (i = 0; rc == TFD_OK && i < g->local; i++) {
    rc = tfd__run_new(g->devices[i], TFD_INT32, 1, &runs[i]);
    if (rc == TFD_OK) {
      rc = tfd__host_write(runs[i].buffer, 0, &mine, sizeof mine);
    }
    pieces[i] = (tfd__piece){runs[i].buffer, &runs[i].view};
  }
  if (rc == TFD_OK) rc = tfd__group_run(own_of(g)->ways[WAY_FLAT], &c, 0);
  if (rc == TFD_OK) {
    rc = tfd__host_read(runs[0].buffer, 0, least_p, sizeof *least_p);
  }
  for (i = 0; i < g->local; i++) tfd__release(runs[i].buffer);
  return rc;
}

/* All processes come to the same end: a host that cannot share memory is
** everybody's. */
static int open_inside(tfd__group *g, const tfd__group_config *config) {
  const tfd__network *n = config->network;
  tfd__circle circle;
  tfd__error kept = {0};
  int32_t least = 0;
  int rc = TFD_OK;

  draw(g, n, own_of(g)->leader, &circle);
  if (circle.processes > 1) {
    rc = open_way(g, config, WAY_INSIDE, "shm", &circle);
    if (rc != TFD_OK) tfd__error_save(&kept);
  }
  rc = least_of_all(g, rc == TFD_OK ? n->processes : n->process, &least);
  g->unfit = rc == TFD_OK && least < n->processes;
  if (g->unfit) {
    rc = kept.code != TFD_OK
             ? tfd__error_raise(&kept)
             : tfd__fail(TFD_UNAVAILABLE,
                         "group: provider \"hierarchical\": process %d (%s) "
                         "does not share memory with others of its host",
                         (int)least, n->addresses[least]);
  }
  tfd__error_free(&kept);
  return rc;
}

static int open_ways(tfd__group *g, const tfd__group_config *config) {
  hosts_group *own = own_of(g);
  const tfd__network *n = config->network;
  tfd__circle circle = {.mesh = own->mesh, .process = n->process};

  own->leader = leader_of(n, n->process);
  own->processes = n->processes;
  for (; circle.processes < n->processes; circle.processes++) {
    circle.numbers[circle.processes] = circle.processes;
  }
  TFD_TRY(open_way(g, config, WAY_FLAT, "tcp", &circle));
  TFD_TRY(open_inside(g, config));
  draw(g, n, -1, &circle);
  own->hosts = circle.processes;
  if (circle.process < 0 || circle.processes == 1) return TFD_OK;
  return open_way(g, config, WAY_BETWEEN, "tcp", &circle);
}

/* The mesh's thread, which may fail the ways, is gone first. */
static void clear(tfd__group *g) {
  hosts_group *own = own_of(g);
  int i;

  tfd__mesh_free(own->mesh);
  for (i = 0; i < WAYS; i++) tfd__release(own->ways[i]);
  tfd__free(own);
  g->own = NULL;
}

static int open_group(tfd__group *g, const tfd__group_config *config) {
  hosts_group *own = tfd__calloc(1, sizeof *own);
  tfd__error kept = {0};
  int rc;

  if (own == NULL) return tfd__no_memory(sizeof *own, "group");
  g->own = own;
  rc = tfd__mesh_open(g, config, &own->mesh);
  if (rc != TFD_OK) {
    g->own = NULL;
    tfd__free(own);
    return rc;
  }
  if (open_ways(g, config) == TFD_OK) return TFD_OK;
  tfd__error_save(&kept);
  clear(g);
  rc = tfd__error_raise(&kept);
  tfd__error_free(&kept);
  return rc;
}

static void late(tfd__group *g, uint64_t number, char *text, size_t bytes) {
  tfd__mesh_late(own_of(g)->mesh, number, text, bytes);
}

static void abort_group(tfd__group *g) {
  hosts_group *own = own_of(g);
  tfd__error kept = {0};
  int i;

  tfd__mesh_abort(own->mesh, &g->cause);
  tfd__error_save(&kept);
  for (i = 0; i < WAYS; i++) {
    tfd__group *inner = atomic_load(&own->ways[i]);

    if (inner == NULL) continue;
    (void)tfd__error_raise(&g->cause);
    (void)tfd__group_fail(inner);
  }
  (void)tfd__error_raise(&kept);
  tfd__error_free(&kept);
}

/* What is given inside a host is read where it lies. */
static int lend(tfd__group *g, int i, size_t bytes, tfd__buffer **buffer_p) {
  tfd__group *inside = own_of(g)->ways[WAY_INSIDE];

  if (i > 0 || inside == NULL) return TFD_OK;
  return inside->provider->lend(inside, i, bytes, buffer_p);
}

/* --- making work ---------------------------------------------------------- */

static bool goes_by_hosts(const tfd__group *g, const tfd__collective *c) {
  const hosts_group *own = own_of(g);
  const tfd__costs *shm = tfd__costs_of("shm");
  const tfd__costs *tcp = tfd__costs_of("tcp");
  double bytes = 0;
  int k;

  if (c->kind != TFD_COLLECTIVE_ALL_REDUCE || own->hosts == own->processes) {
    return false;
  }
  for (k = 0; k < c->values; k++) {
    bytes += (double)tfd__view_bytes(tfd__given(g, c, k, 0)->view);
    if (!tfd__sum_grows(g, c, k)) return false;
  }
  return tfd__hosts_cost(shm, tcp, own->processes, own->hosts, bytes) <
         tfd__flat_cost(tcp, own->processes, own->hosts, bytes);
}

static void work_free(const tfd__group *g, work *w) {
  int k;

  for (k = 0; w->owned != NULL && k < w->kept.c.values; k++) {
    if (w->owned[k]) tfd__release(w->sums[k].buffer);
  }
  tfd__kept_free(&w->kept, g);
  tfd__free(w->sums);
  tfd__free(w->given);
  tfd__free(w->owned);
  tfd__free(w);
}

/* Sums of what the ranks here have; a mean is divided at the end. */
static int begin_sums(const tfd__group *g, work *w) {
  size_t n = (size_t)w->kept.c.values + 1;
  int k;

  w->sums = tfd__calloc(n, sizeof *w->sums);
  w->given = tfd__calloc(2 * n, sizeof *w->given);
  w->owned = tfd__calloc(n, sizeof *w->owned);
  if (w->sums == NULL || w->given == NULL || w->owned == NULL) {
    return tfd__no_memory(n * sizeof *w->sums, w->kept.c.what);
  }
  w->results = w->given + n;
  w->is_mean = w->kept.c.op == TFD_REDUCE_MEAN;
  w->what = tfd__collective_what(&w->kept.c, 0);
  w->kept.c.op = TFD_REDUCE_SUM;
  for (k = 0; k < w->kept.c.values; k++) {
    TFD_TRY(tfd__kept_reduce(&w->kept, g, k, &w->sums[k], &w->owned[k]));
    w->given[k] = (tfd__piece){w->sums[k].buffer, &w->sums[k].view};
    w->results[k] = *tfd__gotten(g, &w->kept.c, k, 0);
  }
  return TFD_OK;
}

static int move_on(tfd__turn *turn, tfd__deadline until, bool *done_p);

static int begin(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  work *w = tfd__calloc(1, sizeof *w);
  int rc = TFD_OK;

  if (w == NULL) return tfd__no_memory(sizeof *w, c->what);
  rc = tfd__kept_init(&w->kept, g, c);
  if (rc != TFD_OK) {
    tfd__free(w);
    return rc;
  }
  w->number = t->number;
  w->stage = STAGE_FLAT;
  if (goes_by_hosts(g, c)) {
    w->stage = STAGE_INSIDE;
    rc = begin_sums(g, w);
  }
  if (rc != TFD_OK) {
    work_free(g, w);
    return rc;
  }
  t->own = w;
  tfd__turn_begin(&w->turn, g, move_on);
  return TFD_OK;
}

/* --- stages --------------------------------------------------------------- */

/* Give the collective to a way, under this group's number. */
static int hand_to(const tfd__group *g, work *w, way to,
                   const tfd__collective *c) {
  tfd__group *inner = own_of(g)->ways[to];

  tfd__lock(&inner->lock);
  inner->begun = w->number - 1;
  tfd__unlock(&inner->lock);
  return tfd__group_begin(inner, c, &w->ticket);
}

static int sum_over(const tfd__group *g, work *w, way over,
                    tfd__collective_kind kind, const tfd__piece *in) {
  tfd__collective c = {.kind = kind,
                       .op = TFD_REDUCE_SUM,
                       .values = w->kept.c.values,
                       .what = w->kept.c.what,
                       .in = in,
                       .out = w->results,
                       .line = w->kept.c.line,
                       .file = w->kept.c.file,
                       .whole = w->what};

  return hand_to(g, w, over, &c);
}

/* A host's only process has its sum already. */
static int take_sums(const work *w) {
  int k;

  for (k = 0; k < w->kept.c.values; k++) {
    tfd__run_of to = tfd__part_of(&w->results[k], 0, w->results[k].view->numel);

    TFD_TRY(tfd__run_copy(&to, &w->sums[k]));
  }
  return TFD_OK;
}

static int finish(const tfd__group *g, const work *w) {
  int k;

  for (k = 0; w->is_mean && k < w->kept.c.values; k++) {
    tfd__run_of all =
        tfd__part_of(&w->results[k], 0, w->results[k].view->numel);

    if (all.view.numel == 0) continue;
    TFD_TRY(tfd__run_divide(&w->kept.c, &all, g->size));
  }
  return tfd__kept_spread(&w->kept, g);
}

/* Nothing is under way when there is no ticket then. */
static int begin_stage(const tfd__group *g, work *w) {
  const hosts_group *own = own_of(g);
  bool inside = own->ways[WAY_INSIDE] != NULL;

  switch (w->stage) {
  case STAGE_INSIDE:
    if (!inside) return take_sums(w);
    return sum_over(g, w, WAY_INSIDE, TFD_COLLECTIVE_REDUCE, w->given);
  case STAGE_BETWEEN:
    if (own->ways[WAY_BETWEEN] == NULL) return TFD_OK;
    return sum_over(g, w, WAY_BETWEEN, TFD_COLLECTIVE_ALL_REDUCE, w->results);
  case STAGE_SHARE:
    if (!inside) return TFD_OK;
    return sum_over(g, w, WAY_INSIDE, TFD_COLLECTIVE_BROADCAST, w->results);
  case STAGE_FINISH:
    return finish(g, w);
  default:
    return hand_to(g, w, WAY_FLAT, &w->kept.c);
  }
}

/* What others call may go another way, where nobody meets them. */
static int compare(tfd__group *g, const work *w) {
  tfd__progress now = tfd__group_progress(g);

  if (now.number != w->number) return TFD_OK;
  return tfd__mesh_compare(own_of(g)->mesh, &now);
}

static int go_on(tfd__group *g, work *w, tfd__deadline until, bool *over_p) {
  if (w->ticket == NULL) {
    TFD_TRY(begin_stage(g, w));
    *over_p = w->ticket == NULL;
    if (*over_p) return TFD_OK;
  }
  TFD_TRY(tfd__ticket_look(w->ticket, until, over_p));
  if (!*over_p) return compare(g, w);
  tfd__ticket_end(w->ticket);
  w->ticket = NULL;
  return TFD_OK;
}

/* Why a way has failed is why the group does. */
static int fail_with(tfd__group *g, const work *w) {
  int i;

  for (i = 0; i < WAYS; i++) {
    tfd__group *inner = own_of(g)->ways[i];

    if (inner != NULL && inner->failed) (void)tfd__error_raise(&inner->cause);
  }
  (void)tfd__group_fail(g); /* the others wait for it */
  return tfd__group_check(g, tfd__collective_name(w->kept.c.kind));
}

static int move_on(tfd__turn *turn, tfd__deadline until, bool *done_p) {
  work *w = (work *)turn;
  tfd__group *g = turn->group;

  while (w->stage != STAGE_DONE) {
    bool over = false;

    if (go_on(g, w, until, &over) != TFD_OK) return fail_with(g, w);
    if (!over) return TFD_OK; /* the caller looks for failures */
    w->stage = w->stage >= STAGE_FINISH ? STAGE_DONE : w->stage + 1;
  }
  *done_p = true;
  return TFD_OK;
}

static int wait_work(tfd__ticket *t, tfd__deadline until, bool *done_p) {
  work *w = t->own;

  return tfd__turn_wait(&w->turn, until, done_p);
}

static void end_work(tfd__ticket *t) {
  work *w = t->own;

  if (w == NULL) return;
  tfd__turn_end(&w->turn);
  tfd__ticket_end(w->ticket);
  work_free(t->group, w);
}

const tfd__provider tfd__hosts_provider = {
    .abi = TFD_PROVIDER_ABI,
    .name = "hierarchical",
    .score = 55,
    .can = can,
    .pays = pays,
    .open = open_group,
    .close = clear,
    .begin = {[TFD_COLLECTIVE_ALL_REDUCE] = begin,
              [TFD_COLLECTIVE_REDUCE_SCATTER] = begin,
              [TFD_COLLECTIVE_BROADCAST] = begin,
              [TFD_COLLECTIVE_ALL_GATHER] = begin,
              [TFD_COLLECTIVE_BARRIER] = begin,
              [TFD_COLLECTIVE_GATHER] = begin,
              [TFD_COLLECTIVE_SCATTER] = begin},
    .wait = wait_work,
    .tend = tfd__turns_tend,
    .end = end_work,
    .late = late,
    .lend = lend,
    .abort = abort_group,
};
