/* What the rounds of each collective stage, add up and take. */
#include <string.h>

#include "comm/shm/shm.h"

/* Bytes of a round of what nobody has to copy. Elements of a sum: a kernel that
** gets more takes threads, which this process's devices have use for. */
enum { LONG_ROUND = 4 << 20, AT_ONCE = 1 << 16 };

static tfd__shm_group *own_of(const tfd__group *g) {
  return g->own;
}

bool tfd__shm_reduces(const tfd__shm_work *w) {
  return w->kept.c.kind == TFD_COLLECTIVE_ALL_REDUCE ||
         w->kept.c.kind == TFD_COLLECTIVE_REDUCE ||
         w->kept.c.kind == TFD_COLLECTIVE_REDUCE_SCATTER;
}

/* --- what a value's rounds are -------------------------------------------- */

static int root_process(const tfd__group *g, const tfd__shm_work *w) {
  return w->kept.c.root / g->local;
}

/* Elements of value k that process q gives to an all_gather or a gather, or
** gets from a scatter. */
static tfd__stretch gathered_by(const tfd__group *g, const tfd__shm_work *w,
                                int q) {
  const tfd__collective *c = &w->kept.c;
  int first = q * g->local;

  return (tfd__stretch){tfd__gathered(g, c, w->k, first).begin,
                        tfd__gathered(g, c, w->k, first + g->local - 1).end};
}

/* Of what goes from process to process. */
static int64_t longest_of(const tfd__group *g, const tfd__shm_work *w) {
  bool stays = tfd__moves_pieces(w->kept.c.kind); /* what is the root's */
  int64_t most = 0;
  int q;

  for (q = 0; q < own_of(g)->tally.processes; q++) {
    tfd__stretch s = gathered_by(g, w, q);

    if (stays && q == root_process(g, w)) continue;
    if (s.end - s.begin > most) most = s.end - s.begin;
  }
  return most;
}

int tfd__shm_values(const tfd__shm_work *w) {
  return w->kept.c.kind == TFD_COLLECTIVE_BARRIER ? 1 : w->kept.c.values;
}

/* Where results go here; NULL: nowhere. */
static const tfd__piece *target_of(const tfd__group *g,
                                   const tfd__shm_work *w) {
  int rank = 0;

  if (tfd__root_gets(w->kept.c.kind)) rank = w->kept.c.root - g->base;
  if (rank < 0 || rank >= g->local) return NULL;
  return tfd__gotten(g, &w->kept.c, w->k, rank);
}

/* What can be left where it is: others read and write the arena here. */
static void find_reach(const tfd__group *g, tfd__shm_work *w) {
  const tfd__shm_group *own = own_of(g);
  const tfd__piece *target = target_of(g, w);
  tfd__shm_value *v = &w->v;
  size_t bytes = (size_t)v->total * v->size;
  int process = own->tally.process;

  if (tfd__sum_kernel(g, w->kept.c.op, v->dtype) == NULL) return;
  v->reach.writes = 1;
  v->reach.given =
      tfd__arena_place(&own->segment, process, v->mine.view.data, bytes);
  if (target == NULL) return;
  v->reach.taken =
      tfd__arena_place(&own->segment, process, target->view->data, bytes);
}

/* First element of round j: the first rounds begin unseen. */
static int64_t begin_of(const tfd__shm_value *v, int64_t j) {
  if (j <= TFD_DEPTH) return j * v->each;
  return TFD_DEPTH * v->each + (j - TFD_DEPTH) * v->later;
}

static void count_rounds(tfd__shm_value *v) {
  int64_t rest = v->total - TFD_DEPTH * v->each;

  v->rounds = v->total == 0 ? 1 : (v->total + v->each - 1) / v->each;
  if (rest > 0) v->rounds = TFD_DEPTH + (rest + v->later - 1) / v->later;
}

