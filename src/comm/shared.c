/* The devices of one process.
**
** Where each device can work on the memory of all, device d takes stretch d of
** every value, reading all ranks' elements and writing all ranks' results. Two
** fences keep that in the order of streams: before, every device waits for
** what the others have queued; after, for the others' stretches. So memory may
** be used again as soon as the call returns.
** Few elements are the first device's alone: it waits for the others, and they
** for it. Its queue is the one that the host runs when it waits.
** Cost: one pass over n inputs and n outputs shared by n devices, and 2(n-1)
** waits for each device (few elements: n-1 for the first, one for each other),
** whatever the number of values.
** Elsewhere, and for what the kernel of sums does not do, values are copied to
** the first rank's device, combined there and copied to all: n-1 copies, one
** pass of the kernels, n-1 copies. */
#include "comm/private.h"
#include "comm/schedule.h"

static int can(const tfd__group_config *c) {
  if (c->local == c->size) return TFD_OK;
  return tfd__fail(TFD_UNAVAILABLE,
                   "group: provider \"shared\" serves the devices of one "
                   "process; %d of %d ranks are in others",
                   c->size - c->local, c->size);
}

/* A device can work on the memory of all, and has the kernel. */
static bool can_fuse(const tfd__group *g, tfd__kernel_id kernel) {
  const tfd__backend *b = g->devices[0]->backend;
  int i;

  for (i = 1; i < g->local; i++) {
    if (g->devices[i]->backend != b) return false;
  }
  return b->host_visible && b->kernels[kernel] != NULL;
}

/* --- fences --------------------------------------------------------------- */

static int fence(const tfd__group *g) {
  int i;
  int k;

  for (i = 0; i < g->local; i++) {
    for (k = 0; k < g->local; k++) {
      if (i != k) TFD_TRY(tfd__stream_after(g->devices[i], g->devices[k]));
    }
  }
  return TFD_OK;
}

/* The first device goes on after all others. */
static int gather_first(const tfd__group *g) {
  int i;

  for (i = 1; i < g->local; i++) {
    TFD_TRY(tfd__stream_after(g->devices[0], g->devices[i]));
  }
  return TFD_OK;
}

/* All others go on after the first device. */
static int follow_first(const tfd__group *g) {
  int i;

  for (i = 1; i < g->local; i++) {
    TFD_TRY(tfd__stream_after(g->devices[i], g->devices[0]));
  }
  return TFD_OK;
}

/* --- one pass by all devices ---------------------------------------------- */

static int submit_all_of(tfd_device *device, tfd__fused_call *f) {
  f->range[0] = 0;
  f->range[1] = f->numel;
  return tfd__stream_submit(device, &f->call);
}

static int submit_shares(const tfd__group *g, tfd__fused_call *f) {
  int d;

  for (d = 0; d < g->local; d++) {
    tfd__stretch s = tfd__stretch_of(f->numel, g->local, d);

    f->range[0] = s.begin;
    f->range[1] = s.end;
    if (s.begin == s.end) break;
    TFD_TRY(tfd__stream_submit(g->devices[d], &f->call));
  }
  return TFD_OK;
}

static int fuse(tfd__group *g, const tfd__fused *f) {
  bool alone = f->elements < TFD_SHARED_ELEMENTS;
  int k;

  TFD_TRY(alone ? gather_first(g) : fence(g));
  for (k = 0; k < f->calls; k++) {
    tfd__fused_call one = {.owner = (uint64_t)k};

    f->call(f->arg, k, &one);
    one.call.kernel = g->devices[0]->backend->kernels[f->kernel];
    if (one.numel == 0) continue;
    if (one.numel >= TFD_SHARED_ELEMENTS) {
      TFD_TRY(submit_shares(g, &one));
    } else {
      int d = alone ? 0 : (int)(one.owner % (uint64_t)g->local);

      TFD_TRY(submit_all_of(g->devices[d], &one));
    }
  }
  return alone ? follow_first(g) : fence(g);
}

/* --- all_reduce ----------------------------------------------------------- */

