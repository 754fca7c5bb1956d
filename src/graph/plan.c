/* The memory plan: where in the arena each stretch lies.
**
** Largest first, among equals the longest-lived: what is hard to place comes
** while there is room everywhere. Each goes to the lowest gap between those
** placed before that live at the same time.
** Cost: each stretch is compared with all placed before it, once for each gap
** tried; some thousands of stretches take milliseconds, once for a trace. */
#include <stdlib.h>

#include "graph/graph.h"

static size_t padded(const tfd__stretch *s) {
  size_t n = s->bytes > 0 ? s->bytes : 1;

  return (n + TFD_ARENA_ALIGN - 1) / TFD_ARENA_ALIGN * TFD_ARENA_ALIGN;
}

static int harder(const void *x, const void *y) {
  const tfd__stretch *a = *(tfd__stretch *const *)x;
  const tfd__stretch *b = *(tfd__stretch *const *)y;
  int lives = (b->last - b->first) - (a->last - a->first);

  if (padded(a) != padded(b)) return padded(a) < padded(b) ? 1 : -1;
  if (lives != 0) return lives;
  return a->first - b->first;
}

static bool live_at_once(const tfd__stretch *a, const tfd__stretch *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* By offset, so that gaps are found in one pass. */
static void insert(tfd__stretch **placed, int n, tfd__stretch *s) {
  while (n > 0 && placed[n - 1]->offset > s->offset) {
    placed[n] = placed[n - 1];
    n--;
  }
  placed[n] = s;
}

static void place(tfd__stretch **placed, int n, tfd__stretch *s) {
  size_t at = 0;
  int i;

  for (i = 0; i < n; i++) {
    const tfd__stretch *other = placed[i];
    size_t end = other->offset + padded(other);

    if (!live_at_once(s, other) || end <= at) continue;
    if (at + padded(s) <= other->offset) break;
    at = end;
  }
  s->offset = at;
}

static void place_apart(tfd__stretch *stretches, int n, size_t *bytes_p) {
  int i;

  *bytes_p = 0;
  for (i = 0; i < n; i++) {
    stretches[i].offset = *bytes_p;
    *bytes_p += padded(&stretches[i]);
  }
}

int tfd__plan(tfd__stretch *stretches, int n, bool apart, size_t *bytes_p) {
  tfd__stretch **order = NULL;
  tfd__stretch **placed = NULL;
  int i;

  if (apart) {
    place_apart(stretches, n, bytes_p);
    return TFD_OK;
  }
  order = tfd__alloc(((size_t)n * 2 + 1) * sizeof(void *));
  if (order == NULL) return tfd__no_memory((size_t)n * 16, "graph");
  placed = order + n;
  for (i = 0; i < n; i++) order[i] = &stretches[i];
  qsort(order, (size_t)n, sizeof(void *), harder);
  *bytes_p = 0;
  for (i = 0; i < n; i++) {
    size_t end = 0;

    place(placed, i, order[i]);
    insert(placed, i, order[i]);
    end = order[i]->offset + padded(order[i]);
    if (end > *bytes_p) *bytes_p = end;
  }
  tfd__free(order);
  return TFD_OK;
}