void tfd__shm_plan(const tfd__group *g, tfd__shm_work *w) {
  const tfd__shm_group *own = own_of(g);
  tfd__collective_kind kind = w->kept.c.kind;
  int64_t processes = own->tally.processes;
  tfd__shm_value *v = &w->v;

  *v = (tfd__shm_value){.size = 1};
  if (kind != TFD_COLLECTIVE_BARRIER) {
    const tfd__view *view = tfd__leader(g, &w->kept.c, w->k)->view;

    v->dtype = view->dtype;
    v->size = tfd__dtype_size(v->dtype);
    v->total = view->numel;
    v->mine = w->sums[w->k];
  }
  v->frame = (tfd__frame){.type = TFD_FRAME_DATA,
                          .tag = (uint32_t)w->k,
                          .seq = w->number,
                          .what = tfd__kept_signature(&w->kept, v->dtype),
                          .count = (uint64_t)v->total,
                          .sum = tfd__counts_sum(g, &w->kept.c, w->k)};
  tfd__frame_set_place(&v->frame, &w->kept.c);
  v->each = (int64_t)(own->segment.slot / v->size);
  if (tfd__is_ragged(kind)) {
    v->total = longest_of(g, w);
    v->frame.count = (uint64_t)gathered_by(g, w, (int)processes - 1).end;
  }
  if (kind == TFD_COLLECTIVE_REDUCE_SCATTER) v->total /= processes;
  if (kind == TFD_COLLECTIVE_REDUCE_SCATTER || kind == TFD_COLLECTIVE_SCATTER) {
    v->each /= processes;
  }
  v->two_steps =
      (kind == TFD_COLLECTIVE_ALL_REDUCE || kind == TFD_COLLECTIVE_REDUCE) &&
      (size_t)v->total * v->size > TFD_SHM_SMALL;
  v->brief = kind == TFD_COLLECTIVE_ALL_REDUCE &&
             (size_t)v->total * v->size <= TFD_BRIEF_BYTES;
  v->later = v->each;
  count_rounds(v);
  if (v->two_steps) find_reach(g, w);
  if (own->early == tfd__shm_number(own, 0)) v->staged = 1;
}

static const tfd__reach *reach_of(const tfd__shm_group *own, int q,
                                  uint64_t number) {
  return &own->tally.cells[q].reaches[number % TFD_DEPTH];
}

/* Elements of round j. */
static tfd__stretch round_of(const tfd__shm_value *v, int64_t j) {
  int64_t begin = begin_of(v, j);
  int64_t end = begin_of(v, j + 1);

  return (tfd__stretch){begin, end < v->total ? end : v->total};
}

/* Rounds that need no slots are longer: who waits for whom costs more than any
** cache could give, most of all where processes take turns on a core. */
void tfd__shm_widen(const tfd__group *g, tfd__shm_work *w) {
  const tfd__shm_group *own = own_of(g);
  tfd__shm_value *v = &w->v;
  int q;

  if (!v->two_steps || w->kept.c.kind != TFD_COLLECTIVE_ALL_REDUCE) return;
  for (q = 0; q < own->tally.processes; q++) {
    const tfd__reach *r = reach_of(own, q, tfd__shm_number(own, 0));

    if (r->given == 0 || r->taken == 0 || r->writes == 0) return;
  }
  v->later = LONG_ROUND / (int64_t)v->size;
  count_rounds(v);
}

/* Number of round j among all that the group has. */
uint64_t tfd__shm_number(const tfd__shm_group *own, int64_t j) {
  return own->rounds + (uint64_t)j + 1;
}

/* What process q adds up of n elements. */
static tfd__stretch share_of(const tfd__group *g, const tfd__shm_value *v,
                             int64_t n, int q) {
  if (!v->two_steps) return (tfd__stretch){0, n};
  return tfd__stretch_of(n, own_of(g)->tally.processes, q);
}

/* --- staging -------------------------------------------------------------- */

static char *at(const tfd__run_of *run, int64_t element, size_t size) {
  return (char *)run->view.data + (size_t)element * size;
}

static char *at_piece(const tfd__piece *p, int64_t element, size_t size) {
  return (char *)p->view->data + (size_t)element * size;
}