/* What the kernel of sums adds up. */
static bool adds_up(int dtype, tfd_reduce_op op) {
  if (op > TFD_REDUCE_MEAN) return false;
  if (tfd__is_float(dtype)) return true;
  return op == TFD_REDUCE_SUM && (dtype == TFD_INT32 || dtype == TFD_INT64);
}

/* The values of a collective that are summed in one pass, one after the
** other. */
typedef struct sums {
  const tfd__group *group;
  const tfd__collective *c;
  int next;        /* value that is looked at next */
  int64_t ints[3]; /* mean, range */
  tfd__view views[2 * TFD_MAX_LOCAL_RANKS];
} sums;

static bool is_summed(const sums *s, int k) {
  return adds_up(tfd__given(s->group, s->c, k, 0)->view->dtype, s->c->op);
}

static void next_sum(void *arg, int k, tfd__fused_call *f) {
  sums *s = arg;
  const tfd__group *g = s->group;
  int i;

  (void)k;
  while (!is_summed(s, s->next)) s->next++;
  for (i = 0; i < g->local; i++) {
    tfd__view_copy(&s->views[i], tfd__given(g, s->c, s->next, i)->view);
    tfd__view_copy(&s->views[g->local + i],
                   tfd__gotten(g, s->c, s->next, i)->view);
  }
  s->next++;
  f->call = (tfd__call){.name = s->c->what,
                        .views = s->views,
                        .ints = s->ints,
                        .ints_n = 3,
                        .in_n = (int16_t)g->local,
                        .out_n = (int16_t)g->local,
                        .replica = -1,
                        .line = s->c->line,
                        .file = s->c->file};
  f->range = &s->ints[1];
  f->numel = s->views[0].numel;
}

/* Results are there once their device has passed the last fence. Memory that
** held values before keeps them when the call is dropped. */
static void mark_written(const tfd__group *g, const tfd__collective *c, int k) {
  int i;

  for (i = 0; i < g->local; i++) {
    tfd__buffer *out = tfd__gotten(g, c, k, i)->buffer;
    uint64_t seq = tfd__stream_seq(g->devices[i]);

    if (out == tfd__given(g, c, k, i)->buffer) {
      out->use_seq = seq;
    } else {
      tfd__buffer_made(out, seq);
    }
  }
}

static int sum_together(tfd__group *g, const tfd__collective *c, int n,
                        int64_t elements) {
  sums s; /* whose views are set one by one: there is room for many */
  tfd__fused f = {.kernel = TFD_KERNEL_sum_parts,
                  .calls = n,
                  .elements = elements,
                  .call = next_sum,
                  .arg = &s};
  int k;

  s.group = g;
  s.c = c;
  s.next = 0;
  s.ints[0] = c->op == TFD_REDUCE_MEAN;
  TFD_TRY(fuse(g, &f));
  for (k = 0; k < c->values; k++) {
    if (is_summed(&s, k)) mark_written(g, c, k);
  }
  return TFD_OK;
}

/* Value k on the first rank's device, then on all. */
static int reduce_and_copy(tfd__group *g, const tfd__collective *c, int k) {
  tfd__run_of in[TFD_MAX_LOCAL_RANKS];
  tfd__run_of result = {0};
  const tfd__view *v = tfd__given(g, c, k, 0)->view;
  int rc;
  int i;

  if (v->numel == 0) return TFD_OK;
  for (i = 0; i < g->local; i++) {
    in[i] = tfd__part_of(tfd__given(g, c, k, i), 0, v->numel);
  }
  TFD_TRY(tfd__run_new(g->devices[0], v->dtype, v->numel, &result));
  rc = tfd__reduce_runs(c, in, g->local, &result);
  for (i = 0; rc == TFD_OK && i < g->local; i++) {
    tfd__run_of to = tfd__part_of(tfd__gotten(g, c, k, i), 0, v->numel);

    rc = tfd__run_copy(&to, &result);
  }
  tfd__release(result.buffer);
  return rc;
}

static int all_reduce(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  bool together = can_fuse(g, TFD_KERNEL_sum_parts);
  int64_t elements = 0;
  int n = 0;
  int k;

  (void)t;
  for (k = 0; k < c->values; k++) {
    const tfd__view *v = tfd__given(g, c, k, 0)->view;

    if (!together || !adds_up(v->dtype, c->op)) {
      TFD_TRY(reduce_and_copy(g, c, k));
      continue;
    }
    n++;
    if (elements < TFD_SHARED_ELEMENTS) elements += v->numel;
  }
  return n == 0 ? TFD_OK : sum_together(g, c, n, elements);
}

