/* A program's calls on its stream: one after the other, or on a device that
** starts launches which come again at once (tfd__launcher): stretches of calls
** are recorded, as few as can be. Calls whose attributes change from call to
** call, and those that no record takes, stand between them and are launched as
** ever.
**
** Records are of addresses. Arguments and results that lie elsewhere each time
** get a home, memory of the program: they are copied there first, or from there
** at last. */
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

/* Fewer calls are no gain. */
enum { LEAST = 2 };

/* More is not copied. */
enum { MOST = 16 << 20 /* bytes */ };

/* --- calls ---------------------------------------------------------------- */

static int blame(const tfd__call *call, int rc) {
  char where[256] = "";

  if (call->file != NULL && call->line > 0) {
    (void)snprintf(where, sizeof where, "%s:%d", call->file, call->line);
  }
  (void)tfd__error_set_place(call->replica, where);
  (void)tfd__error_set_note(call->note);
  (void)tfd__blame(call->name, NULL, -1);
  return rc;
}

/* A name may be the program's own, which the timeline outlives. */
TFD_COLD static void note_call(const tfd__call *call, int64_t begin) {
  tfd__span_end(TFD_SPAN_OP, tfd__span_name(call->name), begin, call->replica);
}

/* Calls first .. first + n - 1; *at_p is the one that failed. */
static int run_calls(tfd__program *p, const tfd__call *outer, int first, int n,
                     int *at_p) {
  int i;

  for (i = first; i < first + n; i++) {
    tfd__call *call = &p->calls[i];
    int64_t begin = tfd__span_begin();
    int rc;

    call->stream = outer->stream;
    rc = call->kernel(call);
    tfd__scratch_reset();
    if (!TFD_LIKELY(begin == 0)) note_call(call, begin);
    if (!TFD_LIKELY(rc == TFD_OK)) {
      *at_p = i;
      return blame(call, rc);
    }
  }
  return TFD_OK;
}

/* Is one of the call's attributes another one each time? */
static bool varies(const tfd__program *p, const tfd__call *call) {
  int64_t ints = call->ints - p->ints;
  int64_t reals = call->reals - p->reals;
  int i;

  for (i = 0; i < p->redraws_n; i++) {
    if (p->redraws[i].to >= ints && p->redraws[i].to < ints + call->ints_n) {
      return true;
    }
  }
  for (i = 0; i < p->renumbers_n; i++) {
    const tfd__renumber *r = &p->renumbers[i];

    if (r->varies && r->to < reals + call->reals_n && r->to + r->n > reals) {
      return true;
    }
  }
  return false;
}

static void free_records(tfd__program *p) {
  int i;

  for (i = 0; i < p->batches_n; i++) {
    if (p->batches[i].kept == NULL) continue;
    p->device->backend->launcher->free(p->batches[i].kept);
  }
  p->batches_n = 0;
}

static int slots_n(const tfd__program *p) {
  return p->inputs_n + p->variables_n + p->fresh_n;
}

void tfd__launches_free(tfd__program *p) {
  int i;

  free_records(p);
  for (i = 0; p->homes != NULL && i < slots_n(p); i++) {
    tfd__release(p->homes[i]);
  }
  tfd__free(p->homes);
  tfd__free(p->at_home);
  tfd__free(p->batches);
  tfd__free(p->apart);
}

/* --- homes -----------------------------------------------------------------
 */

static bool make_homes(tfd__program *p) {
  size_t n = (size_t)slots_n(p);

  if (p->homes == NULL) p->homes = tfd__calloc(n, sizeof(tfd__buffer *));
  if (p->at_home == NULL) p->at_home = tfd__calloc(n, sizeof *p->at_home);
  return p->homes != NULL && p->at_home != NULL;
}

void tfd__launches_see(tfd__program *p, int i, const void *data, size_t bytes) {
  if (!p->ran || p->homeless || bytes > MOST ||
      p->frame[TFD_FRAME_SLOTS + i] == (int64_t)(uintptr_t)data) {
    return;
  }
  if (p->homes != NULL && p->homes[i] != NULL) return;
  if (!make_homes(p) ||
      tfd__buffer_new(p->device, bytes, &p->homes[i]) != TFD_OK) {
    p->homeless = true;
  }
}

const int64_t *tfd__launches_slots(tfd__program *p, const int64_t *slots) {
  int i;

  if (p->homes == NULL || p->at_home == NULL) return slots;
  for (i = 0; i < slots_n(p); i++) {
    p->at_home[i] =
        p->homes[i] == NULL ? slots[i] : (int64_t)(uintptr_t)p->homes[i]->data;
  }
  return p->at_home;
}

void tfd__launches_made(const tfd__program *p, uint64_t seq) {
  int i;

  for (i = 0; p->homes != NULL && i < slots_n(p); i++) {
    if (p->homes[i] != NULL) tfd__buffer_made(p->homes[i], seq);
  }
}

