/* Pieces of the ranks' own lengths, one behind the other. */
#include "base/crc32c.h"
#include "comm/private.h"

int64_t tfd__gather_count(const tfd__group *g, const tfd__collective *c, int k,
                          int r) {
  if (c->counts != NULL) return c->counts[(ptrdiff_t)k * g->size + r];
  return tfd__leader(g, c, k)->view->numel;
}

tfd__stretch tfd__gathered(const tfd__group *g, const tfd__collective *c, int k,
                           int r) {
  tfd__stretch s = {0, 0};
  int i;

  for (i = 0; i < r; i++) s.begin += tfd__gather_count(g, c, k, i);
  s.end = s.begin + tfd__gather_count(g, c, k, r);
  return s;
}

uint32_t tfd__counts_sum(const tfd__group *g, const tfd__collective *c, int k) {
  if (c->counts == NULL) return 0;
  return tfd__crc32c(0, c->counts + (ptrdiff_t)k * g->size,
                     (size_t)g->size * sizeof *c->counts);
}

tfd__run_of tfd__piece_at(const tfd__group *g, const tfd__collective *c, int k,
                          int r, bool at_root) {
  bool gathers = c->kind == TFD_COLLECTIVE_GATHER;
  int i = (at_root ? c->root : r) - g->base;
  tfd__stretch s = tfd__gathered(g, c, k, r);

  return tfd__part_of(gathers == at_root ? tfd__gotten(g, c, k, i)
                                         : tfd__given(g, c, k, i),
                      at_root ? s.begin : 0, s.end - s.begin);
}

int tfd__move_own_pieces(const tfd__group *g, const tfd__collective *c, int k) {
  bool gathers = c->kind == TFD_COLLECTIVE_GATHER;
  int r;

  if (c->root / g->local != g->base / g->local) return TFD_OK;
  for (r = g->base; r < g->base + g->local; r++) {
    tfd__run_of from = tfd__piece_at(g, c, k, r, !gathers);
    tfd__run_of to = tfd__piece_at(g, c, k, r, gathers);

    TFD_TRY(tfd__run_copy(&to, &from));
  }
  return TFD_OK;
}
