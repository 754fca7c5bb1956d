/* Plans of blocks.h over their rows. */
#include "backend/blocks.h"

#include <string.h>

#include "backend/cpu/cpu.h"

typedef struct job {
  const tfd__blocks *p;
  const tfd__view *given;
  char *own;       /* memory of all pieces */
  float *sums;     /* of each TFD_BLOCKS_SUM rows */
  int64_t share;   /* rows that one thread does */
  atomic_int next; /* piece that takes its part */
  atomic_int rc;
} job;

static size_t own_bytes(const tfd__blocks *p) {
  return (p->bytes + 63) / 64 * 64;
}

/* The views of rows begin .. end - 1. */
static void cut(const job *j, char *own, int64_t begin, int64_t end,
                tfd__view *views) {
  const tfd__blocks *p = j->p;
  int i;

  for (i = 0; i < p->views_n; i++) {
    const tfd__block_view *lies = &p->lies[i];

    views[i].data = lies->inside >= 0
                        ? own + lies->inside
                        : (char *)j->given[i].data +
                              (lies->has_rows ? begin * lies->pitch : 0);
    if (!lies->has_rows) continue;
    views[i].dims[0] = end - begin;
    tfd__view_refresh(&views[i]);
  }
}

/* Rows first .. last - 1 at `rows` go to the sums of their stretches. */
static void add_up(const job *j, const tfd__block_sum *s, const float *rows,
                   int64_t first, int64_t last) {
  int64_t next = 0;

  for (; first < last; first = next) {
    float *acc = j->sums + first / TFD_BLOCKS_SUM * j->p->sums_n + s->at;

    next = (first / TFD_BLOCKS_SUM + 1) * TFD_BLOCKS_SUM;
    if (next > last) next = last;
    if (first % TFD_BLOCKS_SUM == 0) {
      memset(acc, 0, (size_t)s->width * sizeof *acc);
    }
    tfd__columns_add(acc, rows, next - first, s->width);
    rows += (next - first) * s->width;
  }
}

static int run_calls(const job *j, const tfd__view *views, int64_t first,
                     int64_t last) {
  const tfd__blocks *p = j->p;
  int rc = TFD_OK;
  int i;

  for (i = 0; i < p->calls_n && rc == TFD_OK; i++) {
    tfd__call call = p->calls[i];

    call.views = views + (call.views - p->views);
    if (p->sums[i].width > 0) {
      add_up(j, &p->sums[i], call.views[0].data, first, last);
    } else {
      rc = call.kernel(&call);
    }
  }
  return rc;
}

static void run_blocks(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  const tfd__blocks *p = j->p;
  char *own = j->own + (size_t)atomic_fetch_add(&j->next, 1) * own_bytes(p);
  int64_t rows = end * j->share < p->rows ? end * j->share : p->rows;
  int64_t first = begin * j->share;
  tfd__view views[TFD_BLOCKS_VIEWS];
  int rc = TFD_OK;

  memcpy(views, p->views, (size_t)p->views_n * sizeof *views);
  for (; first < rows && rc == TFD_OK; first += p->rows_each) {
    int64_t last = first + p->rows_each;

    if (last > rows) last = rows;
    cut(j, own, first, last, views);
    rc = run_calls(j, views, first, last);
  }
  if (rc != TFD_OK) atomic_store(&j->rc, rc);
}

/* The results of calls that add up rows. */
static void end_sums(const job *j) {
  const tfd__blocks *p = j->p;
  int i;

  for (i = 0; i < p->calls_n; i++) {
    const tfd__block_sum *s = &p->sums[i];

    if (s->width == 0) continue;
    tfd__columns_end(j->sums + s->at, p->sums_n, p->rows, s->width, s->mean,
                     j->given + (p->calls[i].views - p->views) + 1);
  }
}

int tfd__cpu_row_blocks(const tfd__call *call) {
  const tfd__blocks *p = (const tfd__blocks *)(intptr_t)call->ints[0];
  job j = {.p = p, .given = call->views, .share = p->rows_each};
  size_t own = (size_t)tfd__threads_get() * own_bytes(p);
  int64_t stretches = (p->rows + TFD_BLOCKS_SUM - 1) / TFD_BLOCKS_SUM;
  size_t sums = (size_t)(stretches * p->sums_n) * sizeof *j.sums;

  if (sums > 0 && j.share < TFD_BLOCKS_SUM) j.share = TFD_BLOCKS_SUM;
  atomic_init(&j.next, 0);
  atomic_init(&j.rc, TFD_OK);
  j.own = tfd__scratch(own + sums);
  if (j.own == NULL) return TFD_RESOURCE_EXHAUSTED;
  j.sums = (float *)(void *)(j.own + own);
  tfd__parallel_for((p->rows + j.share - 1) / j.share, 1, run_blocks, &j);
  if (atomic_load(&j.rc) != TFD_OK) {
    return tfd__no_memory(own_bytes(p), "fused ops");
  }
  end_sums(&j);
  return TFD_OK;
}