static int copy(const tfd__call *outer, const tfd__program *p, int64_t to,
                int64_t from, size_t bytes) {
  tfd__view views[2] = {0};
  int64_t dims[1] = {(int64_t)bytes};
  tfd__call call = {.name = "copy",
                    .kernel = p->device->backend->kernels[TFD_KERNEL_copy],
                    .views = views,
                    .in_n = 1,
                    .out_n = 1,
                    .replica = outer->replica,
                    .stream = outer->stream};

  TFD_TRY(tfd__view_set(&views[0], TFD_UINT8, dims, 1));
  views[1] = views[0];
  views[0].data = (void *)(uintptr_t)from;
  views[1].data = (void *)(uintptr_t)to;
  return call.kernel(&call);
}

/* Slots first .. end - 1: arguments into their homes, or results out. */
static int move(const tfd__call *outer, const tfd__program *p,
                const int64_t *slots, int first, int end, bool in) {
  int i;

  for (i = first; p->homes != NULL && i < end; i++) {
    const tfd__buffer *home = p->homes[i];

    if (home == NULL) continue;
    TFD_TRY(in ? copy(outer, p, p->at_home[i], slots[i], home->bytes)
               : copy(outer, p, slots[i], p->at_home[i], home->bytes));
  }
  return TFD_OK;
}

/* --- records ---------------------------------------------------------------
 */

static int find_batches(tfd__program *p) {
  int k;

  if (p->apart == NULL) {
    p->apart = tfd__calloc((size_t)p->calls_n + 1, sizeof *p->apart);
    if (p->apart == NULL) return tfd__no_memory((size_t)p->calls_n, "graph");
  }
  TFD_TRY(TFD_GROW(p->batches, p->calls_n));
  for (k = 0; k < p->calls_n; k++) {
    bool apart = p->apart[k] || varies(p, &p->calls[k]);
    tfd__batch *b = &p->batches[p->batches_n];

    if (p->batches_n > 0 && b[-1].apart == apart) {
      b[-1].n++;
    } else {
      *b = (tfd__batch){.first = k, .n = 1, .apart = apart};
      p->batches_n++;
    }
  }
  p->batches_stale = false;
  return TFD_OK;
}

/* A call that cannot be recorded splits its batch from the next time on. */
static int run_batch(tfd__program *p, tfd__batch *b, const tfd__call *outer,
                     const int64_t *slots) {
  const tfd__launcher *launcher = p->device->backend->launcher;
  tfd__launching what = TFD_LAUNCH_RUNS;
  int at = b->first;
  int rc;

  if (b->n >= LEAST && !b->apart) {
    what = launcher->begin(outer->stream, &b->kept, slots, slots_n(p));
  }
  if (what == TFD_LAUNCH_DONE) return TFD_OK;
  rc = run_calls(p, outer, b->first, b->n, &at);
  if (what == TFD_LAUNCH_RUNS) return rc;
  if (launcher->end(outer->stream, b->kept, rc == TFD_OK)) return TFD_OK;
  if (rc != TFD_OK) p->apart[at] = p->batches_stale = true;
  return run_calls(p, outer, b->first, b->n, &at);
}

static int run_batches(tfd__program *p, const tfd__call *outer,
                       const int64_t *slots) {
  int i;

  if (p->batches_stale) free_records(p);
  if (p->batches_n == 0) TFD_TRY(find_batches(p));
  for (i = 0; i < p->batches_n; i++) {
    TFD_TRY(run_batch(p, &p->batches[i], outer, slots));
  }
  return TFD_OK;
}

int tfd__launches_run(tfd__program *p, const tfd__call *outer,
                      const int64_t *slots, int first, int end) {
  int results = p->inputs_n + p->variables_n;
  int at = 0;

  if (p->device->backend->launcher == NULL) {
    return run_calls(p, outer, first, end - first, &at);
  }
  TFD_TRY(move(outer, p, slots, 0, p->inputs_n, true));
  if (tfd__span_begin() != 0) { /* a timeline shows each call */
    TFD_TRY(run_calls(p, outer, 0, p->calls_n, &at));
  } else {
    TFD_TRY(run_batches(p, outer, tfd__launches_slots(p, slots)));
  }
  return move(outer, p, slots, results, slots_n(p), false);
}

int tfd__launches_kept(const tfd__program *p, int *calls_p) {
  int n = 0;
  int i;

  *calls_p = 0;
  for (i = 0; i < p->batches_n; i++) {
    const tfd__batch *b = &p->batches[i];

    if (b->kept == NULL) continue;
    if (p->device->backend->launcher->kept(b->kept) == 0) continue;
    *calls_p += b->n;
    n++;
  }
  return n;
}