/* --- the others ----------------------------------------------------------- */

/* Elements [begin, begin + n) of value k, reduced on local rank `rank`. */
static int reduce_part(tfd__group *g, const tfd__collective *c, int k, int rank,
                       int64_t begin, int64_t n) {
  tfd__run_of in[TFD_MAX_LOCAL_RANKS];
  tfd__run_of to = tfd__part_of(tfd__gotten(g, c, k, rank), 0, n);
  int i;

  for (i = 0; i < g->local; i++) {
    in[i] = tfd__part_of(tfd__given(g, c, k, i), begin, n);
  }
  return tfd__reduce_runs(c, in, g->local, &to);
}

static int reduce(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  int k;

  (void)t;
  for (k = 0; k < c->values; k++) {
    int64_t n = tfd__given(g, c, k, 0)->view->numel;

    TFD_TRY(reduce_part(g, c, k, c->root, 0, n));
  }
  return TFD_OK;
}

static int reduce_scatter(tfd__group *g, const tfd__collective *c,
                          tfd__ticket *t) {
  int k;
  int i;

  (void)t;
  for (k = 0; k < c->values; k++) {
    int64_t n = tfd__given(g, c, k, 0)->view->numel / g->size;

    for (i = 0; i < g->local; i++) {
      TFD_TRY(reduce_part(g, c, k, i, i * n, n));
    }
  }
  return TFD_OK;
}

static int broadcast(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  int k;
  int i;

  (void)t;
  for (k = 0; k < c->values; k++) {
    const tfd__piece *in = tfd__given(g, c, k, c->root);
    tfd__run_of from = tfd__part_of(in, 0, in->view->numel);

    for (i = 0; i < g->local; i++) {
      tfd__run_of to =
          tfd__part_of(tfd__gotten(g, c, k, i), 0, in->view->numel);

      TFD_TRY(tfd__run_copy(&to, &from));
    }
  }
  return TFD_OK;
}

static int all_gather(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  int k;
  int i;
  int r;

  (void)t;
  for (k = 0; k < c->values; k++) {
    int64_t at = 0;

    for (r = 0; r < g->size; r++) {
      int64_t n = tfd__gather_count(g, c, k, r);
      tfd__run_of from = tfd__part_of(tfd__given(g, c, k, r), 0, n);

      for (i = 0; i < g->local; i++) {
        tfd__run_of to = tfd__part_of(tfd__gotten(g, c, k, i), at, n);

        TFD_TRY(tfd__run_copy(&to, &from));
      }
      at += n;
    }
  }
  return TFD_OK;
}

static int pieces(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  int k;

  (void)t;
  for (k = 0; k < c->values; k++) TFD_TRY(tfd__move_own_pieces(g, c, k));
  return TFD_OK;
}

static int barrier(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  (void)c;
  (void)t;
  return fence(g);
}

const tfd__provider tfd__shared_provider = {
    .abi = TFD_PROVIDER_ABI,
    .name = "shared",
    .score = 100,
    .ordered = true,
    .scatters_alike = true,
    .can = can,
    .begin = {[TFD_COLLECTIVE_ALL_REDUCE] = all_reduce,
              [TFD_COLLECTIVE_REDUCE] = reduce,
              [TFD_COLLECTIVE_BROADCAST] = broadcast,
              [TFD_COLLECTIVE_ALL_GATHER] = all_gather,
              [TFD_COLLECTIVE_REDUCE_SCATTER] = reduce_scatter,
              [TFD_COLLECTIVE_BARRIER] = barrier,
              [TFD_COLLECTIVE_GATHER] = pieces,
              [TFD_COLLECTIVE_SCATTER] = pieces},
    .can_fuse = can_fuse,
    .fuse = fuse,
};

int tfd__shared_run(tfd__group *g, const tfd__collective *c) {
  return tfd__shared_provider.begin[c->kind](g, c, NULL);
}