/* Elements [s.begin, s.end) of what the ranks here give or, in a scatter, get,
** one behind the other in the slot. */
static void move_given(const tfd__group *g, const tfd__shm_work *w,
                       tfd__stretch s, char *slot) {
  bool takes = w->kept.c.kind == TFD_COLLECTIVE_SCATTER;
  size_t size = w->v.size;
  int64_t first = 0; /* element of local rank i */
  int i;

  for (i = 0; i < g->local; i++) {
    int64_t n = tfd__gather_count(g, &w->kept.c, w->k, g->base + i);
    int64_t begin = s.begin > first ? s.begin : first;
    int64_t end = s.end < first + n ? s.end : first + n;

    if (begin < end) {
      const tfd__piece *p = takes ? tfd__gotten(g, &w->kept.c, w->k, i)
                                  : tfd__given(g, &w->kept.c, w->k, i);
      char *own = at_piece(p, begin - first, size);
      char *there = slot + (size_t)(begin - s.begin) * size;

      memcpy(takes ? own : there, takes ? there : own,
             (size_t)(end - begin) * size);
    }
    first += n;
  }
}

/* What the others need for their shares. */
static void stage_sum(const tfd__group *g, const tfd__shm_work *w,
                      tfd__stretch s, char *to) {
  const tfd__shm_value *v = &w->v;
  int64_t n = s.end - s.begin;
  tfd__stretch share = {n, n};

  if (v->reach.given != 0) return;
  if (v->two_steps) share = share_of(g, v, n, own_of(g)->tally.process);
  if (share.begin > 0) {
    memcpy(to, at(&v->mine, s.begin, v->size), (size_t)share.begin * v->size);
  }
  if (share.end < n) {
    memcpy(to + (size_t)share.end * v->size,
           at(&v->mine, s.begin + share.end, v->size),
           (size_t)(n - share.end) * v->size);
  }
}

/* This round of the part that each process gets. */
static void stage_parts(const tfd__group *g, const tfd__shm_work *w,
                        tfd__stretch s, char *to) {
  const tfd__shm_value *v = &w->v;
  const tfd__tally *b = &own_of(g)->tally;
  int q;

  for (q = 0; q < b->processes && s.begin < s.end; q++) {
    if (q == b->process) continue;
    memcpy(to + (size_t)(q * v->each) * v->size,
           at(&v->mine, q * v->total + s.begin, v->size),
           (size_t)(s.end - s.begin) * v->size);
  }
}

/* The same of pieces, at the root. */
static void stage_pieces(const tfd__group *g, const tfd__shm_work *w,
                         tfd__stretch s, char *to) {
  const tfd__shm_value *v = &w->v;
  const tfd__tally *b = &own_of(g)->tally;
  const tfd__collective *c = &w->kept.c;
  int q;

  for (q = 0; q < b->processes; q++) {
    tfd__stretch theirs = gathered_by(g, w, q);
    int64_t begin = theirs.begin + s.begin;
    int64_t end = theirs.begin + s.end;

    if (end > theirs.end) end = theirs.end;
    if (q == b->process || begin >= end) continue;
    memcpy(to + (size_t)(q * v->each) * v->size,
           at_piece(tfd__given(g, c, w->k, c->root - g->base), begin, v->size),
           (size_t)(end - begin) * v->size);
  }
}

char *tfd__shm_given(const tfd__shm_group *own, int q, uint64_t number,
                     bool brief) {
  if (brief) return own->tally.cells[q].briefs[number % TFD_DEPTH].bytes;
  return tfd__segment_slot(&own->segment, q, number, false);
}

