#include "autograd/tape.h"

#include <string.h>

#define MIN_BITS 6
/* Cells of at most 128 KiB are kept for the thread's next tape. */
#define KEPT_BITS 13

static _Thread_local tfd__id_map kept;
static _Thread_local tfd__own_end own_end;

static void free_kept(void) {
  tfd__free(kept.cells);
  memset(&kept, 0, sizeof kept);
}

/* The kept cells under a new stamp, if there are enough of them. */
static bool take_kept(tfd__id_map *m, int bits) {
  if (kept.bits < bits || kept.stamp == UINT32_MAX) return false;
  *m = kept;
  m->n = 0;
  m->stamp++;
  memset(&kept, 0, sizeof kept);
  return true;
}

static int resize(tfd__id_map *m, int bits) {
  tfd__id_map bigger = {.bits = bits, .stamp = 1};
  uint32_t n = m->bits > 0 ? UINT32_C(1) << m->bits : 0;
  uint32_t i;

  bigger.cells = tfd__calloc((size_t)1 << bits, sizeof *bigger.cells);
  if (bigger.cells == NULL) {
    return tfd__no_memory(sizeof *bigger.cells << bits, "gradient tape");
  }
  for (i = 0; i < n; i++) {
    if (m->cells[i].stamp != m->stamp) continue;
    tfd__ids_set(&bigger, m->cells[i].id, m->cells[i].slot);
  }
  tfd__free(m->cells);
  *m = bigger;
  return TFD_OK;
}

int tfd__ids_grow(tfd__id_map *m, uint32_t more) {
  uint64_t want = ((uint64_t)m->n + more) * 2;
  int bits = m->bits > 0 ? m->bits : MIN_BITS;

  while (want > UINT64_C(1) << bits) bits++;
  if (bits > 31) {
    return tfd__fail(TFD_RESOURCE_EXHAUSTED,
                     "gradient tape: more than %u values on one tape", m->n);
  }
  if (m->bits == 0 && take_kept(m, bits)) return TFD_OK;
  return resize(m, bits);
}

void tfd__ids_free(tfd__id_map *m) {
  tfd__id_map spare = *m;

  if (m->bits > kept.bits && m->bits <= KEPT_BITS) {
    spare = kept;
    kept = *m;
    tfd__at_end(&own_end, free_kept);
  }
  tfd__free(spare.cells);
  memset(m, 0, sizeof *m);
}