/* Of what must be equal in all processes. */
static uint64_t hash_of(const tfd__frame *f) {
  const uint64_t parts[] = {f->type,  f->tag,    f->seq, f->what,
                            f->count, f->length, f->sum};
  uint64_t hash = 0;
  size_t i;

  for (i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    hash = (hash ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  return hash;
}

void tfd__shm_announce(tfd__shm_group *own, const tfd__frame *f,
                       uint64_t number) {
  tfd__cell *mine = &own->tally.cells[own->tally.process];

  mine->frames[number % TFD_DEPTH] = *f;
  mine->briefs[number % TFD_DEPTH].hash = hash_of(f);
  tfd__tally_set(&own->tally, TFD_MARK_STAGED, number);
}

/* What differs is found where frames lie; equal hashes need no look. */
int tfd__shm_check(const tfd__shm_group *own, const tfd__frame *mine,
                   uint64_t number) {
  uint64_t hash = hash_of(mine);
  int q;

  for (q = 0; q < own->tally.processes; q++) {
    const tfd__cell *cell = &own->tally.cells[q];
    const tfd__frame *theirs = &cell->frames[number % TFD_DEPTH];

    if (cell->briefs[number % TFD_DEPTH].hash == hash) continue;
    TFD_TRY(tfd__frame_fits(mine, theirs,
                            own->circle.numbers[own->tally.process],
                            own->circle.numbers[q]));
    return tfd__fail(TFD_RUNTIME_ERROR,
                     "the processes run apart at collective %llu: processes "
                     "%d and %d have other numbers of elements",
                     (unsigned long long)mine->seq,
                     own->circle.numbers[own->tally.process],
                     own->circle.numbers[q]);
  }
  return TFD_OK;
}

void tfd__shm_stage(tfd__group *g, tfd__shm_work *w) {
  tfd__shm_group *own = own_of(g);
  tfd__shm_value *v = &w->v;
  uint64_t number = tfd__shm_number(own, v->staged);
  tfd__stretch s = round_of(v, v->staged);
  char *to = tfd__shm_given(own, own->tally.process, number, v->brief);
  const tfd__collective *c = &w->kept.c;
  bool at_root = root_process(g, w) == own->tally.process;

  switch (c->kind) {
  case TFD_COLLECTIVE_ALL_REDUCE:
  case TFD_COLLECTIVE_REDUCE:
    stage_sum(g, w, s, to);
    break;
  case TFD_COLLECTIVE_REDUCE_SCATTER:
    stage_parts(g, w, s, to);
    break;
  case TFD_COLLECTIVE_ALL_GATHER:
    move_given(g, w, s, to);
    break;
  case TFD_COLLECTIVE_GATHER:
    if (!at_root) move_given(g, w, s, to);
    break;
  case TFD_COLLECTIVE_SCATTER:
    if (at_root) stage_pieces(g, w, s, to);
    break;
  case TFD_COLLECTIVE_BROADCAST:
    if (at_root && s.begin < s.end) {
      memcpy(to,
             at_piece(tfd__given(g, c, w->k, c->root % g->local), s.begin,
                      v->size),
             (size_t)(s.end - s.begin) * v->size);
    }
    break;
  default:
    break;
  }
  v->frame.length = (uint64_t)v->staged;
  v->staged++;
  if (v->two_steps) {
    own->tally.cells[own->tally.process].reaches[number % TFD_DEPTH] = v->reach;
  }
  tfd__shm_announce(own, &v->frame, number);
  tfd__tally_sweep(&own->tally);
}

/* --- sums ----------------------------------------------------------------- */

/* n elements of the segment as a run. */
static tfd__run_of run_at(tfd__shm_group *own, const tfd__shm_value *v,
                          char *data, int64_t n) {
  tfd__view whole = {.data = data, .dtype = (uint8_t)v->dtype};
  tfd__piece p = {&own->window, &whole};

  return tfd__part_of(&p, 0, n);
}

/* n elements that process q has put where it said, from `from` of the value on;
** NULL = they are in slots. */
static char *reached(const tfd__shm_group *own, const tfd__shm_value *v, int q,
                     uint64_t place, int64_t from, int64_t n) {
  return tfd__arena_at(&own->segment, q, place, (size_t)from * v->size,
                       (size_t)n * v->size);
}

/* to = the reduction of elements [from, from + to's) over all processes, which
** lie at `offset` of their slots unless they were left where they are. */
static int reduce_into(tfd__group *g, tfd__shm_work *w, int64_t from,
                       int64_t offset, const tfd__run_of *to,
                       char *const *twins, int twins_n) {
  tfd__shm_group *own = own_of(g);
  tfd__shm_value *v = &w->v;
  tfd__run_of in[TFD_MAX_LOCAL_RANKS];
  tfd__piece mine = {v->mine.buffer, &v->mine.view};
  tfd__kernel kernel = tfd__sum_kernel(g, w->kept.c.op, v->dtype);
  uint64_t number = tfd__shm_number(own, v->done);
  int64_t n = to->view.numel;
  int q;

  if (n == 0) return TFD_OK;
  for (q = 0; q < own->tally.processes; q++) {
    char *given = NULL;

    if (q == own->tally.process) {
      in[q] = tfd__part_of(&mine, from, n);
      continue;
    }
    if (v->two_steps) {
      given = reached(own, v, q, reach_of(own, q, number)->given, from, n);
    }
    if (given == NULL) {
      given =
          tfd__shm_given(own, q, number, v->brief) + (size_t)offset * v->size;
    }
    in[q] = run_at(own, v, given, n);
  }
  if (kernel != NULL) {
    return tfd__sum_now(kernel, &w->kept.c, in, own->tally.processes, to, twins,
                        twins_n);
  }
  return tfd__reduce_runs(&w->kept.c, in, own->tally.processes, to);
}

/* Where results go beside the slot, which is the first of `list`. */
static int list_wanted(const tfd__shm_group *own, const tfd__shm_value *v,
                       int64_t from, int64_t n, char **list) {
  uint64_t number = tfd__shm_number(own, v->done);
  int count = 1;
  int q;

  for (q = 0; q < own->tally.processes; q++) {
    char *to = reached(own, v, q, reach_of(own, q, number)->taken, from, n);

    if (q != own->tally.process && to != NULL) list[count++] = to;
  }
  return count;
}

/* Of round s, the elements [share.begin, share.end). */
static int reduce_some(tfd__group *g, tfd__shm_work *w, tfd__stretch s,
                       tfd__stretch share) {
  tfd__shm_group *own = own_of(g);
  tfd__shm_value *v = &w->v;
  const tfd__piece *target = target_of(g, w);
  uint64_t number = tfd__shm_number(own, v->done);
  char *slot =
      tfd__segment_slot(&own->segment, own->tally.process, number, true) +
      (size_t)share.begin * v->size;
  char *twins[TFD_MAX_LOCAL_RANKS] = {slot};
  int64_t begin = s.begin + share.begin;
  int64_t n = share.end - share.begin;
  tfd__run_of to = run_at(own, v, slot, n);
  int twins_n = 0;

  if (target == NULL && !v->two_steps) return TFD_OK;
  if (v->two_steps) twins_n = list_wanted(own, v, begin, n, twins);
  if (target == NULL) {
    return reduce_into(g, w, begin, share.begin, &to, twins + 1, twins_n - 1);
  }
  to = tfd__part_of(target, begin, n);
  if (twins_n == own->tally.processes) { /* nobody needs the slot */
    return reduce_into(g, w, begin, share.begin, &to, twins + 1, twins_n - 1);
  }
  return reduce_into(g, w, begin, share.begin, &to, twins, twins_n);
}

static int reduce_share(tfd__group *g, tfd__shm_work *w) {
  tfd__shm_value *v = &w->v;
  tfd__stretch s = round_of(v, v->done);
  tfd__stretch share =
      share_of(g, v, s.end - s.begin, own_of(g)->tally.process);
  int64_t at;

  for (at = share.begin; at < share.end; at += AT_ONCE) {
    int64_t end = share.end - at < AT_ONCE ? share.end : at + AT_ONCE;

    TFD_TRY(reduce_some(g, w, s, (tfd__stretch){at, end}));
  }
  return TFD_OK;
}

/* What was added up by the devices must lie in the slot too. */
void tfd__shm_copy_share(tfd__group *g, const tfd__shm_work *w) {
  tfd__shm_group *own = own_of(g);
  const tfd__shm_value *v = &w->v;
  const tfd__piece *target = target_of(g, w);
  tfd__stretch s = round_of(v, v->done);
  tfd__stretch share = share_of(g, v, s.end - s.begin, own->tally.process);
  char *slot = tfd__segment_slot(&own->segment, own->tally.process,
                                 tfd__shm_number(own, v->done), true);

  if (target == NULL || !v->two_steps || share.begin == share.end) return;
  memcpy(slot + (size_t)share.begin * v->size,
         at_piece(target, s.begin + share.begin, v->size),
         (size_t)(share.end - share.begin) * v->size);
}

/* The ranks here get their parts of the reduction. */
static int reduce_parts(tfd__group *g, tfd__shm_work *w) {
  tfd__shm_value *v = &w->v;
  int64_t each = v->total / g->local;
  tfd__stretch s = round_of(v, v->done);
  int process = own_of(g)->tally.process;
  int i;

  for (i = 0; i < g->local; i++) {
    const tfd__piece *out = tfd__gotten(g, &w->kept.c, w->k, i);
    int64_t begin = s.begin > i * each ? s.begin : i * each;
    int64_t end = s.end < (i + 1) * each ? s.end : (i + 1) * each;
    tfd__run_of to;

    if (begin >= end) continue;
    to = tfd__part_of(out, begin - i * each, end - begin);
    TFD_TRY(reduce_into(g, w, process * v->total + begin,
                        process * v->each + begin - s.begin, &to, NULL, 0));
  }
  return TFD_OK;
}

/* --- taking --------------------------------------------------------------- */

void tfd__shm_take_shares(tfd__group *g, const tfd__shm_work *w) {
  tfd__shm_group *own = own_of(g);
  const tfd__shm_value *v = &w->v;
  const tfd__piece *target = target_of(g, w);
  tfd__stretch s = round_of(v, v->done);
  uint64_t number = tfd__shm_number(own, v->done);
  int q;

  for (q = 0; target != NULL && q < own->tally.processes; q++) {
    tfd__stretch share = share_of(g, v, s.end - s.begin, q);
    const char *from = tfd__segment_slot(&own->segment, q, number, true);

    if (q == own->tally.process || share.begin == share.end) continue;
    if (v->reach.taken != 0 && reach_of(own, q, number)->writes != 0) continue;
    memcpy(at_piece(target, s.begin + share.begin, v->size),
           from + (size_t)share.begin * v->size,
           (size_t)(share.end - share.begin) * v->size);
  }
}

static void take_from(tfd__group *g, const tfd__shm_work *w, int q, int64_t to,
                      int64_t n) {
  tfd__shm_group *own = own_of(g);
  const tfd__shm_value *v = &w->v;

  if (n <= 0) return;
  memcpy(
      at_piece(target_of(g, w), to, v->size),
      tfd__segment_slot(&own->segment, q, tfd__shm_number(own, v->done), false),
      (size_t)n * v->size);
}

static void take_gathered(tfd__group *g, const tfd__shm_work *w) {
  const tfd__tally *b = &own_of(g)->tally;
  tfd__stretch s = round_of(&w->v, w->v.done);
  int q;

  for (q = 0; q < b->processes; q++) {
    tfd__stretch theirs = gathered_by(g, w, q);
    int64_t n = theirs.end - theirs.begin;

    if (q == b->process) continue;
    take_from(g, w, q, theirs.begin + s.begin,
              (s.end < n ? s.end : n) - s.begin);
  }
}

int tfd__shm_take(tfd__group *g, tfd__shm_work *w) {
  tfd__shm_group *own = own_of(g);
  const tfd__shm_value *v = &w->v;
  tfd__stretch s = round_of(v, v->done);
  int root = root_process(g, w);
  bool at_root = root == own->tally.process;

  switch (w->kept.c.kind) {
  case TFD_COLLECTIVE_ALL_REDUCE:
  case TFD_COLLECTIVE_REDUCE:
    return reduce_share(g, w);
  case TFD_COLLECTIVE_REDUCE_SCATTER:
    return reduce_parts(g, w);
  case TFD_COLLECTIVE_ALL_GATHER:
    take_gathered(g, w);
    return TFD_OK;
  case TFD_COLLECTIVE_GATHER:
    if (at_root) take_gathered(g, w);
    return TFD_OK;
  case TFD_COLLECTIVE_SCATTER:
    if (!at_root) {
      move_given(
          g, w, s,
          tfd__shm_given(own, root, tfd__shm_number(own, v->done), false) +
              (size_t)(own->tally.process * v->each) * v->size);
    }
    return TFD_OK;
  case TFD_COLLECTIVE_BROADCAST:
    if (!at_root) take_from(g, w, root, s.begin, s.end - s.begin);
    return TFD_OK;
  default:
    return TFD_OK;
  }
}
